// What waits for what, drawn: boxes in layers, a line from each to those that need it.

import { h } from "./dom.js";
import { sign, tone, word } from "./states.js";
import { place } from "./widgets.js";

const WIDE = 190, TALL = 62, BOX = 156, HIGH = 42;

// Layers from left to right, each in the middle of its column; a line from each step to those that need it.
// A step leads to its run, or to whatever else it says.
export function drawing(graph, label = `steps of ${graph.workflow}`) {
  const layers = new Map();
  for (const step of graph.steps) layers.set(step.layer, [...(layers.get(step.layer) || []), step]);
  const most = Math.max(1, ...[...layers.values()].map((layer) => layer.length));
  const spots = new Map();
  for (const [layer, steps] of layers) steps.forEach((step, n) => spots.set(step.step, { step, x: (layer - 1) * WIDE + 6, y: 6 + ((most - steps.length) / 2 + n) * TALL }));
  const width = layers.size * WIDE - (WIDE - BOX) + 12, height = most * TALL - (TALL - HIGH) + 12;
  const lines = [...spots.values()].flatMap(({ step, x, y }) => step.needs.map((need) => spots.get(need)).filter(Boolean).map((from) =>
    h("path", { d: `M${from.x + BOX} ${from.y + HIGH / 2} C ${from.x + BOX + 18} ${from.y + HIGH / 2}, ${x - 18} ${y + HIGH / 2}, ${x} ${y + HIGH / 2}`, class: "edge" })));
  const boxes = [...spots.values()].map(({ step, x, y }) => {
    const state = step.state ? `${sign(step.state)} ${word(step.state)}${step.left ? `, ${step.left} left` : ""}` : "";
    const box = h("g", null, h("title", null, `${step.step}${state ? `: ${word(step.state)}` : ""}${step.reason ? `\n${step.reason}` : ""}`), h("rect", { x, y, width: BOX, height: HIGH, rx: 7, class: `step stroke-${tone(step.state)}${step.own ? " own" : ""}` }),
      h("text", { x: x + 11, y: y + (state ? 18 : 26), class: "name" }, cut(step.step)), state ? h("text", { x: x + 11, y: y + 33, class: `said fill-${tone(step.state)}` }, state) : null);
    const to = step.to || (step.run ? place("runs", step.run) : "");
    return to ? h("svg:a", { href: `#${to}`, "aria-label": `${step.step}: ${word(step.state)}` }, box) : box;
  });
  return h("div", { class: "scroll" }, h("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "drawing", role: "img", "aria-label": label }, lines, boxes));
}

const cut = (text) => (text.length > 19 ? `${text.slice(0, 18)}…` : text);

// The layer of each: one further right than the rightmost of what it needs; a circle ends where it began.
export function layered(needs) {
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
