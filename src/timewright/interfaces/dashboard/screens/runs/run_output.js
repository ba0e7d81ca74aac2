// The output of a run, polled every second while the run is in progress and the page is visible.

import { get } from "../../base/api.js";

const MAX_CHARS = 200_000; // per stream; the server keeps less per attempt
const POLL_MS = 1000;

const emptyOutput = (run) => ({ run, cursor: "", state: "", attempts: new Map(), request: null });

let received = emptyOutput("");
let timer = 0;

// Fetch the whole output the first time, then only what is new. Callers share one request at a time,
// because two requests with the same cursor would append the same output twice.
export function fetchOutput(run) {
  if (received.run !== run) received = emptyOutput(run);
  const mine = received;
  mine.request =
    mine.request ||
    fetchMore(mine).finally(() => {
      mine.request = null;
    });
  return mine.request;
}

async function fetchMore(mine) {
  const output = await get(["runs", mine.run, "logs"], { after: mine.cursor });
  for (const one of output.attempts)
    mine.attempts.set(one.fence, appended(mine.attempts.get(one.fence), one, mine.cursor));
  Object.assign(mine, { cursor: output.cursor, state: output.state });
  return { state: mine.state, attempts: [...mine.attempts.values()] };
}

// Append new output; the other streams arrive complete when the attempt ends.
function appended(before, now, cursor) {
  if (!before || !cursor.startsWith(`${now.fence}-`)) return now;
  const text = `${before.streams.output || ""}${now.streams.output || ""}`;
  return { ...now, streams: { ...now.streams, ...(text ? { output: text.slice(-MAX_CHARS) } : {}) } };
}

// Call `onOutput` every second until the run ends, the page is hidden or another run is shown.
export function followOutput(run, { isShown, onOutput, onEnd }) {
  clearTimeout(timer);
  timer = setTimeout(async () => {
    if (document.hidden || !isShown()) return;
    const output = await fetchOutput(run).catch(() => null);
    if (!isShown()) return;
    if (output) onOutput(output);
    if (output && output.state !== "leased") onEnd();
    else followOutput(run, { isShown, onOutput, onEnd });
  }, POLL_MS);
}
