// One schedule: what comes, what was, why, and everything that can be done about it.

import { get, may, post, read } from "../api.js";
import { chain } from "../chain.js";
import { line, strip } from "../charts.js";
import { h } from "../dom.js";
import { look } from "../main.js";
import { badge, because, reasoned } from "../states.js";
import { between, brief, follow, here, instant, seconds, span, when } from "../times.js";
import { attempt, both, button, confirm, copied, diff, empty, facts, json, link, panel, place, prose, quoted, table, time } from "../widgets.js";

export default {
  title: ([name]) => name,
  every: 4,
  async load([name], params) {
    const at = ["schedules", name];
    const [detail, runs, next, health, hints, revisions, strips, trends, why] = await Promise.all([
      get(at), get(["runs"], { schedule: name, limit: 12 }), get([...at, "next"], { count: 10 }), get([...at, "health"]),
      get(["hints"], { schedule: name }).catch(() => null), get([...at, "revisions"], { limit: 10 }), read(["schedules", "strips"], { schedules: [name] }), get([...at, "trends"]).catch(() => ({ series: [] })),
      params.at ? get([...at, "explain"], { at: params.at }) : get([...at, "explain"], { last: true }).catch(() => null),
    ]);
    follow(health.now);
    return { ...detail, runs: runs.runs, coming: next.next, warnings: next.warnings || [], health, hints, revisions: revisions.revisions, strip: strips.strips[0], trends: trends.series, why };
  },
  view(data, [name], params, go) {
    const { schedule, standing } = data;
    return h("div", { class: "screen" }, head(data, name), actions(data, name), chain(data),
      h("div", { class: "columns" },
        h("div", null, panel("Next", next(data), { note: schedule.trigger.zone || "" }), panel("Why", why(data, params, go)), schedule.adaptive ? panel("Hints", hints(data, name)) : null, panel("What it says", says(data))),
        h("div", null, panel("Last 48", data.strip.marks.length ? h("div", { class: "whole" }, strip(data.strip.marks, { label: name }), over(data)) : h("p", { class: "mute" }, "nothing has come of it yet"), { note: "a full mark ran, a low one did not" }), panel("Health", health(data.health)), panel("Runs", runs(data), { more: link(`/runs?schedule=${encodeURIComponent(name)}`, "all") }), panel("Revisions", revisions(data, name)))),
      standing.state === "archived" ? h("p", { class: "mute" }, "archived: it keeps its history and runs no more") : null);
  },
};

// How long its runs took, and every number of their results, over the same occurrences.
function over({ strip: shown, trends }) {
  const took = shown.marks.filter((mark) => mark.started_at && mark.finished_at).map((mark) => ({ at: mark.planned_at, value: between(mark.started_at, mark.finished_at), state: mark.state, run: mark.run }));
  return h("div", null, took.length > 1 ? line(took, { label: "how long it took", spell: brief }) : null,
    trends.filter((one) => new Set(one.points.map((point) => point.value)).size > 1).slice(0, 6).map((one) => h("div", { key: one.field }, line(one.points, { label: one.field, spell: (value) => String(Math.round(value * 100) / 100), height: 40 }))));
}

function head({ schedule, standing, trigger, in_flight: running, held }, name) {
  const zone = schedule.trigger.zone;
  return h("div", { class: "lead" }, badge(standing.state, standing.reason), h("span", null, prose(trigger)), schedule.group ? h("span", { class: "tag" }, schedule.group) : null, schedule.tags.map((tag) => h("span", { class: "tag" }, tag)),
    standing.state === "active" ? (standing.next_at ? h("span", null, "next ", both(standing.next_at, zone, "due")) : null) : h("span", { class: "mute" }, standing.paused_until ? ["until ", both(standing.paused_until, zone), standing.reason ? ": " : ""] : null, standing.reason),
    running ? h("span", null, badge("leased"), ` ${running}`) : null, held ? h("span", null, badge("held"), ` ${held}`) : null, schedule.description ? h("p", { class: "mute" }, schedule.description) : null);
}

