// Health checks, keys, limits, calendars, namespaces and reminders that the caller may see.

import { refresh } from "../app/refresh.js";
import { signOut } from "../app/sign_in.js";
import { can, currentUser, get, post } from "../base/api.js";
import { h } from "../base/dom.js";
import { perform } from "../components/actions.js";
import { copyBlock, fixHint, shellQuote } from "../components/commands.js";
import { confirmDialog } from "../components/dialog.js";
import {
  button,
  definitionList,
  emptyState,
  jsonBlock,
  panel,
  statusBadge,
  worstFirst,
} from "../components/layout.js";
import { tryAction } from "../components/messages.js";
import { table } from "../components/table.js";
import { linkedText, time } from "../components/texts.js";

const orNull = (work) => work.catch(() => null);

export default {
  title: () => "Settings",
  every: 15,
  async load() {
    const [keys, limits, calendars, namespaces, doctor, reminders, sessions] = await Promise.all([
      can("admin") ? orNull(get(["keys"])) : null,
      orNull(get(["limits"])),
      orNull(get(["calendars"])),
      orNull(get(["namespaces"])),
      orNull(get(["doctor"])),
      orNull(get(["reminders"])),
      orNull(get(["sessions"], { all: can("admin") ? "true" : "" })),
    ]);
    return { keys, limits, calendars, namespaces, doctor, reminders, sessions };
  },
  view({ keys, limits, calendars, namespaces, doctor, reminders, sessions }) {
    return h(
      "div",
      { class: "screen columns" },
      h(
        "div",
        null,
        doctor ? panel("Health", checks(doctor), { note: summary(doctor) }) : null,
        namespaces && namespaces.namespaces.length
          ? panel(
              "Namespaces",
              h(
                "div",
                null,
                namespaces.namespaces.map((one) =>
                  h(
                    "details",
                    { key: one.name },
                    h("summary", null, one.name),
                    definitionList(
                      Object.entries(one)
                        .filter(([name]) => name !== "name")
                        .map(([name, value]) => [
                          name.replaceAll("_", " "),
                          typeof value === "object" ? JSON.stringify(value) : String(value),
                        ]),
                    ),
                  ),
                ),
              ),
            )
          : null,
      ),
      h(
        "div",
        null,
        panel(
          "Your session",
          definitionList([
            ["name", currentUser().actor],
            ["scopes", currentUser().scopes.join(", ")],
            ["namespaces", currentUser().namespaces.join(", ").replace("*", "all")],
          ]),
          { more: button("sign out", signOut, { kind: "quiet" }) },
        ),
        sessions && sessions.sessions.length ? panel("Sessions", sessionTable(sessions.sessions)) : null,
        keys ? panel("Keys", keyTable(keys), { more: button("new key", newKey) }) : null,
        panel(
          "Named limits",
          limits && limits.limits.length
            ? table(
                "Named limits",
                [{ name: "Limit" }, { name: "Allows" }, { name: "In use" }],
                limits.limits.map((one) => ({
                  key: one.limit,
                  cells: [one.limit, one.allows, String(one.in_flight)],
                })),
              )
            : emptyState(
                "No limits. Set one for a shared service:",
                "timewright limit set crm-api --max-running 5",
              ),
        ),
        panel(
          "Calendars",
          calendars && calendars.calendars.length
            ? h(
                "div",
                null,
                calendars.calendars.map((one) =>
                  h("details", { key: one.name }, h("summary", null, one.name), jsonBlock(one)),
                ),
              )
            : emptyState(
                "No calendars. Define days on which nothing runs:",
                "timewright calendar put holidays --yearly 12-25",
              ),
        ),
        panel(
          "Reminders",
          reminders && reminders.reminders.length
            ? table(
                "Reminders",
                [{ name: "Text" }, { name: "Trigger" }, { name: "Next", kind: "tight" }],
                reminders.reminders.map((one) => ({
                  key: one.id,
                  cells: [one.text, linkedText(one.when), time(one.next_at, undefined, "away")],
                })),
              )
            : emptyState("No reminders. Set one:", "timewright reminder set 'call the bank' --after 2h"),
        ),
      ),
    );
  },
};

