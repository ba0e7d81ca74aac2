// Workflows, and one workflow: its graph and the times of the steps of a run.

import { paint } from "../../app/paint.js";
import { can, get } from "../../base/api.js";
import { h } from "../../base/dom.js";
import { badge } from "../../base/states.js";
import { formatDuration, formatTime, now, secondsBetween } from "../../base/times.js";
import { dependencyGraph } from "../../charts/graph.js";
import { perform } from "../../components/actions.js";
import { commandBlock, shellQuote } from "../../components/commands.js";
import { differences } from "../../components/diff.js";
import { button, definitionList, emptyState, jsonBlock, pager, panel } from "../../components/layout.js";
import { table } from "../../components/table.js";
import { link, routeTo, time } from "../../components/texts.js";
import { jsonOr } from "../schedule_form/field_values.js";
import { stepTimeline } from "./steps.js";

const scheduleLinks = (names) =>
  h(
    "span",
    { class: "names" },
    names.length
      ? names.map((name) => link(routeTo("schedules", name), name))
      : h("span", { class: "mute" }, "manual only"),
  );

const list = {
  title: () => "Workflows",
  every: 10,
  load: (_path, params) => get(["workflows"], { cursor: params.cursor }),
  view(data, _path, params, go) {
    const rows = data.workflows.map((one) => ({
      key: one.workflow,
      to: routeTo("workflows", one.workflow),
      cells: [
        link(routeTo("workflows", one.workflow), one.workflow),
        `v${one.version}`,
        time(one.at),
        scheduleLinks(one.schedules),
      ],
    }));
    return h(
      "div",
      { class: "screen" },
      rows.length
        ? panel(
            "Workflows",
            table(
              "Workflows",
              [
                { name: "Workflow" },
                { name: "Version", kind: "tight" },
                { name: "Updated", kind: "tight" },
                { name: "Schedules" },
              ],
              rows,
            ),
          )
        : emptyState("No workflows. Create one:", "timewright workflow put --file workflow.yaml"),
      pager(data, params, go),
    );
  },
};

const MAX_RUNS = 12;
const REREAD_MS = 10_000;
/** @type {Map<string, {run: any, at: number}>} runs that have ended; only a retry changes them */
const endedRuns = new Map();

async function readRun(id) {
  const known = endedRuns.get(id);
  if (known && Date.now() - known.at < REREAD_MS) return known.run;
  const { run } = await get(["runs", id]).catch(() => ({ run: null }));
  if (run && run.finished_at) endedRuns.set(id, { run, at: Date.now() });
  else endedRuns.delete(id);
  return run;
}

// The runs that were started by hand. The audit log names them; a list of all runs, newest first, would not
// reach back for more than minutes on a busy store.
async function manualRuns(name) {
  const query = { action: "workflow.run", subject: name, limit: MAX_RUNS };
  const { entries } = await get(["audit"], query).catch(() => ({ entries: [] }));
  return (await Promise.all(entries.map((one) => readRun(one.after)))).filter(Boolean);
}

// The runs of a workflow: those of its schedules and manual ones. The newest is shown unless another is
// selected.
async function runsOf(name, schedules) {
  const none = () => ({ runs: [] });
  const [manual, ...pages] = await Promise.all([
    manualRuns(name),
    ...schedules.slice(0, 5).map((one) => get(["runs"], { schedule: one, limit: 8 }).catch(none)),
  ]);
  return [...pages.flatMap((page) => page.runs), ...manual]
    .filter((run) => run.started_at || run.state === "leased")
    .sort((a, b) => (a.planned_at < b.planned_at ? 1 : -1))
    .slice(0, MAX_RUNS);
}

// What the viewer of one workflow has chosen; it is kept while the data is refreshed.
/** @type {{zoom: number | null, expanded: Set<string>}} */
export const view = { zoom: null, expanded: new Set() };
const setZoom = (zoom) => {
  view.zoom = zoom;
  paint();
};
export const toggleItems = (step) => {
  if (!view.expanded.delete(step)) view.expanded.add(step);
  paint();
};

export const one = {
  title: ([name]) => name,
  every: 4,
  async load([name], params) {
    const detail = await get(["workflows", name]);
    const runs = await runsOf(name, Object.keys(detail.schedules));
    const run = params.run || (runs[0] && runs[0].id);
    const withoutRun = () => get(["workflows", name, "graph"]);
    const graph = await (run ? get(["workflows", name, "graph"], { run }).catch(withoutRun) : withoutRun());
    const shownRun = graph.run ? (await get(["runs", graph.run])).run : null;
    const fresh = runs.map((each) => (shownRun && each.id === shownRun.id ? shownRun : each));
    return { detail, graph, runs: fresh, shownRun };
  },
  view({ detail, graph, runs, shownRun }, [name], params, go) {
    const runNow = async () => {
      const made = await perform({
        title: `Run ${name} now?`,
        act: "run now",
        done: "started",
        command: `timewright workflow run ${shellQuote(name)}`,
        path: ["workflows", name, "run"],
      });
      if (made) go({ ...params, run: made.run.id });
    };
    const done = graph.steps.filter((step) => ["succeeded", "skipped"].includes(step.state)).length;
    return h(
      "div",
      { class: "screen" },
      can("trigger")
        ? h(
            "div",
            { class: "buttons" },
            button("run now", runNow, { kind: "main" }),
            shownRun ? runActions(shownRun, graph.paused) : null,
          )
        : null,
      panel(
        "Steps",
        h(
          "div",
          null,
          shownRun ? runHead(shownRun, graph, done) : null,
          dependencyGraph(graph, `steps of ${name}`, { zoom: view.zoom, onZoom: setZoom }),
          graph.run ? null : commandBlock(`timewright workflow graph ${shellQuote(name)}`),
        ),
        {
          note: graph.run ? "" : `version ${graph.version}`,
          more: graph.run ? link(routeTo("runs", graph.run), "show run") : null,
        },
      ),
      graph.runs.length ? panel("Timeline", stepTimeline(name, graph, shownRun)) : null,
      h(
        "div",
        { class: "columns" },
        panel(
          "Runs",
          runTable(runs, graph.run, (id) => go({ ...params, run: id })),
        ),
        panel("Definition", definition(detail)),
      ),
    );
  },
};

