// Workflows: what is stored, and one of them drawn layer by layer with the states of a run.

import { get, may, post } from "../api.js";
import { h } from "../dom.js";
import { drawing } from "../graph.js";
import { look } from "../main.js";
import { badge } from "../states.js";
import { between, now, span, when } from "../times.js";
import { attempt, button, confirm, copied, empty, facts, json, link, pager, panel, place, quoted, table, time } from "../widgets.js";

const list = {
  title: () => "Workflows",
  every: 10,
  load: (_path, params) => get(["workflows"], { cursor: params.cursor }),
  view(data, _path, params, go) {
    const rows = data.workflows.map((one) => ({ key: one.workflow, to: place("workflows", one.workflow), cells: [link(place("workflows", one.workflow), one.workflow), `v${one.version}`, time(one.at), h("span", { class: "names" }, one.schedules.length ? one.schedules.map((name) => link(place("schedules", name), name)) : h("span", { class: "mute" }, "only when asked"))] }));
    return h("div", { class: "screen" }, rows.length ? panel("Workflows", table("workflows", [{ name: "workflow" }, { name: "version", kind: "tight" }, { name: "since", kind: "tight" }, { name: "by schedule" }], rows)) : empty("No workflow is stored. To store one:", "timewright workflow put --file workflow.yaml"), pager(data, params, go));
  },
};

// The runs of a workflow are those of its schedules and those started by hand; the newest is drawn unless another is asked for.
async function runsOf(name, schedules) {
  const pages = await Promise.all([...schedules.slice(0, 5).map((one) => get(["runs"], { schedule: one, limit: 8 }).catch(() => ({ runs: [] }))), get(["runs"], { state: "leased", limit: 100 }).catch(() => ({ runs: [] }))]);
  const named = pages.slice(0, -1).flatMap((page) => page.runs);
  const maybe = pages[pages.length - 1].runs.filter((run) => run.source === "manual" && !run.schedule && !run.queue).slice(0, 5);
  const ours = await Promise.all(maybe.map((run) => get(["workflows", name, "graph"], { run: run.id }).then(() => true, () => false)));
  const byHand = maybe.filter((_, n) => ours[n]);
  return [...named, ...byHand].filter((run) => run.started_at || run.state === "leased").sort((a, b) => (a.planned_at < b.planned_at ? 1 : -1)).slice(0, 12);
}

const one = {
  title: ([name]) => name,
  every: 4,
  async load([name], params) {
    const detail = await get(["workflows", name]);
    const runs = await runsOf(name, Object.keys(detail.schedules));
    const run = params.run || (runs[0] && runs[0].id);
    const plain = () => get(["workflows", name, "graph"]);
    const graph = await (run ? get(["workflows", name, "graph"], { run }).catch(plain) : plain());
    return { detail, graph, runs };
  },
  view({ detail, graph, runs }, [name], params, go) {
    const run = async () => {
      const answer = await confirm({ title: `Run ${name} now?`, act: "run now", reason: true, command: `timewright workflow run ${quoted(name)}` });
      const made = answer && (await attempt(() => post(["workflows", name, "run"], answer.reason ? { reason: answer.reason } : {}), "started"));
      if (made) { go({ ...params, run: made.run.id }); look(); }
    };
    const drawn = graph.run ? runs.find((one) => one.id === graph.run) : null;
    const done = graph.steps.filter((step) => ["succeeded", "skipped"].includes(step.state)).length;
    return h("div", { class: "screen" }, may("trigger") ? h("div", { class: "buttons" }, button("run now", run, { kind: "main" }), drawn && drawn.state === "leased" ? under(drawn.id) : null) : null,
      panel("Steps", h("div", null, drawing(graph), graph.run ? null : copied(`timewright workflow graph ${quoted(name)}`)), { note: graph.run ? `as in run …${graph.run.slice(-6)}${drawn ? `, planned ${when(drawn.planned_at)}` : ""}: ${done} of ${graph.steps.length} done` : `version ${graph.version}`, more: graph.run ? link(place("runs", graph.run), "the run") : null }),
      h("div", { class: "columns" },
        h("div", null, panel("Runs", runs.length ? table("runs", [{ name: "planned", kind: "tight" }, { name: "fate", kind: "tight" }, { name: "took" }, { name: "" }], runs.map((each) => ({ key: each.id, cells: [link(place("runs", each.id), time(each.planned_at)), badge(each.state, each.reason), span(between(each.started_at, each.finished_at || new Date(now()).toISOString())), each.id === graph.run ? h("span", { class: "mute" }, "drawn above") : button("draw", () => go({ ...params, run: each.id }), { kind: "quiet" })] }))) : h("p", { class: "mute" }, "it has not run yet"))),
        h("div", null, panel("Each step", table("steps", [{ name: "step" }, { name: "state", kind: "tight" }, { name: "needs" }, { name: "why" }], graph.steps.map((step) => ({ key: step.step, to: step.run ? place("runs", step.run) : null, cells: [step.run ? link(place("runs", step.run), step.step) : step.step, step.state ? badge(step.state) : "", step.needs.join(", "), h("span", { class: "ellipsis", title: step.reason }, step.reason)] })))),
          panel("What it says", h("div", null, facts([["version", `${detail.version}${detail.newest !== detail.version ? ` of ${detail.newest}` : ""}`], ["since", time(detail.at)], ["schedules", h("span", { class: "names" }, Object.keys(detail.schedules).map((each) => link(place("schedules", each), each)))]]), h("details", null, h("summary", null, "all of it"), json(detail.workflow)))))));
  },
};

// What can be done with the run that is drawn, while it is under way.
function under(run) {
  const act = (verb, said, path, text, danger) => button(said, async () => {
    const answer = await confirm({ title: `${said}?`, text, act: verb, reason: true, danger, command: `timewright ${path[0].slice(0, -1)} ${verb} ${run}` });
    if (answer && (await attempt(() => post([...path, verb], answer.reason ? { reason: answer.reason } : {}), `${verb}: done`))) look();
  });
  return [act("pause", "pause this run", ["workflows", run], "No further step starts; what is under way goes on."), act("resume", "resume this run", ["workflows", run], "Its steps go on where they stopped; a run that is not paused stays as it is."), act("cancel", "cancel this run", ["runs", run], "No further step starts, and what is under way is asked to stop.", true)];
}

export const pick = (path) => (path.length ? one : list);
