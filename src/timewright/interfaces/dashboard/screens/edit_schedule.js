// Create or edit a schedule; the next occurrences are shown while you type.

import { get, patchJson, post, query } from "../api.js";
import { h } from "../dom.js";
import { refresh } from "../main.js";
import { clock, day, localZone, nextClockChange } from "../times.js";
import { tryAction, commandBlock, problemBox, panel, routeTo, shellQuote, table, time } from "../widgets.js";

const EXAMPLES = [
  ["*/5 * * * *", "every 5 minutes"],
  ["0 9 * * mon-fri", "9:00 on weekdays"],
  ["0 0 1 * *", "first day of the month"],
  ["0 3 * * sun#1", "3:00 on the first Sunday"],
  ["0 18 L * *", "18:00 on the last day of the month"],
];
const blank = () => ({
  name: "",
  when: "words",
  words: "every 5 minutes",
  every: "5m",
  cron: "0 9 * * mon-fri",
  once: "",
  delay: "15m",
  after: "",
  zone: localZone(),
  what: "note",
  note: "",
  http: "POST https://",
  call: "",
  workflow: "",
  shell: "",
  target: '{"kind": "publish", "to": "redis", "name": "events"}',
  handoff: "",
  overlap: "skip",
  catch_up: "last",
  max_attempts: "1",
  jitter: "",
  group: "",
  tags: "",
  description: "",
  reason: "",
});

let draft = blank();
let editing = null; // the name of the schedule that is edited
let stored = { schedule: null, request: {} }; // the schedule as it was loaded, and the request that would create it
let preview = { next: [], problem: null, change: null };
let requestNumber = 0;

export default {
  title: ([name]) => (name ? `Edit ${name}` : "New schedule"),
  async load([name]) {
    if ((name || null) !== editing) {
      editing = name || null;
      draft = blank();
      if (editing) {
        const { schedule } = await get(["schedules", editing]);
        draft = draftOf(schedule);
        stored = { schedule, request: request() };
      }
    }
    await updatePreview(false);
    return {};
  },
  view() {
    return h(
      "form",
      {
        class: "screen columns",
        onsubmit: (e) => {
          e.preventDefault();
          save();
        },
      },
      h(
        "div",
        null,
        editing
          ? null
          : panel(
              "Name",
              h(
                "div",
                { class: "fields" },
                field("name", "Name", {
                  required: true,
                  maxlength: 255,
                  autofocus: true,
                  placeholder: "nightly-report",
                }),
                field("description", "Description"),
              ),
            ),
        panel("Trigger", triggerFields()),
        panel("Target", targetFields()),
        panel("Policies", policyFields()),
        panel("Organization", organizationFields()),
      ),
      h(
        "div",
        { class: "stay" },
        panel("Preview", previewPanel()),
        panel("Equivalent command", commandBlock(command())),
        h(
          "div",
          { class: "buttons" },
          h("button", { type: "submit", class: "main" }, editing ? "save" : "create"),
          h(
            "a",
            { class: "button quiet", href: editing ? `#${routeTo("schedules", editing)}` : "#/schedules" },
            "cancel",
          ),
        ),
      ),
    );
  },
};

function draftOf(schedule) {
  const { trigger, target } = schedule;
  const made = {
    ...blank(),
    name: schedule.name,
    zone: trigger.zone || localZone(),
    overlap: schedule.overlap,
    catch_up: schedule.catch_up,
    max_attempts: String(schedule.retry.max_attempts),
    jitter: schedule.jitter === "0s" ? "" : schedule.jitter,
    group: schedule.group || "",
    tags: schedule.tags.join(", "),
    description: schedule.description,
  };
  Object.assign(
    made,
    trigger.kind === "cron"
      ? { when: "cron", cron: trigger.expression }
      : trigger.kind === "every"
        ? { when: "every", every: trigger.interval }
        : trigger.kind === "once"
          ? { when: "once", once: trigger.at }
          : trigger.kind === "manual"
            ? { when: "manual" }
            : { when: "" },
  );
  const values = {
    note: () => target.text,
    http: () => `${target.method} ${target.url}`,
    call: () => target.function || target.name,
    handoff: () => "",
  };
  if (values[target.kind])
    Object.assign(made, { what: target.kind, [target.kind]: values[target.kind]() || "" });
  else made.what = "";
  return made;
}

const field = (name, label, props = {}) =>
  h(
    "label",
    { class: "field" },
    h("span", null, label),
    h("input", { name, value: draft[name], ...props, oninput: (e) => change(name, e.target.value) }),
  );
