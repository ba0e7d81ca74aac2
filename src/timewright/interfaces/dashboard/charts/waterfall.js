// Bars on one time axis: the attempts of a run, or the steps of a workflow run.

import { h } from "../base/dom.js";
import { clock, formatDuration, formatTime, minute } from "../base/times.js";

/**
 * @typedef {{from: number, to: number, kind: string, title?: string}} Bar times in milliseconds; `kind` is a
 *   tone,
 *   or `ghost` for the usual length
 * @typedef {{key: string, name: any, bars: Bar[], text?: any, level?: number}} WaterfallRow
 * @typedef {{at: number, name: string}} Mark an instant with a line through all rows
 */
const TICKS = 5;
const STEPS_S = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400,
];

/** @param {number} from @param {number} to @returns {number[]} round instants between both */
export function axisTicks(from, to) {
  const seconds = (to - from) / 1000 / TICKS;
  const step = (STEPS_S.find((one) => one >= seconds) || Math.ceil(seconds / 86_400) * 86_400) * 1000;
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at < to; at += step) ticks.push(at);
  return ticks;
}

/**
 * @param {WaterfallRow[]} rows
 * @param {{label: string, marks?: Mark[], end?: number}} options `end` is the last instant of the axis, if
 *   it is later
 *   than the bars
 */
export function waterfall(rows, { label, marks = [], end = 0 }) {
  const bars = rows.flatMap((row) => row.bars);
  const from = Math.min(...bars.map((bar) => bar.from), ...marks.map((mark) => mark.at));
  const to = Math.max(from + 1, end, ...bars.map((bar) => bar.to), ...marks.map((mark) => mark.at));
  const x = (at) => Math.max(0, Math.min(100, ((at - from) / (to - from)) * 100));
  const name = to - from < 600_000 ? clock : minute;
  const lines = axisTicks(from, to).map((at) =>
    h("i", { key: at, class: "tick", style: { left: `${x(at)}%` } }),
  );
  return h(
    "div",
    { class: "waterfall", role: "group", "aria-label": label },
    bars.length
      ? h(
          "div",
          { class: "axis", "aria-hidden": "true" },
          h("span", null, `${formatDuration((to - from) / 1000)} in all`),
          h(
            "div",
            { class: "bars" },
            axisTicks(from, to)
              .filter((at) => x(at) < 92)
              .map((at) =>
                h("b", { key: at, style: { left: `${x(at)}%` } }, name(new Date(at).toISOString())),
              ),
          ),
        )
      : null,
    h(
      "ol",
      null,
      rows.map((row) =>
        h(
          "li",
          { key: row.key },
          h("span", { class: "name", style: { paddingLeft: `${(row.level || 0) * 14}px` } }, row.name),
          h(
            "div",
            { class: "bars" },
            lines.map((line) => line.cloneNode()),
            row.bars.map((bar) => barNode(bar, x)),
          ),
          h("span", { class: "text" }, row.text),
        ),
      ),
    ),
    marks.length ? markList(marks) : null,
  );
}

/** @param {Bar} bar @param {(at: number) => number} x */
const barNode = (bar, x) =>
  h("span", {
    class: `bar ${bar.kind}`,
    title: bar.title,
    style: { left: `${x(bar.from)}%`, width: `${Math.max(0.4, x(bar.to) - x(bar.from))}%` },
  });

/** @param {Mark[]} marks the instants in words, with the distance from the one before */
function markList(marks) {
  const sorted = [...marks].sort((one, other) => one.at - other.at);
  return h(
    "ol",
    { class: "marks" },
    sorted.map((mark, n) =>
      h(
        "li",
        { key: mark.name },
        h("span", { class: "mute" }, mark.name),
        h("strong", null, formatTime(new Date(mark.at).toISOString())),
        n ? h("span", { class: "mute" }, `+ ${formatDuration((mark.at - sorted[n - 1].at) / 1000)}`) : null,
      ),
    ),
  );
}
