// Workflows, and one workflow: its graph and the times of the steps of a run.

import { perform } from "../actions.js";
import { get, can } from "../api.js";
import { h } from "../dom.js";
import { dependencyGraph, itemCounts } from "../graph.js";
import { paint } from "../main.js";
import { jsonOr } from "../schedule_fields.js";
import { badge, stateSign, stateText, stateTone } from "../states.js";
import { secondsBetween, now, formatDuration, formatTime } from "../times.js";
import { waterfall } from "../waterfall.js";
import {
  button,
  commandBlock,
  differences,
  emptyState,
  definitionList,
  jsonBlock,
  link,
  pager,
  panel,
  routeTo,
  shellQuote,
  table,
  time,
} from "../widgets.js";

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
        h(
          "span",
          { class: "names" },
          one.schedules.length
            ? one.schedules.map((name) => link(routeTo("schedules", name), name))
            : h("span", { class: "mute" }, "manual only"),
        ),
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

// The runs of a workflow: those of its schedules and manual ones. The newest is shown unless another is
// selected.
async function runsOf(name, schedules) {
  const none = () => ({ runs: [] });
  const pages = await Promise.all([
    ...schedules.slice(0, 5).map((one) => get(["runs"], { schedule: one, limit: 8 }).catch(none)),
    get(["runs"], { limit: 200 }).catch(none),
  ]);
  const manual = pages.pop().runs.filter((run) => run.workflow === name);
  return [...pages.flatMap((page) => page.runs), ...manual]
    .filter((run) => run.started_at || run.state === "leased")
    .sort((a, b) => (a.planned_at < b.planned_at ? 1 : -1))
    .slice(0, 12);
}

// What the viewer of one workflow has chosen; it is kept while the data is refreshed.
const view = { zoom: 0, expanded: new Set() };
const setZoom = (zoom) => {
  view.zoom = zoom;
  paint();
};
const toggleItems = (step) => {
  if (!view.expanded.delete(step)) view.expanded.add(step);
  paint();
};

