// Whom a schedule waits for and who waits for it: those beside it in words, and all of them drawn.

import { get } from "./api.js";
import { h } from "./dom.js";
import { drawing, layered } from "./graph.js";
import { afterwards, draw } from "./main.js";
import { badge } from "./states.js";
import { link, panel, place, prose, time } from "./widgets.js";

const MOST = 24; // schedules of one drawing; a longer chain is followed by going there
let known = { of: "", links: "", details: new Map(), more: false };

// Whom it waits for, with when that was last so, and who waits for it.
export function chain(detail) {
  const { upstream = [], downstream = [], schedule } = detail;
  if (!upstream.length && !downstream.length) return null;
  learn(detail);
  const named = (one) => link(place("schedules", one.schedule), one.schedule);
  const before = upstream.map((one) => h("li", { key: `u${one.kind}${one.schedule}` }, h("div", { class: "line" }, badge(one.met_at ? "met" : "waiting"), named(one), h("span", { class: "mute grow" }, one.kind === "after" ? `each ${one.on} starts a run` : prose(one.words)), one.met_at ? link(place("runs", one.met_by), time(one.met_at, schedule.trigger.zone, "away")) : h("span", { class: "mute" }, "not yet"))));
  const behind = downstream.map((one) => h("li", { key: `d${one.kind}${one.schedule}` }, h("div", { class: "line" }, named(one), h("span", { class: "mute" }, `${one.kind === "after" ? "runs after it" : "needs it"}, on ${one.on}`))));
  return panel("Chain", h("div", null, picture(schedule.name), before.length ? [h("h3", null, "It waits for"), h("ul", { class: "lines" }, before)] : null, behind.length ? [h("h3", null, "These wait for it"), h("ul", { class: "lines" }, behind)] : null));
}

const beside = ({ upstream = [], downstream = [] }) => [...upstream, ...downstream].map((one) => one.schedule);

// The neighbours of neighbours are asked for once, ring by ring, when the page is seen, and again when a link has changed.
function learn(detail) {
  const of = detail.schedule.name, links = JSON.stringify(beside(detail));
  if (known.of === of && known.links === links) { known.details.set(of, detail); return; }
  known = { of, links, details: new Map([[of, detail]]), more: false };
  afterwards(() => walk(known));
}

async function walk(mine) {
  for (;;) {
    const wanted = [...new Set([...mine.details.values()].flatMap(beside))].filter((name) => !mine.details.has(name));
    const ring = wanted.slice(0, MOST - mine.details.size);
    mine.more = ring.length < wanted.length;
    if (!ring.length) break;
    const told = await Promise.all(ring.map((name) => get(["schedules", name]).catch(() => ({ schedule: { name }, standing: { state: "unknown" } }))));
    ring.forEach((name, n) => mine.details.set(name, told[n]));
  }
  if (mine === known) draw();
}

function picture(own) {
  const { details, more } = known;
  if (details.size < 2) return null;
  const needs = new Map([...details].map(([name, { upstream = [] }]) => [name, upstream.map((one) => one.schedule)]));
  const layers = layered(needs);
  const steps = [...details].map(([name, { standing }]) => ({ step: name, layer: layers.get(name), needs: needs.get(name), state: standing.state === "active" && standing.failures ? "failed" : standing.state, reason: standing.reason, to: place("schedules", name), own: name === own }));
  return h("div", null, drawing({ steps }, `what waits for what around ${own}`), more ? h("p", { class: "mute" }, `the nearest ${MOST} are drawn`) : null);
}
