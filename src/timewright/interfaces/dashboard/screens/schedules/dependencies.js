// The schedules that a schedule depends on and those that depend on it, as lists and as a graph.

import { afterPaint, requestPaint } from "../../app/paint.js";
import { get } from "../../base/api.js";
import { h } from "../../base/dom.js";
import { badge } from "../../base/states.js";
import { assignLayers, dependencyGraph } from "../../charts/graph.js";
import { panel } from "../../components/layout.js";
import { link, linkedText, routeTo, time } from "../../components/texts.js";

const MAX_NODES = 24; // schedules in one graph
let graph = { of: "", links: "", details: new Map(), more: false };

// The panel: upstream with the last time each was satisfied, and downstream.
export function dependencyPanel(detail) {
  const { upstream = [], downstream = [], schedule } = detail;
  if (!upstream.length && !downstream.length) return null;
  loadGraph(detail);
  const named = (one) => link(routeTo("schedules", one.schedule), one.schedule);
  const before = upstream.map((one) =>
    h(
      "li",
      { key: `u${one.kind}${one.schedule}` },
      h(
        "div",
        { class: "line" },
        badge(one.met_at ? "met" : "waiting"),
        named(one),
        h(
          "span",
          { class: "mute grow" },
          one.kind === "after" ? `each ${one.on} starts a run` : linkedText(one.words),
        ),
        one.met_at
          ? link(routeTo("runs", one.met_by), time(one.met_at, schedule.trigger.zone, "away"))
          : h("span", { class: "mute" }, "not yet"),
      ),
    ),
  );
  const after = downstream.map((one) =>
    h(
      "li",
      { key: `d${one.kind}${one.schedule}` },
      h(
        "div",
        { class: "line" },
        named(one),
        h("span", { class: "mute" }, `${one.kind === "after" ? "runs after it" : "needs it"}, on ${one.on}`),
      ),
    ),
  );
  return panel(
    "Dependencies",
    h(
      "div",
      null,
      graphOf(schedule.name),
      before.length ? [h("h3", null, "Upstream"), h("ul", { class: "lines" }, before)] : null,
      after.length ? [h("h3", null, "Downstream"), h("ul", { class: "lines" }, after)] : null,
    ),
  );
}

const neighbours = ({ upstream = [], downstream = [] }) =>
  [...upstream, ...downstream].map((one) => one.schedule);

// Fetch indirect neighbours level by level after the first paint, and again when a link changes.
function loadGraph(detail) {
  const of = detail.schedule.name,
    links = JSON.stringify(neighbours(detail));
  if (graph.of === of && graph.links === links) {
    graph.details.set(of, detail);
    return;
  }
  graph = { of, links, details: new Map([[of, detail]]), more: false };
  afterPaint(() => fetchNeighbours(graph));
}

async function fetchNeighbours(mine) {
  for (;;) {
    const wanted = [...new Set([...mine.details.values()].flatMap(neighbours))].filter(
      (name) => !mine.details.has(name),
    );
    const ring = wanted.slice(0, MAX_NODES - mine.details.size);
    mine.more = ring.length < wanted.length;
    if (!ring.length) break;
    const details = await Promise.all(
      ring.map((name) =>
        get(["schedules", name]).catch(() => ({ schedule: { name }, progress: { state: "ungraph" } })),
      ),
    );
    ring.forEach((name, n) => mine.details.set(name, details[n]));
  }
  if (mine === graph) requestPaint();
}

function graphOf(own) {
  const { details, more } = graph;
  if (details.size < 2) return null;
  const needs = new Map(
    [...details].map(([name, { upstream = [] }]) => [name, upstream.map((one) => one.schedule)]),
  );
  const layers = assignLayers(needs);
  const steps = [...details].map(([name, { progress }]) => ({
    step: name,
    layer: layers.get(name),
    needs: needs.get(name),
    state: progress.state === "active" && progress.failures ? "failed" : progress.state,
    reason: progress.reason,
    to: routeTo("schedules", name),
    own: name === own,
  }));
  return h(
    "div",
    null,
    dependencyGraph({ steps }, `dependencies of ${own}`),
    more ? h("p", { class: "mute" }, `the nearest ${MAX_NODES} are shown`) : null,
  );
}
