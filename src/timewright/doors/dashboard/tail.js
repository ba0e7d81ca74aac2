// What a run says, as it comes: asked for once a second while it is under way and somebody looks.

import { get } from "./api.js";

const MOST = 200_000; // characters of one stream that a page keeps; the server keeps less of each attempt
const EVERY = 1000;

let heard = { run: "", cursor: "", state: "", attempts: new Map() };
let timer = 0;

// All of it the first time, and later only what is new.
export async function hear(run) {
  const known = heard.run === run;
  const told = await get(["runs", run, "logs"], known ? { after: heard.cursor } : {});
  if (!known || heard.run !== run) heard = { run, cursor: "", state: "", attempts: new Map() };
  for (const one of told.attempts) heard.attempts.set(one.fence, joined(heard.attempts.get(one.fence), one, heard.cursor));
  Object.assign(heard, { cursor: told.cursor, state: told.state });
  return { state: heard.state, attempts: [...heard.attempts.values()] };
}

// The output grows; whatever else an attempt leaves behind comes whole with its end.
function joined(before, now, cursor) {
  if (!before || !cursor.startsWith(`${now.fence}-`)) return now;
  const output = `${before.streams.output || ""}${now.streams.output || ""}`;
  return { ...now, streams: { ...now.streams, ...(output ? { output: output.slice(-MOST) } : {}) } };
}

// Calls `fresh` with what was heard, each second, until the run is over, the page is hidden or another is shown.
export function follow(run, { shown, fresh, over }) {
  clearTimeout(timer);
  timer = setTimeout(async () => {
    if (document.hidden || !shown()) return;
    const told = await hear(run).catch(() => null);
    if (!shown()) return;
    if (told) fresh(told);
    if (told && told.state !== "leased") over();
    else follow(run, { shown, fresh, over });
  }, EVERY);
}
