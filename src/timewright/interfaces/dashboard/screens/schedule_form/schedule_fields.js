// The fields of a target and of the policies.

/**
 * A field of the form. `path` is its place in the schedule and the name of its input.
 * @typedef {{path: string, label: string, kind?: "text" | "number" | "list" | "lines" | "command" | "json" |
 *   "choice" |
 *   "instant", options?: string[][], placeholder?: string, empty?: any, long?: boolean,
 *   shown?: (draft: Record<string, string>) => boolean}} Field `empty` is what clearing the field stores
 */

/** @type {(path: string, label: string, more?: Partial<Field>) => Field} */
export const field = (path, label, more = {}) => ({ path, label, kind: "text", ...more });
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
