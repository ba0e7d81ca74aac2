// The runs of one schedule over time, a cell for each slot.

import { stateText, stateTone } from "../base/states.js";
import { formatTime } from "../base/times.js";
import { cellPath } from "./cells.js";
import { addMark, markChart } from "./marks.js";

// How many runs of a cell are in which state.
const statesOf = (cell) => ((cell.count || 1) > 1 ? cell.others : { [cell.state]: 1 });
const countsText = (counts) => [...counts].map(([state, count]) => `${count} ${stateText(state)}`).join(", ");

/** The schedule, the time and the runs of a cell. */
export const cellText = (row, cell) =>
  `${row.schedule} ${formatTime(cell.at)}: ${countsText(Object.entries(statesOf(cell)))}`;

/**
 * The runs of one schedule, a cell for each slot that has any.
 * @param {any} row @param {{slots: number, open: (cell: any) => void}} options
 */
export function gridStrip(row, { slots, open }) {
  const paths = new Map(),
    sums = new Map(),
    cells = new Map(row.cells.map((cell) => [cell.slot, cell]));
  for (const cell of row.cells) {
    addMark(paths, stateTone(cell.state), cellPath(cell.state, cell.slot * 10 + 0.5, 9));
    for (const [state, count] of Object.entries(statesOf(cell)))
      sums.set(state, (sums.get(state) || 0) + count);
  }
  return markChart(
    {
      viewBox: `0 0 ${slots * 10} 20`,
      preserveAspectRatio: "none",
      class: "cells",
      "aria-label": `${row.schedule}: ${countsText(sums) || "no runs"}`,
    },
    {
      paths,
      count: slots,
      nearest: (share) => Math.floor(share * slots),
      describe: (n) => (cells.has(n) ? cellText(row, cells.get(n)) : ""),
      open: (n) => cells.has(n) && open(cells.get(n)),
    },
  );
}
