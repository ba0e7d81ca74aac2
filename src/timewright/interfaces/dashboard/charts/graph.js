// A dependency graph as SVG: boxes in layers, an edge from each box to those that need it.

import { h } from "../base/dom.js";
import { stateSign, stateText, stateTone } from "../base/states.js";
import { button, scrollArea } from "../components/layout.js";
import { routeTo } from "../components/texts.js";

const COLUMN_WIDTH = 200,
  BOX_WIDTH = 156,
  BOX_HEIGHT = 42,
  GAP = 18,
  PASSAGE_HEIGHT = 12; // height of an edge that passes a layer
const ZOOM = { least: 0.25, most: 2, factor: 1.25, readable: 0.75 };

/**
 * @typedef {{step: string, layer: number, needs: string[], state?: string, run?: string, to?: string, left?:
 *   number,
 *   reason?: string, own?: boolean, items?: Record<string, number>}} GraphStep
 * @typedef {{name: string, layer: number, height: number, y: number, step?: GraphStep}} Place a box, or the
 *   place
 *   where a long edge passes a layer
 */

/**
 * Assign each step a place, and each edge the places that it passes, so that no edge runs behind a box.
 * @param {GraphStep[]} steps
 */
function layOut(steps) {
  /** @type {Place[][]} */
  const layers = [];
  const place = (one) => {
    (layers[one.layer - 1] = layers[one.layer - 1] || []).push(one);
    return one;
  };
  const boxes = new Map(
    steps.map((step) => [
      step.step,
      place({ name: step.step, layer: step.layer, height: BOX_HEIGHT, y: 0, step }),
    ]),
  );
  /** @type {Place[][]} */
  const edges = [];
  for (const { step, layer } of boxes.values())
    for (const need of step.needs) {
      const from = boxes.get(need);
      if (!from) continue;
      const path = [from];
      for (let passed = from.layer + 1; passed < layer; passed++)
        path.push(place({ name: `${need}>${step.step}`, layer: passed, height: PASSAGE_HEIGHT, y: 0 }));
      edges.push([...path, boxes.get(step.step)]);
    }
  const before = new Map();
  for (const path of edges)
    for (let n = 1; n < path.length; n++) before.set(path[n], [...(before.get(path[n]) || []), path[n - 1]]);
  const middle = (one) => {
    const sources = before.get(one) || [];
    return sources.length
      ? sources.reduce((sum, from) => sum + from.y + from.height / 2, 0) / sources.length
      : 0;
  };
  const heightOf = (layer) => layer.reduce((sum, one) => sum + one.height + GAP, -GAP);
  const height = Math.max(BOX_HEIGHT, ...layers.filter(Boolean).map(heightOf));
  for (const layer of layers.filter(Boolean)) {
    if (layer[0].layer > 1) layer.sort((one, other) => middle(one) - middle(other));
    let y = 6 + (height - heightOf(layer)) / 2;
    for (const one of layer) {
      one.y = y;
      y += one.height + GAP;
    }
  }
  return {
    boxes,
    edges,
    width: layers.length * COLUMN_WIDTH - (COLUMN_WIDTH - BOX_WIDTH) + 12,
    height: height + 12,
  };
}

const left = (one) => (one.layer - 1) * COLUMN_WIDTH + 6;
const centre = (one) => one.y + one.height / 2;

/** @param {Place[]} path */
function edgePath(path) {
  let d = `M${left(path[0]) + BOX_WIDTH} ${centre(path[0])}`;
  for (let n = 1; n < path.length; n++) {
    const [from, to] = [path[n - 1], path[n]];
    const [start, end] = [left(from) + BOX_WIDTH, left(to)];
    const half = (start + end) / 2;
    d += ` C ${half} ${centre(from)}, ${half} ${centre(to)}, ${end} ${centre(to)}`;
    if (!to.step) d += ` H ${end + BOX_WIDTH}`;
  }
  return d;
}

