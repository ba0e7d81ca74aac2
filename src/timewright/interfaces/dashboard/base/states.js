// The sign, colour and text of every state. A state is never shown by colour alone.

import { h } from "./dom.js";

const STATES = {
  succeeded: ["✔", "good", "succeeded"],
  failed: ["✖", "bad", "failed"],
  timed_out: ["⧖", "bad", "timed out"],
  lost: ["⚡", "bad", "lost"],
  parked: ["■", "warn", "parked"],
  leased: ["▶", "busy", "running"],
  ready: ["○", "wait", "ready"],
  held: ["‖", "wait", "held"],
  skipped: ["–", "mute", "skipped"],
  dropped: ["…", "mute", "dropped"],
  missed: ["∅", "gone", "missed"],
  cancelled: ["⊘", "stop", "cancelled"],
  unknown: ["?", "warn", "unknown"],
  released: ["↩", "mute", "released"],
  deferred: ["↷", "wait", "deferred"],
  active: ["●", "good", "active"],
  paused: ["‖", "warn", "paused"],
  pending_approval: ["?", "warn", "pending approval"],
  finished: ["◼", "mute", "finished"],
  archived: ["▢", "mute", "archived"],
  disabled: ["✖", "bad", "disabled"],
  waiting: ["○", "wait", "waiting"],
  met: ["✔", "good", "met"],
  running: ["▶", "busy", "running"],
  alive: ["●", "good", "alive"],
  silent: ["∅", "warn", "silent"],
  stopped: ["◼", "mute", "stopped"],
};

// What triggered an occurrence.
const SOURCES = {
  "baseline-cron": "cron expression",
  "baseline-interval": "interval",
  "baseline-once": "one-time schedule",
  "baseline-after": "end of another schedule",
  "ai-interval": "interval hint",
  "ai-oneshot": "one-time hint",
  "clamped-min": "minimum interval",
  "clamped-max": "maximum interval",
  paused: "pause",
  manual: "manual",
  backfill: "backfill",
  retry: "retry",
};
export const sourceText = (source) => SOURCES[source] || String(source || "");

// Why a run was skipped, ended or has not started. Other reasons are shown as the server sends them.
const REASONS = {
  overlap: "the previous run was still in progress",
  missed: "no instance was running at its time",
  paused: "the schedule was paused",
  queue_full: "the queue was full",
  superseded: "replaced by a newer occurrence",
  deadline: "could not start before its deadline",
  budget: "the budget was used up",
  provider: "the provider was closed",
  excluded: "excluded by a calendar",
  clamped: "too soon after the previous occurrence",
  replaced: "replaced by a newer run",
  exhausted: "all attempts used",
  lost: "its process or its lease was lost too often",
  unknown: "the result is unknown",
  unresolved: "a referenced object is missing",
  unreadable: "the row could not be read",
  by_hand: "by a person",
  needs: "a dependency had not succeeded",
};
export const reasonText = (reason) => REASONS[reason] || String(reason || "").replaceAll("_", " ");
// What a run belongs to: a schedule, a workflow step such as `nightly › load[7]`, or a queue.
export const runLabel = (run) => run.schedule || run.workflow || run.queue || "manual run";
export const isPlanned = (source) => String(source || "").startsWith("baseline");

const stateInfo = (state) => STATES[state] || ["·", "mute", String(state || "").replaceAll("_", " ")];
export const stateTone = (state) => stateInfo(state)[1];
export const stateText = (state) => stateInfo(state)[2];
export const stateSign = (state) => stateInfo(state)[0];

export function badge(state, title) {
  const [mark, kind, text] = stateInfo(state);
  return h(
    "span",
    { class: `badge ${kind}`, title },
    h("span", { class: "sign", "aria-hidden": "true" }, mark),
    text,
  );
}

// The status dot of a schedule: active, failing, paused or parked.
export function stateDot(row) {
  const state = row.state === "active" && row.failures > 0 ? "failed" : row.state;
  const [mark, kind, text] = stateInfo(state);
  const label = row.state === "active" && row.failures > 0 ? `${row.failures} failed in a row` : text;
  return h(
    "span",
    { class: `dot ${kind}`, role: "img", "aria-label": label, title: row.reason || label },
    mark,
  );
}