function summary(doctor) {
  const bad = doctor.findings.filter((one) => one.severity !== "ok").length;
  return bad
    ? `${bad} of ${doctor.findings.length} checks need attention`
    : `all ${doctor.findings.length} checks ok`;
}

// Findings that need attention come first.
function checks(doctor) {
  const rows = [...doctor.findings].sort(worstFirst);
  return table(
    "Checks",
    [{ name: "Status", kind: "tight" }, { name: "Check", kind: "tight" }, { name: "Finding" }],
    rows.map((one, n) => ({
      key: one.kind + n,
      cells: [
        statusBadge(one.severity),
        one.kind,
        h("div", null, linkedText(one.sentence), fixHint(one.remedy)),
      ],
    })),
  );
}

function keyTable(keys) {
  if (!keys.keys.length)
    return emptyState("No keys. Create one:", "timewright key create NAME --role viewer");
  const rows = keys.keys.map((key) => ({
    key: key.id,
    cells: [
      h("span", { class: "names" }, key.name, h("span", { class: "tag" }, key.origin)),
      h("span", { title: key.scopes.join(", ") }, key.role || key.scopes.join(", ")),
      key.namespaces.join(", ").replace("*", "all"),
      key.used_at ? time(key.used_at, undefined, "away") : "never",
      key.state === "active"
        ? key.expires_at
          ? time(key.expires_at, undefined, "away")
          : "never"
        : key.state,
      key.state === "active" ? button("revoke", () => revoke(key), { kind: "quiet" }) : null,
    ],
  }));
  return table(
    "Keys",
    [
      { name: "Key" },
      { name: "Role", kind: "tight" },
      { name: "Namespaces" },
      { name: "Last used", kind: "tight" },
      { name: "Expires", kind: "tight" },
      { name: "", label: "Actions", kind: "tight" },
    ],
    rows,
  );
}

const ROLES = ["viewer", "operator", "editor", "admin"].map((role) => [role, role]);
async function newKey() {
  const answer = await confirmDialog({
    title: "New key",
    act: "create",
    fields: [
      { name: "key", label: "Name", required: true },
      { name: "role", label: "Role", value: "viewer", options: ROLES },
    ],
    command: (v) => `timewright key create ${shellQuote(v.key || "NAME")} --role ${shellQuote(v.role)}`,
  });
  if (!answer) return;
  const made = await tryAction(() => post(["keys"], { key: answer.key, role: answer.role }));
  if (made) {
    await confirmDialog({
      title: "Your new key",
      text: "Copy it now. It is shown only once.",
      act: "done",
      body: copyBlock(made.token),
    });
    refresh();
  }
}

async function revoke(key) {
  const sure = await confirmDialog({
    title: `Revoke ${key.name}?`,
    act: "revoke",
    danger: true,
    reason: true,
    text: "Requests with this key are refused from now on.",
    command: `timewright key revoke ${shellQuote(key.id)}`,
  });
  if (
    sure &&
    (await tryAction(
      () => post(["keys", key.id, "revoke"], sure.reason ? { reason: sure.reason } : {}),
      "revoked",
    ))
  )
    refresh();
}

// A browser as people call it: the last known name in its user agent.
const browserName = (client) =>
  (/(Edg|Firefox|Chrome|Safari)\/[\d.]+/.exec(client) || [client.slice(0, 30)])[0].replace("Edg/", "Edge/");

function sessionTable(sessions) {
  const end = (one) =>
    perform({
      title: `End the session of ${one.actor}?`,
      text: "Its browser is signed out at once.",
      act: "end",
      done: "session ended",
      danger: true,
      command: `timewright session end ${shellQuote(one.id)}`,
      path: ["sessions", one.id, "end"],
    });
  return table(
    "Sessions",
    [
      { name: "Name" },
      { name: "Browser" },
      { name: "Last used", kind: "tight" },
      { name: "Expires", kind: "tight" },
      { name: "", label: "Actions", kind: "tight" },
    ],
    sessions.map((one) => ({
      key: one.id,
      cells: [
        one.actor,
        h("span", { title: one.client }, browserName(one.client)),
        time(one.last_used_at, undefined, "away"),
        time(one.expires_at, undefined, "away"),
        one.id === currentUser().session
          ? h("span", { class: "mute" }, "this browser")
          : button("end", () => end(one), { kind: "quiet" }),
      ],
    })),
  );
}
