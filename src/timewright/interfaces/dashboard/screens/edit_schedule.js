// Create or edit a schedule; the next occurrences are shown while you type.

import { get, patchJson, post, query } from "../api.js";
import { h } from "../dom.js";
import { paint, refresh } from "../main.js";
import {
  POLICIES,
  TARGETS,
  draftFields,
  fieldsRequest,
  isShown,
  jsonOr,
  shownFields,
} from "../schedule_fields.js";
import { clock, day, localZone, nextClockChange } from "../times.js";
import {
  commandBlock,
  problemBox,
  problemLines,
  panel,
  routeTo,
  shellQuote,
  table,
  time,
  toast,
} from "../widgets.js";

const EXAMPLES = [
  ["*/5 * * * *", "every 5 minutes"],
  ["0 9 * * mon-fri", "9:00 on weekdays"],
  ["0 0 1 * *", "first day of the month"],
  ["0 3 * * sun#1", "3:00 on the first Sunday"],
  ["0 18 L * *", "18:00 on the last day of the month"],
];
const TRIGGER = {
  when: "words",
  words: "every 5 minutes",
  every: "5m",
  cron: "0 9 * * mon-fri",
  rrule: "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=18;BYMINUTE=0;BYSECOND=0",
  once: "",
  delay: "15m",
  after: "",
  on: "success",
  triggers: '[{"cron": "0 9 * * *"}, {"every": "6h"}]',
};
const blank = () => ({
  ...draftFields({ catch_up_window: "1d" }),
  ...TRIGGER,
  name: "",
  zone: localZone(),
  what: "note",
  reason: "",
});

let draft = blank();
let editing = null; // the name of the schedule that is edited
let before = { ...blank(), what: "" }; // the draft without any change; a new schedule has no target yet
let preview = { next: [], problem: null, change: null };
let refusal = null; // why the server did not take the form; it is shown at its field
let requestNumber = 0;

