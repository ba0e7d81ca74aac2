// A schedule is written: when, what, and how careful; the next times are shown while one types.

import { get, patchTo, post, read } from "../api.js";
import { h } from "../dom.js";
import { look } from "../main.js";
import { clock, day, here, nextChange } from "../times.js";
import { attempt, copied, failure, panel, place, quoted, table, time } from "../widgets.js";

const EXAMPLES = [["*/5 * * * *", "every 5 minutes"], ["0 9 * * mon-fri", "9:00 on working days"], ["0 0 1 * *", "the first of the month"], ["0 3 * * sun#1", "3:00 on the first Sunday"], ["0 18 L * *", "18:00 on the last day of the month"]];
const blank = () => ({ name: "", when: "every", every: "5m", cron: "0 9 * * mon-fri", once: "", delay: "15m", after: "", zone: here(), what: "note", note: "", http: "POST https://", call: "", handoff: "", overlap: "skip", catch_up: "last", max_attempts: "3", jitter: "", group: "", tags: "", description: "", reason: "" });

let draft = blank();
let of = null; // the schedule that is edited, by name
let preview = { next: [], problem: null, change: null };
let asked = 0;

export default {
  title: ([name]) => (name ? `Edit ${name}` : "New schedule"),
  async load([name]) {
    if ((name || null) !== of) {
      of = name || null;
      draft = of ? drawn((await get(["schedules", of])).schedule) : blank();
    }
    await foresee(false);
    return {};
  },
  view() {
    return h("form", { class: "screen columns", onsubmit: (e) => { e.preventDefault(); save(); } },
      h("div", null, of ? null : panel("Who", h("div", { class: "fields" }, field("name", "name", { required: true, maxlength: 255, autofocus: true, placeholder: "nightly-report" }), field("description", "what it is for"))), panel("When", when()), panel("What", what()), panel("How careful", careful()), panel("Where it belongs", belongs())),
      h("div", { class: "stay" }, panel("What would happen", shown()), panel("The same at the command line", copied(command())),
        h("div", { class: "buttons" }, h("button", { type: "submit", class: "main" }, of ? "save" : "create"), h("a", { class: "button quiet", href: of ? `#${place("schedules", of)}` : "#/schedules" }, "leave"))));
  },
};

function drawn(schedule) {
  const { trigger, target } = schedule;
  const made = { ...blank(), name: schedule.name, zone: trigger.zone || here(), overlap: schedule.overlap, catch_up: schedule.catch_up, max_attempts: String(schedule.retry.max_attempts), jitter: schedule.jitter === "0s" ? "" : schedule.jitter, group: schedule.group || "", tags: schedule.tags.join(", "), description: schedule.description };
  Object.assign(made, trigger.kind === "cron" ? { when: "cron", cron: trigger.expression } : trigger.kind === "every" ? { when: "every", every: trigger.interval } : trigger.kind === "once" ? { when: "once", once: trigger.at } : trigger.kind === "manual" ? { when: "manual" } : { when: "" });
  const spelled = { note: () => target.text, http: () => `${target.method} ${target.url}`, call: () => target.function || target.name, handoff: () => "" };
  if (spelled[target.kind]) Object.assign(made, { what: target.kind, [target.kind]: spelled[target.kind]() || "" });
  else made.what = "";
  return made;
}

const field = (name, label, props = {}) => h("label", { class: "field" }, h("span", null, label), h("input", { name, value: draft[name], ...props, oninput: (e) => change(name, e.target.value) }));
const choice = (name, label, options) => h("label", { class: "field" }, h("span", null, label), h("select", { name, value: draft[name], onchange: (e) => change(name, e.target.value) }, options.map(([value, text]) => h("option", { value, selected: draft[name] === value }, text))));

function change(name, value) { draft[name] = value; foresee(true); }

const KINDS = [["every", "again and again"], ["cron", "by a cron expression"], ["once", "once"], ["delay", "so long after its last run has ended"], ["after", "after each success of another"], ["manual", "only when asked"]];