function runHead(run, graph, done) {
  const seconds = secondsBetween(run.first_started_at, run.finished_at || new Date(now()).toISOString());
  return h(
    "div",
    { class: "lead" },
    badge(graph.paused ? "paused" : run.state, run.reason),
    h("span", null, `planned ${formatTime(run.planned_at)}`),
    h("span", null, `${run.finished_at ? "took" : "running for"} ${formatDuration(seconds) || "0 s"}`),
    h("span", { class: "mute" }, `${done} of ${graph.steps.length} steps done`),
  );
}

// The workflow runs this step and all behind it again; only a workflow run that has ended can.
export function retryFrom(one, run) {
  if (!can("trigger") || !run || !["failed", "cancelled"].includes(run.state) || one.item > 0) return null;
  if (one.state === "skipped") return null;
  return button("retry from here", () => retryStep(one), { kind: "quiet" });
}

// The input of the step can be changed; only its changed fields are sent.
async function retryStep(one) {
  const { payload } = await get(["runs", one.run]).catch(() => ({ payload: null }));
  const given = (payload || {}).input || {};
  const text = JSON.stringify(given, null, 2);
  const changed = (values) => {
    const wanted = values.input === text ? given : jsonOr(values.input || "{}");
    return isMapping(wanted)
      ? Object.fromEntries(differences(given, wanted).map(([path]) => topLevel(path, wanted)))
      : wanted;
  };
  await perform({
    title: `Retry from ${one.step}?`,
    text: `${one.step} and all steps behind it run again, also those that succeeded. Other steps stay.`,
    act: "retry",
    done: "retry: started",
    fields: [
      { name: "input", label: "Input of the step, to change for this retry", type: "textarea", value: text },
    ],
    command: (values) => `timewright run retry ${one.run} --from-step${inputOptions(changed(values))}`,
    path: ["runs", one.run, "retry"],
    toBody: ({ input, ...rest }) => ({
      from_step: true,
      input: changed({ input }),
      ...rest,
    }),
  });
}

const inputOptions = (input) =>
  Object.entries(input)
    .map(
      ([name, value]) =>
        ` --input ${shellQuote(`${name}=${isMapping(value) ? JSON.stringify(value) : value}`)}`,
    )
    .join("");
const isMapping = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const topLevel = (path, wanted) => [path.split(".")[0], wanted[path.split(".")[0]]];

function runTable(runs, shown, show) {
  if (!runs.length) return h("p", { class: "mute" }, "no runs yet");
  return table(
    "Runs",
    [
      { name: "Planned", kind: "tight" },
      { name: "Status", kind: "tight" },
      { name: "Duration" },
      { name: "", label: "Actions" },
    ],
    runs.map((each) => ({
      key: each.id,
      cells: [
        link(routeTo("runs", each.id), time(each.planned_at)),
        badge(each.state, each.reason),
        formatDuration(
          secondsBetween(each.first_started_at, each.finished_at || new Date(now()).toISOString()),
        ),
        each.id === shown
          ? h("span", { class: "mute" }, "shown")
          : button("show", () => show(each.id), { kind: "quiet" }),
      ],
    })),
  );
}

function definition(detail) {
  return h(
    "div",
    null,
    definitionList([
      ["version", `${detail.version}${detail.newest !== detail.version ? ` of ${detail.newest}` : ""}`],
      ["updated", time(detail.at)],
      ["schedules", scheduleLinks(Object.keys(detail.schedules))],
    ]),
    h("details", null, h("summary", null, "full definition"), jsonBlock(detail.workflow)),
  );
}

// Actions on the shown run.
function runActions(run, paused) {
  const act = (verb, noun, text, options = {}) =>
    button(`${verb} this run`, () =>
      perform({
        title: `${verb} this run?`,
        text,
        act: verb,
        command: `timewright ${noun} ${verb} ${run.id}`,
        path: [`${noun}s`, run.id, verb],
        ...options,
      }),
    );
  if (["failed", "cancelled"].includes(run.state))
    return [act("retry", "run", "Steps that succeeded stay; the others run again.")];
  if (run.state !== "leased") return null;
  return [
    paused
      ? act("resume", "workflow", "Its steps continue where they stopped.")
      : act("pause", "workflow", "No further step starts; steps in progress continue.", {
          undo: { path: ["workflows", run.id, "resume"], done: "resumed" },
        }),
    act("cancel", "run", "No further step starts, and steps in progress are asked to stop.", {
      danger: true,
    }),
  ];
}

export const pick = (path) => (path.length ? one : list);
