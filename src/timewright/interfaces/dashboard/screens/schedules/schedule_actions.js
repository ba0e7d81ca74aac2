// What can be done with a schedule.

import { refresh } from "../../app/refresh.js";
import { can, get, post } from "../../base/api.js";
import { h } from "../../base/dom.js";
import { formatTime, localZone, toInstant } from "../../base/times.js";
import { perform } from "../../components/actions.js";
import { commandOptions, shellQuote } from "../../components/commands.js";
import { confirmDialog } from "../../components/dialog.js";
import { button } from "../../components/layout.js";
import { tryAction } from "../../components/messages.js";
import { approvalDetails } from "../../components/target_details.js";
import { routeTo } from "../../components/texts.js";

export function actions({ schedule, progress, request }, name) {
  const at = ["schedules", name];
  const commandFor = (verb) => `timewright schedule ${verb} ${shellQuote(name)}`;
  // The values of a dialog as the server takes them.
  const toBody = ({ to, until, ...given }) => ({
    ...given,
    ...(to ? { to: new Date(to).toISOString() } : {}),
    ...(until ? { until: toInstant(until) } : {}),
  });
  // A skipped occurrence comes back as a manual run at its time.
  const undo = {
    pause: { path: [...at, "resume"], done: "resumed" },
    skip: { path: [...at, "run"], body: { at: progress.next_at }, done: "it runs at its time again" },
  };
  const act = (verb, options) =>
    perform({
      command: commandFor(verb),
      act: verb,
      done: `${verb}: done`,
      path: [...at, verb],
      toBody,
      undo: undo[verb],
      ...options,
    });
  const preview = async () => {
    const asked = await confirmDialog({
      title: `Backfill ${name}`,
      text: "Create runs for past occurrences. The next step shows which.",
      act: "preview",
      fields: [
        { name: "since", label: "from", type: "datetime-local", required: true },
        { name: "until", label: "to", type: "datetime-local", required: true },
      ],
    });
    if (!asked) return;
    const range = { since: new Date(asked.since).toISOString(), until: new Date(asked.until).toISOString() };
    const would = await tryAction(() => post([...at, "backfill"], { ...range, dry_run: true }));
    if (!would) return;
    const times = would.runs
      .slice(0, 8)
      .map((run) => formatTime(run.planned_at))
      .join(", ");
    const sure = await confirmDialog({
      title: `Backfill ${would.count} occurrences?`,
      text: times || "no occurrences in this range",
      act: "backfill",
      command: `${commandFor("backfill")} --since ${range.since} --until ${range.until}`,
    });
    if (sure && (await tryAction(() => post([...at, "backfill"], range), "backfilled"))) refresh();
  };
  const active = progress.state === "active",
    archived = progress.state === "archived";
  const pause = {
    title: `Pause ${name}?`,
    text: "Occurrences during the pause are skipped and not caught up.",
    fields: [
      {
        name: "until",
        label: "Duration or end time (empty: until resumed)",
        placeholder: "2h, or 2026-12-01T09:00:00Z",
        choices: [
          ["1h", "1 hour"],
          ["4h", "4 hours"],
          ["1d", "1 day"],
          ["7d", "1 week"],
          ["", "until resumed"],
        ],
      },
    ],
    command: (v) =>
      commandFor("pause") + commandOptions({ until: v.until && toInstant(v.until), reason: v.reason }),
  };
  const move = {
    title: `Move the next occurrence of ${name}?`,
    act: "move",
    text: `The occurrence at ${formatTime(progress.next_at)} is skipped and a manual run replaces it.`,
    fields: [{ name: "to", label: `New time (${localZone()})`, type: "datetime-local", required: true }],
    command: (v) => `${commandFor("move")} --to ${v.to ? new Date(v.to).toISOString() : "INSTANT"}`,
  };
  const note = {
    title: `Add a note to the next occurrence of ${name}`,
    act: "add note",
    reason: false,
    text: `Shown with the occurrence at ${formatTime(progress.next_at)}.`,
    fields: [{ name: "text", label: "Note", required: true }],
    command: (v) => `${commandFor("note")} --text ${shellQuote(v.text || "TEXT")}`,
  };
  const buttons = [];
  if (can("trigger") && !archived && progress.state !== "pending_approval")
    buttons.push(
      button(
        "run now",
        () =>
          act("run", {
            title: `Run ${name} now?`,
            act: "run now",
            text: "Starts one manual run. The planned occurrences do not change.",
          }),
        { kind: "main" },
      ),
    );
  if (can("write") && progress.state === "pending_approval") buttons.push(...approvalButtons(name, request));
  if (can("write") && active) buttons.push(button("pause", () => act("pause", pause)));
  if (can("write") && ["paused", "parked"].includes(progress.state))
    buttons.push(
      button(
        "resume",
        () =>
          act("resume", {
            title: `Resume ${name}?`,
            text: `It continues with its next occurrence. Catch-up policy: ${schedule.catch_up}.`,
          }),
        { kind: "main" },
      ),
    );
  if (can("trigger") && active && progress.next_at)
    buttons.push(
      button("skip next", () =>
        act("skip", {
          title: `Skip the next occurrence of ${name}?`,
          act: "skip",
          text: `Planned for ${formatTime(progress.next_at)}.`,
        }),
      ),
      button("move next…", () => act("move", move)),
      button("note…", () => act("note", note)),
    );
  if (can("trigger")) buttons.push(button("backfill…", preview));
  if (can("write"))
    buttons.push(h("a", { class: "button", href: `#${routeTo("schedules", name, "edit")}` }, "edit"));
  if (can("write") && !archived)
    buttons.push(
      button(
        "archive",
        () =>
          act("archive", {
            title: `Archive ${name}?`,
            danger: true,
            text: "It stops running and cannot be restored. Its history is kept and its name can be reused.",
          }),
        { kind: "quiet" },
      ),
    );
  return buttons.length
    ? h("div", { class: "buttons", role: "toolbar", "aria-label": `Actions for ${schedule.name}` }, buttons)
    : null;
}

// Why there is no next occurrence.
export function notPlannedText(progress, trigger) {
  if (progress.state === "active") return `No planned times: ${trigger}.`;
  const why = {
    paused: "Paused: nothing starts until it is resumed.",
    parked: "Parked: fix the cause, then resume it.",
    finished: "Finished: no occurrences are left.",
    archived: "Archived: it does not run any more.",
    pending_approval: "Created by an agent: it starts after approval.",
  };
  return why[progress.state] || "Nothing is planned.";
}

// Approve or reject a schedule that an agent created.
const MAX_APPROVALS = 1000;
export async function approvalRequest(schedule) {
  const page = await get(["approvals"], { limit: MAX_APPROVALS });
  return page.approvals.find((one) => one.id === schedule.id) || schedule;
}

function approvalButtons(name, request) {
  const answer = (verb, text, danger) =>
    button(
      verb,
      async () => {
        const given = await confirmDialog({
          title: `${verb} ${name}?`,
          text,
          body: approvalDetails(request),
          act: verb,
          reason: true,
          danger,
          command: `timewright approval ${verb} ${shellQuote(name)}`,
        });
        if (
          given &&
          (await tryAction(
            () => post(["approvals", name, verb], given.reason ? { reason: given.reason } : {}),
            `${verb}: done`,
          ))
        )
          refresh();
      },
      { kind: danger ? "" : "main" },
    );
  return [
    answer("approve", "It starts with its next occurrence; earlier ones are not caught up.", false),
    answer("reject", "It is archived without having run.", true),
  ];
}
