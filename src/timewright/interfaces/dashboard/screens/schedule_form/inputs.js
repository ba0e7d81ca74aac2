// The inputs of the form.

import { h } from "../../base/dom.js";
import { localZone } from "../../base/times.js";
import { isShown } from "./field_values.js";
import { blank, fieldOf, form } from "./form.js";
import { updatePreview } from "./preview.js";
import { TARGETS } from "./schedule_fields.js";

const EXAMPLES = [
  ["*/5 * * * *", "every 5 minutes"],
  ["0 9 * * mon-fri", "9:00 on weekdays"],
  ["0 0 1 * *", "first day of the month"],
  ["0 3 * * sun#1", "3:00 on the first Sunday"],
  ["0 18 L * *", "18:00 on the last day of the month"],
];
const problemAt = (path) => [form.refusal, form.preview.problem].find((one) => one && fieldOf(one) === path);

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

/** @param {import("./schedule_fields.js").Field} field @param {Record<string, any>} [props] */
export function textInput(field, props = {}) {
  const isLong = ["lines", "json"].includes(field.kind);
  return labelled(
    field,
    h(isLong ? "textarea" : "input", {
      name: field.path,
      value: form.draft[field.path],
      placeholder: field.placeholder,
      rows: isLong ? "2" : null,
      inputmode: field.kind === "number" ? "numeric" : null,
      spellcheck: "false",
      ...props,
      oninput: (e) => change(field.path, e.target.value),
    }),
  );
}

/** @param {import("./schedule_fields.js").Field} field */
const selectInput = (field) =>
  labelled(
    field,
    h(
      "select",
      {
        name: field.path,
        value: form.draft[field.path],
        onchange: (e) => change(field.path, e.target.value),
      },
      field.options.map(([value, text]) =>
        h("option", { value, selected: form.draft[field.path] === value }, text),
      ),
    ),
  );

// An instant as text, and a picker in the zone of this browser that fills it in.
/** @param {import("./schedule_fields.js").Field} field */
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

export function change(name, value) {
  form.draft[name] = value;
  if (form.refusal && fieldOf(form.refusal) === name) form.refusal = null;
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
export const upstreamResult = (on) => Object.fromEntries(UPSTREAM_RESULTS)[on];

export function triggerFields() {
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
    inputs[form.draft.when](),
    ["cron", "words", "rrule"].includes(form.draft.when)
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
  const words = form.draft.cron.trim().split(/\s+/);
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
export const targetFields = () =>
  h(
    "div",
    { class: "fields" },
    selectInput({ path: "what", label: "Type", options: TARGET_KINDS }),
    TARGETS[form.draft.what].fields.map(inputOf),
  );

// A group of policies; one with a value other than the default is open at first.
export function policyPanel({ title, fields }, number) {
  const standard = blank();
  const shown = fields.filter((one) => isShown(one, form.draft));
  const isOpen = number === 0 || shown.some((one) => form.before[one.path] !== standard[one.path]);
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
