// One run: each attempt on a line of time, the decision behind it, what went out and what came back.

import { get, may, post } from "../api.js";
import { waterfall } from "../charts.js";
import { h } from "../dom.js";
import { look, paint } from "../main.js";
import { badge, because, reasoned, word } from "../states.js";
import { follow, hear } from "../tail.js";
import { between, now, span } from "../times.js";
import { attempt, button, confirm, copied, facts, json, link, panel, place, prose, quoted, table, time } from "../widgets.js";

// What went out is what the schedule said at the revision the run was made of.
async function request({ run, revision }) {
  if (!run.schedule) return { target: null };
  const told = await get(["schedules", run.schedule]).catch(() => null);
  const zone = told ? told.schedule.trigger.zone : undefined;
  if (told && told.schedule.revision === revision) return { target: told.schedule.target, zone };
  const kept = await get(["schedules", run.schedule, "revisions"], { limit: 200 }).catch(() => ({ revisions: [] }));
  const found = kept.revisions.find((one) => one.revision === revision);
  return { target: found ? found.schedule.target : null, zone };
}

const asked = new Map();
let said = null;

// While it is under way the output is heard each second, the rest less often.
function listen(id) {
  const shown = () => location.hash.startsWith(`#${place("runs", id)}`);
  follow(id, { shown, fresh: (told) => { said = told; paint(); }, over: look });
}

export default {
  title: (_path, data) => (data ? `${data.run.schedule || data.run.queue || "Run by hand"} · ${word(data.run.state)}` : "Run"),
  every: 2,
  async load([id]) {
    const [detail, why, logs] = await Promise.all([get(["runs", id]), get(["runs", id, "explain"]), hear(id).catch(() => null)]);
    if (!asked.has(id)) { asked.clear(); asked.set(id, await request(detail)); }
    said = logs;
    if (detail.run.state === "leased") listen(id);
    return { ...detail, why, ...asked.get(id) };
  },
  view(data) {
    const { run, attempts, why } = data;
    return h("div", { class: "screen" },
      h("div", { class: "lead" }, badge(run.state, reasoned(run.reason)), run.schedule ? link(place("schedules", run.schedule), run.schedule) : run.queue ? link(place("queues", run.queue), `queue ${run.queue}`) : h("span", null, "by hand"), h("span", null, "planned ", time(run.planned_at, data.zone), " ", h("span", { class: "mute" }, time(run.planned_at, data.zone, "away"))), h("span", { class: "tag" }, because(run.source)), run.reason ? h("span", { class: "mute" }, reasoned(run.reason)) : null, data.note ? h("p", null, h("strong", null, "Note: "), data.note) : null),
      actions(run),
      run.error ? panel("What went wrong", h("pre", { class: "error", tabindex: "0" }, run.error)) : null,
      h("div", { class: "columns" },
        h("div", null, panel("In time", waterfall(run, attempts, now(), begun())), run.state === "leased" ? spoken(run) : null, panel("Why", h("div", null, h("p", null, prose(why.summary)), h("ul", { class: "because" }, why.because.map((text) => h("li", null, prose(text)))), trail(data.trail), why.remedies.map((r) => copied(r.command)))),
          run.state === "leased" || !attempts.length ? null : spoken(run)),
        h("div", null, panel("Attempts", attemptsTable(attempts, data.zone)), sent(data), came(attempts), spent(data.charges), panel("Identity", facts([
          ["run", h("code", { class: "break" }, run.id)], ["idempotency key", h("code", { class: "break" }, data.key)], ["fence", run.fence], ["lease", data.lease_id ? h("code", { class: "break" }, data.lease_id) : ""], ["holder", run.holder],
          ["lease until", run.lease_until ? time(run.lease_until, undefined, "away") : ""], ["asked to stop by", run.cancel_at ? time(run.cancel_at) : ""], ["queue", run.queue], ["priority", run.priority], ["made of", data.revision ? `revision ${data.revision}` : ""], ["part of", data.parent ? link(place("runs", data.parent), `run …${data.parent.slice(-6)}`) : ""], ["fills in for", data.backfill_of ? link(place("runs", data.backfill_of), `run …${data.backfill_of.slice(-6)}`) : ""], ["missed before", run.missed || ""],
        ])))));
  },
};

// When the attempt under way began; the run itself only says when its last one did.
const begun = () => ((said && said.attempts.find((one) => !one.ended_at)) || {}).started_at;

