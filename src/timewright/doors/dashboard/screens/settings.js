// The doctor, keys, limits, calendars and namespaces, as far as this caller may see them.

import { get, may, me, post } from "../api.js";
import { h } from "../dom.js";
import { look, out } from "../main.js";
import { attempt, button, confirm, empty, facts, json, panel, prose, quoted, remedy, table, time, verdict } from "../widgets.js";

const quietly = (work) => work.catch(() => null);
const RANK = { fail: 0, warn: 1, ok: 2 };

export default {
  title: () => "Settings",
  every: 15,
  async load() {
    const [keys, limits, calendars, namespaces, doctor, reminders] = await Promise.all([
      may("admin") ? quietly(get(["keys"])) : null, quietly(get(["limits"])), quietly(get(["calendars"])), quietly(get(["namespaces"])), quietly(get(["doctor"])), quietly(get(["reminders"])),
    ]);
    return { keys, limits, calendars, namespaces, doctor, reminders };
  },
  view({ keys, limits, calendars, namespaces, doctor, reminders }) {
    return h("div", { class: "screen columns" },
      h("div", null, doctor ? panel("Doctor", checks(doctor), { note: said(doctor) }) : null, namespaces && namespaces.namespaces.length ? panel("Namespaces", h("div", null, namespaces.namespaces.map((one) => h("details", { key: one.name }, h("summary", null, one.name), facts(Object.entries(one).filter(([name]) => name !== "name").map(([name, value]) => [name.replaceAll("_", " "), typeof value === "object" ? JSON.stringify(value) : String(value)])))))) : null),
      h("div", null, panel("You", facts([["name", me().actor], ["may", me().scopes.join(", ")], ["in", me().namespaces.join(", ").replace("*", "every namespace")]]), { more: button("sign out", out, { kind: "quiet" }) }), keys ? panel("Keys", keyTable(keys), { more: button("new key", newKey) }) : null,
        panel("Named limits", limits && limits.limits.length ? table("limits", [{ name: "limit" }, { name: "most" }, { name: "in use" }], limits.limits.map((one) => ({ key: one.limit, cells: [one.limit, String(one.most), String(one.in_flight)] }))) : empty("No limit is set. One for a shared service:", "timewright limit set crm-api --most 5")),
        panel("Calendars", calendars && calendars.calendars.length ? h("div", null, calendars.calendars.map((one) => h("details", { key: one.name }, h("summary", null, one.name), json(one)))) : empty("No calendar yet. Days on which nothing runs:", "timewright calendar put holidays --yearly 12-25")),
        panel("Reminders", reminders && reminders.reminders.length ? table("reminders", [{ name: "text" }, { name: "when" }, { name: "next", kind: "tight" }], reminders.reminders.map((one) => ({ key: one.id, cells: [one.text, prose(one.when), time(one.next_at, undefined, "away")] }))) : empty("No reminder is set.", "timewright reminder set 'call the bank' --after 2h"))));
  },
};

function said(doctor) {
  const bad = doctor.findings.filter((one) => one.status !== "ok").length;
  return bad ? `${bad} of ${doctor.findings.length} want a look` : `all ${doctor.findings.length} are well`;
}

// What wants a look comes first.
function checks(doctor) {
  const rows = doctor.findings.map((one, n) => [one, n]).sort(([a, n], [b, m]) => RANK[a.status] - RANK[b.status] || n - m);
  return table("checks", [{ name: "", kind: "tight" }, { name: "check", kind: "tight" }, { name: "says" }], rows.map(([one, n]) => ({ key: one.check + n, cells: [verdict(one.status), one.check, h("div", null, one.says, remedy(one.fix))] })));
}

function keyTable(keys) {
  if (!keys.keys.length) return empty("No key is made yet.", "timewright key create NAME --role viewer");
  const rows = keys.keys.map((key) => ({ key: key.id, cells: [h("span", { class: "names" }, key.name, h("span", { class: "tag" }, key.origin)), h("span", { title: key.scopes.join(", ") }, key.role || key.scopes.join(", ")), key.namespaces.join(", ").replace("*", "all"), key.used_at ? time(key.used_at, undefined, "away") : "never", key.state === "active" ? (key.expires_at ? time(key.expires_at, undefined, "away") : "never") : key.state, key.state === "active" ? button("revoke", () => revoke(key), { kind: "quiet" }) : null] }));
  return table("keys", [{ name: "key" }, { name: "may", kind: "tight" }, { name: "in" }, { name: "last use", kind: "tight" }, { name: "ends", kind: "tight" }, { name: "", kind: "tight" }], rows);
}

async function newKey() {
  const answer = await confirm({ title: "A new key", act: "make it", fields: [{ name: "key", label: "for whom", required: true }, { name: "role", label: "role: viewer, operator, editor or admin", value: "viewer" }], command: (v) => `timewright key create ${quoted(v.key || "NAME")} --role ${quoted(v.role)}` });
  if (!answer) return;
  const made = await attempt(() => post(["keys"], { key: answer.key, role: answer.role }));
  if (made) { await confirm({ title: "The key, shown once", text: "Copy it now; it is not kept anywhere.", act: "I have it", command: () => made.token }); look(); }
}

async function revoke(key) {
  const sure = await confirm({ title: `Revoke ${key.name}?`, act: "revoke", danger: true, reason: true, text: "Whoever uses it is refused from now on.", command: `timewright key revoke ${quoted(key.id)}` });
  if (sure && (await attempt(() => post(["keys", key.id, "revoke"], sure.reason ? { reason: sure.reason } : {}), "revoked"))) look();
}
