// The form of a schedule: its draft, and the request that it makes.

import { localZone } from "../../base/times.js";
import { draftFields, fieldsRequest, jsonOr, shownFields } from "./field_values.js";

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
export const blank = () => ({
  ...draftFields({ catch_up_window: "1d" }),
  ...TRIGGER,
  name: "",
  zone: localZone(),
  what: "note",
  reason: "",
});

/**
 * What the form shows. `editing` is the name of the schedule that is edited; `before` is the draft without
 * any change, and a new schedule has no target yet; `refusal` is why the server did not take the form.
 * @type {{draft: Record<string, any>, editing: string | null | undefined, before: Record<string, any>,
 *   preview: any, refusal: any}}
 */
export const form = {
  draft: blank(),
  editing: null,
  before: { ...blank(), what: "" },
  preview: { next: [], problem: null, change: null },
  refusal: null,
};

// The field that a refusal is about: the one with its path, or the last one on the way to it.
export function fieldOf(problem) {
  const path = String((problem && problem.field) || "").replace(/\[\d+\]/g, "");
  const names = [
    ...shownFields(form.draft).map((one) => one.path),
    "name",
    form.draft.when,
    "zone",
    "reason",
  ];
  const parents = path.split(".").map((_, n, parts) => parts.slice(0, parts.length - n).join("."));
  if (path.startsWith("trigger")) return form.draft.when;
  return path === "target" ? "what" : parents.find((one) => names.includes(one)) || "";
}

// The fields of the trigger, as the API takes them.
export function trigger() {
  const { when } = form.draft;
  if (when === "words") return { trigger: phrase() };
  if (when === "triggers") return { trigger: jsonOr(form.draft.triggers) };
  if (when === "manual") return { manual: true };
  if (when === "delay") return { after: form.draft.delay };
  if (when === "after")
    return { after: form.draft.after, ...(form.draft.on === "success" ? {} : { on: form.draft.on }) };
  return { [when]: form.draft[when], ...(["cron", "rrule"].includes(when) ? { zone: form.draft.zone } : {}) };
}

/** An edit sends only what differs. @returns {Record<string, any>} */
export function request() {
  const isSame =
    form.editing && [...Object.keys(TRIGGER), "zone"].every((name) => form.draft[name] === form.before[name]);
  return { ...(isSame ? {} : trigger()), ...fieldsRequest(form.draft, form.before) };
}

// The phrase with the zone of the form, unless it names one itself.
const phrase = () =>
  /\b(UTC|[A-Z][a-z]+\/\w+)\b/.test(form.draft.words)
    ? form.draft.words
    : `${form.draft.words} in ${form.draft.zone}`;