const choice = (name, label, options) =>
  h(
    "label",
    { class: "field" },
    h("span", null, label),
    h(
      "select",
      { name, value: draft[name], onchange: (e) => change(name, e.target.value) },
      options.map(([value, text]) => h("option", { value, selected: draft[name] === value }, text)),
    ),
  );

function change(name, value) {
  draft[name] = value;
  updatePreview(true);
}

const KINDS = [
  ["words", "in words"],
  ["every", "interval"],
  ["cron", "cron expression"],
  ["once", "once"],
  ["delay", "delay after its last run"],
  ["after", "after another schedule succeeds"],
  ["manual", "manual only"],
];

function triggerFields() {
  if (!draft.when) return h("p", { class: "mute" }, "the trigger stays as it is");
  return h(
    "div",
    { class: "fields" },
    choice("when", "Type", KINDS),
    draft.when === "words"
      ? field("words", "When", {
          placeholder: "weekdays at 9am, every 15 minutes, last friday of the month at 18:00",
          spellcheck: "false",
        })
      : null,
    draft.when === "every" ? field("every", "Interval", { placeholder: "90s, 15m, 1h30m, 7d" }) : null,
    draft.when === "cron"
      ? h(
          "div",
          null,
          field("cron", "Cron expression", { class: "mono", spellcheck: "false" }),
          cronParts(),
          h(
            "p",
            { class: "examples" },
            EXAMPLES.map(([text, label]) =>
              h(
                "button",
                {
                  type: "button",
                  class: "quiet",
                  onclick: () => {
                    change("cron", text);
                    refresh();
                  },
                },
                text,
                h("span", null, label),
              ),
            ),
          ),
        )
      : null,
    draft.when === "delay" ? field("delay", "Delay", { placeholder: "90s, 15m, 1h30m, 7d" }) : null,
    draft.when === "after" ? field("after", "Upstream schedule", { placeholder: "nightly-report" }) : null,
    draft.when === "once" ? onceFields() : null,
    ["cron", "words"].includes(draft.when) ? field("zone", "Time zone", { list: "zones" }) : null,
    zones(),
  );
}

// The instant as text, and a picker in the zone of this browser that fills it in.
const onceFields = () =>
  h(
    "div",
    { class: "fields two" },
    field("once", "Time, with UTC offset", { placeholder: "2026-12-24T18:00:00+01:00" }),
    h(
      "label",
      { class: "field" },
      h("span", null, `Choose (${localZone()})`),
      h("input", {
        type: "datetime-local",
        name: "once-picker",
        onchange: (event) => {
          if (event.target.value) change("once", new Date(event.target.value).toISOString());
        },
      }),
    ),
  );

// The five or six fields of the expression, each with its name.
function cronParts() {
  const words = draft.cron.trim().split(/\s+/);
  const names =
    words.length === 6
      ? ["second", "minute", "hour", "day", "month", "weekday"]
      : ["minute", "hour", "day", "month", "weekday"];
  return h(
    "div",
    { class: "cronparts", "aria-hidden": "true" },
    names.map((name, n) => h("span", null, h("b", null, words[n] || "?"), name)),
  );
}

function zones() {
  const names = Intl.supportedValuesOf ? Intl.supportedValuesOf("timeZone") : [localZone(), "UTC"];
  return h(
    "datalist",
    { id: "zones" },
    names.map((value) => h("option", { value })),
  );
}

const TARGET_LABELS = {
  note: "Text",
  http: "Method and URL",
  call: "Function name",
  workflow: "Workflow name",
  shell: "Command and arguments",
  target: "Target",
};

function targetFields() {
  const kinds = [
    ["note", "note: the text is the result"],
    ["http", "HTTP request"],
    ["call", "function of the app"],
    ["handoff", "external worker (queue lease)"],
    ["workflow", "workflow"],
    ["shell", "command, if commands are on"],
    ["target", "any target, as JSON"],
  ];
  if (editing && !draft.what) return h("p", { class: "mute" }, "the target stays as it is");
  return h(
    "div",
    { class: "fields" },
    choice("what", "Type", kinds),
    draft.what === "handoff" ? null : field(draft.what, TARGET_LABELS[draft.what], { spellcheck: "false" }),
  );
}

function policyFields() {
  return h(
    "div",
    { class: "fields two" },
    choice("overlap", "Overlap: if the previous run is still in progress", [
      ["skip", "skip"],
      ["queue", "queue"],
      ["replace", "cancel the previous run"],
      ["allow", "run in parallel"],
    ]),
    choice("catch_up", "Catch-up after an outage", [
      ["none", "none"],
      ["last", "run the last one"],
      ["all", "run all"],
      ["spread", "run all, spread out"],
    ]),
    field("max_attempts", "Maximum attempts", { type: "number", min: 1, max: 100 }),
    field("jitter", "Jitter", { placeholder: "30s" }),
  );
}