const SHOWN_ITEMS = ["succeeded", "failed", "parked", "leased", "ready", "cancelled", "skipped"];
/** "12 × ✔11 ✖1": how the items of a step ended. @param {Record<string, number>} [items] */
export function itemCounts(items = {}) {
  const total = Object.values(items).reduce((sum, count) => sum + count, 0);
  if (!total) return "";
  const parts = SHOWN_ITEMS.filter((state) => items[state]).map(
    (state) => `${stateSign(state)}${items[state]}`,
  );
  return `${total} × ${parts.join(" ")}`;
}

/** @param {GraphStep} step */
function stepText(step) {
  if (!step.state) return "";
  const items = itemCounts(step.items);
  if (items) return items;
  return `${stateSign(step.state)} ${stateText(step.state)}${step.left ? `, ${step.left} left` : ""}`;
}

/**
 * Layers go from left to right, each centred in its column. A box links to its run or to `step.to`.
 * @param {{steps: GraphStep[], workflow?: string}} graph @param {string} [label]
 * @param {{zoom?: number | null, onZoom?: (zoom: number) => void}} [options] a zoom of 0 fits the graph
 *   into the page, and null does so as far as its text stays readable
 */
export function dependencyGraph(graph, label = `steps of ${graph.workflow}`, { zoom = 1, onZoom } = {}) {
  const { boxes, edges, width, height } = layOut(graph.steps);
  const svg = h(
    "svg",
    {
      viewBox: `0 0 ${width} ${height}`,
      width: zoom ? Math.round(width * zoom) : width,
      height: zoom ? Math.round(height * zoom) : height,
      class: zoom ? "graph" : "graph fit",
      style: { minWidth: zoom === null ? `${Math.round(width * ZOOM.readable)}px` : "" },
      role: "group",
      "aria-label": label,
    },
    edges.map((path) => h("path", { d: edgePath(path), class: "edge" })),
    [...boxes.values()].map((one) => boxNode(one)),
  );
  return onZoom ? h("div", { class: "zoomable" }, zoomTools(zoom, onZoom), scrollArea(svg)) : scrollArea(svg);
}

function zoomTools(zoom, onZoom) {
  const by = (factor) => onZoom(Math.min(ZOOM.most, Math.max(ZOOM.least, (zoom || 1) * factor)));
  return h(
    "div",
    { class: "zoom", role: "group", "aria-label": "Zoom" },
    button("−", () => by(1 / ZOOM.factor), { title: "zoom out" }),
    button("+", () => by(ZOOM.factor), { title: "zoom in" }),
    button("fit", () => onZoom(0), { title: "fit into the page" }),
  );
}

/** @param {Place} place */
function boxNode({ step, y, layer, name }) {
  const x = left({ layer });
  const state = stepText(step);
  const box = h(
    "g",
    null,
    h("title", null, [name, state, step.reason].filter(Boolean).join("\n")),
    h("rect", {
      x,
      y,
      width: BOX_WIDTH,
      height: BOX_HEIGHT,
      rx: 7,
      class: `step stroke-${stateTone(step.state)}${step.own ? " own" : ""}`,
    }),
    h("text", { x: x + 11, y: y + (state ? 18 : 26), class: "name" }, cut(name)),
    state ? h("text", { x: x + 11, y: y + 33, class: `label fill-${stateTone(step.state)}` }, state) : null,
  );
  const to = step.to || (step.run ? routeTo("runs", step.run) : "");
  return to
    ? h("svg:a", { href: `#${to}`, "aria-label": `${name}: ${state || stateText(step.state)}` }, box)
    : box;
}

const cut = (text) => (text.length > 19 ? `${text.slice(0, 18)}…` : text);

// Assign each node to the layer after the last of its needs; cycles are cut.
export function assignLayers(needs) {
  const layers = new Map();
  const layer = (name, seen) => {
    if (layers.has(name)) return layers.get(name);
    const before = (needs.get(name) || []).filter((one) => needs.has(one) && !seen.has(one));
    const at = 1 + Math.max(0, ...before.map((one) => layer(one, new Set([...seen, name]))));
    layers.set(name, at);
    return at;
  };
  for (const name of needs.keys()) layer(name, new Set());
  return layers;
}
