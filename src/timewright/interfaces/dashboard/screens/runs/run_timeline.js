// The times of a run on one axis.

import { stateSign, stateText, stateTone } from "../../base/states.js";
import { formatDuration, now } from "../../base/times.js";
import { waterfall } from "../../charts/waterfall.js";
import { shown } from "./output_panel.js";

// The start of the current attempt; the run only has the start of its last finished one.
const attemptStart = () =>
  ((shown.output && shown.output.attempts.find((one) => !one.ended_at)) || {}).started_at;

const NAMES = {
  planned_at: "planned",
  fire_at: "may start",
  first_started_at: "started",
  finished_at: "ended",
};

// Planned, may start, started and ended on one axis, with a bar for each attempt and the usual length behind.
export function timeline({ run, attempts, usual }) {
  const ms = (iso) => Date.parse(iso);
  const nowMs = now();
  const began = run.state === "leased" ? ms(attemptStart() || run.started_at || nowMs) : null;
  // A run that did not start has no other times than these two.
  const neverStarted = run.finished_at && !run.first_started_at;
  const names = neverStarted ? { planned_at: "planned", finished_at: stateText(run.state) } : NAMES;
  const marks = Object.entries(names)
    .filter(([field]) => run[field] && !(field === "fire_at" && run.fence > 1))
    .map(([field, name]) => ({ at: ms(run[field]), name }));
  if (began !== null && !run.first_started_at) marks.push({ at: began, name: NAMES.first_started_at });
  const start = run.first_started_at ? ms(run.first_started_at) : began;
  const rows = [];
  const ended = attempts.map((one) => ({
    from: ms(one.started_at || one.leased_at),
    to: ms(one.ended_at),
    kind: stateTone(one.outcome),
    one,
  }));
  const waiting = ["ready", "held"].includes(run.state)
    ? nowMs
    : (start ?? ms(run.finished_at || run.planned_at));
  if (waiting > ms(run.planned_at))
    rows.push({
      key: "wait",
      name: ["ready", "held"].includes(run.state) ? "waiting" : "waited",
      bars: [{ from: ms(run.planned_at), to: waiting, kind: "wait" }],
      text: waitText(run, waiting - ms(run.planned_at)),
    });
  for (const { one, ...bar } of ended) {
    const took = formatDuration((bar.to - bar.from) / 1000);
    rows.push({
      key: one.fence,
      name: `attempt ${one.number}`,
      bars: [bar],
      text: `${stateSign(one.outcome)} ${stateText(one.outcome)} after ${took}`,
    });
  }
  if (began !== null)
    rows.push({
      key: "live",
      name: `attempt ${attempts.length + 1}`,
      bars: [{ from: began, to: nowMs, kind: "busy" }],
      text: `▶ running for ${formatDuration((nowMs - began) / 1000)}`,
    });
  if (usual && start)
    rows.push({
      key: "usual",
      name: "usual length",
      bars: [{ from: start, to: start + usual * 1000, kind: "ghost" }],
      text: `median ${formatDuration(usual)}`,
    });
  return waterfall(rows, { label: "Timeline of the run", marks });
}

function waitText(run, waitedMs) {
  const waited = formatDuration(waitedMs / 1000);
  if (run.state === "held") return `for the previous run, ${waited}`;
  return run.state === "ready" && Date.parse(run.fire_at) > now() ? "until it may start" : waited;
}