function organizationFields() {
  return h(
    "div",
    { class: "fields two" },
    field("group", "Group"),
    field("tags", "Tags, separated by commas"),
    editing ? field("description", "Description") : null,
    editing ? field("reason", "Reason (stored with the change)") : null,
  );
}

function request() {
  /** @type {Record<string, any>} */
  const made = {
    overlap: draft.overlap,
    catch_up: draft.catch_up,
    max_attempts: Number(draft.max_attempts) || 1,
    description: draft.description,
    tags: draft.tags
      .split(",")
      .map((tag) => tag.trim())
      .filter(Boolean),
  };
  if (draft.when === "words") made.trigger = phrase();
  else if (draft.when === "cron") Object.assign(made, { cron: draft.cron, zone: draft.zone });
  else if (draft.when === "every") made.every = draft.every;
  else if (draft.when === "once") made.once = draft.once;
  else if (draft.when === "delay") made.after = draft.delay;
  else if (draft.when === "after") made.after = draft.after;
  else if (draft.when === "manual") made.manual = true;
  if (draft.what === "handoff") made.handoff = {};
  else if (draft.what === "target") made.target = jsonOr(draft.target);
  else if (draft.what === "workflow") made.target = { kind: "workflow", workflow: draft.workflow };
  else if (draft.what === "shell") made.shell = draft.shell.trim().split(/\s+/);
  else if (draft.what) made[draft.what] = draft[draft.what];
  if (draft.jitter || editing) made.jitter = draft.jitter || "0s";
  if (draft.group || editing) made.group = draft.group || null;
  return made;
}

// The phrase with the zone of the form, unless it names one itself.
const phrase = () =>
  /\b(UTC|[A-Z][a-z]+\/\w+)\b/.test(draft.words) ? draft.words : `${draft.words} in ${draft.zone}`;