const one = {
  title: ([name]) => name,
  every: 4,
  async load([name], params) {
    const detail = await get(["workflows", name]);
    const runs = await runsOf(name, Object.keys(detail.schedules));
    const run = params.run || (runs[0] && runs[0].id);
    const withoutRun = () => get(["workflows", name, "graph"]);
    const graph = await (run ? get(["workflows", name, "graph"], { run }).catch(withoutRun) : withoutRun());
    const shown = runs.find((each) => each.id === graph.run);
    const shownRun = shown || (graph.run ? (await get(["runs", graph.run])).run : null);
    return { detail, graph, runs, shownRun };
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
            shownRun ? runActions(shownRun) : null,
          )
        : null,
      panel(
        "Steps",
        h(
          "div",
          null,
          shownRun ? runHead(shownRun, done, graph.steps.length) : null,
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

function runHead(run, done, all) {
  const seconds = secondsBetween(run.first_started_at, run.finished_at || new Date(now()).toISOString());
  return h(
    "div",
    { class: "lead" },
    badge(run.state, run.reason),
    h("span", null, `planned ${formatTime(run.planned_at)}`),
    h("span", null, `${run.finished_at ? "took" : "running for"} ${formatDuration(seconds) || "0 s"}`),
    h("span", { class: "mute" }, `${done} of ${all} steps done`),
  );
}

const MIN_COLLAPSED_ITEMS = 4;

// A bar for each step run; the items of a step are one row until they are opened.
function stepTimeline(name, graph, run) {
  const groups = new Map();
  for (const one of graph.runs) groups.set(one.step, [...(groups.get(one.step) || []), one]);
  const rows = [...groups].flatMap(([step, own]) => {
    if (own.length < MIN_COLLAPSED_ITEMS) return own.map((each) => stepRow(name, each, 0, run));
    const items = {};
    for (const each of own) items[each.state] = (items[each.state] || 0) + 1;
    const open = view.expanded.has(step);
    return [
      groupRow(name, step, own, items, open),
      ...(open ? own.map((each) => stepRow(name, each, 1, run)) : []),
    ];
  });
  return h(
    "div",
    null,
    waterfall(rows, { label: `timeline of ${name}` }),
    graph.more ? h("p", { class: "mute" }, `the first ${graph.runs.length} step runs are shown`) : null,
  );
}

const nowMs = () => now();
const startOf = (one) =>
  Date.parse(one.first_started_at || one.finished_at || new Date(nowMs()).toISOString());
const endOf = (one) => (one.finished_at ? Date.parse(one.finished_at) : nowMs());
const waitBar = (from, to) => ({
  from,
  to,
  kind: "wait",
  title: `waited ${formatDuration((to - from) / 1000)}`,
});

export const stepName = (workflow, one) =>
  `${workflow} › ${one.step}${one.item === null || one.item === undefined ? "" : `[${one.item}]`}`;

function stepRow(workflow, one, level, run) {
  const [created, start, end] = [Date.parse(one.created_at), startOf(one), endOf(one)];
  const name = one.item === null ? one.step : `${one.step}[${one.item}]`;
  const waited = start - created;
  const took = one.state === "skipped" ? "skipped" : formatDuration((end - start) / 1000);
  const text = [
    `${stateSign(one.state)} ${took}`,
    waited > 50 && one.state !== "skipped" ? `after ${formatDuration(waited / 1000)}` : "",
    one.attempts > 1 ? `${one.attempts} attempts` : "",
  ];
  return {
    key: `${one.step}/${one.item}`,
    level,
    name: h(
      "a",
      {
        href: `#${routeTo("runs", one.run)}`,
        title: `${stepName(workflow, one)}: ${stateText(one.state)}${one.reason ? `\n${one.reason}` : ""}`,
      },
      name,
    ),
    bars: [
      waitBar(created, start),
      {
        from: start,
        to: end,
        kind: one.finished_at ? stateTone(one.state) : one.first_started_at ? "busy" : "wait",
        title: `${stepName(workflow, one)}: ${stateText(one.state)}, ${formatDuration((end - start) / 1000)}`,
      },
    ],
    text: h("span", null, text.filter(Boolean).join(", "), retryFrom(one, run)),
  };
}

function groupRow(workflow, step, own, items, open) {
  const [start, end] = [Math.min(...own.map(startOf)), Math.max(...own.map(endOf))];
  const created = Math.min(...own.map((one) => Date.parse(one.created_at)));
  const worst = ["failed", "parked", "leased", "ready", "cancelled", "succeeded"].find(
    (state) => items[state],
  );
  return {
    key: `${step}/*`,
    name: h(
      "button",
      {
        type: "button",
        class: "plain",
        "aria-expanded": String(open),
        "aria-label": `items of ${stepName(workflow, { step })}`,
        onclick: () => toggleItems(step),
      },
      `${open ? "▾" : "▸"} ${step}`,
    ),
    bars: [
      waitBar(created, start),
      { from: start, to: end, kind: stateTone(worst), title: `${step}: ${itemCounts(items)}` },
    ],
    text: `${itemCounts(items)}, ${formatDuration((end - start) / 1000)}`,
  };
}

// The workflow runs this step and all behind it again; only a workflow run that has ended can.
function retryFrom(one, run) {
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
      [
        "schedules",
        h(
          "span",
          { class: "names" },
          Object.keys(detail.schedules).map((each) => link(routeTo("schedules", each), each)),
        ),
      ],
    ]),
    h("details", null, h("summary", null, "full definition"), jsonBlock(detail.workflow)),
  );
}

// Actions on the shown run.
function runActions(run) {
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
    act("pause", "workflow", "No further step starts; steps in progress continue.", {
      undo: { path: ["workflows", run.id, "resume"], done: "resumed" },
    }),
    act("resume", "workflow", "Its steps continue where they stopped."),
    act("cancel", "run", "No further step starts, and steps in progress are asked to stop.", {
      danger: true,
    }),
  ];
}

export const pick = (path) => (path.length ? one : list);
