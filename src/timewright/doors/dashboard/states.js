// What each state is called and drawn as: a shape and a word, never a colour alone.

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
  missed: ["∅", "warn", "missed"],
  cancelled: ["⊘", "mute", "cancelled"],
  unknown: ["?", "warn", "unknown"],
  released: ["↩", "mute", "released"],
  active: ["●", "good", "active"],
  paused: ["‖", "warn", "paused"],
  pending_approval: ["?", "warn", "waits for approval"],
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

// Why an instant was chosen, in words.
const SOURCES = {
  "baseline-cron": "its cron expression", "baseline-interval": "its interval", "baseline-once": "its instant", "baseline-after": "the end of another schedule", "ai-interval": "a hint: interval",
  "ai-oneshot": "a hint: once", "clamped-min": "held back to its shortest", "clamped-max": "drawn in to its longest", paused: "paused", manual: "by hand",
  backfill: "filled in later", retry: "tried again",
};
export const because = (source) => SOURCES[source] || String(source || "");

// Why a run did not come to its end, or has none yet; what the server says beyond these words is shown as it is.
const REASONS = {
  overlap: "the run before it was still under way", missed: "its time passed while nobody looked", paused: "it was paused", queue_full: "its queue was full",
  superseded: "a newer occurrence took its place", deadline: "it could not start before its deadline", budget: "its budget was used up", provider: "its provider was closed",
  excluded: "a calendar leaves this time out", replaced: "a newer run took its place", exhausted: "every attempt was used", unknown: "nobody knows how it ended",
  unresolved: "something it names was not there", unreadable: "its row could not be read", by_hand: "somebody asked for it", needs: "what it needs had not happened",
};
export const reasoned = (reason) => REASONS[reason] || String(reason || "").replaceAll("_", " ");
// Whose run it is; a step of a workflow and a run by hand have no schedule.
export const subject = (run) => run.schedule || run.queue || (run.holder === "workflow" ? "a workflow" : "a step, or by hand");
export const byItself = (source) => String(source || "").startsWith("baseline");

export const known = (state) => STATES[state] || ["·", "mute", String(state || "").replaceAll("_", " ")];
export const tone = (state) => known(state)[1];
export const word = (state) => known(state)[2];
export const sign = (state) => known(state)[0];

export function badge(state, title) {
  const [mark, kind, text] = known(state);
  return h("span", { class: `badge ${kind}`, title }, h("span", { class: "sign", "aria-hidden": "true" }, mark), text);
}

// One dot for a schedule, as people know it from checks: fine, failing, late, paused, parked.
export function dot(row) {
  const state = row.state === "active" && row.failures > 0 ? "failed" : row.state;
  const [mark, kind, text] = known(state);
  const said = row.state === "active" && row.failures > 0 ? `${row.failures} failed in a row` : text;
  return h("span", { class: `dot ${kind}`, role: "img", "aria-label": said, title: row.reason || said }, mark);
}
