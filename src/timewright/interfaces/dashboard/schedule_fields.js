// The fields of the schedule form: where each is in a schedule, and how it is written as text.

import { shellQuote } from "./widgets.js";

/**
 * A field of the form. `path` is its place in the schedule and the name of its input.
 * @typedef {{path: string, label: string, kind?: "text" | "number" | "list" | "lines" | "command" | "json" |
 *   "choice" |
 *   "instant", options?: string[][], placeholder?: string, empty?: any, long?: boolean,
 *   shown?: (draft: Record<string, string>) => boolean}} Field `empty` is what clearing the field stores
 */

/** @type {(path: string, label: string, more?: Partial<Field>) => Field} */
const field = (path, label, more = {}) => ({ path, label, kind: "text", ...more });
/** @type {(path: string, label: string, options: string[][], more?: Partial<Field>) => Field} */
const choice = (path, label, options, more = {}) => field(path, label, { kind: "choice", options, ...more });
/** @type {(path: string, label: string, standard: string, more?: Partial<Field>) => Field} */
const standard = (path, label, value, more = {}) =>
  field(path, label, { placeholder: value, empty: more.kind === "number" ? Number(value) : value, ...more });
const same = (...values) => values.map((value) => [value, value.replaceAll("_", " ")]);

const DURATION = "90s, 15m, 1h30m";
const JSON_OBJECT = '{"name": "value"}';

/** @type {Record<string, {label: string, fields: Field[]}>} */
export const TARGETS = {
  note: {
    label: "note: the text is the result",
    fields: [
      field("target.text", "Text", { empty: "" }),
      field("target.channel", "Send to the channel", { placeholder: "none", empty: "" }),
    ],
  },
  http: {
    label: "HTTP request",
    fields: [
      choice("target.method", "Method", same("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")),
      field("target.url", "URL", { placeholder: "https://example.com/hook", empty: "" }),
      field("target.headers", "Headers, one on each line", {
        kind: "lines",
        placeholder: "Accept: application/json",
      }),
      field("target.body", "Body: text, or JSON", { kind: "json", placeholder: JSON_OBJECT }),
      standard("target.timeout", "Timeout", "30s"),
      field("target.sign_with", "Sign with the secret", { placeholder: "none" }),
    ],
  },
  call: {
    label: "function of the app",
    fields: [
      field("target.name", "Function name", { placeholder: "reports.nightly", empty: "" }),
      field("target.args", "Arguments, as JSON", { kind: "json", placeholder: JSON_OBJECT, empty: {} }),
      choice("target.isolation", "Runs in", [
        ["inherit", "what the instance is set to"],
        ["loop", "the event loop"],
        ["thread", "a thread"],
        ["process", "a worker process"],
      ]),
    ],
  },
  workflow: {
    label: "workflow",
    fields: [
      field("target.workflow", "Workflow name", { empty: "" }),
      field("target.version", "Version", { kind: "number", placeholder: "newest" }),
      field("target.input", "Input, as JSON", { kind: "json", placeholder: JSON_OBJECT, empty: {} }),
    ],
  },
  handoff: {
    label: "external worker (queue lease)",
    fields: [field("target.payload", "Payload, as JSON", { kind: "json", placeholder: JSON_OBJECT })],
  },
  publish: {
    label: "message to a task queue or broker",
    fields: [
      field("target.to", "To", { placeholder: "celery, redis, rabbitmq, sqs, …", empty: "" }),
      field("target.name", "Name of the task or topic", { empty: "" }),
      field("target.url", "URL of the broker", { placeholder: "redis://localhost", empty: "" }),
      field("target.payload", "Payload, as JSON", { kind: "json", placeholder: JSON_OBJECT }),
      field("target.options", "Options, as JSON", { kind: "json", placeholder: JSON_OBJECT, empty: {} }),
      choice("target.wait", "The run ends", [
        ["false", "when the message is sent"],
        ["true", "when the task has ended"],
      ]),
    ],
  },
  shell: {
    label: "command, if commands are on",
    fields: [
      field("target.command", "Command and arguments", {
        kind: "command",
        placeholder: "rsync -a src/ dst/",
      }),
      field("target.env", "Environment, one variable on each line", {
        kind: "lines",
        placeholder: "LEVEL: info",
      }),
      field("target.cwd", "Working directory"),
    ],
  },
};

const backoffIs = (kind) => (draft) => draft["retry.backoff.kind"] === kind;