function when() {
  if (!draft.when) return h("p", { class: "mute" }, "when it runs is left as it is");
  return h("div", { class: "fields" }, choice("when", "kind", KINDS),
    draft.when === "every" ? field("every", "every", { placeholder: "90s, 15m, 1h30m, 7d" }) : null,
    draft.when === "cron" ? h("div", null, field("cron", "cron", { class: "mono", spellcheck: "false" }), parts(), h("p", { class: "examples" }, EXAMPLES.map(([text, said]) => h("button", { type: "button", class: "quiet", onclick: () => { change("cron", text); look(); } }, text, h("span", null, said))))) : null,
    draft.when === "delay" ? field("delay", "after", { placeholder: "90s, 15m, 1h30m, 7d" }) : null,
    draft.when === "after" ? field("after", "which schedule", { placeholder: "nightly-report" }) : null,
    draft.when === "once" ? field("once", "at, with an offset", { placeholder: "2026-12-24T18:00:00+01:00" }) : null,
    draft.when === "cron" ? field("zone", "zone", { list: "zones" }) : null, zones());
}

// The five or six parts of an expression, each under its name.
function parts() {
  const words = draft.cron.trim().split(/\s+/);
  const names = words.length === 6 ? ["second", "minute", "hour", "day", "month", "weekday"] : ["minute", "hour", "day", "month", "weekday"];
  return h("div", { class: "cronparts", "aria-hidden": "true" }, names.map((name, n) => h("span", null, h("b", null, words[n] || "?"), name)));
}

function zones() {
  const names = Intl.supportedValuesOf ? Intl.supportedValuesOf("timeZone") : [here(), "UTC"];
  return h("datalist", { id: "zones" }, names.map((value) => h("option", { value })));
}

function what() {
  const kinds = [["note", "a note: the text is the result"], ["http", "an HTTP request"], ["call", "a function of the app"], ["handoff", "whoever leases it"]];
  if (of && !draft.what) return h("p", { class: "mute" }, "what it does is left as it is");
  return h("div", { class: "fields" }, choice("what", "kind", kinds), draft.what === "handoff" ? null : field(draft.what, { note: "text", http: "method and URL", call: "name" }[draft.what]));
}

function careful() {
  return h("div", { class: "fields two" },
    choice("overlap", "while the last run goes on", [["skip", "skip"], ["queue", "wait in line"], ["replace", "stop the old one"], ["allow", "run beside it"]]),
    choice("catch_up", "after an outage", [["none", "leave it"], ["last", "run the last one"], ["all", "run all of them"], ["spread", "spread them out"]]),
    field("max_attempts", "attempts", { type: "number", min: 1, max: 100 }), field("jitter", "spread its starts over", { placeholder: "30s" }));
}

function belongs() {
  return h("div", { class: "fields two" }, field("group", "group"), field("tags", "tags, with commas"), of ? field("description", "what it is for") : null, of ? field("reason", "why (kept with the change)") : null);
}

function request() {
  const made = { overlap: draft.overlap, catch_up: draft.catch_up, max_attempts: Number(draft.max_attempts) || 1, description: draft.description, tags: draft.tags.split(",").map((tag) => tag.trim()).filter(Boolean) };
  if (draft.when === "cron") Object.assign(made, { cron: draft.cron, zone: draft.zone });
  else if (draft.when === "every") made.every = draft.every;
  else if (draft.when === "once") made.once = draft.once;
  else if (draft.when === "delay") made.after = draft.delay;
  else if (draft.when === "after") made.after = draft.after;
  else if (draft.when === "manual") made.manual = true;
  if (draft.what === "handoff") made.handoff = {};
  else if (draft.what) made[draft.what] = draft[draft.what];
  if (draft.jitter) made.jitter = draft.jitter;
  if (draft.group) made.group = draft.group;
  return made;
}

function trigger() {
  const { cron, zone, every, once, manual } = request();
  return Object.fromEntries(Object.entries({ cron, zone, every, once, manual }).filter(([, value]) => value !== undefined));
}

