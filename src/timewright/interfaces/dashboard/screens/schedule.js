// One schedule: upcoming and recent runs, explanation, health, definition and actions.

import { perform } from "../actions.js";
import { get, can, post, query } from "../api.js";
import { dependencyPanel } from "../dependencies.js";
import { lineChart, outcomeStrip } from "../charts.js";
import { h } from "../dom.js";
import { refresh } from "../main.js";
import { remedyButtons } from "../remedies.js";
import { badge, sourceText, reasonText } from "../states.js";
import { approvalDetails, targetDetails } from "../target_details.js";
import {
  secondsBetween,
  shortDuration,
  startDelay,
  totalDuration,
  syncClock,
  localZone,
  toInstant,
  parseDuration,
  durationText,
  formatDuration,
  formatTime,
} from "../times.js";
import {
  tryAction,
  timeWithDistance,
  button,
  confirmDialog,
  commandBlock,
  commandOptions,
  diff,
  emptyState,
  definitionList,
  jsonBlock,
  link,
  panel,
  routeTo,
  linkedText,
  shellQuote,
  table,
  time,
} from "../widgets.js";

export default {
  title: ([name]) => name,
  every: 4,
  async load([name], params) {
    const at = ["schedules", name];
    const [detail, runs, next, health, hints, revisions, outcomes, trends, why] = await Promise.all([
      get(at),
      get(["runs"], { schedule: name, limit: 12 }),
      get([...at, "next"], { count: 10 }),
      get([...at, "health"]),
      get(["hints"], { schedule: name }).catch(() => null),
      get([...at, "revisions"], { limit: 10 }),
      query(["schedules", "outcomes"], { schedules: [name] }),
      get([...at, "trends"]).catch(() => ({ series: [] })),
      params.at
        ? get([...at, "explain"], { at: params.at })
        : get([...at, "explain"], { last: true }).catch(() => null),
    ]);
    syncClock(health.now);
    const request =
      detail.progress.state === "pending_approval" ? await approvalRequest(detail.schedule) : null;
    return {
      ...detail,
      request,
      runs: runs.runs,
      coming: next.next,
      warnings: next.warnings || [],
      health,
      hints,
      revisions: revisions.revisions,
      recent: outcomes.outcomes[0],
      trends: trends.series,
      why,
    };
  },
  view(data, [name], params, go) {
    const { schedule, progress } = data;
    return h(
      "div",
      { class: "screen" },
      head(data, name),
      actions(data, name),
      data.request
        ? panel("Requested", approvalDetails(data.request), { note: "it runs after approval" })
        : null,
      dependencyPanel(data),
      h(
        "div",
        { class: "columns" },
        h(
          "div",
          null,
          panel("Upcoming", upcoming(data), { note: schedule.trigger.zone || "" }),
          panel("Explain", explanation(data, params, go)),
          schedule.adaptive ? panel("Hints", hints(data, name)) : null,
          panel("Definition", definition(data)),
        ),
        h(
          "div",
          null,
          panel(
            "Recent runs",
            data.recent.marks.length
              ? h(
                  "div",
                  { class: "whole" },
                  outcomeStrip(data.recent.marks, { label: name }),
                  trendCharts(data),
                )
              : h("p", { class: "mute" }, "no runs yet"),
            { note: "last 48; a tall mark ran, a short one did not" },
          ),
          panel("Health", health(data.health)),
          panel("Runs", runs(data), { more: link(`/runs?schedule=${encodeURIComponent(name)}`, "all") }),
          panel("Revisions", revisions(data, name)),
        ),
      ),
      progress.state === "archived"
        ? h("p", { class: "mute" }, "archived: it does not run; its history is kept")
        : null,
    );
  },
};