function actions({ schedule, standing }, name) {
  const at = ["schedules", name];
  const told = (verb) => `timewright schedule ${verb} ${quoted(name)}`;
  const act = async (verb, options, body = {}) => {
    const answer = await confirm({ command: told(verb), reason: true, act: verb, ...options });
    if (!answer) return;
    const given = Object.fromEntries(Object.entries(answer).filter(([, value]) => value).map(([key, value]) => [key, key === "to" ? new Date(value).toISOString() : key === "until" ? instant(value) : value]));
    if (await attempt(() => post([...at, verb], { ...body, ...given }), `${verb}: done`)) look();
  };
  const preview = async () => {
    const asked = await confirm({ title: `Backfill ${name}`, text: "Occurrences of the past become runs. First you are shown which.", act: "show me", fields: [{ name: "since", label: "from", type: "datetime-local", required: true }, { name: "until", label: "to", type: "datetime-local", required: true }] });
    if (!asked) return;
    const reach = { since: new Date(asked.since).toISOString(), until: new Date(asked.until).toISOString() };
    const would = await attempt(() => post([...at, "backfill"], { ...reach, dry_run: true }));
    if (!would) return;
    const times = would.runs.slice(0, 8).map((run) => when(run.planned_at)).join(", ");
    const sure = await confirm({ title: `Backfill ${would.count} occurrences?`, text: times || "there is nothing to fill", act: "backfill", command: `${told("backfill")} --since ${reach.since} --until ${reach.until}` });
    if (sure && (await attempt(() => post([...at, "backfill"], reach), "backfilled"))) look();
  };
  const active = standing.state === "active", gone = standing.state === "archived";
  const pause = { title: `Pause ${name}?`, text: "What falls into the pause is skipped and not caught up.", fields: [{ name: "until", label: "for how long, or until when (empty: until someone resumes it)", placeholder: "2h, or 2026-12-01T09:00:00Z", choices: [["1h", "1 hour"], ["4h", "4 hours"], ["1d", "a day"], ["7d", "a week"], ["", "until resumed"]] }], command: (v) => `${told("pause")}${v.until ? ` --until ${quoted(instant(v.until))}` : ""}${v.reason ? ` --reason ${quoted(v.reason)}` : ""}` };
  const move = { title: `Move the next occurrence of ${name}?`, act: "move", text: `It was to run ${when(standing.next_at)}: that is left out, and a run by hand takes its place.`, fields: [{ name: "to", label: `to (in ${here()})`, type: "datetime-local", required: true }], command: (v) => `${told("move")} --to ${v.to ? new Date(v.to).toISOString() : "INSTANT"}` };
  const note = { title: `A note beside the next occurrence of ${name}`, act: "note", reason: false, text: `It stands beside ${when(standing.next_at)}, before it runs and after.`, fields: [{ name: "text", label: "note", required: true }], command: (v) => `${told("note")} --text ${quoted(v.text || "TEXT")}` };
  const buttons = [];
  if (may("trigger") && !gone && standing.state !== "pending_approval") buttons.push(button("run now", () => act("run", { title: `Run ${name} now?`, act: "run now", text: "One run by hand; the plan stays as it is." }), { kind: "main" }));
  if (may("write") && standing.state === "pending_approval") buttons.push(...decide(name));
  if (may("write") && active) buttons.push(button("pause", () => act("pause", pause)));
  if (may("write") && ["paused", "parked"].includes(standing.state)) buttons.push(button("resume", () => act("resume", { title: `Resume ${name}?`, text: `It goes on with its next time. What it missed is caught up as it says: ${schedule.catch_up}.` }), { kind: "main" }));
  if (may("trigger") && active && standing.next_at) buttons.push(button("skip next", () => act("skip", { title: `Skip the next occurrence of ${name}?`, act: "skip", text: `It was to run ${when(standing.next_at)}.` })), button("move next…", () => act("move", move)), button("note…", () => act("note", note)));
  if (may("trigger")) buttons.push(button("backfill…", preview));
  if (may("write")) buttons.push(h("a", { class: "button", href: `#${place("schedules", name, "edit")}` }, "edit"));
  if (may("write") && !gone) buttons.push(button("archive", () => act("archive", { title: `Archive ${name}?`, danger: true, text: "It runs no more and cannot be brought back. Its history is kept, and its name is free for another." }), { kind: "quiet" }));
  return buttons.length ? h("div", { class: "buttons", role: "toolbar", "aria-label": `what can be done with ${schedule.name}` }, buttons) : null;
}

// Why nothing is planned, in words.
function unplanned(standing, trigger) {
  if (standing.state === "active") return `It has no times of its own: ${trigger}.`;
  const why = { paused: "It is paused: nothing starts until it is resumed.", parked: "It is parked: a person looks at what went wrong, and resumes it.", finished: "It is finished: no time is left.", archived: "It is archived and runs no more.", pending_approval: "An agent asked for it: it begins when a person has approved it." };
  return why[standing.state] || "Nothing is planned.";
}

