// Remedies of an explanation: a button that shows what would change, and then changes it.

import { can, get, patchJson, post, put } from "../base/api.js";
import { h } from "../base/dom.js";
import { perform } from "./actions.js";
import { commandBlock } from "./commands.js";
import { diff } from "./diff.js";
import { button, jsonBlock } from "./layout.js";
import { problemBox } from "./messages.js";
import { link, routeTo } from "./texts.js";

/** @typedef {{operation: string, request: Record<string, any>, command: string}} Remedy */

// What each remedy sends, and the scope that it needs. An operation that is not here is shown as a command.
/**
 * @type {Record<string, {scope: string, send?: typeof post, path: (request: any) => string[], text: string}>}
 */
const CALLS = {
  "schedule update": {
    scope: "write",
    send: patchJson,
    path: (r) => ["schedules", r.schedule],
    text: "change the schedule",
  },
  "schedule resume": {
    scope: "write",
    path: (r) => ["schedules", r.schedule, "resume"],
    text: "resume the schedule",
  },
  "schedule run": { scope: "trigger", path: (r) => ["schedules", r.schedule, "run"], text: "run now" },
  "schedule skip": {
    scope: "trigger",
    path: (r) => ["schedules", r.schedule, "skip"],
    text: "skip the next",
  },
  "schedule backfill": {
    scope: "trigger",
    path: (r) => ["schedules", r.schedule, "backfill"],
    text: "run it now (backfill)",
  },
  "hint clear": { scope: "hint", path: (r) => ["hints", r.schedule, "clear"], text: "clear the hints" },
  "run retry": { scope: "trigger", path: (r) => ["runs", r.run, "retry"], text: "retry the run" },
  "run reset": { scope: "trigger", path: (r) => ["runs", r.run, "reset"], text: "reset the run" },
  "run cancel": { scope: "trigger", path: (r) => ["runs", r.run, "cancel"], text: "cancel the run" },
  "limit set": { scope: "write", send: put, path: (r) => ["limits", r.limit], text: "raise the limit" },
  "queue policy set": {
    scope: "write",
    send: put,
    path: (r) => ["queues", r.queue, "policy"],
    text: "change the queue",
  },
  "provider open": {
    scope: "write",
    path: (r) => ["providers", r.provider, "open"],
    text: "open the provider",
  },
  "approval approve": {
    scope: "write",
    path: (r) => ["approvals", r.schedule, "approve"],
    text: "approve the schedule",
  },
  resume: { scope: "write", path: () => ["resume"], text: "end the pause" },
};

/** @type {Record<string, (request: any) => [string, string]>} */
const LINKS = {
  "instance list": () => [routeTo("instances"), "show the instances"],
  "run explain": (r) => [routeTo("runs", r.run), "show the run in the way"],
  "queue lease": (r) => [routeTo("queues", r.queue), `show queue ${r.queue}`],
};

const fieldsOf = (request) =>
  Object.fromEntries(
    Object.entries(request).filter(
      ([name]) => !["schedule", "run", "queue", "limit", "provider"].includes(name),
    ),
  );
const describe = (request) => {
  const fields = Object.entries(fieldsOf(request)).map(
    ([name, value]) => `${name.replaceAll("_", " ")} ${value}`,
  );
  return fields.length ? `: ${fields.join(", ")}` : "";
};

/** @param {Remedy[]} remedies */
export const remedyButtons = (remedies) =>
  !remedies || !remedies.length
    ? null
    : h(
        "ul",
        { class: "lines remedies" },
        remedies.map((one) => h("li", { key: one.command }, remedyRow(one))),
      );

/** @param {Remedy} remedy */
function remedyRow(remedy) {
  const call = CALLS[remedy.operation];
  if (call && can(call.scope))
    return h(
      "div",
      { class: "line" },
      button(`${call.text}${describe(remedy.request)}…`, () => preview(remedy)),
    );
  const [to, text] = LINKS[remedy.operation] ? LINKS[remedy.operation](remedy.request) : ["", ""];
  return to ? link(to, text) : commandBlock(remedy.command);
}

// A dry run does everything except keep the change, so its answer is what would be.
/** @param {Remedy} remedy */
async function preview(remedy) {
  const { path, send = post, text } = CALLS[remedy.operation];
  const body = fieldsOf(remedy.request);
  const parts = path(remedy.request);
  const before = remedy.operation === "schedule update" ? await get(parts).catch(() => null) : null;
  const after = await send(parts, { ...body, dry_run: true }).catch((problem) => ({ problem }));
  const shown = after.problem
    ? problemBox(after.problem)
    : before
      ? diff(withoutRevision(before.schedule), withoutRevision(after.schedule))
      : h("details", null, h("summary", null, "answer of the dry run"), jsonBlock(after));
  await perform({
    title: `${text}?`,
    act: "apply",
    text: after.problem ? "The server would refuse this now." : "Checked with a dry run; this would change:",
    body: shown,
    command: remedy.command,
    path: parts,
    send,
    toBody: (values) => ({ ...body, ...values }),
  });
}
const withoutRevision = ({ revision: _revision, updated_at: _at, ...rest }) => rest;