function actions(run) {
  const command = `timewright run explain ${run.id}`;
  const act = (verb, text, danger) => button(verb, async () => {
    const answer = await confirm({ title: `${verb} this run?`, text, act: verb, reason: true, danger, command: `timewright run ${verb} ${quoted(run.id)}` });
    if (answer && (await attempt(() => post(["runs", run.id, verb], answer.reason ? { reason: answer.reason } : {}), `${verb}: done`))) look();
  }, { kind: danger ? "danger" : "main" });
  const buttons = [];
  if (may("trigger") && ["ready", "held", "leased", "parked"].includes(run.state)) buttons.push(act("cancel", run.state === "leased" ? "Whoever holds it is asked to stop and has its grace." : "It will not start.", true));
  if (may("trigger") && ["failed", "cancelled"].includes(run.state)) buttons.push(act("retry", "The same run once more, with the next fence.", false));
  if (may("trigger") && run.state === "parked") buttons.unshift(act("reset", "Its attempts are given back, and it may start again.", false));
  return h("div", { class: "buttons", role: "toolbar", "aria-label": "what can be done with this run" }, buttons, h("span", { class: "grow" }), copied(command));
}

function attemptsTable(attempts, zone) {
  if (!attempts.length) return h("p", { class: "mute" }, "it has not begun, or its first attempt has not ended yet");
  return table("attempts", [{ name: "#", kind: "tight" }, { name: "ended", kind: "tight" }, { name: "at", kind: "tight" }, { name: "ran", kind: "tight" }, { name: "what came" }], attempts.map((one) => ({
    key: one.fence, cells: [String(one.number), badge(one.outcome), time(one.ended_at, zone), span(between(one.started_at || one.leased_at, one.ended_at)) || "0 s", h("span", { class: "ellipsis", title: one.error }, one.error || one.word)],
  })));
}

function trail(lost) {
  if (!lost || !lost.length) return null;
  return h("div", null, h("h3", null, "What lost"), h("ul", { class: "because" }, lost.map((one) => h("li", null, one.at ? time(one.at) : "", ` ${because(one.source)}: `, prose(one.why)))));
}

// What was sent; headers are shown by reference, since secrets are never kept in the clear.
function sent({ target, payload }) {
  if (!target && payload === null) return null;
  const head = !target ? null : target.kind === "http" ? facts([["request", h("code", { class: "break" }, `${target.method} ${target.url}`)], ...Object.entries(target.headers || {}).map(([name, value]) => [name, h("code", { class: "break" }, String(value))])]) : facts([[target.kind, h("code", { class: "break" }, target.name || target.function || target.text || target.workflow || (target.command || []).join(" ") || "")]]);
  const body = target && target.kind === "http" && target.body !== null && target.body !== undefined ? target.body : target && target.args && Object.keys(target.args).length ? target.args : null;
  return panel("What went out", h("div", null, head, body !== null ? json(body) : null, payload !== null ? h("div", null, h("h3", null, "payload"), json(payload)) : null));
}

function came(attempts) {
  const last = [...attempts].reverse().find((one) => one.result !== null && one.result !== undefined);
  if (!last) return null;
  const plain = typeof last.result === "object" && !Array.isArray(last.result);
  const short = plain ? Object.entries(last.result).filter(([, value]) => ["number", "boolean"].includes(typeof value) || (typeof value === "string" && value.length < 80)) : [];
  const whole = !plain || short.length < Object.keys(last.result).length;
  return panel("What came back", h("div", null, short.length ? facts(short.map(([name, value]) => [name, String(value)])) : null, whole ? json(last.result) : null), { note: `of attempt ${last.number}` });
}

function spent(charges = []) {
  if (!charges.length) return null;
  return panel("What it cost", table("charges", [{ name: "budget" }, { name: "attempt", kind: "tight" }, { name: "used", kind: "tight" }, { name: "held", kind: "tight" }], charges.map((one) => ({ key: one.budget + one.fence, cells: [one.budget, String(one.fence), one.used, one.held] }))));
}

// What each attempt said, newest attempt first, as far as it is kept; while one runs, as it comes.
function spoken(run) {
  const live = run.state === "leased";
  const attempts = said ? said.attempts.filter((one) => Object.keys(one.streams).length) : [];
  const words = attempts.length
    ? [...attempts].reverse().map((one) => h("div", { key: one.fence }, Object.entries(one.streams).map(([name, text]) => h("div", { key: name }, h("h3", null, `attempt ${one.attempt}, ${name}`), h("pre", { class: `json tail${one.ended_at ? "" : " live"}`, tabindex: "0", "aria-label": `what attempt ${one.attempt} said` }, text)))))
    : h("p", { class: "mute" }, live ? "it has said nothing yet" : "it said nothing");
  return panel("Output", h("div", null, words, copied(`timewright run logs ${run.id}${live ? " --follow" : ""}`)), { note: live ? "as it comes, about a second behind" : "" });
}