// Text that is not JSON yet is sent as it is, and the server says what is wrong with it.
function jsonOr(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

// An edit sends only the fields that differ; a target keeps the fields that the form does not show, such as headers.
function changes() {
  const made = request();
  if (!editing) return made;
  const differs = (name) => JSON.stringify(made[name]) !== JSON.stringify(stored.request[name]);
  const changed = Object.fromEntries(Object.entries(made).filter(([name]) => differs(name)));
  if (changed.cron || changed.zone) Object.assign(changed, { cron: made.cron, zone: made.zone });
  const { kind, ...target } = stored.schedule.target;
  const [method, url] = draft.http.trim().split(/\s+/);
  if (changed.http && kind === "http") changed.http = { ...target, method, url };
  if (changed.call && kind === "call") changed.call = { ...target, name: draft.call };
  return changed;
}

function trigger() {
  const { trigger: words, cron, zone, every, once, manual } = request();
  return Object.fromEntries(
    Object.entries({ trigger: words, cron, zone, every, once, manual }).filter(
      ([, value]) => value !== undefined,
    ),
  );
}

async function updatePreview(redraw) {
  const mine = ++requestNumber;
  const description = {
    delay: `${draft.delay} after its last run ends`,
    after: `each time ${draft.after || "the upstream schedule"} succeeds`,
    "": "unchanged",
  }[draft.when];
  if (description) {
    // These times depend on when other runs end, so there is nothing to preview.
    preview = { trigger: description, next: [], problem: null, change: null };
    if (redraw) refresh();
    return;
  }
  try {
    const answer = await query(["schedules", "-", "next"], { ...trigger(), count: 10 });
    const change = ["cron", "words"].includes(draft.when) ? await clockChange(answer.zone) : null;
    if (mine === requestNumber) preview = { ...answer, change, problem: null };
  } catch (problem) {
    if (mine === requestNumber) preview = { next: [], change: null, problem };
  }
  if (redraw && mine === requestNumber) refresh();
}

// The occurrences before and after the next daylight-saving change.
async function clockChange(zone) {
  const change = zone ? nextClockChange(zone) : null;
  if (!change) return null;
  const moment = Date.parse(change.at);
  const within = async (hours) => {
    const [after, until] = [-hours, hours].map((some) => new Date(moment + some * 3_600_000).toISOString());
    return (await query(["schedules", "-", "next"], { ...trigger(), count: 100, after, until })).next;
  };
  const isBefore = (one) => Date.parse(one.planned_at) < moment;
  let near = await within(26);
  // On weekdays only, the occurrences nearest to a change on a Sunday are days away.
  if (!near.some(isBefore) || near.every(isBefore)) near = await within(8 * 24);
  const at = near.findIndex((one) => Date.parse(one.planned_at) >= Date.parse(change.at));
  return {
    ...change,
    zone,
    next: near.slice(Math.max(0, (at < 0 ? near.length : at) - 2), (at < 0 ? near.length : at) + 2),
  };
}

const utcOffset = (text) => text.replace("GMT", "UTC").replace(/:00$/, "");
function clockChangeTable({ change }) {
  if (!change) return null;
  const rows = change.next.map((one) => ({
    key: one.planned_at,
    cells: [
      Date.parse(one.planned_at) < Date.parse(change.at) ? "before" : "after",
      localTime(one.local),
      time(one.planned_at, change.zone),
    ],
  }));
  return h(
    "div",
    null,
    h(
      "h3",
      null,
      `Clock change in ${change.zone} on ${day(change.at, change.zone)} ${change.at.slice(0, 4)}, ${utcOffset(change.from)} to ${utcOffset(change.to)}`,
    ),
    rows.length
      ? table(
          "Occurrences around the clock change",
          [{ name: "Side" }, { name: "Schedule time" }, { name: "Your time" }],
          rows,
        )
      : h("p", { class: "mute" }, "no occurrence within a day of the change"),
  );
}

const localTime = (local) =>
  local
    ? local
        .replace("T", " ")
        .replace(/\.\d+/, "")
        .replace(/([+-]\d\d:\d\d)$/, " $1")
        .replace(/([+-]\d\d):00$/, "$1")
    : "";

// A refused field is marked, with what is wrong beside it.
const FIELD_INPUTS = { trigger: "words", max_attempts: "max_attempts" };
function markProblem() {
  const name = preview.problem && String(preview.problem.field || "").split(".")[0];
  const wanted = FIELD_INPUTS[name] && draft.when === "words" ? FIELD_INPUTS[name] : name;
  for (const input of document.querySelectorAll("form .field input, form .field select")) {
    const bad = Boolean(wanted) && input.getAttribute("name") === wanted;
    input.toggleAttribute("aria-invalid", bad);
  }
}

function previewPanel() {
  requestAnimationFrame(markProblem);
  if (preview.problem) return problemBox(preview.problem);
  return h(
    "div",
    null,
    h("p", null, preview.trigger),
    (preview.warnings || []).map((text) => h("p", { class: "warn" }, String(text.message || text))),
    !preview.next.length
      ? null
      : table(
          "Next occurrences",
          [{ name: "Your time" }, { name: preview.zone || "UTC" }, { name: "In" }],
          preview.next.map((one) => ({
            key: one.planned_at,
            cells: [
              h("span", null, day(one.planned_at), " ", clock(one.planned_at)),
              localTime(one.local),
              time(one.planned_at, preview.zone, "away"),
            ],
          })),
        ),
    clockChangeTable(preview),
  );
}

function command() {
  const made = changes();
  const words = [
    editing
      ? `timewright schedule update ${shellQuote(editing)}`
      : `timewright schedule create ${shellQuote(draft.name || "NAME")}`,
  ];
  for (const [name, value] of Object.entries(made)) {
    if (!editing && (value === "" || (Array.isArray(value) && !value.length))) continue;
    const flag = `--${name.replaceAll("_", "-")}`;
    if (value === null) words.push(flag, "null");
    else if (name === "http" && typeof value === "string")
      words.push(flag, ...String(value).split(/\s+/).map(shellQuote));
    else if (value === true) words.push(flag);
    else if (Array.isArray(value))
      words.push(...value.map((one) => `${flag.replace(/s$/, "")} ${shellQuote(one)}`));
    else if (typeof value === "object") words.push(flag, shellQuote(JSON.stringify(value)));
    else words.push(flag, shellQuote(String(value)));
  }
  return words.join(" ");
}

async function save() {
  const made = changes();
  if (editing && !Object.keys(made).length) return void (location.hash = `#${routeTo("schedules", editing)}`);
  if (draft.reason) made.reason = draft.reason;
  const work = editing
    ? () => patchJson(["schedules", editing], made)
    : () => post(["schedules"], { ...made, name: draft.name });
  const answer = await tryAction(work, editing ? "saved" : "created");
  if (!answer) return;
  const name = editing || draft.name;
  editing = undefined;
  draft = blank();
  location.hash = `#${routeTo("schedules", name)}`;
}
