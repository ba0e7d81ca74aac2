// Every instance that runs what is due: whether it is alive, how full it is, how true its clock.

import { get } from "../api.js";
import { gauge } from "../charts.js";
import { h } from "../dom.js";
import { badge } from "../states.js";
import { seconds, span } from "../times.js";
import { empty, link, panel, place, table, time } from "../widgets.js";

export default {
  title: () => "Instances",
  every: 5,
  async load() {
    const [told, leased] = await Promise.all([get(["instances"]), get(["runs"], { state: "leased", limit: 1000 })]);
    return { ...told, runs: leased.runs };
  },
  view(data) {
    const known = new Set(data.instances.map((one) => one.instance));
    const rows = data.instances.map((one) => ({ key: one.instance, cells: [badge(one.state), h("span", { class: "names" }, h("span", { title: one.instance }, one.host || short(one.instance)), h("span", { class: "tag", title: one.instance }, short(one.instance))), one.version, time(one.started_at, undefined, "away"), time(one.seen_at, undefined, "away"), gauge(one.under_way, one.capacity, `runs under way at ${one.host}`), clock(one)] }));
    const others = new Map();
    for (const run of data.runs) if (!known.has(run.holder)) others.set(run.holder, [...(others.get(run.holder) || []), run]);
    const outside = [...others].map(([holder, runs]) => ({ key: holder, cells: [holder || "nobody", String(runs.length), time(runs.map((run) => run.lease_until).sort()[0], undefined, "away"), h("span", { class: "names" }, runs.slice(0, 5).map((run) => link(place("runs", run.id), `${run.schedule || run.queue || "run"} …${run.id.slice(-4)}`)), runs.length > 5 ? h("span", { class: "mute" }, `and ${runs.length - 5} more`) : null)] }));
    return h("div", { class: "screen" },
      rows.length ? panel("Instances", table("instances", [{ name: "", kind: "tight" }, { name: "on" }, { name: "version", kind: "tight" }, { name: "started", kind: "tight" }, { name: "last seen", kind: "tight" }, { name: "under way" }, { name: "clock", kind: "tight" }], rows), { note: "each tells of itself every 15 s" }) : empty("No instance has told of itself within a day. To start one:", "timewright up"),
      outside.length ? panel("Others who hold leases", table("holders", [{ name: "holder" }, { name: "leases", kind: "tight" }, { name: "first to end", kind: "tight" }, { name: "of" }], outside), { note: "workers of your own, by queue lease" }) : null);
  },
};

const short = (id) => (id.length > 20 ? `…${id.slice(-6)}` : id);

function clock(one) {
  const off = (seconds(String(one.clock_offset).replace("-", "")) || 0);
  if (off < 0.1) return h("span", { class: "mute" }, "as the store's");
  return h("span", { class: off > 1 ? "warn" : "mute" }, `${span(off)} ${String(one.clock_offset).startsWith("-") ? "ahead" : "behind"}`);
}
