// Who changed what, and why; what differs is shown, not two versions of everything.

import { get, read } from "../api.js";
import { h } from "../dom.js";
import { look } from "../main.js";
import { queryBar, SCHEDULE_NAMES } from "../query.js";
import { copied, diff, empty, json, link, pager, panel, place, table, time } from "../widgets.js";

const QUALIFIERS = { actor: { said: "who" }, action: { said: "what begins so", values: ["schedule.", "run.", "queue.", "key.", "workflow.", "limit.", "calendar."] }, schedule: SCHEDULE_NAMES, subject: { said: "of what, by its id" }, origin: { said: "from where", values: ["human", "agent", "file", "api"] }, since: { said: "1d, or an instant", ago: true, values: ["1h", "1d", "7d"] } };

// The log keeps what things were as a digest; what a schedule said at each revision is kept beside it.
const names = new Map();
async function learnNames(entries) {
  const unknown = [...new Set(entries.map((one) => one.subject))].filter((id) => id.startsWith("sch_") && !names.has(id)).slice(0, 100);
  if (!unknown.length) return;
  const told = await read(["schedules", "strips"], { schedules: unknown, each: 1 }).catch(() => ({ strips: [] }));
  for (const id of unknown) names.set(id, "");
  for (const one of told.strips) names.set(one.schedule_id, one.schedule);
}

const said = new Map();
async function open(id) {
  if (!said.has(id)) { said.set(id, null); said.set(id, (await get(["schedules", id, "revisions"], { limit: 200 }).catch(() => ({ revisions: [] }))).revisions); look(); }
}

export default {
  title: () => "Audit",
  every: 10,
  async load(_path, params) {
    const page = await get(["audit"], { cursor: params.cursor, ...Object.fromEntries(Object.keys(QUALIFIERS).map((name) => [name, params[name]])) });
    await learnNames(page.entries);
    return page;
  },
  view(data, _path, params, go) {
    const bar = queryBar({ qualifiers: QUALIFIERS, free: "actor", hint: "press / to find: who, action:schedule. schedule:x since:1d …", params, go });
    const rows = data.entries.map((one, n) => line(one, n));
    const columns = [{ name: "when", kind: "tight" }, { name: "who" }, { name: "what", kind: "tight" }, { name: "of" }, { name: "why, and what changed" }];
    return h("div", { class: "screen" }, bar, rows.length ? panel("Changes", table("changes", columns, rows), { more: copied("timewright audit verify") }) : empty("Nothing was changed yet."), pager(data, params, go));
  },
};

function line(one, n) {
  const named = names.get(one.subject);
  const subject = named ? link(place("schedules", named), named) : one.subject.startsWith("run_") ? link(place("runs", one.subject), `run …${one.subject.slice(-6)}`) : h("span", { class: "break" }, one.subject);
  return { key: `${one.at}${one.subject}${n}`, cells: [time(one.at), h("span", { class: "names" }, one.actor, h("span", { class: "tag" }, one.origin)), one.action.replace(".", " "), h("span", { title: one.subject }, subject), h("div", null, one.reason, changed(one))] };
}

const revision = (text) => Number((/^revision (\d+)/.exec(text) || [])[1] || 0);

function changed(one) {
  if (!one.before && !one.after) return null;
  const is = revision(one.after), was = revision(one.before);
  if (!one.subject.startsWith("sch_") || !is || is === was) return h("details", null, h("summary", null, "digests"), h("ul", { class: "diff" }, one.before ? h("li", null, h("del", null, one.before)) : null, one.after ? h("li", null, h("ins", null, one.after)) : null));
  const kept = said.get(one.subject);
  const at = (number) => (kept || []).find((each) => each.revision === number);
  const now = at(is), before = was ? at(was) : null;
  const fields = now ? now.changed : [];
  const only = (schedule) => Object.fromEntries(fields.map((field) => [field, schedule[field]]));
  const body = !kept ? h("p", { class: "mute" }, "looking…") : !now ? h("p", { class: "mute" }, "that revision is not kept") : before ? diff(only(before.schedule), only(now.schedule)) : json(now.schedule);
  return h("details", { ontoggle: () => open(one.subject) }, h("summary", null, was ? `revision ${was} to ${is}` : "what it said"), body);
}
