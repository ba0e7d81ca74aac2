// Every instance that runs what is due: whether it is alive, what it decides and holds, how true its clock.

import { get } from "../api.js";
import { gauge } from "../charts.js";
import { h } from "../dom.js";
import { badge } from "../states.js";
import { seconds, span } from "../times.js";
import { empty, link, panel, place, remedy, table, time } from "../widgets.js";

export default {
  title: () => "Instances",
  every: 5,
  async load() {
    const [told, leased, doctor] = await Promise.all([get(["instances"]), get(["runs"], { state: "leased", limit: 1000 }), get(["doctor"]).catch(() => ({ findings: [] }))]);
    return { ...told, runs: leased.runs, findings: doctor.findings };
  },
  view(data) {
    const held = new Map();
    for (const run of data.runs) held.set(run.holder, [...(held.get(run.holder) || []), run]);
    const rows = data.instances.map((one) => ({ key: one.instance, cells: [badge(one.state), h("span", { class: "names" }, h("span", { title: one.instance }, one.host || short(one.instance)), h("span", { class: "tag", title: one.instance }, short(one.instance)), h("span", { class: "mute" }, one.version)), h("span", null, "up ", time(one.started_at, undefined, "for"), h("div", { class: "mute" }, "seen ", time(one.seen_at, undefined, "away"))), decides(one), gauge(one.under_way, one.capacity, `runs under way at ${one.host}`), holds(held.get(one.instance) || []), clock(one)] }));
    const known = new Set(data.instances.map((one) => one.instance));
    const outside = [...held].filter(([holder]) => !known.has(holder)).map(([holder, runs]) => ({ key: holder, cells: [holder || "nobody", String(runs.length), time(runs.map((run) => run.lease_until).sort()[0], undefined, "due"), holds(runs)] }));
    return h("div", { class: "screen" }, warned(data),
      rows.length ? panel("Instances", table("instances", [{ name: "", kind: "tight" }, { name: "on", kind: "main" }, { name: "alive", kind: "tight" }, { name: "decides" }, { name: "under way" }, { name: "holds" }, { name: "clock", kind: "tight" }], rows), { note: "each tells of itself every 15 s" }) : empty("No instance has told of itself within a day. To start one:", "timewright up"),
      outside.length ? panel("Others who hold leases", table("holders", [{ name: "holder", kind: "main" }, { name: "leases", kind: "tight" }, { name: "first to end", kind: "tight" }, { name: "holds" }], outside), { note: "workflows, and workers of your own by queue lease" }) : null);
  },
};

// What the doctor says of those who share the store: no leader, a part that nobody serves, leases nobody took back.
const FLEET = ["leader", "shards", "due", "leases", "policy_file"];
function warned({ instances, findings }) {
  const none = instances.length && !instances.some((one) => one.state === "alive") ? [{ check: "alive", says: "No instance is alive: nothing starts until one is.", fix: "timewright up" }] : [];
  const said = [...none, ...findings.filter((one) => one.status !== "ok" && FLEET.includes(one.check) && !(none.length && one.check === "due"))];
  return said.length ? h("div", { class: "failure", role: "alert" }, said.map((one) => h("div", { key: one.check }, h("strong", null, one.says), remedy(one.fix)))) : null;
}

const split = (shard) => Boolean(shard) && !shard.endsWith("/1");

function decides(one) {
  if (one.state === "stopped") return h("span", { class: "mute" }, "nothing any more");
  if (one.admit === "leader") return one.leads ? h("span", { class: "badge good" }, h("span", { class: "sign", "aria-hidden": "true" }, "★"), "leads: all that is due") : h("span", { class: "mute" }, "stands by for the leader");
  return split(one.shard) ? `part ${one.shard} of what is due` : "all that is due";
}

const FEW = 5;
function holds(runs) {
  if (!runs.length) return h("span", { class: "mute" }, "nothing");
  return h("span", { class: "names" }, runs.slice(0, FEW).map((run) => link(place("runs", run.id), `${run.schedule || run.queue || "run"} …${run.id.slice(-4)}`)), runs.length > FEW ? h("span", { class: "mute" }, `and ${runs.length - FEW} more`) : null);
}

const short = (id) => (id.length > 20 ? `…${id.slice(-6)}` : id);

function clock(one) {
  const off = (seconds(String(one.clock_offset).replace("-", "")) || 0);
  if (off < 0.1) return h("span", { class: "mute" }, "as the store's");
  return h("span", { class: off > 1 ? "warn" : "mute" }, `${span(off)} ${String(one.clock_offset).startsWith("-") ? "ahead" : "behind"}`);
}
