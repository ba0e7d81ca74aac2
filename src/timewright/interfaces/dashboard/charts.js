// Charts, drawn as SVG.

import { h } from "./dom.js";
import { reasonText, stateTone, stateText } from "./states.js";
import { secondsBetween, clock, day, minute, parseDuration, formatDuration, formatTime } from "./times.js";
import { routeTo, scrollArea } from "./widgets.js";

// Draw many marks as one path per colour; the mark under the pointer is computed from its position.
function markChart(props, { paths, count, nearest, describe, open }, ...more) {
  const at = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    return nearest((event.clientX - box.left) / (box.width || 1));
  };
  const title = h("title", null, "");
  const showTitle = (event) => {
    const n = at(event);
    const text = n >= 0 && n < count ? describe(n) : "";
    const holder = event.currentTarget.querySelector("title");
    if (holder.textContent !== text) holder.textContent = text;
  };
  const onClick = (event) => {
    const n = at(event);
    if (n < 0 || n >= count) return;
    event.stopPropagation();
    open(n);
  };
  return h(
    "svg",
    { ...props, role: "img", onmousemove: showTitle, onclick: onClick },
    title,
    more,
    [...paths].map(([kind, d]) => h("path", { d, class: `fill-${kind}` })),
  );
}

const openRun = (run) => {
  if (run) location.hash = routeTo("runs", run);
};

const addMark = (paths, kind, d) => paths.set(kind, (paths.get(kind) || "") + d);

// The most recent occurrences: a tall mark ran, a short one did not.
export function outcomeStrip(marks, { cells = 48, label = "" } = {}) {
  const shown = marks.slice(-cells),
    first = cells - shown.length;
  const stateOf = (mark) => (mark.dropped ? "dropped" : mark.state);
  const paths = new Map(),
    sums = new Map();
  shown.forEach((mark, n) => {
    const ran = mark.started_at !== null || mark.state === "leased";
    addMark(paths, stateTone(stateOf(mark)), `M${(first + n) * 7} ${ran ? 2 : 9}h5v${ran ? 16 : 5}h-5z`);
    sums.set(mark.state, (sums.get(mark.state) || 0) + 1);
  });
  const describe = (n) => {
    const mark = shown[n],
      took = secondsBetween(mark.started_at, mark.finished_at);
    const state = `${stateText(stateOf(mark))}${mark.dropped ? ` × ${mark.dropped}` : ""}`;
    const reason = mark.reason ? ` (${reasonText(mark.reason)})` : "";
    const length = took === null ? "" : `, ${formatDuration(took)}`;
    return `${formatTime(mark.planned_at)} ${state}${reason}${length}`;
  };
  const counts = [...sums].map(([state, count]) => `${count} ${stateText(state)}`).join(", ");
  const props = {
    viewBox: `0 0 ${cells * 7} 20`,
    "aria-label": `${label} last ${shown.length} occurrences: ${counts || "none yet"}`,
    class: "strip",
  };
  return markChart(props, {
    paths,
    count: shown.length,
    nearest: (share) => Math.floor(share * cells) - first,
    describe,
    open: (n) => openRun(shown[n].run),
  });
}

// The results of counts by minute, from the bottom of a bar to its top, with the text of the legend.
export const RESULTS = [
  ["succeeded", "good", "succeeded"],
  ["cancelled", "mute", "cancelled"],
  ["skipped", "mute", "skipped"],
  ["missed", "wait", "missed"],
  ["parked", "warn", "parked"],
  ["failed", "bad", "failed"],
];

const PLOT = { width: 1000, height: 100 };
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

/** The labels of a time axis. @param {{since: string, until: string}} series */
export function timeAxis({ since, until }) {
  const from = Date.parse(since),
    span = Date.parse(until) - from;
  return h(
    "div",
    { class: "axis x", "aria-hidden": "true" },
    timeTicks(from, span).map(({ at, text }) =>
      h("span", { style: { left: `${(((at - from) / span) * 100).toFixed(2)}%` } }, text),
    ),
  );
}

// How many runs of a cell are in which state.
const statesOf = (cell) => ((cell.count || 1) > 1 ? cell.others : { [cell.state]: 1 });

const CELL = {
  failed: [1, 18],
  parked: [1, 18],
  leased: [4, 12],
  ready: [4, 12],
  skipped: [8, 4],
  cancelled: [8, 4],
};

/**
 * The runs of one schedule, a cell for each slot that has any.
 * @param {any} row @param {{slots: number, open: (cell: any) => void}} options
 */
