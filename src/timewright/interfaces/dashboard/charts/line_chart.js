// Values over time.

import { h } from "../base/dom.js";
import { stateText, stateTone } from "../base/states.js";
import { formatTime } from "../base/times.js";
import { addMark, markChart, openRun } from "./marks.js";

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
