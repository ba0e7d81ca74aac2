// Incidents: open ones first, then the history; channels and thresholds.

import { refresh } from "../app/refresh.js";
import { can, get, post, remove } from "../base/api.js";
import { h } from "../base/dom.js";
import { secondsUntil } from "../base/times.js";
import { fixHint, shellQuote } from "../components/commands.js";
import { confirmDialog } from "../components/dialog.js";
import { button, definitionList, emptyState, panel, statusBadge, worstFirst } from "../components/layout.js";
import { tryAction } from "../components/messages.js";
import { table } from "../components/table.js";
import { link, linkedText, routeTo, time } from "../components/texts.js";

const orNull = (promise) => promise.catch(() => null);

export default {
  title: () => "Incidents",
  every: 10,
  async load() {
    const [incidents, channels, alerts] = await Promise.all([
      get(["incidents"], { closed: true, limit: 100 }),
      orNull(get(["channels"])),
      orNull(get(["alerts"])),
    ]);
    return { incidents: incidents.incidents, channels, alerts };
  },
  view({ incidents, channels, alerts }) {
    const open = incidents.filter((one) => !one.closed_at).sort(worstFirst);
    const closed = incidents.filter((one) => one.closed_at);
    return h(
      "div",
      { class: "screen" },
      panel("Open incidents", open.length ? openTable(open) : emptyState("Nothing is wrong.")),
      closed.length
        ? panel(
            "History",
            table(
              "Closed incidents",
              [
                { name: "Incident", kind: "main full" },
                { name: "Opened", kind: "tight" },
                { name: "Closed", kind: "tight" },
                { name: "Ended by" },
              ],
              closed.map((one) => ({
                key: one.id,
                cells: [
                  linkedText(one.sentence),
                  time(one.opened_at, undefined, "away"),
                  time(one.closed_at, undefined, "away"),
                  h("span", null, linkedText(one.ended_by)),
                ],
              })),
            ),
          )
        : null,
      channels
        ? panel(
            "Channels",
            channels.channels.length
              ? channelTable(channels.channels)
              : emptyState(
                  "Nobody is told. Create a channel:",
                  "timewright channel create ops --to https://example.com/hook",
                ),
            { more: can("admin") ? button("new channel", newChannel) : null },
          )
        : null,
      alerts
        ? panel(
            "Thresholds",
            definitionList(
              Object.entries(alerts.in_force).map(([name, value]) => [
                name.replaceAll("_", " "),
                linkedText(String(value)),
              ]),
            ),
            {
              note: "of this namespace; a schedule or a group may have its own",
              more: can("write") ? button("change", () => change(alerts.in_force)) : null,
            },
          )
        : null,
    );
  },
};

function openTable(rows) {
  return table(
    "Open incidents",
    [
      { name: "Severity", kind: "tight" },
      { name: "Incident", kind: "main full" },
      { name: "Since", kind: "tight" },
      { name: "", label: "Actions", kind: "tight" },
    ],
    rows.map((one) => ({
      key: one.id,
      cells: [
        statusBadge(one.severity),
        h(
          "div",
          null,
          one.schedule ? link(routeTo("schedules", one.schedule), one.sentence) : linkedText(one.sentence),
          one.error ? h("div", { class: "mute" }, one.error) : null,
          one.run ? h("div", null, link(routeTo("runs", one.run), "show the run")) : null,
          fixHint(one.remedy),
        ),
        time(one.since, undefined, "away"),
        one.acknowledged_at
          ? h("span", { class: "mute" }, `acknowledged by ${one.acknowledged_by}`)
          : can("trigger")
            ? h(
                "div",
                null,
                button("acknowledge", () => act(one, "acknowledge"), { kind: "quiet" }),
                isSnoozed(one)
                  ? h("span", { class: "mute" }, "snoozed until ", time(one.snoozed_until))
                  : button("snooze", () => snooze(one), { kind: "quiet" }),
              )
            : null,
      ],
    })),
  );
}

const isSnoozed = (one) => one.snoozed_until && secondsUntil(one.snoozed_until) > 0;