export default {
  title: ([name]) => (name ? `Edit ${name}` : "New schedule"),
  async load([name]) {
    if ((name || null) !== editing) {
      editing = name || null;
      draft = editing ? draftOf((await get(["schedules", editing])).schedule) : blank();
      before = { ...draft, ...(editing ? {} : { what: "" }) };
      refusal = null;
    }
    await updatePreview(false);
    return {};
  },
  view() {
    return h(
      "form",
      {
        class: "screen columns",
        novalidate: true,
        onsubmit: (e) => {
          e.preventDefault();
          save();
        },
      },
      h(
        "div",
        null,
        editing ? null : panel("Name", h("div", { class: "fields" }, textInput(NAME_FIELD))),
        panel("Trigger", triggerFields()),
        panel("Target", targetFields()),
        POLICIES.map(policyPanel),
      ),
      h(
        "div",
        { class: "stay" },
        panel("Preview", previewPanel()),
        panel("Equivalent command", commandBlock(command())),
        refusal && !fieldOf(refusal) ? problemBox(refusal) : null,
        editing ? h("div", { class: "fields" }, textInput(REASON_FIELD)) : null,
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

const NAME_FIELD = { path: "name", label: "Name", placeholder: "nightly-report" };
const REASON_FIELD = { path: "reason", label: "Reason (stored with the change)" };

// The draft of a stored schedule. A trigger of several parts is edited as JSON.
function draftOf(schedule) {
  const { trigger } = schedule;
  const { kind, zone, ...rest } = trigger;
  const fields = {
    cron: { when: "cron", cron: rest.expression },
    every: { when: "every", every: rest.interval },
    once: { when: "once", once: rest.at },
    rrule: { when: "rrule", rrule: rest.rule },
    manual: { when: "manual" },
    after: rest.schedule
      ? { when: "after", after: rest.schedule, on: rest.on }
      : { when: "delay", delay: rest.delay },
  };
  return {
    ...blank(),
    ...draftFields(schedule),
    ...(fields[kind] || { when: "triggers", triggers: JSON.stringify(rest.triggers) }),
    name: schedule.name,
    zone: zone || localZone(),
    what: schedule.target.kind,
  };
}

// The field that a refusal is about: the one with its path, or the last one on the way to it.
function fieldOf(problem) {
  const path = String((problem && problem.field) || "").replace(/\[\d+\]/g, "");
  const names = [...shownFields(draft).map((one) => one.path), "name", draft.when, "zone", "reason"];
  const parents = path.split(".").map((_, n, parts) => parts.slice(0, parts.length - n).join("."));
  if (path.startsWith("trigger")) return draft.when;
  return path === "target" ? "what" : parents.find((one) => names.includes(one)) || "";
}

const problemAt = (path) => [refusal, preview.problem].find((one) => one && fieldOf(one) === path);

// A label, its input and what is wrong with it.
function labelled({ path, label }, input) {
  const problem = problemAt(path);
  if (problem) input.setAttribute("aria-invalid", "true");
  return h(
    "label",
    { class: "field", key: path },
    h("span", null, label),
    input,
    problem
      ? h(
          "span",
          { class: "field-problem", role: "alert" },
          problem.message,
          problem.fix ? `. Try: ${problem.fix}` : "",
        )
      : null,
  );
}

/** @param {import("../schedule_fields.js").Field} field @param {Record<string, any>} [props] */
function textInput(field, props = {}) {
  const isLong = ["lines", "json"].includes(field.kind);
  return labelled(
    field,
    h(isLong ? "textarea" : "input", {
      name: field.path,
      value: draft[field.path],
      placeholder: field.placeholder,
      rows: isLong ? "2" : null,
      inputmode: field.kind === "number" ? "numeric" : null,
      spellcheck: "false",
      ...props,
      oninput: (e) => change(field.path, e.target.value),
    }),
  );
}

/** @param {import("../schedule_fields.js").Field} field */
const selectInput = (field) =>
  labelled(
    field,
    h(
      "select",
      { name: field.path, value: draft[field.path], onchange: (e) => change(field.path, e.target.value) },
      field.options.map(([value, text]) =>
        h("option", { value, selected: draft[field.path] === value }, text),
      ),
    ),
  );

// An instant as text, and a picker in the zone of this browser that fills it in.
/** @param {import("../schedule_fields.js").Field} field */
const instantInput = (field) => [
  textInput({ ...field, placeholder: "2026-12-24T18:00:00+01:00" }),
  h(
    "label",
    { class: "field", key: `${field.path}-picker` },
    h("span", null, `Choose (${localZone()})`),
    h("input", {
      type: "datetime-local",
      name: `${field.path}-picker`,
      onchange: (event) => {
        if (event.target.value) change(field.path, new Date(event.target.value).toISOString());
      },
    }),
  ),
];

const inputOf = (field) =>
  field.kind === "choice"
    ? selectInput(field)
    : field.kind === "instant"
      ? instantInput(field)
      : textInput(field);

function change(name, value) {
  draft[name] = value;
  if (refusal && fieldOf(refusal) === name) refusal = null;
  updatePreview(true);
}

const KINDS = [
  ["words", "in words"],
  ["every", "interval"],
  ["cron", "cron expression"],
  ["once", "once"],
  ["delay", "delay after its last run"],
  ["after", "after another schedule"],
  ["manual", "manual only"],
  ["rrule", "recurrence rule (RFC 5545)"],
  ["triggers", "several triggers, as JSON"],
];
const UPSTREAM_RESULTS = [
  ["success", "succeeds"],
  ["failure", "fails"],
  ["end", "ends"],
];
const upstreamResult = (on) => Object.fromEntries(UPSTREAM_RESULTS)[on];

function triggerFields() {
  const inputs = {
    words: () =>
      textInput({
        path: "words",
        label: "When",
        placeholder: "weekdays at 9am, every 15 minutes, last friday of the month at 18:00",
      }),
    every: () => textInput({ path: "every", label: "Interval", placeholder: "90s, 15m, 1h30m, 7d" }),
    cron: () => h("div", { key: "cron" }, cronInput()),
    rrule: () => textInput({ path: "rrule", label: "Rule of RFC 5545" }, { class: "mono" }),
    delay: () => textInput({ path: "delay", label: "Delay", placeholder: "90s, 15m, 1h30m, 7d" }),
    after: () => [
      textInput({ path: "after", label: "Upstream schedule", placeholder: "nightly-report" }),
      selectInput({ path: "on", label: "When it", options: UPSTREAM_RESULTS }),
    ],
    once: () =>
      h(
        "div",
        { class: "fields two", key: "once" },
        instantInput({ path: "once", label: "Time, with UTC offset" }),
      ),
    triggers: () => textInput({ path: "triggers", label: "Triggers, as JSON", kind: "json" }),
    manual: () => null,
  };
  return h(
    "div",
    { class: "fields" },
    selectInput({ path: "when", label: "Type", options: KINDS }),
    inputs[draft.when](),
    ["cron", "words", "rrule"].includes(draft.when)
      ? textInput({ path: "zone", label: "Time zone" }, { list: "zones" })
      : null,
    zones(),
  );
}

const cronInput = () => [
  textInput({ path: "cron", label: "Cron expression" }, { class: "mono" }),
  cronParts(),
  h(
    "p",
    { class: "examples" },
    EXAMPLES.map(([text, label]) =>
      h(
        "button",
        { type: "button", class: "quiet", onclick: () => change("cron", text) },
        text,
        h("span", null, label),
      ),
    ),
  ),
];

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

const TARGET_KINDS = Object.entries(TARGETS).map(([kind, { label }]) => [kind, label]);
const targetFields = () =>
  h(
    "div",
    { class: "fields" },
    selectInput({ path: "what", label: "Type", options: TARGET_KINDS }),
    TARGETS[draft.what].fields.map(inputOf),
  );

// A group of policies; one with a value other than the default is open at first.
function policyPanel({ title, fields }, number) {
  const standard = blank();
  const shown = fields.filter((one) => isShown(one, draft));
  const isOpen = number === 0 || shown.some((one) => before[one.path] !== standard[one.path]);
  return h(
    "details",
    {
      class: "panel",
      key: title,
      "aria-label": title,
      open: isOpen,
    },
    h("summary", null, h("h2", null, title)),
    h("div", { class: "fields two" }, shown.map(inputOf)),
  );
}

// The fields of the trigger, as the API takes them.
function trigger() {
  const { when } = draft;
  if (when === "words") return { trigger: phrase() };
  if (when === "triggers") return { trigger: jsonOr(draft.triggers) };
  if (when === "manual") return { manual: true };
  if (when === "delay") return { after: draft.delay };
  if (when === "after") return { after: draft.after, ...(draft.on === "success" ? {} : { on: draft.on }) };
  return { [when]: draft[when], ...(["cron", "rrule"].includes(when) ? { zone: draft.zone } : {}) };
}

/** An edit sends only what differs. @returns {Record<string, any>} */
function request() {
  const isSame = editing && [...Object.keys(TRIGGER), "zone"].every((name) => draft[name] === before[name]);
  return { ...(isSame ? {} : trigger()), ...fieldsRequest(draft, before) };
}

// The phrase with the zone of the form, unless it names one itself.
const phrase = () =>
  /\b(UTC|[A-Z][a-z]+\/\w+)\b/.test(draft.words) ? draft.words : `${draft.words} in ${draft.zone}`;

async function updatePreview(redraw) {
  const mine = ++requestNumber;
  const description = {
    delay: `${draft.delay} after its last run ends`,
    after: `each time ${draft.after || "the upstream schedule"} ${upstreamResult(draft.on)}`,
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
      `Clock change in ${change.zone} on ${day(change.at, change.zone)} ${change.at.slice(0, 4)}, `,
      `${utcOffset(change.from)} to ${utcOffset(change.to)}`,
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

function previewPanel() {
  if (preview.problem)
    return fieldOf(preview.problem)
      ? h("p", { class: "mute" }, "The trigger is not valid yet.")
      : problemBox(preview.problem);
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

// The options of a target of which only the main field is set; others are given as data.
const TARGET_OPTIONS = {
  note: ({ text, ...rest }) => [rest, "--note", text],
  call: ({ name, ...rest }) => [rest, "--call", name],
  http: ({ method = "GET", url, ...rest }) => [rest, "--http", method, url],
  handoff: (rest) => [rest, "--handoff"],
};
function targetOptions({ kind, ...fields }) {
  const [rest, ...words] = (TARGET_OPTIONS[kind] || ((all) => [all]))(fields);
  const isShort = words.length && !Object.keys(rest).length && words.every((word) => word !== undefined);
  return isShort ? words : ["--target", JSON.stringify({ kind, ...fields })];
}

function command() {
  const { target, ...made } = request();
  const words = [
    ...(editing ? ["update", editing] : ["create", draft.name || "NAME"]),
    ...(target ? targetOptions(target) : []),
  ];
  for (const [name, value] of Object.entries(made)) {
    const option = `--${name.replaceAll("_", "-")}`;
    const isTexts = Array.isArray(value) && value.length > 0 && value.every((one) => typeof one === "string");
    if (value === true) words.push(option);
    else if (isTexts) words.push(...value.flatMap((one) => [option.replace(/s$/, ""), one]));
    else words.push(option, typeof value === "string" ? value : JSON.stringify(value));
  }
  return `timewright schedule ${words.map(shellQuote).join(" ")}`;
}

async function save() {
  const made = { ...request(), ...(draft.reason ? { reason: draft.reason } : {}) };
  if (editing && !Object.keys(made).length) return void (location.hash = `#${routeTo("schedules", editing)}`);
  try {
    if (editing) await patchJson(["schedules", editing], made);
    else await post(["schedules"], { ...made, name: draft.name });
  } catch (problem) {
    refusal = problem;
    paint();
    /** @type {HTMLElement | null} */
    const input = document.querySelector("form [aria-invalid=true]");
    if (input) input.closest("details")?.setAttribute("open", "");
    if (input) input.focus();
    else toast(problemLines(problem).join(" · "), "bad");
    return;
  }
  toast(editing ? "saved" : "created");
  const name = editing || draft.name;
  editing = undefined;
  location.hash = `#${routeTo("schedules", name)}`;
}