// Durations, and the numbers in the results, over the recent runs.
function trendCharts({ recent, trends }) {
  const took = recent.marks
    .filter((mark) => mark.started_at && mark.finished_at)
    .map((mark) => ({
      at: mark.planned_at,
      value: secondsBetween(mark.started_at, mark.finished_at),
      state: mark.state,
      run: mark.run,
    }));
  return h(
    "div",
    null,
    took.length > 1 ? lineChart(took, { label: "duration", format: shortDuration }) : null,
    trends
      .filter((one) => new Set(one.points.map((point) => point.value)).size > 1)
      .slice(0, 6)
      .map((one) =>
        h(
          "div",
          { key: one.field },
          lineChart(one.points, {
            label: one.field,
            format: (value) => String(Math.round(value * 100) / 100),
            height: 40,
          }),
        ),
      ),
  );
}

function head({ schedule, progress, trigger, in_flight: running, held }, name) {
  const zone = schedule.trigger.zone;
  return h(
    "div",
    { class: "lead" },
    badge(progress.state, progress.reason),
    h("span", null, linkedText(trigger)),
    schedule.group ? h("span", { class: "tag" }, schedule.group) : null,
    schedule.tags.map((tag) => h("span", { class: "tag" }, tag)),
    progress.state === "active"
      ? progress.next_at
        ? h("span", null, "next ", timeWithDistance(progress.next_at, zone, "due"))
        : null
      : h(
          "span",
          { class: "mute" },
          progress.paused_until
            ? ["until ", timeWithDistance(progress.paused_until, zone), progress.reason ? ": " : ""]
            : null,
          progress.reason,
        ),
    running ? h("span", null, badge("leased"), ` ${running}`) : null,
    held ? h("span", null, badge("held"), ` ${held}`) : null,
    schedule.description ? h("p", { class: "mute" }, schedule.description) : null,
  );
}

