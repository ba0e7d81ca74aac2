// The shape of a run in a strip or in the grid. States differ in shape as well as in colour.

import { h } from "../base/dom.js";
import { stateText, stateTone } from "../base/states.js";

const block = (top, height) => (x, width) => `M${x} ${top}h${width}v${height}h${-width}z`;
const SHAPES = {
  succeeded: block(4, 12),
  failed: block(1, 18),
  parked: (x, width) => block(1, 7)(x, width) + block(12, 7)(x, width),
  // A triangle that points to the right.
  leased: (x, width) => `M${x} 3l${width} 7l${-width} 7z`,
  ready: block(7, 6),
  held: block(7, 6),
  skipped: block(9, 3),
  dropped: block(9, 3),
  missed: block(15, 4),
  // A frame: the inner corners run the other way round, which leaves a hole.
  cancelled: (x, width) => block(4, 12)(x, width) + `M${x + width / 4} 7v6h${width / 2}v-6z`,
};

/**
 * The path of a cell in a drawing of height 20.
 * @param {string} state @param {number} x @param {number} width
 */
export const cellPath = (state, x, width) => (SHAPES[state] || SHAPES.succeeded)(x, width);

/** The shapes and colours of states, with their names. @param {string[]} states */
export const cellLegend = (states) =>
  states.map((state) =>
    h(
      "span",
      { class: "cell-sample" },
      h(
        "svg",
        { viewBox: "0 0 10 20", "aria-hidden": "true" },
        h("path", { d: cellPath(state, 0.5, 9), class: `fill-${stateTone(state)}` }),
      ),
      stateText(state),
    ),
  );