/** @type {{title: string, fields: Field[]}[]} */
export const POLICIES = [
  {
    title: "Overlap and catch-up",
    fields: [
      choice("overlap", "If the previous run is still in progress", [
        ["skip", "skip"],
        ["queue", "queue"],
        ["replace", "cancel the previous run"],
        ["allow", "run in parallel"],
      ]),
      field("max_running", "Maximum at once", {
        kind: "number",
        placeholder: "no limit",
        shown: (draft) => draft.overlap === "allow",
      }),
      standard("queue_limit", "Maximum waiting", "100", {
        kind: "number",
        shown: (draft) => draft.overlap === "queue",
      }),
      choice("catch_up", "Catch-up after an outage", [
        ["last", "run the last one"],
        ["none", "none"],
        ["all", "run all"],
        ["spread", "run all, spread out"],
      ]),
      standard("spread_over", "Spread over", "1m", { shown: (draft) => draft.catch_up === "spread" }),
      field("catch_up_window", "Do not catch up after", { placeholder: "no limit" }),
      standard("catch_up_limit", "Catch up at most, per pass", "100", { kind: "number" }),
      standard("grace", "Late, not missed, up to", "1m"),
      field("deadline", "Skip if not started within", { placeholder: DURATION }),
    ],
  },
  {
    title: "Retries and time limit",
    fields: [
      standard("retry.max_attempts", "Maximum attempts", "1", { kind: "number" }),
      choice("retry.backoff.kind", "Wait between attempts", [
        ["exponential", "longer each time"],
        ["constant", "always the same"],
        ["ladder", "a list of waits"],
      ]),
      standard("retry.backoff.base", "First wait", "1s", { shown: backoffIs("exponential") }),
      standard("retry.backoff.factor", "Times", "2", { kind: "number", shown: backoffIs("exponential") }),
      standard("retry.backoff.cap", "Longest wait", "1m", { shown: backoffIs("exponential") }),
      standard("retry.backoff.wait", "Wait", "1s", { shown: backoffIs("constant") }),
      field("retry.backoff.steps", "Waits", {
        kind: "list",
        placeholder: "30s, 1m, 5m",
        shown: backoffIs("ladder"),
      }),
      choice("retry.exhausted", "After the last attempt", [
        ["fail", "the run fails"],
        ["park", "the run is parked for a person"],
      ]),
      field("lease.time_limit", "Time limit of an attempt", { placeholder: "none" }),
      standard("lease.grace", "Time to stop", "10s"),
      field("disable_after", "Park the schedule after failures in a row", {
        kind: "number",
        placeholder: "never",
      }),
      choice("cadence.kind", "Failures in a row", [
        ["none", "do not change the interval"],
        ["stretch", "lengthen the interval"],
        ["ladder", "use a list of intervals"],
      ]),
      field("cadence.steps", "Intervals", {
        kind: "list",
        placeholder: "30s, 1m, 5m",
        shown: (draft) => draft["cadence.kind"] === "ladder",
      }),
    ],
  },
  {
    title: "Jitter",
    fields: [
      standard("jitter", "Jitter: delay up to", "0s"),
      choice("jitter_side", "Side", [
        ["late", "only later"],
        ["both", "earlier or later"],
      ]),
      choice("offset", "Delay", [
        ["none", "its own for each occurrence"],
        ["stable", "the same for all occurrences"],
      ]),
    ],
  },
  {
    title: "Limits and queue",
    fields: [
      field("limits", "Limits, separated by commas", { kind: "list" }),
      field("queue", "Queue", { placeholder: "none" }),
      standard("priority", "Priority, smaller first", "100", { kind: "number" }),
      field("budgets", "Budgets, separated by commas", { kind: "list" }),
      field("provider", "Provider", { placeholder: "none" }),
      field("runs_on", "Runs on instances with labels", { kind: "list" }),
    ],
  },
  {
    title: "Calendars and period",
    fields: [
      field("calendar.only", "Only on days of calendars", { kind: "list" }),
      field("calendar.except", "Except on days of calendars", { kind: "list" }),
      choice("calendar.roll", "An excluded occurrence", [
        ["skip", "is skipped"],
        ["next", "moves to the next allowed day"],
        ["previous", "moves to the previous allowed day"],
      ]),
      field("start_at", "Not before", { kind: "instant" }),
      field("end_at", "Not after", { kind: "instant" }),
      field("max_runs", "Finish after runs", { kind: "number", placeholder: "never" }),
    ],
  },
  {
    title: "Alerts and expectations",
    fields: [
      choice("alerts.enabled", "Incidents", [
        ["", "as its group and namespace"],
        ["true", "on"],
        ["false", "off"],
      ]),
      field("alerts.failed", "After failures in a row", { kind: "number", placeholder: "inherited" }),
      field("alerts.missed", "After missed occurrences", { kind: "number", placeholder: "inherited" }),
      field("alerts.late", "If a start is late by", { placeholder: "inherited" }),
      field("expect.done_by", "Expected to be done by", { placeholder: "09:00" }),
      field("expect.within", "Expected to be done within", { placeholder: "2h" }),
      field("expect.usual", "Expected within times the usual length", { kind: "number", placeholder: "3" }),
      field("check_in.url", "Report each run to", { placeholder: "https://hc-ping.com/…" }),
    ],
  },
  {
    title: "Description and labels",
    fields: [
      field("group", "Group"),
      field("tags", "Tags, separated by commas", { kind: "list" }),
      field("description", "Description", { empty: "" }),
      field("metadata", "Metadata, as JSON", { kind: "json", placeholder: JSON_OBJECT, empty: {} }),
    ],
  },
];

