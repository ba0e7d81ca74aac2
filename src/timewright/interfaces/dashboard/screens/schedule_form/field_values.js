// The values of the fields: from a schedule into texts, and from texts into a request.

import { shellQuote } from "../../components/commands.js";
import { field, POLICIES, TARGETS } from "./schedule_fields.js";

/** @typedef {import("./schedule_fields.js").Field} Field */

// What a policy is made of: its parts are sent only if one of them is set, and null clears it as a whole.
const OPTIONAL_PARTS = ["calendar", "alerts", "expect", "check_in"];

const valueAt = (object, path) => path.split(".").reduce((at, name) => (at ?? {})[name], object);

/** The text of a stored value. @param {Field} field @param {any} value */
function toText(field, value) {
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
function toValue(field, text) {
  if (field.kind === "choice")
    return { true: true, false: false, "": undefined }[text] ?? (text || undefined);
  if (!text.trim()) return undefined;
  if (field.kind === "number") return Number.isNaN(Number(text)) ? text : Number(text);
  if (field.kind === "command") return shellWords(text);
  if (field.kind === "lines") return Object.fromEntries(text.split("\n").filter(Boolean).map(nameAndValue));
  if (field.kind === "json" || (field.kind === "list" && text.trim().startsWith("["))) return jsonOr(text);
  return field.kind === "list" ? splitList(text) : text;
}

const splitList = (text) =>
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
