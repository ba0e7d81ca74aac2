// Workflows: what is stored, and one of them drawn layer by layer with the states of a run.

import { get, may, post } from "../api.js";
import { h } from "../dom.js";
import { look } from "../main.js";
import { badge, sign, tone, word } from "../states.js";
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
    return h("div", { class: "screen" }, may("trigger") ? h("div", { class: "buttons" }, button("run now", run, { kind: "main" })) : null,
      panel("Steps", h("div", null, drawing(graph), graph.run ? null : copied(`timewright workflow graph ${quoted(name)}`)), { note: graph.run ? `as in run …${graph.run.slice(-6)}${drawn ? `, planned ${when(drawn.planned_at)}` : ""}: ${done} of ${graph.steps.length} done` : `version ${graph.version}`, more: graph.run ? link(place("runs", graph.run), "the run") : null }),
      h("div", { class: "columns" },
        h("div", null, panel("Runs", runs.length ? table("runs", [{ name: "planned", kind: "tight" }, { name: "fate", kind: "tight" }, { name: "took" }, { name: "" }], runs.map((each) => ({ key: each.id, cells: [link(place("runs", each.id), time(each.planned_at)), badge(each.state, each.reason), span(between(each.started_at, each.finished_at || new Date(now()).toISOString())), each.id === graph.run ? h("span", { class: "mute" }, "drawn above") : button("draw", () => go({ ...params, run: each.id }), { kind: "quiet" })] }))) : h("p", { class: "mute" }, "it has not run yet"))),
        h("div", null, panel("Each step", table("steps", [{ name: "step" }, { name: "state", kind: "tight" }, { name: "needs" }, { name: "why" }], graph.steps.map((step) => ({ key: step.step, to: step.run ? place("runs", step.run) : null, cells: [step.run ? link(place("runs", step.run), step.step) : step.step, step.state ? badge(step.state) : "", step.needs.join(", "), h("span", { class: "ellipsis", title: step.reason }, step.reason)] })))),
          panel("What it says", h("div", null, facts([["version", `${detail.version}${detail.newest !== detail.version ? ` of ${detail.newest}` : ""}`], ["since", time(detail.at)], ["schedules", h("span", { class: "names" }, Object.keys(detail.schedules).map((each) => link(place("schedules", each), each)))]]), h("details", null, h("summary", null, "all of it"), json(detail.workflow)))))));
  },
};

const WIDE = 190, TALL = 62, BOX = 156, HIGH = 42;

// Layers from left to right, each in the middle of its column; a line from each step to those that need it.
export function drawing(graph) {
  const layers = new Map();
  for (const step of graph.steps) layers.set(step.layer, [...(layers.get(step.layer) || []), step]);
  const most = Math.max(1, ...[...layers.values()].map((layer) => layer.length));
  const spots = new Map();
  for (const [layer, steps] of layers) steps.forEach((step, n) => spots.set(step.step, { step, x: (layer - 1) * WIDE + 6, y: 6 + ((most - steps.length) / 2 + n) * TALL }));
  const width = layers.size * WIDE - (WIDE - BOX) + 12, height = most * TALL - (TALL - HIGH) + 12;
  const lines = [...spots.values()].flatMap(({ step, x, y }) => step.needs.map((need) => spots.get(need)).filter(Boolean).map((from) =>
    h("path", { d: `M${from.x + BOX} ${from.y + HIGH / 2} C ${from.x + BOX + 18} ${from.y + HIGH / 2}, ${x - 18} ${y + HIGH / 2}, ${x} ${y + HIGH / 2}`, class: "edge" })));
  const boxes = [...spots.values()].map(({ step, x, y }) => {
    const state = step.state ? `${sign(step.state)} ${word(step.state)}${step.left ? `, ${step.left} left` : ""}` : "";
    const box = h("g", null, h("title", null, `${step.step}${state ? `: ${word(step.state)}` : ""}${step.reason ? `\n${step.reason}` : ""}`), h("rect", { x, y, width: BOX, height: HIGH, rx: 7, class: `step stroke-${tone(step.state)}` }),
      h("text", { x: x + 11, y: y + (state ? 18 : 26), class: "name" }, cut(step.step)), state ? h("text", { x: x + 11, y: y + 33, class: `said fill-${tone(step.state)}` }, state) : null);
    return step.run ? h("svg:a", { href: `#${place("runs", step.run)}`, "aria-label": `${step.step}: ${word(step.state)}` }, box) : box;
  });
  return h("div", { class: "scroll" }, h("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "drawing", role: "img", "aria-label": `steps of ${graph.workflow}` }, lines, boxes));
}

const cut = (text) => (text.length > 19 ? `${text.slice(0, 18)}…` : text);

export const pick = (path) => (path.length ? one : list);