function channelTable(rows) {
  return table(
    "Channels",
    [
      { name: "Channel", kind: "main" },
      { name: "Sends to" },
      { name: "Gets" },
      { name: "Waiting", kind: "tight" },
      { name: "Parked", kind: "tight" },
      { name: "", label: "Actions", kind: "tight" },
    ],
    rows.map((one) => ({
      key: one.name,
      cells: [
        one.name,
        one.channel ? one.channel.to.kind : "unreadable",
        one.channel ? FILTERS.flatMap((name) => one.channel[name] || []).join(", ") : "",
        String(one.waiting),
        String(one.parked),
        h(
          "div",
          null,
          can("trigger")
            ? button(
                "test",
                () => tryAction(() => post(["channels", one.name, "test"], {}), "test message queued"),
                { kind: "quiet" },
              )
            : null,
          can("admin")
            ? [
                button("change", () => changeChannel(one), { kind: "quiet" }),
                button("delete", () => deleteChannel(one), { kind: "quiet" }),
              ]
            : null,
        ),
      ],
    })),
  );
}

async function act(one, verb, body = {}) {
  if (await tryAction(() => post(["incidents", one.id, verb], body), `${verb}d`)) refresh();
}

async function snooze(one) {
  const answer = await confirmDialog({
    title: "Snooze",
    act: "snooze",
    fields: [{ name: "length", label: "For how long", value: "4h" }],
    command: (v) => `timewright incident snooze ${one.id} --length ${shellQuote(v.length)}`,
  });
  if (answer) await act(one, "snooze", { length: answer.length });
}

const TO = { name: "to", label: "A URL, slack:URL, ntfy:URL, mailto:ADDRESS?host=… or poll", required: true };
const FILTERS = ["events", "kinds", "severities", "schedules", "groups"];

async function newChannel() {
  const answer = await confirmDialog({
    title: "New channel",
    act: "create",
    fields: [{ name: "channel", label: "Name", required: true }, TO],
    command: (v) =>
      `timewright channel create ${shellQuote(v.channel || "NAME")} --to ${shellQuote(v.to || "URL")}`,
  });
  if (
    answer &&
    (await tryAction(() => post(["channels"], { channel: answer.channel, to: answer.to }), "created"))
  )
    refresh();
}

// A channel is replaced by one of the same name; its filters are kept unless they are changed.
async function changeChannel(one) {
  const now = one.channel || {};
  const answer = await confirmDialog({
    title: `Change ${one.name}`,
    act: "change",
    fields: [
      { ...TO, value: (now.to && now.to.url) || "" },
      ...FILTERS.map((name) => ({
        name,
        label: `${name} (comma between them, empty: all)`,
        value: (now[name] || []).join(", "),
      })),
    ],
    command: (v) => `timewright channel create ${shellQuote(one.name)} --to ${shellQuote(v.to || "URL")}`,
  });
  if (!answer) return;
  const filters = FILTERS.map((name) => [
    name,
    answer[name]
      .split(",")
      .map((word) => word.trim())
      .filter(Boolean),
  ]).filter(([, words]) => words.length);
  if (
    await tryAction(
      () => post(["channels"], { channel: one.name, to: answer.to, ...Object.fromEntries(filters) }),
      "changed",
    )
  )
    refresh();
}

async function deleteChannel(one) {
  const answer = await confirmDialog({
    title: `Delete ${one.name}`,
    act: "delete",
    danger: true,
    text: "Messages that wait are cancelled.",
    command: `timewright channel delete ${shellQuote(one.name)}`,
  });
  if (answer && (await tryAction(() => remove(["channels", one.name]), "deleted"))) refresh();
}

async function change(now) {
  const names = ["failed", "missed", "late", "no_instance", "queue_age", "repeat", "calm"];
  const answer = await confirmDialog({
    title: "Thresholds of this namespace",
    act: "set",
    fields: names.map((name) => ({ name, label: name.replaceAll("_", " "), value: String(now[name]) })),
    command: (v) =>
      `timewright alert set ${names
        .filter((name) => v[name] !== String(now[name]))
        .map((name) => `--${name.replaceAll("_", "-")} ${shellQuote(v[name])}`)
        .join(" ")}`,
  });
  if (!answer) return;
  const given = Object.fromEntries(
    names
      .filter((name) => answer[name] !== String(now[name]))
      .map((name) => [name, name === "failed" || name === "missed" ? Number(answer[name]) : answer[name]]),
  );
  if (await tryAction(() => post(["alerts"], given), "set")) refresh();
}
