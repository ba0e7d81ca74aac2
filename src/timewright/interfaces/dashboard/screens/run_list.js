// All runs, newest first, with bulk actions.

import { get, can } from "../api.js";
import { BulkActions } from "../bulk_actions.js";
import { h } from "../dom.js";
import { afterPaint, requestPaint } from "../main.js";
import { searchBar, QUEUE_NAMES, SCHEDULE_NAMES } from "../search_bar.js";
import { badge, sourceText, isPlanned, reasonText, runLabel } from "../states.js";
import { secondsUntil, startDelay, totalDuration } from "../times.js";
import { emptyState, link, pager, panel, routeTo, table, time } from "../widgets.js";

const STATES = [
  ["", "all"],
  ["leased", "running"],
  ["ready", "ready"],
  ["held", "held"],
  ["succeeded", "succeeded"],
  ["failed", "failed"],
  ["parked", "parked"],
  ["skipped", "skipped"],
  ["cancelled", "cancelled"],
];
const QUALIFIERS = {
  schedule: SCHEDULE_NAMES,
  state: { hint: "run state", values: STATES.slice(1).map(([value]) => value) },
  queue: QUEUE_NAMES,
  tag: { hint: "tag" },
  since: { hint: "2h, 3d, or an instant", ago: true, values: ["1h", "6h", "1d", "7d"] },
  until: { hint: "1h, or an instant", ago: true },
};
const fits =
  (...states) =>
  (run) =>
    states.includes(run.state);
const bulk = new BulkActions({
  noun: "run",
  path: ["runs"],
  field: "runs",
  verbs: {
    retry: {
      path: (id) => ["runs", id, "retry"],
      command: "timewright run retry",
      text: "Run them again, each with its next fence.",
      fits: fits("failed", "cancelled"),
    },
    cancel: {
      path: (id) => ["runs", id, "cancel"],
      command: "timewright run cancel",
      text: "Waiting runs will not start. Running ones are asked to stop and have a grace period.",
      fits: fits("ready", "held", "leased", "parked"),
      danger: true,
    },
    reset: {
      path: (id) => ["runs", id, "reset"],
      command: "timewright run reset",
      text: "Their attempt counts are reset and they can start again.",
      fits: fits("parked"),
    },
  },
});

const filters = (params) => ({
  schedule: params.schedule,
  state: params.state,
  queue: params.queue,
  tag: params.tag,
  since: params.since,
  until: params.until,
});

// Paint the first rows at once and the rest right after.
const FIRST_ROWS = 20;
let showAll = false;

export default {
  title: () => "Runs",
  every: 4,
  async load(_path, params) {
    const page = await get(["runs"], { limit: 50, cursor: params.cursor, ...filters(params) });
    if (!showAll)
      afterPaint(() => {
        showAll = true;
        requestPaint();
      });
    return page;
  },
  view(data, _path, params, go) {
    const rows = data.runs.slice(0, showAll ? undefined : FIRST_ROWS).map(runRow);
    return h(
      "div",
      { class: "screen" },
      searchBar({
        qualifiers: QUALIFIERS,
        free: "schedule",
        hint: "press / to search: schedule, state:failed, since:1d …",
        states: STATES,
        params,
        go,
      }),
      bulk.toolbar(data.runs, { filters: filters(params), more: Boolean(data.cursor || params.cursor) }),
      rows.length
        ? panel("Runs", table("Runs", COLUMNS, rows, can("trigger") ? bulk.selection : {}))
        : Object.keys(params).some((name) => name !== "namespace")
          ? emptyState(
              ["No matching runs. ", link("/runs", "Show all runs"), ", or list the schedules:"],
              "timewright schedule list",
            )
          : emptyState("No runs yet. List the schedules:", "timewright schedule list"),
      pager(data, params, go),
    );
  },
};

const COLUMNS = [
  { name: "Status", kind: "tight" },
  { name: "Schedule", kind: "main" },
  { name: "Planned", kind: "tight" },
  { name: "Delay", kind: "tight" },
  { name: "Duration", kind: "tight" },
  { name: "Attempts", kind: "tight" },
  { name: "Result" },
];

// `attempts` counts failed attempts; add the one that succeeded or is in progress.
const attemptCount = (run) =>
  String(run.attempts + (run.state === "leased" || run.state === "succeeded" ? 1 : 0) || "—");

// The result, or what the run waits for.
function result(run) {
  if (run.state === "held") return h("span", { class: "mute" }, "waiting for the previous run");
  if (run.state === "ready" && secondsUntil(run.fire_at) > 0)
    return h(
      "span",
      { class: "mute" },
      run.attempts ? "retry " : "starts ",
      time(run.fire_at, undefined, "away"),
    );
  if (run.state === "ready")
    return h(
      "span",
      { class: "mute" },
      run.queue ? `waiting in queue ${run.queue}` : "waiting for a free slot",
      " since ",
      time(run.fire_at),
    );
  if (run.state === "leased")
    return h(
      "span",
      { class: "mute" },
      run.cancel_at
        ? "cancel requested"
        : run.holder
          ? `on ${run.holder.length > 20 ? `…${run.holder.slice(-6)}` : run.holder}`
          : "",
      run.started_at ? [", for ", time(run.started_at, undefined, "for")] : null,
    );
  const text = run.error || reasonText(run.reason) || run.outcome_label;
  return h("span", { class: "ellipsis", title: text }, text);
}

const runRow = (run) => ({
  key: run.id,
  label: run.id,
  to: routeTo("runs", run.id),
  cells: [
    badge(run.state, reasonText(run.reason)),
    h(
      "span",
      { class: "names" },
      link(routeTo("runs", run.id), runLabel(run)),
      run.schedule || run.queue ? null : h("span", { class: "mute" }, `…${run.id.slice(-6)}`),
      isPlanned(run.source) ? null : h("span", { class: "tag" }, sourceText(run.source)),
      run.dropped ? h("span", { class: "tag" }, `+${run.dropped} dropped`) : null,
    ),
    time(run.planned_at),
    startDelay(run),
    totalDuration(run),
    attemptCount(run),
    result(run),
  ],
});