async function foresee(redraw) {
  const mine = ++asked;
  const open = { delay: `${draft.delay} after its last run has ended`, after: `each time ${draft.after || "the other"} has succeeded`, "": "as before" }[draft.when];
  if (open) {
    // Its times hang on how others end, and nobody knows them yet.
    preview = { trigger: open, next: [], problem: null, change: null };
    if (redraw) look();
    return;
  }
  try {
    const told = await read(["schedules", "-", "next"], { ...trigger(), count: 10 });
    const change = draft.when === "cron" ? await around(told.zone) : null;
    if (mine === asked) preview = { ...told, change, problem: null };
  } catch (problem) {
    if (mine === asked) preview = { next: [], change: null, problem };
  }
  if (redraw && mine === asked) look();
}

// What the next change of the clocks does to it: the occurrences on both sides.
async function around(zone) {
  const change = zone ? nextChange(zone) : null;
  if (!change) return null;
  const after = new Date(Date.parse(change.at) - 26 * 3_600_000).toISOString();
  const until = new Date(Date.parse(change.at) + 26 * 3_600_000).toISOString();
  const told = await read(["schedules", "-", "next"], { ...trigger(), count: 100, after, until });
  const near = told.next.filter((one) => Math.abs(Date.parse(one.planned_at) - Date.parse(change.at)) <= 90_000_000);
  const at = near.findIndex((one) => Date.parse(one.planned_at) >= Date.parse(change.at));
  return { ...change, zone, next: near.slice(Math.max(0, (at < 0 ? near.length : at) - 2), (at < 0 ? near.length : at) + 2) };
}

const HOURS = (text) => text.replace("GMT", "UTC").replace(/:00$/, "");
function changes({ change }) {
  if (!change) return null;
  const rows = change.next.map((one) => ({ key: one.planned_at, cells: [Date.parse(one.planned_at) < Date.parse(change.at) ? "before" : "after", spelled(one.local), time(one.planned_at, change.zone)] }));
  return h("div", null, h("h3", null, `Clocks of ${change.zone} change ${day(change.at, change.zone)} ${change.at.slice(0, 4)}, ${HOURS(change.from)} to ${HOURS(change.to)}`), rows.length ? table("around the change of clocks", [{ name: "" }, { name: "there" }, { name: "here" }], rows) : h("p", { class: "mute" }, "it has no occurrence within a day of it"));
}

const spelled = (local) => (local ? local.replace("T", " ").replace(/\.\d+/, "").replace(/([+-]\d\d:\d\d)$/, " $1").replace(/([+-]\d\d):00$/, "$1") : "");

function shown() {
  if (preview.problem) return failure(preview.problem);
  return h("div", null, h("p", null, preview.trigger), (preview.warnings || []).map((text) => h("p", { class: "warn" }, String(text.message || text))),
    !preview.next.length ? null : table("next times", [{ name: "here" }, { name: preview.zone || "UTC" }, { name: "in" }], preview.next.map((one) => ({ key: one.planned_at, cells: [h("span", null, day(one.planned_at), " ", clock(one.planned_at)), spelled(one.local), time(one.planned_at, preview.zone, "away")] }))), changes(preview));
}

function command() {
  const made = request();
  const words = [of ? `timewright schedule update ${quoted(of)}` : `timewright schedule create ${quoted(draft.name || "NAME")}`];
  for (const [name, value] of Object.entries(made)) {
    if (value === "" || (Array.isArray(value) && !value.length)) continue;
    const flag = `--${name.replaceAll("_", "-")}`;
    if (name === "http") words.push(flag, ...String(value).split(/\s+/).map(quoted));
    else if (value === true) words.push(flag);
    else if (Array.isArray(value)) words.push(...value.map((one) => `${flag.replace(/s$/, "")} ${quoted(one)}`));
    else if (typeof value === "object") words.push(flag, quoted(JSON.stringify(value)));
    else words.push(flag, quoted(String(value)));
  }
  return words.join(" ");
}

async function save() {
  const made = request();
  if (draft.reason) made.reason = draft.reason;
  const work = of ? () => patchTo(["schedules", of], made) : () => post(["schedules"], { ...made, name: draft.name });
  const answer = await attempt(work, of ? "saved" : "created");
  if (!answer) return;
  const name = of || draft.name;
  of = undefined;
  draft = blank();
  location.hash = `#${place("schedules", name)}`;
}

