// Starts by day and hour.

import { h } from "../base/dom.js";
import { clock, day, formatDuration } from "../base/times.js";
import { scrollArea } from "../components/layout.js";
import { compactNumber } from "./axes.js";

// A row per day, a column per hour; darker means more. Each cell also shows its number.
/** @param {any[]} hours @param {{value: (hour: any) => any, label: string, zone?: string}} options */
export function heatmap(hours, { value, label, zone }) {
  const most = Math.max(1, ...hours.map(value));
  const days = [];
  for (const hour of hours) {
    const name = day(hour.at, zone);
    if (!days.length || days[days.length - 1].name !== name) days.push({ name, cells: [] });
    days[days.length - 1].cells.push(hour);
  }
  const cell = (hour) => {
    const share = value(hour) / most;
    const who = hour.busiest.map((m) => `${m.schedule} × ${m.starts}`).join("\n");
    return h(
      "td",
      {
        class: `heat h${Math.ceil(share * 8)}`,
        "data-hour": hour.at,
        title:
          `${day(hour.at, zone)} ${clock(hour.at, zone).slice(0, 5)}: ` +
          `${hour.starts.toLocaleString("en")} starts, ${formatDuration(hour.seconds)} of work\n${who}`,
      },
      value(hour) ? compactNumber(value(hour)) : "",
    );
  };
  const cells = (row) => {
    const byHour = new Map(row.cells.map((c) => [Number(clock(c.at, zone).slice(0, 2)), c]));
    return [...Array(24).keys()].map((n) =>
      byHour.has(n) ? cell(byHour.get(n)) : h("td", { class: "heat h0" }),
    );
  };
  return scrollArea(
    h(
      "table",
      { class: "heatmap" },
      h("caption", { class: "hidden" }, label),
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          h("th", { scope: "col" }, h("span", { class: "hidden" }, "Day")),
          [...Array(24).keys()].map((n) => h("th", { scope: "col" }, String(n).padStart(2, "0"))),
        ),
      ),
      h(
        "tbody",
        null,
        days.map((row) => h("tr", { key: row.name }, h("th", { scope: "row" }, row.name), cells(row))),
      ),
    ),
  );
}
