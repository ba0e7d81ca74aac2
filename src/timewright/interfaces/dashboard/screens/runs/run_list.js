// All runs, newest first, with bulk actions.

import { afterPaint, requestPaint } from "../../app/paint.js";
import { refresh } from "../../app/refresh.js";
import { can, currentNamespace, get } from "../../base/api.js";
import { h } from "../../base/dom.js";
import { badge, isPlanned, reasonText, runLabel, sourceText } from "../../base/states.js";
import { now, secondsBetween, secondsUntil, startDelay, totalDuration } from "../../base/times.js";
import { BulkActions } from "../../components/bulk_actions.js";
import { button, emptyState, pager, panel } from "../../components/layout.js";
import { QUEUE_NAMES, SCHEDULE_NAMES, searchBar } from "../../components/search_bar.js";
import { table } from "../../components/table.js";
import { link, routeTo, time } from "../../components/texts.js";

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

// A held list keeps its rows and counts the new ones: after *pause*, and while the page is scrolled down,
// rows are
// selected, or the pointer or the focus is on a row, because a row that changes then is opened by mistake.
const SCROLLED_PX = 240;
let paused = false;
let held = { key: "", page: null };
const isHeld = () =>
  paused ||
  scrollY > SCROLLED_PX ||
  bulk.rows.size > 0 ||
  document.querySelector("main tbody:hover, main tbody:focus-within") !== null;

function hold(page, key) {
  if (held.key !== key || !held.page || !isHeld()) {
    held = { key, page };
    return { ...page, fresh: 0 };
  }
  const now = new Map(page.runs.map((run) => [run.id, run]));
  const newest = held.page.runs.length ? held.page.runs[0].id : "";
  const fresh = page.runs.filter((run) => run.id > newest).length;
  // Rows that are shown still change their state.
  const runs = paused ? held.page.runs : held.page.runs.map((run) => now.get(run.id) || run);
  held = { key, page: { ...held.page, runs } };
  return { ...held.page, fresh, freshMore: fresh === page.runs.length };
}

function showNew() {
  held = { key: "", page: null };
  paused = false;
  scrollTo(0, 0);
  refresh();
}

const liveButtons = (data, params) =>
  params.cursor
    ? null
    : h(
        "span",
        { class: "row-actions" },
        data.fresh
          ? button(`${data.fresh}${data.freshMore ? "+" : ""} new`, showNew, { kind: "main new" })
          : null,
        button(
          paused ? "continue" : "pause",
          () => {
            paused = !paused;
            if (!paused) held = { key: "", page: null };
            refresh();
          },
          { kind: "quiet", title: "stop adding new runs to this list" },
        ),
      );

// Totals by result of the period that the list shows; the server counts them once a minute.
let totals = { key: "", counts: null };
async function loadTotals(params) {
  if (params.schedule || params.queue || params.tag) return void (totals = { key: "", counts: null });
  const until = params.until ? Date.parse(params.until) + 1 : undefined;
  const seconds = params.since ? ((until || now()) - Date.parse(params.since)) / 1000 : 86_400;
  const minutes = Math.min(10_080, Math.max(1, Math.round(seconds / 60)));
  const wanted = {
    period: `${minutes}m`,
    until: until && new Date(until).toISOString(),
    step: `${Math.max(1, Math.ceil(minutes / 1440))}m`,
  };
  const key = JSON.stringify([currentNamespace(), wanted, Math.floor(now() / 60_000)]);
  if (totals.key === key) return;
  totals = { ...totals, key };
  const found = await get(["runs", "counts"], wanted).catch(() => null);
  if (totals.key !== key) return;
  totals = { key, counts: found && found.counted_until ? found : null };
  requestPaint();
}

function totalText(params) {
  const { counts } = totals;
  if (!counts) return "";
  const sums = ["succeeded", "failed", "parked", "missed", "skipped", "cancelled"]
    .filter((name) => counts.total[name])
    .map((name) => `${counts.total[name].toLocaleString("en")} ${name}`);
  const period = params.since || params.until ? "in this period" : "last 24 hours";
  return `${period}: ${sums.join(", ") || "none ended"}`;
}

