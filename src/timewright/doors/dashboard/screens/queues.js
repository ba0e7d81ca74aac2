// Queues: how full each ceiling is, who holds a lease and until when, what waits and why.

import { get, may, post } from "../api.js";
import { gauge } from "../charts.js";
import { h } from "../dom.js";
import { look } from "../main.js";
import { tone } from "../states.js";
import { attempt, both, button, confirm, copied, empty, facts, link, pager, panel, place, quoted, table, time } from "../widgets.js";

const list = {
  title: () => "Queues",
  every: 4,
  async load(_path, params) {
    const [queues, limits, budgets, providers] = await Promise.all([get(["queues"], { cursor: params.cursor }), get(["limits"]), get(["budgets"]).catch(() => ({ budgets: [] })), get(["providers"]).catch(() => ({ providers: [] }))]);
    // Who names a budget and how many wait for it is told of one at a time.
    const detailed = await Promise.all(budgets.budgets.slice(0, 20).map((one) => get(["budgets", one.budget]).catch(() => one)));
    return { ...queues, limits: limits.limits, budgets: [...detailed, ...budgets.budgets.slice(20)], providers: providers.providers.filter((one) => one.closed_until) };
  },
  view(data, _path, params, go) {
    const rows = data.queues.map((q) => ({ key: q.queue, to: place("queues", q.queue), cells: [link(place("queues", q.queue), q.queue), gauge(q.in_flight, q.max_concurrent, `leases of ${q.queue}`), ...["ready", "held", "leased", "parked"].map((state) => h("span", { class: q.counts[state] ? tone(state) : "mute" }, String(q.counts[state] || 0)))] }));
    return h("div", { class: "screen" },
      rows.length ? panel("Queues", table("queues", [{ name: "queue" }, { name: "in use" }, { name: "ready", kind: "tight" }, { name: "held", kind: "tight" }, { name: "running", kind: "tight" }, { name: "parked", kind: "tight" }], rows)) : empty("No queue has anything in it. To put something there:", "timewright queue add mail --payload '{\"to\": \"ada\"}'"),
      data.limits.length ? panel("Named limits", table("limits", [{ name: "limit" }, { name: "in use" }], data.limits.map((one) => ({ key: one.limit, cells: [one.limit, gauge(one.in_flight, one.most, `uses of ${one.limit}`)] }))), { note: "schedules that name a limit share it" }) : null,
      data.budgets.length ? panel("Budgets", budgets(data.budgets), { note: "what is used up waits for the next period" }) : null,
      data.providers.length ? panel("Closed providers", providers(data.providers), { note: "what names one waits, and is not failed" }) : null, pager(data, params, go));
  },
};

function budgets(rows) {
  return table("budgets", [{ name: "budget" }, { name: "used" }, { name: "of", kind: "tight" }, { name: "left", kind: "tight" }, { name: "new", kind: "tight" }, { name: "used by" }], rows.map((one) => ({
    key: one.budget, cells: [one.budget, gauge(Number(one.used) + Number(one.held), Number(one.limit), `use of ${one.budget}`, `${one.used}${Number(one.held) ? ` and ${one.held} held` : ""}`), `${one.limit} ${one.currency || one.unit} a ${one.period}`, one.left, time(one.until, one.zone, "away"), h("span", { class: "names" }, (one.named_by || []).map((name) => link(place("schedules", name), name)), one.waiting ? h("span", { class: "warn" }, `${one.waiting} ${one.waiting === 1 ? "run waits" : "runs wait"} for the next period`) : null)],
  })));
}

function providers(rows) {
  return table("providers", [{ name: "provider" }, { name: "closed until", kind: "tight" }, { name: "why" }, { name: "waiting", kind: "tight" }, { name: "", kind: "tight" }], rows.map((one) => ({
    key: one.provider, cells: [one.provider, both(one.closed_until), h("span", null, one.why, one.closed_by ? h("span", { class: "mute" }, ` by ${one.closed_by}`) : null), String(one.waiting), may("write") ? button("open", () => reopen(one)) : null],
  })));
}

async function reopen(one) {
  const answer = await confirm({ title: `Open ${one.provider} before its time?`, text: `${one.waiting} runs that wait for it may start at once.`, act: "open", reason: true, command: `timewright provider open ${quoted(one.provider)}` });
  if (answer && (await attempt(() => post(["providers", one.provider, "open"], answer.reason ? { reason: answer.reason } : {}), "open"))) look();
}

