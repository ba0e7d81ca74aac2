// Charts of counts by minute: results and start delay.

import { day, formatDuration, minute, parseDuration } from "../base/times.js";
import { compactNumber, niceDuration } from "./axes.js";
import { addMark } from "./marks.js";
import { PLOT, plot } from "./plot.js";

// The results of counts by minute, from the bottom of a bar to its top, with the text of the legend.
export const RESULTS = [
  ["succeeded", "good", "succeeded"],
  ["cancelled", "stop", "cancelled"],
  ["skipped", "mute", "skipped"],
  ["missed", "gone", "missed"],
  ["parked", "warn", "parked"],
  ["failed", "bad", "failed"],
];

function binTime(series, bin) {
  const start = `${series.step >= 3600 ? `${day(bin.at)} ` : ""}${minute(bin.at)}`;
  const end = new Date(Date.parse(bin.at) + series.step * 1000).toISOString();
  return series.step > 60 ? `${start} to ${minute(end)}` : start;
}

const addBar = (paths, kind, x, top, bottom, width) =>
  addMark(
    paths,
    kind,
    `M${x.toFixed(1)} ${top.toFixed(1)}h${width.toFixed(2)}V${bottom.toFixed(1)}h${-width.toFixed(2)}z`,
  );

/** Runs by result, stacked; `only` limits the chart to some results. */
export function resultChart(series, { label, only = RESULTS.map(([name]) => name), open }) {
  const shown = RESULTS.filter(([name]) => only.includes(name));
  const sum = (bin) => shown.reduce((total, [name]) => total + (bin[name] || 0), 0);
  const bins = series.bins.filter((bin) => sum(bin) > 0);
  return plot(
    { ...series, bins },
    {
      label,
      top: Math.max(0, ...bins.map(sum)),
      format: (value) => (Number.isInteger(value) ? compactNumber(value) : ""),
      draw: (bin, x, width, y, paths) => {
        let below = 0;
        for (const [name, tone] of shown)
          if (bin[name]) {
            addBar(paths, tone, x, y(below + bin[name]), y(below), width);
            below += bin[name];
          }
      },
      describe: (bin) =>
        `${binTime(series, bin)}: ${
          shown
            .filter(([name]) => bin[name])
            .map(([name, , text]) => `${bin[name]} ${text}`)
            .join(", ") || "none"
        }`,
      open,
    },
  );
}

export const length = (text) => formatDuration(parseDuration(text));

/** The start delay: a bar up to the 95th percentile, darker up to the median. */
export function delayChart(series, { label, open }) {
  const delays = { ...series, bins: series.bins.filter((bin) => bin.started) };
  return plot(delays, {
    label,
    top: Math.max(0.01, ...delays.bins.map((bin) => parseDuration(bin.p95))),
    round: niceDuration,
    format: (value) => (value ? formatDuration(value) : "0 s"),
    draw: (bin, x, width, y, paths) => {
      addBar(paths, "whisker", x, y(parseDuration(bin.p95)), PLOT.height, width);
      addBar(paths, "busy", x, y(parseDuration(bin.median)), PLOT.height, width);
    },
    describe: (bin) =>
      `${binTime(series, bin)}: ${bin.started} started, median ${length(bin.median)}, ` +
      `p95 ${length(bin.p95)}, max ${length(bin.longest)}`,
    open,
  });
}