export default {
  title: () => "Runs",
  every: 4,
  async load(_path, params) {
    const asked = { limit: 50, cursor: params.cursor, ...filters(params) };
    const page = await get(["runs"], asked);
    afterPaint(() => {
      loadTotals(params);
      if (showAll) return;
      showAll = true;
      requestPaint();
    });
    return params.cursor ? page : hold(page, JSON.stringify([currentNamespace(), asked]));
  },
  view(data, _path, params, go) {
    const runs = sortRows(data.runs, params.sort);
    const rows = runs.slice(0, showAll ? undefined : FIRST_ROWS).map(runRow);
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
        ? panel("Runs", runTable(columns(params, go), rows), {
            note: [totalText(params), params.sort ? "sorted within this page" : ""]
              .filter(Boolean)
              .join("; "),
            more: liveButtons(data, params),
          })
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

const runTable = (columns, rows) =>
  table("Runs", columns, rows, { fixed: true, ...(can("trigger") ? bulk.selection : {}) });

// Values to sort a page by; the server lists runs newest first.
const SORTS = {
  Status: (run) => run.state,
  Schedule: (run) => runLabel(run),
  Planned: (run) => run.planned_at,
  Delay: (run) => secondsBetween(run.planned_at, run.first_started_at) ?? -1,
  Duration: (run) => secondsBetween(run.first_started_at, run.finished_at) ?? -1,
  Attempts: (run) => run.attempts,
};

function sortRows(runs, sort = "") {
  const value = SORTS[sort.replace(/^-/, "")];
  if (!value) return runs;
  const turn = sort.startsWith("-") ? -1 : 1;
  return [...runs].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    return (x < y ? -1 : x > y ? 1 : 0) * turn;
  });
}

// A click sorts descending, another one ascending, a third one as the server does.
const columns = (params, go) =>
  COLUMNS.map((column) => {
    if (!SORTS[column.name]) return column;
    const given = params.sort || "";
    const order = given === column.name ? "ascending" : given === `-${column.name}` ? "descending" : "";
    const next = { "": `-${column.name}`, descending: column.name, ascending: "" }[order];
    return { ...column, sort: { order, run: () => go({ ...params, sort: next }) } };
  });

const COLUMNS = [
  { name: "Status", kind: "tight status-column" },
  { name: "Schedule", kind: "main single" },
  { name: "Planned", kind: "tight when" },
  { name: "Delay", kind: "tight" },
  { name: "Duration", kind: "tight" },
  { name: "Attempts", kind: "tight extra" },
  { name: "Result", kind: "single" },
];

// `attempts` counts failed attempts; add the one that succeeded or is in progress.
const attemptCount = (run) =>
  String(run.attempts + (run.state === "leased" || run.state === "succeeded" ? 1 : 0) || "—");

// The result, or what the run waits for.
function result(run) {
  if (run.state === "held") return h("span", { class: "mute ellipsis" }, "waiting for the previous run");
  if (run.state === "ready" && secondsUntil(run.fire_at) > 0)
    return h(
      "span",
      { class: "mute ellipsis" },
      run.attempts ? "retry " : "starts ",
      time(run.fire_at, undefined, "away"),
    );
  if (run.state === "ready")
    return h(
      "span",
      { class: "mute ellipsis" },
      run.queue ? `waiting in queue ${run.queue}` : "waiting for a free slot",
      " since ",
      time(run.fire_at),
    );
  if (run.state === "leased")
    return h(
      "span",
      { class: "mute ellipsis" },
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

const runRow = (run, place) => ({
  place,
  key: run.id,
  label: run.id,
  to: routeTo("runs", run.id),
  cells: [
    badge(run.state, reasonText(run.reason)),
    h(
      "span",
      { class: "names", title: runLabel(run) },
      link(routeTo("runs", run.id), runLabel(run)),
      run.schedule || run.queue ? null : h("span", { class: "mute extra" }, `…${run.id.slice(-6)}`),
      isPlanned(run.source) || runLabel(run).includes(" › ")
        ? null
        : h("span", { class: "tag" }, sourceText(run.source)),
      run.dropped ? h("span", { class: "tag" }, `+${run.dropped} dropped`) : null,
    ),
    time(run.planned_at),
    startDelay(run),
    totalDuration(run),
    attemptCount(run),
    result(run),
  ],
});
