// The output of a run, polled every second while the run is in progress and the page is visible.

import { get } from "./api.js";

const MAX_CHARS = 200_000; // per stream; the server keeps less per attempt
const POLL_MS = 1000;

let received = { run: "", cursor: "", state: "", attempts: new Map() };
let timer = 0;

// Fetch the whole output the first time, then only what is new.
export async function fetchOutput(run) {
  const known = received.run === run;
  const output = await get(["runs", run, "logs"], known ? { after: received.cursor } : {});
  if (!known || received.run !== run) received = { run, cursor: "", state: "", attempts: new Map() };
  for (const one of output.attempts) received.attempts.set(one.fence, appended(received.attempts.get(one.fence), one, received.cursor));
  Object.assign(received, { cursor: output.cursor, state: output.state });
  return { state: received.state, attempts: [...received.attempts.values()] };
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
