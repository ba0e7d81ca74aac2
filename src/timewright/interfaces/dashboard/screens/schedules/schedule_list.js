// All schedules: status, trigger, next occurrence, recent runs and duration.

import { afterPaint, requestPaint } from "../../app/paint.js";
import { can, get, query } from "../../base/api.js";
import { h } from "../../base/dom.js";
import { badge, stateDot } from "../../base/states.js";
import { parseDuration, shortDuration } from "../../base/times.js";
import { BulkActions } from "../../components/bulk_actions.js";
import { emptyState, pager, panel } from "../../components/layout.js";
import { searchBar } from "../../components/search_bar.js";
import { table } from "../../components/table.js";
import { link, linkedText, routeTo, time, timeWithDistance } from "../../components/texts.js";

const STATES = [
  ["", "all"],
  ["active", "active"],
  ["paused", "paused"],
  ["parked", "parked"],
  ["pending_approval", "pending approval"],
  ["finished", "finished"],
  ["archived", "archived"],
];
const QUALIFIERS = {
  state: { hint: "schedule state", values: STATES.slice(1).map(([value]) => value) },
  group: { hint: "group name" },
  tag: { hint: "tag" },
};
const verb = (name, more = {}) => ({
  path: (id) => ["schedules", id, name],
  command: `timewright schedule ${name}`,
  ...more,
});
const bulk = new BulkActions({
  noun: "schedule",
  path: ["schedules"],
  field: "schedules",
  verbs: {
    pause: verb("pause", { text: "They do not run until resumed.", fits: (row) => row.state === "active" }),
    resume: verb("resume", {
      text: "They continue with their next occurrences; each applies its catch-up policy.",
      fits: (row) => ["paused", "parked"].includes(row.state),
    }),
    run: verb("run", {
      label: "run now",
      text: "Starts one manual run of each. The planned occurrences do not change.",
    }),
    archive: verb("archive", {
      danger: true,
      text: "They stop running and cannot be restored. Their history is kept and their names can be reused.",
      fits: (row) => row.state !== "archived",
    }),
  },
});
const filters = (params) => ({
  state: params.state,
  name_contains: params.q,
  group: params.group,
  tag: params.tag,
});

// The orders that the server knows, by column.
const ORDERS = { Name: "", Next: "next", "Recent runs": "last" };

// Recent runs are painted when they have loaded, and asked for again only for schedules that have run since.
let outcomes = new Map();
let charts = null;
const versionOf = (row) => `${row.last_run_at} ${row.last_state} ${row.runs}`;
async function loadHistory(rows) {
  const stale = rows.filter((row) => (outcomes.get(row.id) || {}).version !== versionOf(row));
  if (!stale.length && charts) return;
  const ids = stale.map((row) => row.id);
  const [chartModule, page] = await Promise.all([
    import("../../charts/outcome_strip.js"),
    ids.length
      ? query(["schedules", "outcomes"], { schedules: ids }).catch(() => ({ outcomes: [] }))
      : { outcomes: [] },
  ]);
  charts = chartModule;
  const versions = new Map(stale.map((row) => [row.id, versionOf(row)]));
  const known = new Map(rows.map((row) => [row.id, outcomes.get(row.id)]).filter(([, one]) => one));
  for (const one of page.outcomes)
    known.set(one.schedule_id, { ...one, version: versions.get(one.schedule_id) });
  outcomes = known;
  requestPaint();
}

export default {
  title: () => "Schedules",
  every: 5,
  async load(_path, params) {
    const asked = { limit: 50, count: true, order: params.order, cursor: params.cursor };
    const page = await get(["schedules"], { ...asked, ...filters(params) });
    afterPaint(() => loadHistory(page.schedules));
    return page;
  },
  view(data, _path, params, go) {
    const rows = data.schedules.map((row) => scheduleRow(row, outcomes.get(row.id)));
    const bar = searchBar({
      qualifiers: QUALIFIERS,
      free: "q",
      hint: "press / to search: part of a name, group:billing, tag:finance …",
      states: STATES,
      params,
      go,
    });
    const none = Object.keys(params).some((name) => name !== "namespace")
      ? emptyState(["No matching schedules. ", link("/schedules", "Show all schedules")])
      : emptyState(
          "No schedules yet. Create one:",
          "timewright schedule create hello --every 5s --note 'hello'",
        );
    return h(
      "div",
      { class: "screen" },
      bar,
      bulk.toolbar(data.schedules, { filters: filters(params), more: Boolean(data.cursor || params.cursor) }),
      rows.length
        ? panel(
            "Schedules",
            table("Schedules", columns(params, go), rows, {
              fixed: true,
              ...(can("write") ? bulk.selection : {}),
            }),
            {
              note: [
                params.tag ? "" : `${data.total.toLocaleString("en")} schedules`,
                "recent runs: each state has its own colour and shape",
              ]
                .filter(Boolean)
                .join("; "),
            },
          )
        : none,
      pager(data, params, go),
    );
  },
};

// A click orders by a column, another one by name again.
const columns = (params, go) =>
  COLUMNS.map((column) => {
    const order = ORDERS[column.name];
    if (order === null || order === undefined || !column.name) return column;
    const chosen = (params.order || "") === order;
    const next = chosen ? "" : order;
    return {
      ...column,
      sort: {
        order: chosen ? (order === "last" ? "descending" : "ascending") : "",
        run: () => go({ ...params, order: next, cursor: "" }),
      },
    };
  });

const COLUMNS = [
  { name: "", label: "Status", kind: "narrow" },
  { name: "Name", kind: "main" },
  { name: "Trigger" },
  { name: "Next", kind: "tight until" },
  { name: "Recent runs", kind: "wide" },
  { name: "Duration", kind: "tight range" },
];

// The trigger text contains the zone, if the trigger has one.
function scheduleRow(row, history) {
  const took =
    history && history.duration.median !== null
      ? h(
          "span",
          { title: "median and p95" },
          shortDuration(parseDuration(history.duration.median)),
          h("span", { class: "mute extra" }, ` – ${shortDuration(parseDuration(history.duration.p95))}`),
        )
      : "—";
  const next =
    row.state === "active"
      ? timeWithDistance(row.next_at, row.zone, "due")
      : h(
          "span",
          { class: "both" },
          badge(row.state, row.reason),
          row.state === "paused" && row.paused_until
            ? h("span", { class: "mute" }, "until ", time(row.paused_until, row.zone))
            : null,
          row.reason ? h("span", { class: "mute ellipsis short", title: row.reason }, row.reason) : null,
        );
  return {
    key: row.id,
    label: row.name,
    to: routeTo("schedules", row.name),
    cells: [
      stateDot(row),
      h(
        "span",
        { class: "names" },
        link(routeTo("schedules", row.name), row.name),
        row.group ? h("span", { class: "tag" }, row.group) : null,
        row.tags.map((tag) => h("span", { class: "tag" }, tag)),
      ),
      h("span", null, linkedText(row.trigger), h("span", { class: "mute" }, ` · ${row.target}`)),
      next,
      history ? charts.outcomeStrip(history.marks, { label: row.name }) : null,
      took,
    ],
  };
}