// What a policy is made of: its parts are sent only if one of them is set, and null clears it as a whole.
const OPTIONAL_PARTS = ["calendar", "alerts", "expect", "check_in"];

export const valueAt = (object, path) => path.split(".").reduce((at, name) => (at ?? {})[name], object);

/** The text of a stored value. @param {Field} field @param {any} value */
export function toText(field, value) {
  if (field.kind === "choice") return String(value ?? field.options[0][0]);
  if (value === null || value === undefined || value === field.empty) return "";
  if (field.kind === "command") return value.map(shellQuote).join(" ");
  if (field.kind === "lines")
    return Object.entries(value)
      .map(([name, text]) => `${name}: ${text}`)
      .join("\n");
  if (field.kind === "list" && value.every((one) => typeof one === "string")) return value.join(", ");
  if (typeof value === "object") return Object.keys(value).length ? JSON.stringify(value) : "";
  return String(value);
}

/**
 * The value that a text stands for, or undefined for an empty one.
 * @param {Field} field @param {string} text
 */
export function toValue(field, text) {
  if (field.kind === "choice")
    return { true: true, false: false, "": undefined }[text] ?? (text || undefined);
  if (!text.trim()) return undefined;
  if (field.kind === "number") return Number.isNaN(Number(text)) ? text : Number(text);
  if (field.kind === "command") return shellWords(text);
  if (field.kind === "lines") return Object.fromEntries(text.split("\n").filter(Boolean).map(nameAndValue));
  if (field.kind === "json" || (field.kind === "list" && text.trim().startsWith("["))) return jsonOr(text);
  return field.kind === "list" ? splitList(text) : text;
}

export const splitList = (text) =>
  text
    .split(",")
    .map((one) => one.trim())
    .filter(Boolean);

const nameAndValue = (line) => {
  const [name, ...rest] = line.split(":");
  return [name.trim(), rest.join(":").trim()];
};

// Split a command as a shell does; nothing is expanded.
const shellWords = (text) =>
  (text.match(/(?:[^\s'"]|'[^']*'|"[^"]*")+/g) || []).map((word) =>
    word.replace(/'([^']*)'|"([^"]*)"/g, (_, single, double) => single ?? double),
  );

// Text that is not JSON is sent as it is, and the server says what is wrong with it.
export function jsonOr(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

const allFields = (draft) => [...TARGETS[draft.what].fields, ...POLICIES.flatMap((group) => group.fields)];
export const isShown = (field, draft) => !field.shown || field.shown(draft);
/** The fields that the form shows now. @param {Record<string, string>} draft @returns {Field[]} */
export const shownFields = (draft) => allFields(draft).filter((one) => isShown(one, draft));

/** The texts of all fields of a schedule. @param {any} schedule @returns {Record<string, string>} */
export function draftFields(schedule) {
  const all = [...Object.values(TARGETS), ...POLICIES].flatMap((group) => group.fields);
  const own = new Set((TARGETS[schedule.target?.kind]?.fields || []).map((one) => one.path));
  const texts = {};
  for (const one of all) {
    const isOwn = !one.path.startsWith("target.") || own.has(one.path);
    texts[one.path] = toText(one, isOwn ? valueAt(schedule, one.path) : undefined);
  }
  return texts;
}

/**
 * The request: the fields that differ from the draft before, and the whole target if it is of another kind.
 * @param {Record<string, string>} draft @param {Record<string, string>} before
 */
export function fieldsRequest(draft, before) {
  /** @type {Record<string, any>} */
  const made = {};
  const isNewTarget = before.what !== draft.what;
  const fields = allFields(draft);
  for (const one of fields) {
    // A field that another one hides is cleared, as the server refuses a value without effect.
    const isHidden = !isShown(one, draft);
    if (isHidden && one.path.includes(".")) continue;
    const text = isHidden ? "" : draft[one.path];
    const isUnset = one.kind === "choice" ? text === one.options[0][0] : !text;
    const isSame = isNewTarget && one.path.startsWith("target.") ? isUnset : text === before[one.path];
    if (!isSame)
      setAt(made, one.path, toValue(one, text) ?? (one.kind === "list" ? [] : (one.empty ?? null)));
  }
  if (made.target || isNewTarget) made.target = { kind: draft.what, ...made.target };
  for (const name of ["retry.backoff", "cadence"]) {
    const part = valueAt(made, name);
    if (part) part.kind = draft[`${name}.kind`];
  }
  for (const part of OPTIONAL_PARTS)
    if (made[part] && !fields.some((one) => isSet(one, part, draft))) made[part] = null;
  return made;
}

const isSet = (field, part, draft) =>
  field.path.startsWith(`${part}.`) &&
  field.path !== "calendar.roll" &&
  toValue(field, draft[field.path]) !== undefined;

function setAt(object, path, value) {
  const names = path.split(".");
  const last = names.pop();
  let at = object;
  for (const name of names) at = at[name] ??= {};
  at[last] = value;
}
