// Schedules down, time across: one cell for each run, or for the runs of a slot if they are closer together.

import { get } from "../base/api.js";
import { h } from "../base/dom.js";
import { stateDot } from "../base/states.js";
import { formatDuration, parseDuration } from "../base/times.js";
import { timeAxis } from "../charts/axes.js";
import { cellLegend } from "../charts/cells.js";
import { cellText, gridStrip } from "../charts/grid_strip.js";
import { button, emptyState, panel, periodChips } from "../components/layout.js";
import { searchBar } from "../components/search_bar.js";
import { link, routeTo } from "../components/texts.js";
import { GridFocus } from "./grid_focus.js";

const QUALIFIERS = { group: { hint: "group name" } };
const PERIODS = [
  ["1h", "hour"],
  ["1d", "day"],
  ["7d", "week"],
];
const ROWS = 50;
const LEGEND = ["failed", "parked", "leased", "ready", "succeeded", "skipped", "cancelled"];
const focus = new GridFocus();

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
        ? panel("Runs by schedule", h("div", null, gridTable(data, slot), legend(data)), {
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

// One run opens its page; several runs of a slot open the list of them.
function addressOf(data, slot, row, cell) {
  if ((cell.count || 1) === 1) return `#${routeTo("runs", cell.run)}`;
  const at = Date.parse(data.since) + cell.slot * slot * 1000;
  const [since, until] = [at, at + slot * 1000 - 1].map((ms) => new Date(ms).toISOString());
  return `#/runs?${new URLSearchParams({ schedule: row.schedule, since, until })}`;
}

function gridTable(data, slot) {
  const slots = Math.round((Date.parse(data.until) - Date.parse(data.since)) / 1000 / slot);
  focus.show(data.rows);
  return h(
    "div",
    {
      class: "grid",
      role: "grid",
      "aria-label": "Runs by schedule",
      "aria-readonly": "true",
      onkeydown: (event) => focus.onKey(event),
      onfocusin: (event) => focus.onFocus(event),
    },
    h(
      "div",
      { class: "grid-row head", role: "row" },
      h("span", { role: "columnheader" }, "Schedule"),
      h("span", { role: "columnheader" }, h("span", { class: "hidden" }, "Runs over time"), timeAxis(data)),
    ),
    data.rows.map((row) => {
      const cell = focus.cellOf(row);
      return h(
        "div",
        { key: row.schedule_id, class: "grid-row", role: "row", "data-row": row.schedule_id },
        h(
          "span",
          { class: "grid-name", role: "rowheader" },
          stateDot({ ...row, reason: "" }),
          h(
            "a",
            {
              href: `#${routeTo("schedules", row.schedule)}`,
              tabindex: focus.isName(row) ? "0" : "-1",
            },
            row.schedule,
          ),
        ),
        h(
          "span",
          { class: "grid-cell", role: "gridcell" },
          gridStrip(row, {
            slots,
            open: (opened) => {
              location.hash = addressOf(data, slot, row, opened);
            },
          }),
          cell
            ? h("a", {
                class: "cell-link",
                href: addressOf(data, slot, row, cell),
                tabindex: "0",
                "aria-label": cellText(row, cell),
                style: {
                  left: `${((cell.slot / slots) * 100).toFixed(3)}%`,
                  width: `${(100 / slots).toFixed(3)}%`,
                },
              })
            : null,
        ),
      );
    }),
  );
}

function legend(data) {
  const row = data.rows.find((one) => focus.cellOf(one));
  return h(
    "p",
    { class: "legend" },
    cellLegend(LEGEND),
    h(
      "span",
      { class: "mute" },
      row ? cellText(row, focus.cellOf(row)) : "the arrow keys move over the cells, Enter opens the run",
    ),
  );
}