export function gridStrip(row, { slots, open }) {
  const paths = new Map(),
    sums = new Map(),
    cells = new Map(row.cells.map((cell) => [cell.slot, cell]));
  for (const cell of row.cells) {
    const [top, tall] = CELL[cell.state] || [4, 12];
    addMark(paths, stateTone(cell.state), `M${cell.slot * 10 + 0.5} ${top}h9v${tall}h-9z`);
    for (const [state, count] of Object.entries(statesOf(cell)))
      sums.set(state, (sums.get(state) || 0) + count);
  }
  const text = (counts) => [...counts].map(([state, count]) => `${count} ${stateText(state)}`).join(", ");
  const describe = (n) => {
    const cell = cells.get(n);
    return cell ? `${row.schedule} ${formatTime(cell.at)}: ${text(Object.entries(statesOf(cell)))}` : "";
  };
  return markChart(
    {
      viewBox: `0 0 ${slots * 10} 20`,
      preserveAspectRatio: "none",
      class: "cells",
      "aria-label": `${row.schedule}: ${text(sums) || "no runs"}`,
    },
    {
      paths,
      count: slots,
      nearest: (share) => Math.floor(share * slots),
      describe,
      open: (n) => cells.has(n) && open(cells.get(n)),
    },
  );
}

// The next of 1, 2, 4, 6, 8, 10, 20 … that is not below a value.
function niceTop(value) {
  if (!(value > 0)) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].find((step) => step * unit >= value) * unit;
}

// The same in the largest unit that fits: 4 m, not 6 m 40 s.
function niceDuration(seconds) {
  const unit = [3600, 60].find((one) => seconds >= one) || 1;
  return niceTop(seconds / unit) * unit;
}

// Labels of a time axis at round times of the browser's zone: ten minutes, three hours or a day apart.
function timeTicks(from, span) {
  const hours = span / 3_600_000;
  const apart = hours <= 2 ? 600_000 : hours <= 30 ? 3 * 3_600_000 : 86_400_000;
  const offset = new Date(from).getTimezoneOffset() * 60_000;
  const ticks = [];
  for (let at = Math.ceil((from - offset) / apart) * apart + offset; at < from + span; at += apart) {
    const iso = new Date(at).toISOString();
    ticks.push({ at, text: apart === 86_400_000 ? day(iso) : minute(iso) });
  }
  return ticks;
}

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

const length = (text) => formatDuration(parseDuration(text));

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

// Values over time, newest on the right: a line, and a mark for each value.
/**
 * @param {any[]} points
 * @param {{label: string, format?: (value: any) => string, height?: number}} options
 */
export function lineChart(points, { label, format = String, height = 54 }) {
  const width = 600;
  let top = 0,
    bottom = 0;
  for (const { value } of points) {
    if (value > top) top = value;
    if (value < bottom) bottom = value;
  }
  const reach = top - bottom || 1,
    wide = (width - 8) / Math.max(1, points.length - 1),
    half = Math.min(2.2, Math.max(0.4, wide / 3));
  const vertices = [],
    paths = new Map();
  points.forEach((point, n) => {
    const x = Math.round((4 + n * wide) * 10) / 10,
      y = Math.round((height - 5 - ((point.value - bottom) / reach) * (height - 10)) * 10) / 10;
    vertices.push(`${x},${y}`);
    addMark(paths, stateTone(point.state), `M${x - half} ${y - 2.2}h${half * 2}v4.4h${-half * 2}z`);
  });
  const last = points[points.length - 1].value;
  const describe = (n) =>
    `${formatTime(points[n].at)} ${format(points[n].value)}` +
    (points[n].state === "succeeded" ? "" : ` (${stateText(points[n].state)})`);
  const props = {
    viewBox: `0 0 ${width} ${height}`,
    "aria-label": `${label}: ${points.length} values, last ${format(last)}, highest ${format(top)}`,
    preserveAspectRatio: "none",
    class: "chart low",
  };
  const nearest = (share) => Math.round((share * width - 4) / wide);
  return h(
    "figure",
    { class: "trend" },
    markChart(
      props,
      { paths, count: points.length, nearest, describe, open: (n) => openRun(points[n].run) },
      h("polyline", { points: vertices.join(" "), class: "trace" }),
    ),
    h(
      "figcaption",
      null,
      h("span", null, label),
      h("span", null, `last ${format(last)}, max ${format(top)}`),
    ),
  );
}

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
          `${hour.starts} starts, ${formatDuration(hour.seconds)} of work\n${who}`,
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

const compactNumber = (n) =>
  n > 0 && n < 0.5
    ? "<1"
    : n >= 10000
      ? `${Math.round(n / 1000)}k`
      : n >= 1000
        ? `${(n / 1000).toFixed(1)}k`
        : String(Math.round(n));

export function gauge(used, max, label, text = `${used} of ${max}`) {
  const share = max ? Math.min(1, used / max) : 0;
  return h(
    "div",
    {
      class: "gauge",
      role: "meter",
      "aria-label": label,
      "aria-valuemin": "0",
      "aria-valuemax": String(max),
      "aria-valuenow": String(used),
    },
    h("div", { class: share >= 1 ? "full" : "", style: { width: `${share * 100}%` } }),
    h("span", null, text),
  );
}
