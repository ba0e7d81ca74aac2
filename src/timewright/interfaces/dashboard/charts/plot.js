// Bars over time with both axes.

import { h } from "../base/dom.js";
import { niceTop, timeAxis } from "./axes.js";
import { markChart } from "./marks.js";

export const PLOT = { width: 1000, height: 100 };
// The mark that the arrow keys have selected, by chart; it stays selected when the page is painted again.
const selectedMarks = new Map();

/**
 * Bars or whiskers over time with both axes. A click, or Enter after the arrow keys, opens a bin.
 * @param {{since: string, until: string, step: number, bins: {at: string}[]}} series `step` in seconds
 * @param {{label: string, top: number, format: (value: number) => string, draw: (bin: any, x: number, width:
 *   number,
 *   y: (value: number) => number, paths: Map<string, string>) => void, describe: (bin: any) => string,
 *   open: (bin: any) => void, kind?: string, round?: (value: number) => number}} options `round` gives
 *   the end of the axis
 */
export function plot(series, { label, top, format, draw, describe, open, kind = "", round = niceTop }) {
  const from = Date.parse(series.since),
    span = Date.parse(series.until) - from;
  const wide = (series.step * 1000 * PLOT.width) / span;
  const most = round(top);
  const paths = new Map();
  const y = (value) => PLOT.height - (Math.min(value, most) / most) * PLOT.height;
  for (const bin of series.bins)
    draw(bin, ((Date.parse(bin.at) - from) / span) * PLOT.width, Math.max(0.6, wide * 0.86), y, paths);
  const nearest = (share) => {
    const at = from + share * span;
    return series.bins.findIndex(
      (bin) => at >= Date.parse(bin.at) && at < Date.parse(bin.at) + series.step * 1000,
    );
  };
  const caption = () => {
    const bin = series.bins[selectedMarks.get(label)];
    return bin ? describe(bin) : "";
  };
  const onKey = (event) => {
    const chosen = selectedMarks.get(label) ?? series.bins.length;
    const moves = { ArrowLeft: chosen - 1, ArrowRight: chosen + 1, Home: 0, End: series.bins.length - 1 };
    if (event.key === "Enter" && series.bins[chosen]) return open(series.bins[chosen]);
    if (!(event.key in moves) || !series.bins.length) return;
    event.preventDefault();
    selectedMarks.set(label, Math.max(0, Math.min(series.bins.length - 1, moves[event.key])));
    event.currentTarget.closest("figure").querySelector(".picked-mark").textContent = caption();
  };
  const chart = markChart(
    {
      viewBox: `0 0 ${PLOT.width} ${PLOT.height}`,
      preserveAspectRatio: "none",
      class: `plot ${kind}`,
      "aria-label": label,
      tabindex: "0",
      onkeydown: onKey,
    },
    {
      paths,
      count: series.bins.length,
      nearest,
      describe: (n) => describe(series.bins[n]),
      open: (n) => open(series.bins[n]),
    },
    [0, PLOT.height / 2].map((line) =>
      h("line", { x1: 0, x2: PLOT.width, y1: line, y2: line, class: "gridline" }),
    ),
  );
  return h(
    "figure",
    { class: "plotted" },
    h("figcaption", null, label, h("span", { class: "picked-mark mute", "aria-live": "polite" }, caption())),
    h(
      "div",
      { class: "axis y", "aria-hidden": "true" },
      [most, most / 2, 0].map((value) => h("span", null, format(value))),
    ),
    chart,
    timeAxis(series),
  );
}
