// Runs, newest first: those that ran and those that did not, with what can be done to several at once.

import { get, may } from "../api.js";
import { Bulk } from "../bulk.js";
import { h } from "../dom.js";
import { afterwards, draw } from "../main.js";
import { queryBar, QUEUE_NAMES, SCHEDULE_NAMES } from "../query.js";
import { badge, because, byItself, reasoned, subject } from "../states.js";
import { between, span, until } from "../times.js";
import { empty, link, pager, panel, place, table, time } from "../widgets.js";

const STATES = [["", "all"], ["leased", "running"], ["ready", "ready"], ["held", "held"], ["succeeded", "succeeded"], ["failed", "failed"], ["parked", "parked"], ["skipped", "skipped"], ["cancelled", "cancelled"]];
const QUALIFIERS = {
  schedule: SCHEDULE_NAMES, state: { said: "in which state", values: STATES.slice(1).map(([value]) => value) }, queue: QUEUE_NAMES, tag: { said: "with which tag" },
  since: { said: "2h, 3d, or an instant", ago: true, values: ["1h", "6h", "1d", "7d"] }, until: { said: "1h ago, or an instant", ago: true },
};
const fits = (...states) => (run) => states.includes(run.state);
const bulk = new Bulk({ noun: "run", path: ["runs"], field: "runs", verbs: {
  retry: { path: (id) => ["runs", id, "retry"], command: "timewright run retry", text: "The same runs once more, each with its next fence.", fits: fits("failed", "cancelled") },
  cancel: { path: (id) => ["runs", id, "cancel"], command: "timewright run cancel", text: "Those that wait will not start; those that run are asked to stop and have their grace.", fits: fits("ready", "held", "leased", "parked"), danger: true },
  reset: { path: (id) => ["runs", id, "reset"], command: "timewright run reset", text: "Their attempts are given back, and they may start again.", fits: fits("parked") },
} });

const filters = (params) => ({ schedule: params.schedule, state: params.state, queue: params.queue, tag: params.tag, since: params.since, until: params.until });

// A screenful of lines is painted first, the others right after it.
const SCREENFUL = 20;
let whole = false;

export default {
  title: () => "Runs",
  every: 4,
  async load(_path, params) {
    const page = await get(["runs"], { limit: 50, cursor: params.cursor, ...filters(params) });
    if (!whole) afterwards(() => { whole = true; draw(); });
    return page;
  },
  view(data, _path, params, go) {
    const rows = data.runs.slice(0, whole ? undefined : SCREENFUL).map(line);
    return h("div", { class: "screen" }, queryBar({ qualifiers: QUALIFIERS, free: "schedule", hint: "press / to find: a schedule, state:failed, since:1d …", states: STATES, params, go }),
      bulk.bar(data.runs, { filters: filters(params), more: Boolean(data.cursor || params.cursor) }),
      rows.length ? panel("Runs", table("runs", COLUMNS, rows, may("trigger") ? bulk.handles : {})) : Object.keys(params).some((name) => name !== "namespace") ? empty(["No run fits. ", link("/runs", "Show every run"), ", or see what is coming:"], "timewright schedule list") : empty("Nothing has run yet. What is coming:", "timewright schedule list"), pager(data, params, go));
  },
};

const COLUMNS = [{ name: "fate", kind: "tight" }, { name: "run of", kind: "main" }, { name: "planned", kind: "tight" }, { name: "late", kind: "tight" }, { name: "took", kind: "tight" }, { name: "attempts", kind: "tight" }, { name: "what came" }];

// Only attempts that failed are counted; one that succeeded or is under way is one more.
const tries = (run) => String(run.attempts + (run.state === "leased" || run.state === "succeeded" ? 1 : 0) || "—");

// What came of it, or what it waits for: one that has no end yet says why.
function outcome(run) {
  if (run.state === "held") return h("span", { class: "mute" }, "waits for the run before it");
  if (run.state === "ready" && until(run.fire_at) > 0) return h("span", { class: "mute" }, run.attempts ? "tries again " : "may start ", time(run.fire_at, undefined, "away"));
  if (run.state === "ready") return h("span", { class: "mute" }, run.queue ? `waits in queue ${run.queue}` : "waits for a free place", " since ", time(run.fire_at));
  if (run.state === "leased") return h("span", { class: "mute" }, run.cancel_at ? "was asked to stop" : run.holder ? `at ${run.holder.length > 20 ? `…${run.holder.slice(-6)}` : run.holder}` : "", run.started_at ? [", for ", time(run.started_at, undefined, "for")] : null);
  const text = run.error || reasoned(run.reason) || run.word;
  return h("span", { class: "ellipsis", title: text }, text);
}

const line = (run) => ({
  key: run.id, label: run.id, to: place("runs", run.id),
  cells: [badge(run.state, reasoned(run.reason)), h("span", { class: "names" }, link(place("runs", run.id), subject(run)), run.schedule || run.queue ? null : h("span", { class: "mute" }, `…${run.id.slice(-6)}`), byItself(run.source) ? null : h("span", { class: "tag" }, because(run.source)), run.dropped ? h("span", { class: "tag" }, `and ${run.dropped} more`) : null),
    time(run.planned_at), span(between(run.planned_at, run.started_at)) || "—", span(between(run.started_at, run.finished_at)) || "—", tries(run), outcome(run)],
});