const one = {
  title: ([name]) => name,
  every: 3,
  async load([name], params) {
    const [detail, plan] = await Promise.all([get(["queues", name], { cursor: params.cursor }), get(["queues", name, "plan"])]);
    return { ...detail, plan };
  },
  view(data, [name], params, go) {
    const { plan } = data;
    const by = new Map(data.entries.map((run) => [run.id, run]));
    const leased = data.entries.filter((run) => run.state === "leased");
    const parked = data.entries.filter((run) => run.state === "parked");
    const waiting = plan.waiting.filter((wait) => !["leased", "parked"].includes(wait.reason));
    return h("div", { class: "screen" }, h("div", { class: "lead" }, gauge(plan.in_flight, plan.max_concurrent, `leases of ${name}`), h("span", null, `${plan.available} free`), h("span", { class: "mute" }, `${plan.leases.length} would start now, ${waiting.length} wait, ${parked.length} parked`)),
      h("div", { class: "columns" },
        h("div", null, panel("Live leases", leased.length ? table("leases", [{ name: "run" }, { name: "holder" }, { name: "lease ends", kind: "tight" }, { name: "fence", kind: "tight" }], leased.map((run) => ({ key: run.id, to: place("runs", run.id), cells: [named(run.id, run), run.holder, time(run.lease_until, undefined, "away"), String(run.fence)] }))) : h("p", { class: "mute" }, "nobody holds one")),
          parked.length ? panel("Parked: a person is needed", table("parked", [{ name: "run" }, { name: "why" }, { name: "", kind: "tight" }], parked.map((run) => ({ key: run.id, to: place("runs", run.id), cells: [named(run.id, run), h("span", { class: "ellipsis", title: run.error }, run.error || run.reason), may("trigger") ? button("reset", () => reset(run)) : null] })))) : null,
          panel("Policy", policy(data.policy, name))),
        h("div", null, panel("Would start now", plan.leases.length ? table("would start", [{ name: "run" }, { name: "priority", kind: "tight" }, { name: "since", kind: "tight" }], plan.leases.slice(0, 50).map((run) => ({ key: run.id, to: place("runs", run.id), cells: [named(run.id, run), String(run.priority), time(run.planned_at, undefined, "away")] }))) : h("p", { class: "mute" }, "nothing"), { note: "in this order" }),
          panel("Waits", h("div", null, waiting.length ? table("waits", [{ name: "run" }, { name: "for" }, { name: "until", kind: "tight" }], waiting.slice(0, 50).map((wait) => ({ key: wait.run_id, to: place("runs", wait.run_id), cells: [named(wait.run_id, by.get(wait.run_id)), waits(wait), wait.until ? time(wait.until, undefined, "away") : ""] }))) : h("p", { class: "mute" }, "nothing"), copied(`timewright queue plan ${quoted(name)}`))))), pager(data, params, go));
  },
};

const named = (id, run) => h("span", { class: "names" }, link(place("runs", id), (run && run.schedule) || `…${id.slice(-6)}`), run && run.attempts ? h("span", { class: "tag" }, `${run.attempts} failed`) : null);

const WAITS = { ceiling: "a free place", capacity: "room at an instance", backoff: "its backoff", held: "the run before it", budget: "its budget", provider: "its provider" };
const waits = (wait) => h("span", { title: wait.gate || wait.reason }, WAITS[wait.reason] || wait.reason, wait.gate ? h("span", { class: "mute" }, ` in ${String(wait.gate).replace(/^(queue|limit):[^/]*\//, "$1 ")}`) : "");

function policy(told, name) {
  return h("div", null, facts([["at once", told.max_concurrent], ["attempts", told.max_attempts], ["a lease lasts", told.lease], ["between attempts", `${told.backoff.kind}, from ${told.backoff.base || "0s"}`], ["after the last", told.exhausted === "park" ? "parked, for a person" : told.exhausted]]), copied(`timewright queue policy set ${quoted(name)} --max-concurrent ${told.max_concurrent}`));
}

async function reset(run) {
  const answer = await confirm({ title: "Reset this run?", text: "Its attempts are given back, and it may start again.", act: "reset", reason: true, command: `timewright queue reset ${run.id}` });
  if (answer && (await attempt(() => post(["runs", run.id, "reset"], answer.reason ? { reason: answer.reason } : {}), "reset: done"))) look();
}

export const pick = (path) => (path.length ? one : list);