// What an agent wants to schedule begins, or is turned away, when a person says so.
function decide(name) {
  const answer = (verb, text, danger) => button(verb, async () => {
    const said = await confirm({ title: `${verb} ${name}?`, text, act: verb, reason: true, danger, command: `timewright approval ${verb} ${quoted(name)}` });
    if (said && (await attempt(() => post(["approvals", name, verb], said.reason ? { reason: said.reason } : {}), `${verb}: done`))) look();
  }, { kind: danger ? "" : "main" });
  return [answer("approve", "It begins with its next time; what it would have done meanwhile is not made up for.", false), answer("reject", "It is archived before it ever ran.", true)];
}

function next({ coming, warnings, schedule, standing, trigger }) {
  if (!coming.length) return h("p", { class: "mute" }, unplanned(standing, trigger));
  const zone = schedule.trigger.zone;
  return h("div", null, warnings.map((text) => h("p", { class: "warn" }, String(text.message || text))), table("next occurrences", [{ name: "at", kind: "tight" }, { name: "in", kind: "tight" }, { name: "because of" }], coming.map((one) => ({
    key: one.planned_at + one.fate, tone: one.fate, cells: [h("span", null, time(one.planned_at, zone), zone && zone !== here() ? h("div", { class: "mute" }, `${when(one.planned_at, zone)} ${zone}`) : null), time(one.planned_at, zone, "due"),
      h("span", null, one.fate === "fire" ? because(one.source) : badge("skipped", reasoned(one.reason)), one.reason ? ` ${reasoned(one.reason)}` : "", one.count > 1 ? ` × ${one.count}` : "", one.note ? h("div", { class: "mute" }, `note: ${one.note}`) : null)],
  }))));
}

function why({ why: told }, params, go) {
  const ask = h("form", { class: "filters", onsubmit: (e) => { e.preventDefault(); const value = e.target.elements.at.value; go({ ...params, at: value ? new Date(value).toISOString() : "" }); } },
    h("label", null, h("span", null, "why at"), h("input", { type: "datetime-local", step: "1", name: "at", "aria-label": "an instant to explain" })), h("button", { type: "submit" }, "explain"));
  if (!told) return h("div", null, ask, h("p", { class: "mute" }, "it has not run yet"));
  return h("div", null, ask, h("p", null, badge(told.fate, told.reason), " ", prose(told.summary)),
    h("ul", { class: "because" }, told.because.map((text) => h("li", null, prose(text)))),
    told.trail && told.trail.length ? h("div", null, h("h3", null, "What lost"), h("ul", { class: "because" }, told.trail.map((lost) => h("li", null, lost.at ? time(lost.at) : "", ` ${because(lost.source)}: `, prose(lost.why))))) : null,
    told.run && told.run.id ? h("p", null, link(place("runs", told.run.id), "the run")) : null,
    told.remedies.map((remedy) => copied(remedy.command)));
}

const WISHES = { interval: (hint) => `every ${hint.interval}`, one_shot: (hint) => ["once at ", time(hint.at)], pause: (hint) => ["quiet until ", time(hint.until)] };

function hints(data, name) {
  const told = data.hints;
  if (!told) return h("p", { class: "mute" }, "none");
  const rows = Object.entries(told.hints).filter(([, hint]) => hint);
  const clear = async () => {
    const answer = await confirm({ title: `Forget every hint of ${name}?`, act: "clear", reason: true, text: "The next time is decided again without them.", command: `timewright hint clear ${quoted(name)}` });
    if (answer && (await attempt(() => post(["hints", name, "clear"], answer.reason ? { reason: answer.reason } : {}), "hints cleared"))) look();
  };
  const sooner = told.next_at && told.without_hints ? between(told.next_at, told.without_hints) : null;
  return h("div", null, rows.length ? h("ul", { class: "lines" }, rows.map(([kind, hint]) => h("li", { key: kind },
    h("div", { class: "line" }, h("strong", { class: "grow" }, (WISHES[kind] || (() => kind))(hint)), h("span", { class: "mute" }, kind === "pause" ? "over " : "gone ", time(hint.expires_at || hint.until, undefined, "away"))),
    h("div", { class: "mute" }, hint.reason || "no reason given", hint.actor ? `, by ${hint.actor}` : "", hint.created_at ? ", " : "", hint.created_at ? time(hint.created_at, undefined, "away") : null)))) : h("p", { class: "mute" }, "no hint is in force"),
    h("dl", { class: "facts" }, h("dt", null, "next, with hints"), h("dd", null, both(told.next_at, undefined, "due")), h("dt", null, "without them"), h("dd", null, both(told.without_hints), sooner && Math.abs(sooner) > 1 ? h("span", { class: "mute" }, ` (${span(Math.abs(sooner))} ${sooner > 0 ? "later" : "sooner"})`) : null), h("dt", null, "changes left this hour"), h("dd", null, String(told.changes_left))),
    may("hint") ? h("div", { class: "buttons" }, button("hint…", () => wish(name)), rows.length ? button("clear", clear) : null) : null);
}

