// Schedules down, time across: one cell for each run, or for the runs of a slot if they are closer together.

import { get } from "../api.js";
import { timeAxis, gridStrip } from "../charts.js";
import { h } from "../dom.js";
import { searchBar } from "../search_bar.js";
import { badge, stateDot } from "../states.js";
import { formatDuration, parseDuration } from "../times.js";
import { button, emptyState, link, panel, periodChips, routeTo } from "../widgets.js";

const QUALIFIERS = { group: { hint: "group name" } };
const PERIODS = [
  ["1h", "hour"],
  ["1d", "day"],
  ["7d", "week"],
];
const ROWS = 50;
const LEGEND = ["failed", "parked", "leased", "succeeded", "skipped"];

const runsOfCell = (row, at, until) =>
  new URLSearchParams({ schedule: row.schedule, since: new Date(at).toISOString(), until });

export default {
  title: () => "Grid",
  every: 10,
  // Many rows are read for each refresh.
  eventDelayMs: 2000,
  load: (_path, params) =>
    get(["schedules", "grid"], {
      period: params.period || "1d",
      group: params.group,
      name_contains: params.q,
      limit: ROWS,
      offset: params.offset,
    }),
  view(data, _path, params, go) {
    const offset = Number(params.offset || 0);
    const slot = parseDuration(data.slot);
    const shown = data.rows.length
      ? `${offset + 1} to ${offset + data.rows.length} of ${data.total.toLocaleString("en")} schedules`
      : `${data.total.toLocaleString("en")} schedules`;
    return h(
      "div",
      { class: "screen" },
      searchBar({
        qualifiers: QUALIFIERS,
        free: "q",
        hint: "press / to search: part of a name, group:billing",
        params,
        go,
      }),
      data.rows.length
        ? panel("Runs by schedule", gridTable(data, slot), {
            note: `failing first; ${shown}; one slot is ${formatDuration(slot)}`,
            more: periodChips(PERIODS, params.period || "1d", (period) => go({ ...params, period })),
          })
        : emptyState(["No matching schedules. ", link("/grid", "Show all schedules")]),
      h(
        "nav",
        { class: "pager", "aria-label": "Pages" },
        offset
          ? button("previous", () => go({ ...params, offset: Math.max(0, offset - ROWS) || "" }), {
              kind: "quiet",
            })
          : null,
        offset + data.rows.length < data.total
          ? button("next page", () => go({ ...params, offset: offset + ROWS }))
          : null,
      ),
    );
  },
};

function gridTable(data, slot) {
  const slots = Math.round((Date.parse(data.until) - Date.parse(data.since)) / 1000 / slot);
  return h(
    "div",
    { class: "grid", role: "table", "aria-label": "Runs by schedule" },
    h(
      "div",
      { class: "grid-row head", role: "row" },
      h("span", { role: "columnheader" }, "Schedule"),
      h("span", { role: "columnheader" }, h("span", { class: "hidden" }, "Runs over time"), timeAxis(data)),
    ),
    data.rows.map((row) =>
      h(
        "div",
        { key: row.schedule_id, class: "grid-row", role: "row" },
        h(
          "span",
          { class: "grid-name", role: "rowheader" },
          stateDot({ ...row, reason: "" }),
          link(routeTo("schedules", row.schedule), row.schedule),
        ),
        h(
          "span",
          { role: "cell" },
          gridStrip(row, {
            slots,
            open: (cell) => {
              const at = Date.parse(data.since) + cell.slot * slot * 1000;
              const until = new Date(at + slot * 1000 - 1).toISOString();
              location.hash =
                (cell.count || 1) === 1 ? routeTo("runs", cell.run) : `#/runs?${runsOfCell(row, at, until)}`;
            },
          }),
        ),
      ),
    ),
    h(
      "p",
      { class: "legend" },
      LEGEND.map((state) => badge(state)),
      h("span", { class: "mute" }, "a tall cell failed or is parked; the short ones did not run"),
    ),
  );
}
