// Panels, buttons, lists of facts and other parts of a screen.

import { h } from "../base/dom.js";
import { commandBlock } from "./commands.js";

/** @typedef {import("../base/dom.js").Child} Child */

/**
 * A titled section of a screen.
 * @param {string} title @param {Child} body
 * @param {{more?: Child, id?: string, note?: Child}} [options] `more` stands at the right of the title
 */
export function panel(title, body, { more, id, note } = {}) {
  return h(
    "section",
    { class: "panel", "aria-label": title, id },
    h(
      "header",
      null,
      h("h2", null, title),
      note ? h("span", { class: "mute" }, note) : null,
      h("span", { class: "grow" }),
      more || null,
    ),
    body,
  );
}

export function emptyState(text, command) {
  return h("div", { class: "empty" }, h("p", null, text), command ? commandBlock(command) : null);
}

// An area that can be wider than the page; the keyboard scrolls it, through its controls or by its own focus.
export function scrollArea(node) {
  const focus = node.querySelector("a, button, input, summary") ? {} : { tabindex: "0" };
  return h("div", { class: "scroll", ...focus }, node);
}

export function counters(items) {
  return h(
    "ul",
    { class: "numbers" },
    items.map(([name, value, to, kind]) =>
      h(
        "li",
        { class: kind || null },
        h("a", { href: `#${to}` }, h("strong", null, value), h("span", null, name)),
      ),
    ),
  );
}

/**
 * @param {string} text @param {(event: MouseEvent) => void} onclick
 * @param {{kind?: string, title?: string, disabled?: boolean}} [options]
 */
export const button = (text, onclick, { kind = "", title, disabled } = {}) =>
  h("button", { type: "button", class: kind, title, disabled, onclick }, text);

/**
 * Buttons of which one is pressed.
 * @param {string[][]} choices @param {string} chosen @param {(value: string) => void} pick
 */
export const periodChips = (choices, chosen, pick, label = "Period") =>
  h(
    "span",
    { class: "chips", role: "group", "aria-label": label },
    choices.map(([value, text]) =>
      h(
        "button",
        {
          type: "button",
          class: "chip",
          "aria-pressed": String(chosen === value),
          onclick: () => pick(value),
        },
        text,
      ),
    ),
  );

export function pager(data, params, go) {
  if (!data.cursor && !params.cursor) return null;
  return h(
    "nav",
    { class: "pager", "aria-label": "Pages" },
    params.cursor ? button("first page", () => go({ ...params, cursor: "" }), { kind: "quiet" }) : null,
    data.cursor
      ? button("next page", () => go({ ...params, cursor: data.cursor }))
      : h("span", { class: "mute" }, "last page"),
  );
}

/** @param {any} value shown as it is if it is text, otherwise as JSON */
export const jsonBlock = (value) =>
  h(
    "pre",
    { class: "json", tabindex: "0" },
    typeof value === "string" ? value : JSON.stringify(value, null, 2),
  );

/** @param {[string, Child][]} pairs names with values; empty values are left out */
export const definitionList = (pairs) =>
  h(
    "dl",
    { class: "facts" },
    pairs
      .filter(([, v]) => v !== null && v !== undefined && v !== "")
      .map(([name, value]) => [h("dt", null, name), h("dd", null, value)]),
  );

const RANK = { fail: 0, warn: 1, ok: 2 };
/** Order findings and incidents by severity, then newest first. */
export const worstFirst = (one, other) =>
  RANK[one.severity] - RANK[other.severity] || (other.since || "").localeCompare(one.since || "");

const STATUSES = { ok: ["✔", "good"], warn: ["!", "warn"], fail: ["✖", "bad"], failed: ["✖", "bad"] };
export function statusBadge(text) {
  const [mark, kind] = STATUSES[text] || ["·", "mute"];
  return h(
    "span",
    { class: `badge ${kind}` },
    h("span", { class: "sign", "aria-hidden": "true" }, mark),
    text || "",
  );
}
