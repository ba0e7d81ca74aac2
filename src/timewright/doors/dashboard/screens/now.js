// What runs, what is due, what failed and why: the screen to keep open.

import { get } from "../api.js";
import { h } from "../dom.js";
import { afterwards, draw, look } from "../main.js";
import { badge, dot, reasoned, subject } from "../states.js";
import { between, follow, seconds, span } from "../times.js";
import { copied, empty, link, numbers, panel, place, table, time, verdict } from "../widgets.js";

// What runs and what is next is painted first; the hour behind us, instances and how the store does come right after it.
let charts = null;
let instances = null;
let asked = []; // what agents want to schedule
async function around() {
  condition();
  const first = !charts;
  const [drawn, told, wanted] = await Promise.all([import("../charts.js"), get(["instances"]).catch(() => ({ instances: instances || [] })), get(["approvals"]).catch(() => ({ approvals: [] }))]);
  [charts, instances, asked] = [drawn, told.instances, wanted.approvals];
  first ? look() : draw();
}

// How the store and the clock do is asked less often: it looks at files and settings too.
const CHECKED = ["clock", "zones", "store", "file", "due", "leases", "leader", "shards", "policy_file", "backlog", "backup"];
const RANK = { fail: 0, warn: 1, ok: 2 };
let checked = { at: 0, findings: [] };
function condition() {
  if (Date.now() - checked.at > 30_000) {
    checked = { ...checked, at: Date.now() };
    get(["doctor"]).then((told) => { checked = { ...checked, findings: told.findings.filter((one) => CHECKED.includes(one.check)) }; draw(); }, () => {});
  }
}

export default {
  title: () => "Now",
  every: 3,
  async load() {
    const first = !charts;
    const data = await get(["now"], first ? { back: "1m" } : {});
    follow(data.now);
    afterwards(around);
    return { ...data, whole: !first };
  },
  view(data) {
    const { numbers: n } = data;
    const late = seconds(data.late_by) || 0;
    const many = (count) => (count >= 1000 ? "1000+" : String(count));
    const quiet = data.whole && !n.running && !n.due && !n.failed && !n.parked && !n.waiting && !data.behind.some((b) => Object.keys(b.outcomes).length);
    return h("div", { class: "screen" }, late > 5 ? overdue(late) : null,
      numbers([
        ["running", many(n.running), "/runs?state=leased", n.running ? "busy" : ""],
        ["waiting", many(n.waiting), "/runs?state=ready", ""],
        ["due within the hour", many(n.due), "/schedules?state=active", ""],
        ["failed in a day", many(n.failed), "/runs?state=failed", n.failed ? "bad" : ""],
        ["parked", many(n.parked), "/runs?state=parked", n.parked ? "warn" : ""],
      ]),
      quiet ? empty(["Nothing ran in the last hour, and nothing is due in the next. ", link("/schedules", "Everything that is planned"), ", or a first schedule:"], "timewright schedule create hello --every 5s --note 'hello'") : null,
      h("div", { class: "columns" },
        h("div", null, asked.length ? panel("Asked for by agents", wishes(), { note: "none of it runs before a person agrees" }) : null, panel("Running", running(data)), panel("Next hour", coming(data), { more: link("/forecast", "forecast") }), instances ? panel("House", house(), { more: link("/instances", "instances") }) : null),
        !data.whole ? null : h("div", null,
          panel("The last hour", h("div", null, charts.stacked(data.behind, { label: "runs of the last hour by outcome" }), legend(data)), { note: data.more ? "the newest 1000 runs" : "" }),
          panel("Start delay", h("div", null, charts.delays(data.behind, { label: "start delay over the last hour" }), h("p", { class: "mute" }, data.delay.median === null ? "nothing has started" : `median ${span(seconds(data.delay.median))}, p95 ${span(seconds(data.delay.p95))}, longest ${span(seconds(data.delay.longest))}`))),
          panel("Failed in the last day", failed(data.failed), { more: link("/runs?state=failed", "all") }),
          data.parked.length ? panel("Parked: a person is needed", failed(data.parked), { more: link("/runs?state=parked", "all") }) : null)));
  },
};

