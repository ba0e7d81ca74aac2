// The steps of a workflow run as rows of a waterfall.

import { h } from "../../base/dom.js";
import { stateSign, stateText, stateTone } from "../../base/states.js";
import { formatDuration, now } from "../../base/times.js";
import { itemCounts } from "../../charts/graph.js";
import { waterfall } from "../../charts/waterfall.js";
import { routeTo } from "../../components/texts.js";
import { one, retryFrom, toggleItems, view } from "./workflows.js";

const MIN_COLLAPSED_ITEMS = 4;

// A bar for each step run; the items of a step are one row until they are opened.
export function stepTimeline(name, graph, run) {
  const groups = new Map();
  for (const one of graph.runs) groups.set(one.step, [...(groups.get(one.step) || []), one]);
  const rows = [...groups].flatMap(([step, own]) => {
    if (own.length < MIN_COLLAPSED_ITEMS) return own.map((each) => stepRow(name, each, 0, run));
    const items = {};
    for (const each of own) items[each.state] = (items[each.state] || 0) + 1;
    const open = view.expanded.has(step);
    return [
      groupRow(name, step, own, items, open),
      ...(open ? own.map((each) => stepRow(name, each, 1, run)) : []),
    ];
  });
  return h(
    "div",
    null,
    waterfall(rows, { label: `timeline of ${name}` }),
    graph.more ? h("p", { class: "mute" }, `the first ${graph.runs.length} step runs are shown`) : null,
  );
}

const nowMs = () => now();
const startOf = (one) =>
  Date.parse(one.first_started_at || one.finished_at || new Date(nowMs()).toISOString());
const endOf = (one) => (one.finished_at ? Date.parse(one.finished_at) : nowMs());
const waitBar = (from, to) => ({
  from,
  to,
  kind: "wait",
  title: `waited ${formatDuration((to - from) / 1000)}`,
});

const stepName = (workflow, one) =>
  `${workflow} › ${one.step}${one.item === null || one.item === undefined ? "" : `[${one.item}]`}`;

function stepRow(workflow, one, level, run) {
  const [created, start, end] = [Date.parse(one.created_at), startOf(one), endOf(one)];
  const name = one.item === null ? one.step : `${one.step}[${one.item}]`;
  const waited = start - created;
  const took = one.state === "skipped" ? "skipped" : formatDuration((end - start) / 1000);
  const text = [
    `${stateSign(one.state)} ${took}`,
    waited > 50 && one.state !== "skipped" ? `after ${formatDuration(waited / 1000)}` : "",
    one.attempts > 1 ? `${one.attempts} attempts` : "",
  ];
  return {
    key: `${one.step}/${one.item}`,
    level,
    name: h(
      "a",
      {
        href: `#${routeTo("runs", one.run)}`,
        title: `${stepName(workflow, one)}: ${stateText(one.state)}${one.reason ? `\n${one.reason}` : ""}`,
      },
      name,
    ),
    bars: [
      waitBar(created, start),
      {
        from: start,
        to: end,
        kind: one.finished_at ? stateTone(one.state) : one.first_started_at ? "busy" : "wait",
        title: `${stepName(workflow, one)}: ${stateText(one.state)}, ${formatDuration((end - start) / 1000)}`,
      },
    ],
    text: h("span", null, text.filter(Boolean).join(", "), retryFrom(one, run)),
  };
}

function groupRow(workflow, step, own, items, open) {
  const [start, end] = [Math.min(...own.map(startOf)), Math.max(...own.map(endOf))];
  const created = Math.min(...own.map((one) => Date.parse(one.created_at)));
  const worst = ["failed", "parked", "leased", "ready", "cancelled", "succeeded"].find(
    (state) => items[state],
  );
  return {
    key: `${step}/*`,
    name: h(
      "button",
      {
        type: "button",
        class: "plain",
        "aria-expanded": String(open),
        "aria-label": `items of ${stepName(workflow, { step })}`,
        onclick: () => toggleItems(step),
      },
      `${open ? "▾" : "▸"} ${step}`,
    ),
    bars: [
      waitBar(created, start),
      { from: start, to: end, kind: stateTone(worst), title: `${step}: ${itemCounts(items)}` },
    ],
    text: `${itemCounts(items)}, ${formatDuration((end - start) / 1000)}`,
  };
}
