// The most recent occurrences of a schedule in one line.

import { reasonText, stateText, stateTone } from "../base/states.js";
import { formatDuration, formatTime, secondsBetween } from "../base/times.js";
import { cellPath } from "./cells.js";
import { addMark, markChart, openRun } from "./marks.js";

// The most recent occurrences, each in the shape and colour of its state.
export function outcomeStrip(marks, { cells = 48, label = "" } = {}) {
  const shown = marks.slice(-cells),
    first = cells - shown.length;
  const stateOf = (mark) => (mark.dropped ? "dropped" : mark.state);
  const paths = new Map(),
    sums = new Map();
  shown.forEach((mark, n) => {
    addMark(paths, stateTone(stateOf(mark)), cellPath(stateOf(mark), (first + n) * 7, 5));
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
    preserveAspectRatio: "none",
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