function overdue(late) {
  const alive = instances && instances.some((one) => one.state === "alive");
  return h("div", { class: "failure", role: "alert" }, h("strong", null, `Something has been due for ${span(late)}, and nobody has looked at it.`), h("div", { class: "mute" }, alive ? "Instances are alive, but cannot keep up. One more beside them:" : "No engine seems to run. To start one:"), copied(alive ? "timewright worker" : "timewright up"));
}

// A schedule of an agent waits until a person has looked at it.
function wishes() {
  return h("ul", { class: "lines" }, asked.map((one) => h("li", { key: one.id, class: "line" }, link(place("schedules", one.name), one.name), h("span", { class: "mute grow ellipsis" }, one.trigger, one.created_by ? `, by ${one.created_by}` : ""), time(one.created_at, undefined, "away"))));
}

// As much as fits a screen is painted first, and the rest of a list a moment later.
const SCREENFUL = 8;
const shown = (rows) => (charts ? rows : rows.slice(0, SCREENFUL));

function running(data) {
  if (!data.running.length) return h("p", { class: "mute" }, "nothing runs at the moment");
  return h("ul", { class: "lines" }, shown(data.running).map((run) => h("li", { key: run.id },
    h("div", { class: "line" }, link(place("runs", run.id), subject(run)), h("span", { class: "mute grow ellipsis end" }, run.holder ? `by ${run.holder.length > 20 ? `…${run.holder.slice(-6)}` : run.holder}` : ""), time(run.started_at || run.fire_at, undefined, "away")),
    h("div", { class: "elapsed", title: "towards the end of its lease" }, h("div", { "data-since": run.started_at || run.fire_at, "data-limit": String(limit(run)) })))));
}

const limit = (run) => Math.max(1, between(run.started_at || run.fire_at, run.lease_until) || 300);

function coming(data) {
  if (!data.coming.length) return h("p", { class: "mute" }, "nothing is due within the hour");
  const more = data.numbers.due - data.coming.length;
  return h("ol", { class: "lines" }, shown(data.coming).map((row) => h("li", { key: row.id, class: "line" }, dot(row), link(place("schedules", row.name), row.name),
    h("span", { class: "mute grow ellipsis" }, row.trigger), time(row.next_at, undefined, "due"))), more > 0 ? h("li", { key: "more", class: "mute" }, data.numbers.due >= 1000 ? "and many more" : `and ${more} more`, ", in the order of their times") : null);
}

function failed(runs) {
  if (!runs.length) return h("p", { class: "mute" }, "nothing failed");
  return table("runs that failed", [{ name: "run" }, { name: "when", kind: "tight" }, { name: "why", kind: "cut" }], runs.slice(0, 8).map((run) => ({
    key: run.id, to: place("runs", run.id), cells: [h("span", { class: "names one" }, badge(run.state), link(place("runs", run.id), subject(run))), time(run.finished_at || run.planned_at, undefined, "away"), h("span", { title: run.error || reasoned(run.reason) }, run.error || reasoned(run.reason))],
  })));
}

function house() {
  const alive = instances.filter((one) => one.state === "alive");
  const room = alive.reduce((sum, one) => sum + one.capacity, 0), busy = alive.reduce((sum, one) => sum + one.under_way, 0);
  const lines = [h("li", { key: "instances", class: "line" }, verdict(alive.length ? "ok" : "warn"), h("span", { class: "grow" }, alive.length ? `${alive.length} ${alive.length === 1 ? "instance" : "instances"} alive, ${busy} of ${room} places taken` : "no instance is alive"))];
  for (const [n, one] of checked.findings.sort((a, b) => RANK[a.status] - RANK[b.status]).entries()) lines.push(h("li", { key: one.check + n, class: "line" }, verdict(one.status), h("span", { class: "grow" }, one.says)));
  return h("ul", { class: "lines" }, lines);
}

function legend(data) {
  const sums = {};
  for (const bin of data.behind) for (const [state, count] of Object.entries(bin.outcomes)) sums[state] = (sums[state] || 0) + count;
  return h("p", { class: "legend" }, Object.entries(sums).map(([state, count]) => h("span", null, badge(state), ` ${count} `)));
}
