// A dependency graph as SVG: boxes in layers, an edge from each box to those that need it.

import { h } from "./dom.js";
import { stateSign, stateTone, stateText } from "./states.js";
import { routeTo, scrollArea } from "./widgets.js";

const COLUMN_WIDTH = 190,
  ROW_HEIGHT = 62,
  BOX_WIDTH = 156,
  BOX_HEIGHT = 42;

// Layers go from left to right, each centred in its column. A box links to its run or to `step.to`.
export function dependencyGraph(graph, label = `steps of ${graph.workflow}`) {
  const layers = new Map();
  for (const step of graph.steps) layers.set(step.layer, [...(layers.get(step.layer) || []), step]);
  const tallest = Math.max(1, ...[...layers.values()].map((layer) => layer.length));
  const positions = new Map();
  for (const [layer, steps] of layers)
    steps.forEach((step, n) =>
      positions.set(step.step, {
        step,
        x: (layer - 1) * COLUMN_WIDTH + 6,
        y: 6 + ((tallest - steps.length) / 2 + n) * ROW_HEIGHT,
      }),
    );
  const width = layers.size * COLUMN_WIDTH - (COLUMN_WIDTH - BOX_WIDTH) + 12,
    height = tallest * ROW_HEIGHT - (ROW_HEIGHT - BOX_HEIGHT) + 12;
  const lines = [...positions.values()].flatMap(({ step, x, y }) =>
    step.needs
      .map((need) => positions.get(need))
      .filter(Boolean)
      .map((from) =>
        h("path", {
          d: `M${from.x + BOX_WIDTH} ${from.y + BOX_HEIGHT / 2} C ${from.x + BOX_WIDTH + 18} ${from.y + BOX_HEIGHT / 2}, ${x - 18} ${y + BOX_HEIGHT / 2}, ${x} ${y + BOX_HEIGHT / 2}`,
          class: "edge",
        }),
      ),
  );
  const boxes = [...positions.values()].map(({ step, x, y }) => {
    const state = step.state
      ? `${stateSign(step.state)} ${stateText(step.state)}${step.left ? `, ${step.left} left` : ""}`
      : "";
    const box = h(
      "g",
      null,
      h(
        "title",
        null,
        `${step.step}${state ? `: ${stateText(step.state)}` : ""}${step.reason ? `\n${step.reason}` : ""}`,
      ),
      h("rect", {
        x,
        y,
        width: BOX_WIDTH,
        height: BOX_HEIGHT,
        rx: 7,
        class: `step stroke-${stateTone(step.state)}${step.own ? " own" : ""}`,
      }),
      h("text", { x: x + 11, y: y + (state ? 18 : 26), class: "name" }, cut(step.step)),
      state ? h("text", { x: x + 11, y: y + 33, class: `label fill-${stateTone(step.state)}` }, state) : null,
    );
    const to = step.to || (step.run ? routeTo("runs", step.run) : "");
    return to
      ? h("svg:a", { href: `#${to}`, "aria-label": `${step.step}: ${stateText(step.state)}` }, box)
      : box;
  });
  return scrollArea(
    h(
      "svg",
      {
        viewBox: `0 0 ${width} ${height}`,
        width,
        height,
        class: "graph",
        role: "group",
        "aria-label": label,
      },
      lines,
      boxes,
    ),
  );
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