function actions({ schedule, progress, request }, name) {
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
function notPlannedText(progress, trigger) {
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
async function approvalRequest(schedule) {
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

function upcoming({ coming, warnings, schedule, progress, trigger }) {
  if (!coming.length) return h("p", { class: "mute" }, notPlannedText(progress, trigger));
  const zone = schedule.trigger.zone;
  return h(
    "div",
    null,
    warnings.map((text) => h("p", { class: "warn" }, String(text.message || text))),
    table(
      "Next occurrences",
      [{ name: "Time", kind: "tight" }, { name: "In", kind: "tight" }, { name: "Triggered by" }],
      coming.map((one) => ({
        key: one.planned_at + one.verdict,
        tone: one.verdict,
        cells: [
          h(
            "span",
            null,
            time(one.planned_at, zone),
            zone && zone !== localZone()
              ? h("div", { class: "mute" }, `${formatTime(one.planned_at, zone)} ${zone}`)
              : null,
          ),
          time(one.planned_at, zone, "due"),
          h(
            "span",
            null,
            one.verdict === "fire" ? sourceText(one.source) : badge("skipped", reasonText(one.reason)),
            one.reason ? ` ${reasonText(one.reason)}` : "",
            one.count > 1 ? ` × ${one.count}` : "",
            one.note ? h("div", { class: "mute" }, `note: ${one.note}`) : null,
          ),
        ],
      })),
    ),
  );
}

function explanation({ why: answer }, params, go) {
  const form = h(
    "form",
    {
      class: "filters",
      onsubmit: (e) => {
        e.preventDefault();
        const value = e.target.elements.at.value;
        go({ ...params, at: value ? new Date(value).toISOString() : "" });
      },
    },
    h(
      "label",
      null,
      h("span", null, "Explain at"),
      h("input", { type: "datetime-local", step: "1", name: "at", "aria-label": "Time to explain" }),
    ),
    h("button", { type: "submit" }, "explain"),
  );
  if (!answer) return h("div", null, form, h("p", { class: "mute" }, "no runs yet"));
  return h(
    "div",
    null,
    form,
    h("p", null, badge(answer.status, answer.reason), " ", linkedText(answer.summary)),
    h(
      "ul",
      { class: "reasons" },
      answer.because.map((text) => h("li", null, linkedText(text))),
    ),
    answer.trail && answer.trail.length
      ? h(
          "div",
          null,
          h("h3", null, "Rejected candidates"),
          h(
            "ul",
            { class: "reasons" },
            answer.trail.map((lost) =>
              h(
                "li",
                null,
                lost.at ? time(lost.at) : "",
                ` ${sourceText(lost.source)}: `,
                linkedText(lost.why),
              ),
            ),
          ),
        )
      : null,
    answer.run && answer.run.id ? h("p", null, link(routeTo("runs", answer.run.id), "show run")) : null,
    remedyButtons(answer.remedies),
  );
}

const HINT_TEXTS = {
  interval: (hint) => `every ${durationText(hint.interval)}`,
  one_shot: (hint) => ["once at ", time(hint.at)],
  pause: (hint) => ["paused until ", time(hint.until)],
};

function hints(data, name) {
  const answer = data.hints;
  if (!answer) return h("p", { class: "mute" }, "none");
  const rows = Object.entries(answer.hints).filter(([, hint]) => hint);
  const clear = async () => {
    const answer = await confirmDialog({
      title: `Clear all hints of ${name}?`,
      act: "clear",
      reason: true,
      text: "The next occurrence is planned again without them.",
      command: `timewright hint clear ${shellQuote(name)}`,
    });
    if (
      answer &&
      (await tryAction(
        () => post(["hints", name, "clear"], answer.reason ? { reason: answer.reason } : {}),
        "hints cleared",
      ))
    )
      refresh();
  };
  const sooner =
    answer.next_at && answer.without_hints ? secondsBetween(answer.next_at, answer.without_hints) : null;
  return h(
    "div",
    null,
    rows.length
      ? h(
          "ul",
          { class: "lines" },
          rows.map(([kind, hint]) =>
            h(
              "li",
              { key: kind },
              h(
                "div",
                { class: "line" },
                h("strong", { class: "grow" }, (HINT_TEXTS[kind] || (() => kind))(hint)),
                h(
                  "span",
                  { class: "mute" },
                  kind === "pause" ? "ends " : "expires ",
                  time(hint.expires_at || hint.until, undefined, "away"),
                ),
              ),
              h(
                "div",
                { class: "mute" },
                hint.reason || "no reason given",
                hint.actor ? `, by ${hint.actor}` : "",
                hint.created_at ? ", " : "",
                hint.created_at ? time(hint.created_at, undefined, "away") : null,
              ),
            ),
          ),
        )
      : h("p", { class: "mute" }, "no active hints"),
    h(
      "dl",
      { class: "facts" },
      h("dt", null, "next with hints"),
      h("dd", null, timeWithDistance(answer.next_at, undefined, "due")),
      h("dt", null, "next without hints"),
      h(
        "dd",
        null,
        timeWithDistance(answer.without_hints),
        sooner && Math.abs(sooner) > 1
          ? h(
              "span",
              { class: "mute" },
              ` (${formatDuration(Math.abs(sooner))} ${sooner > 0 ? "later" : "sooner"})`,
            )
          : null,
      ),
      h("dt", null, "changes left this hour"),
      h("dd", null, String(answer.changes_left)),
    ),
    can("hint")
      ? h(
          "div",
          { class: "buttons" },
          button("hint…", () => addHint(name)),
          rows.length ? button("clear", clear) : null,
        )
      : null,
  );
}

async function addHint(name) {
  const answer = await confirmDialog({
    title: `Interval hint for ${name}`,
    act: "hint",
    reason: true,
    text: "Applies immediately, stays within the clamp, and expires.",
    fields: [
      { name: "interval", label: "Interval", value: "1m", required: true },
      { name: "ttl", label: "Duration", value: "1h", required: true },
    ],
    command: (v) =>
      `timewright hint interval ${shellQuote(name)}` +
      commandOptions({ interval: v.interval, ttl: v.ttl, reason: v.reason }),
  });
  if (!answer) return;
  const given = Object.fromEntries(Object.entries(answer).filter(([, value]) => value));
  if (await tryAction(() => post(["hints", name, "interval"], given), "hinted")) refresh();
}

function definition({ schedule, trigger: description }) {
  const { trigger, target } = schedule;
  return h(
    "div",
    null,
    definitionList([
      [
        "trigger",
        trigger.expression || (trigger.interval ? `every ${durationText(trigger.interval)}` : description),
      ],
      ["zone", trigger.zone],
      ["clock changes", trigger.dst],
      ["overlap", schedule.overlap],
      ["catch-up", `${schedule.catch_up} within ${durationText(schedule.catch_up_window)}`],
      ["attempts", schedule.retry.max_attempts],
      ["exhausted", schedule.retry.exhausted],
      ["time limit", durationText(schedule.lease.time_limit)],
      ["jitter", schedule.jitter === "0s" ? "" : durationText(schedule.jitter)],
      ["queue", schedule.queue],
      ["limits", schedule.limits.join(", ")],
      [
        "created",
        h(
          "span",
          null,
          time(schedule.created_at),
          ` by ${schedule.created_by || "?"} (${schedule.origin || "?"})`,
        ),
      ],
    ]),
    h("h3", null, "Target"),
    targetDetails(target),
    h("details", null, h("summary", null, "full definition"), jsonBlock(schedule)),
  );
}

function health(data) {
  const rows = Object.entries(data.windows).map(([name, w]) => ({
    key: name,
    cells: [
      durationText(name),
      String(w.total),
      w.success_rate === null ? "—" : `${Math.round(w.success_rate * 100)} %`,
      `${shortDuration(parseDuration(w.duration.median))} / ${shortDuration(parseDuration(w.duration.p95))}`,
      shortDuration(parseDuration(w.delay.p95)),
    ],
  }));
  return h(
    "div",
    null,
    data.failures ? h("p", { class: "bad" }, `${data.failures} failed in a row`) : null,
    table(
      "Health",
      [
        { name: "Window" },
        { name: "Runs" },
        { name: "Success rate" },
        { name: "Duration p50 / p95" },
        { name: "Delay p95" },
      ],
      rows,
    ),
  );
}

function runs({ runs: rows, schedule }) {
  if (!rows.length) return emptyState("No runs yet.", `timewright schedule run ${schedule.name}`);
  const zone = schedule.trigger.zone;
  return table(
    "Runs",
    [
      { name: "Planned", kind: "tight" },
      { name: "Status", kind: "tight" },
      { name: "Delay", kind: "tight" },
      { name: "Duration", kind: "tight" },
      { name: "Result" },
    ],
    rows.map((run) => ({
      key: run.id,
      to: routeTo("runs", run.id),
      cells: [
        h("a", { href: `#${routeTo("runs", run.id)}` }, time(run.planned_at, zone)),
        badge(run.state, reasonText(run.reason)),
        startDelay(run),
        totalDuration(run),
        h(
          "span",
          { class: "ellipsis short", title: run.error || reasonText(run.reason) },
          run.error || reasonText(run.reason) || run.outcome_label,
        ),
      ],
    })),
  );
}

function revisions(data, name) {
  const restore = async (revision) => {
    const sure = await confirmDialog({
      title: `Restore revision ${revision}?`,
      act: "restore",
      reason: true,
      text: "It is stored as a new revision; the history is kept.",
      command: `timewright schedule restore ${name} --to ${revision}`,
    });
    if (
      sure &&
      (await tryAction(
        () =>
          post(["schedules", name, "restore"], {
            to: revision,
            ...(sure.reason ? { reason: sure.reason } : {}),
          }),
        "restored",
      ))
    )
      refresh();
  };
  return h(
    "ol",
    { class: "lines" },
    data.revisions.map((one, n) =>
      h(
        "li",
        { key: one.revision },
        h(
          "div",
          { class: "line" },
          h("strong", null, `r${one.revision}`),
          time(one.at),
          h("span", { class: "mute" }, one.actor),
          h("span", { class: "grow ellipsis" }, one.reason),
          n > 0 && can("write") && data.progress.state !== "archived"
            ? button("restore", () => restore(one.revision), { kind: "quiet" })
            : null,
        ),
        one.changed.length && data.revisions[n + 1] ? changed(one, data.revisions[n + 1]) : null,
      ),
    ),
  );
}

const only = (fields, schedule) => Object.fromEntries(fields.map((field) => [field, schedule[field]]));
const changed = (one, before) => diff(only(one.changed, before.schedule), only(one.changed, one.schedule));