async function wish(name) {
  const answer = await confirm({ title: `Another interval for ${name}`, act: "hint", reason: true, text: "It may come nearer at once, stays within the clamp, and is gone by itself.", fields: [{ name: "interval", label: "every", value: "1m", required: true }, { name: "ttl", label: "for", value: "1h", required: true }], command: (v) => `timewright hint interval ${quoted(name)} --interval ${quoted(v.interval)} --ttl ${quoted(v.ttl)}${v.reason ? ` --reason ${quoted(v.reason)}` : ""}` });
  if (!answer) return;
  const given = Object.fromEntries(Object.entries(answer).filter(([, value]) => value));
  if (await attempt(() => post(["hints", name, "interval"], given), "hinted")) look();
}

function says({ schedule, trigger: words }) {
  const { trigger, target } = schedule;
  return h("div", null, facts([
    ["trigger", trigger.expression || (trigger.interval ? `every ${trigger.interval}` : words)], ["zone", trigger.zone], ["clock changes", trigger.dst], ["target", `${target.kind} ${target.url || target.function || target.name || target.text || ""}`],
    ["overlap", schedule.overlap], ["catch-up", `${schedule.catch_up} within ${schedule.catch_up_window}`], ["attempts", schedule.retry.max_attempts], ["exhausted", schedule.retry.exhausted], ["time limit", schedule.lease.time_limit],
    ["jitter", schedule.jitter === "0s" ? "" : schedule.jitter], ["queue", schedule.queue], ["limits", schedule.limits.join(", ")], ["created", h("span", null, time(schedule.created_at), ` by ${schedule.created_by || "?"} (${schedule.origin || "?"})`)],
  ]), h("details", null, h("summary", null, "all of it"), json(schedule)));
}

function health(data) {
  const rows = Object.entries(data.windows).map(([name, w]) => ({ key: name, cells: [name, String(w.total), w.success_rate === null ? "—" : `${Math.round(w.success_rate * 100)} %`, `${brief(seconds(w.duration.median))} / ${brief(seconds(w.duration.p95))}`, brief(seconds(w.delay.p95))] }));
  return h("div", null, data.failures ? h("p", { class: "bad" }, `${data.failures} failed in a row`) : null, table("health", [{ name: "last" }, { name: "runs" }, { name: "succeeded" }, { name: "took p50 / p95" }, { name: "late p95" }], rows));
}

function runs({ runs: rows, schedule }) {
  if (!rows.length) return empty("It has not run yet.", `timewright schedule run ${schedule.name}`);
  const zone = schedule.trigger.zone;
  return table("runs", [{ name: "planned", kind: "tight" }, { name: "fate", kind: "tight" }, { name: "late", kind: "tight" }, { name: "took", kind: "tight" }, { name: "what came" }], rows.map((run) => ({
    key: run.id, to: place("runs", run.id), cells: [h("a", { href: `#${place("runs", run.id)}` }, time(run.planned_at, zone)), badge(run.state, reasoned(run.reason)), span(between(run.planned_at, run.started_at)) || "—", span(between(run.started_at, run.finished_at)) || "—", h("span", { class: "ellipsis short", title: run.error || reasoned(run.reason) }, run.error || reasoned(run.reason) || run.word)],
  })));
}

function revisions(data, name) {
  const restore = async (revision) => {
    const sure = await confirm({ title: `Bring back revision ${revision}?`, act: "restore", reason: true, text: "It becomes a new revision; nothing is lost.", command: `timewright schedule restore ${name} --to ${revision}` });
    if (sure && (await attempt(() => post(["schedules", name, "restore"], { to: revision, ...(sure.reason ? { reason: sure.reason } : {}) }), "restored"))) look();
  };
  return h("ol", { class: "lines" }, data.revisions.map((one, n) => h("li", { key: one.revision }, h("div", { class: "line" }, h("strong", null, `r${one.revision}`), time(one.at), h("span", { class: "mute" }, one.actor), h("span", { class: "grow ellipsis" }, one.reason), n > 0 && may("write") && data.standing.state !== "archived" ? button("restore", () => restore(one.revision), { kind: "quiet" }) : null),
    one.changed.length && data.revisions[n + 1] ? changed(one, data.revisions[n + 1]) : null)));
}

const only = (fields, schedule) => Object.fromEntries(fields.map((field) => [field, schedule[field]]));
const changed = (one, before) => diff(only(one.changed, before.schedule), only(one.changed, one.schedule));
