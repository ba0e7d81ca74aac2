// Components shared by all screens.

import { h } from "./dom.js";
import { Problem, session } from "./api.js";
import {
  relativeTime,
  formatDuration,
  parseDuration,
  secondsUntil,
  formatTime,
  fullTime,
  clock,
  minute,
} from "./times.js";

/** @typedef {import("./dom.js").Child} Child */

export const link = (to, ...children) => h("a", { href: `#${to}` }, ...children);
export const routeTo = (...parts) => "/" + parts.map(encodeURIComponent).join("/");

export function time(iso, zone, mode = "when") {
  if (!iso) return h("span", { class: "mute" }, "—");
  if (mode === "when") return h("time", { datetime: iso, "data-zone": zone }, formatTime(iso));
  return h(
    "time",
    { datetime: iso, "data-zone": zone, "data-away": mode, class: isLate(iso, mode) ? "warn" : null },
    distance(iso, mode),
  );
}

// A time that has passed is shown as late after 5 s, which allows for the delay of an update.
const isLate = (iso, mode) => mode === "due" && secondsUntil(iso) < -5;
const distance = (iso, mode) =>
  mode === "for"
    ? formatDuration(Math.max(0, -secondsUntil(iso)))
    : isLate(iso, mode)
      ? `late by ${formatDuration(-secondsUntil(iso))}`
      : mode === "due" && secondsUntil(iso) < 0
        ? "now"
        : relativeTime(iso);

// Show a time in all relevant zones as its tooltip, computed only when the pointer is over it.
export function showAllZones({ target }) {
  const node = target.closest && target.closest("time[datetime]");
  if (!node) return;
  const text = fullTime(node.getAttribute("datetime"), node.dataset.zone);
  if (node.title !== text) node.title = text;
}

// Text from the server: its instants in the local zone, its durations as everywhere else, its run ids as
// links.
const PARTS = [
  /(?<instant>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))/,
  /(?<run>\brun_[0-9A-Z]{26})/,
  /(?<![\w.-])(?<duration>(?:\d+(?:\.\d+)?(?:us|ms|s|m|h|d|w))+)(?![\w-])/,
];
const LINKED = new RegExp(PARTS.map((part) => part.source).join("|"), "g");

/** @param {string} text @param {string} [zone] @returns {Child[]} */
export function linkedText(text, zone) {
  const given = String(text || "");
  const parts = [];
  let end = 0;
  for (const found of given.matchAll(LINKED)) {
    const { instant, run, duration } = found.groups;
    const before = given.slice(end, found.index);
    const node = instant
      ? time(instant, zone)
      : run
        ? link(routeTo("runs", run), `${/\brun $/.test(before) ? "" : "run "}…${run.slice(-6)}`)
        : formatDuration(parseDuration(duration));
    parts.push(before, node);
    end = found.index + found[0].length;
  }
  return [...parts, given.slice(end)];
}

export const timeWithDistance = (iso, zone, mode = "away") =>
  !iso
    ? time(iso)
    : h(
        "span",
        { class: "both" },
        time(iso, zone),
        " ",
        h("span", { class: "mute" }, time(iso, zone, mode)),
        zoneTime(iso, zone),
      );

// The time in the zone of a schedule, where it differs from the browser's.
const zoneTime = (iso, zone) =>
  !zone || clock(iso, zone) === clock(iso)
    ? null
    : h("span", { class: "mute zone" }, ` ${minute(iso, zone)} ${zone}`);

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

// A command as it can be typed: this installation's program and this server's store, or its address.
function runnable(command) {
  const starts = /^timewright (up|serve|worker|dashboard)\b/.test(command);
  const option =
    session.store_option === null ? (starts ? "" : `--server ${location.origin}`) : session.store_option;
  const [words, ...rest] = command
    .replace(/^timewright /, `${session.program || "timewright"} `)
    .split(" -- ");
  return [`${words} ${option}`.trim(), ...rest].join(" -- ");
}

// A command line with a copy button.
export function commandBlock(given) {
  const command = runnable(given);
  return h(
    "div",
    { class: "command" },
    h("code", null, unbrokenWords(command)),
    h(
      "button",
      { type: "button", class: "quiet", "aria-label": `Copy: ${command}`, onclick: () => copy(command) },
      "copy",
    ),
  );
}

// A fix: a command gets a copy button, other text is shown as it is.
export const fixHint = (fix) =>
  !fix ? null : /^timewright [^,;]+$/.test(fix) ? commandBlock(fix) : h("div", { class: "mute" }, fix);

// Do not break a word at its dashes unless it is longer than a line.
const unbrokenWords = (command) =>
  command
    .split(/( +)/)
    .map((word) => (word.length > 1 && word.length < 36 ? h("span", { class: "word" }, word) : word));

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("copied");
  } catch {
    toast("could not copy; select the text and copy it");
  }
}

/**
 * @typedef {{name: string, label?: string, kind?: string, sort?: {order: "" | "ascending" | "descending",
 *   run: () => void}}} Column `label` names a column without a visible name
 * @typedef {{key: any, cells: Child[], to?: string | null, tone?: string, label?: string, place?: number}}
 *   Row
 *   `place` identifies the row across paints instead of `key`, so that new rows on top move no other row
 *
 * @param {string} caption @param {Column[]} columns @param {Row[]} rows
 * @param {{selected?: Map<any, any>, onSelect?: (key: any) => void,
 *   onSelectAll?: (keys: any[], on: boolean) => void, fixed?: boolean}} [options] `fixed` columns have the
 *   width of their kind, whatever the rows contain
 */
export function table(caption, columns, rows, { selected, onSelect, onSelectAll, fixed } = {}) {
  const all = rows.length > 0 && selected && rows.every((row) => selected.has(row.key));
  const head = h(
    "tr",
    null,
    onSelect
      ? h(
          "th",
          { scope: "col", class: "narrow" },
          h("input", {
            type: "checkbox",
            "aria-label": "Select all on this page",
            checked: all,
            onchange: () =>
              onSelectAll(
                rows.map((row) => row.key),
                !all,
              ),
          }),
        )
      : null,
    columns.map((c) =>
      h(
        "th",
        { scope: "col", class: c.kind || null, "aria-sort": c.sort && c.sort.order ? c.sort.order : null },
        c.sort
          ? button(`${c.name}${{ ascending: " ▲", descending: " ▼" }[c.sort.order] || ""}`, c.sort.run, {
              kind: "sort",
            })
          : c.name || h("span", { class: "hidden" }, c.label),
      ),
    ),
  );
  const body = rows.map((row) =>
    h(
      "tr",
      { key: row.place ?? row.key, class: "row", "data-to": row.to || null, "data-tone": row.tone || null },
      onSelect
        ? h(
            "td",
            { class: "narrow" },
            h("input", {
              type: "checkbox",
              "aria-label": `Select ${row.label || row.key}`,
              checked: selected.has(row.key),
              onchange: () => onSelect(row.key),
            }),
          )
        : null,
      columns.map((c, n) =>
        h(
          "td",
          { class: row.cells[n] === "—" ? `${c.kind || ""} none` : c.kind || null, "data-name": c.name },
          row.cells[n],
        ),
      ),
    ),
  );
  const node = h(
    "table",
    { class: fixed ? "fixed" : columns.length <= 3 ? "few" : null },
    h("caption", { class: "hidden" }, caption),
    fixed
      ? h(
          "colgroup",
          null,
          onSelect ? h("col", { class: "narrow" }) : null,
          columns.map((c) => h("col", { class: c.kind || null })),
        )
      : null,
    h("thead", null, head),
    h("tbody", null, body),
  );
  return scrollArea(node);
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

const TOAST_MS = { bad: 9000, action: 12_000, other: 3500 };
/**
 * A message at the edge of the page.
 * @param {string} text @param {"" | "bad"} [kind]
 * @param {{label: string, run: () => void}} [action] a button in the message, such as undo
 */
export function toast(text, kind = "", action) {
  const node = h("div", { class: `toast ${kind}` }, h("span", null, text));
  const act = () => {
    node.remove();
    action.run();
  };
  if (action) node.append(button(action.label, act, { kind: "plain" }));
  document.getElementById("toasts").append(node);
  setTimeout(() => node.remove(), kind === "bad" ? TOAST_MS.bad : action ? TOAST_MS.action : TOAST_MS.other);
}

export function problemLines(problem) {
  const lines = [problem.message];
  if (problem.field) lines.push(`field: ${problem.field}`);
  if (problem.rule) lines.push(`rule: ${problem.rule}`);
  if (problem.fix) lines.push(`try: ${problem.fix}`);
  return lines;
}

/** @param {any} problem a refused request, or any error */
export function problemBox(problem) {
  const { fix = "", ...shown } =
    problem instanceof Problem
      ? { ...problem, message: problem.message }
      : { message: String(problem.message || problem), fix: problem.fix };
  const [first, ...more] = problemLines(shown);
  return h(
    "div",
    { class: "failure", role: "alert" },
    h("strong", null, first),
    more.map((line) => h("div", { class: "mute" }, line)),
    fix.startsWith("timewright ") ? fixHint(fix) : fix ? h("div", { class: "mute" }, `try: ${fix}`) : null,
  );
}

/**
 * A dialog that confirms an action: what will happen, its fields and the equivalent command.
 * @typedef {{name: string, label: string, value?: string, type?: string, placeholder?: string, required?:
 *   boolean,
 *   choices?: string[][]}} DialogField
 * @typedef {{title: string, text?: Child, body?: Child, act?: string, reason?: boolean, fields?:
 *   DialogField[],
 *   danger?: boolean, command?: string | ((values: Record<string, string>) => string)}} Dialog
 *
 * @param {Dialog} dialog
 * @returns {Promise<Record<string, string> | null>} the values, or null if it was closed
 */
export function confirmDialog({
  title,
  text,
  body,
  command,
  act = "confirm",
  reason = false,
  fields = [],
  danger = false,
}) {
  return new Promise((done) => {
    const values = {};
    const commandFor = typeof command === "function" ? command : () => command;
    const same = h("div", null);
    const showCommand = () => {
      const text = commandFor(values);
      same.replaceChildren(
        ...(text
          ? [h("span", { class: "mute" }, "Equivalent command:"), commandBlock(text + reasonOption(values))]
          : []),
      );
    };
    const input = (name, { type, ...props }) =>
      h(type === "textarea" ? "textarea" : "input", {
        type: type === "textarea" ? null : type,
        rows: type === "textarea" ? "4" : null,
        ...props,
        name,
        oninput: (e) => {
          values[name] = e.target.value;
          showCommand();
        },
      });
    const reasonOption = (given) =>
      typeof command === "string" && reason && given.reason ? ` --reason ${shellQuote(given.reason)}` : "";
    const form = h(
      "form",
      {
        method: "dialog",
        onsubmit: (e) => {
          e.preventDefault();
          close(values);
        },
      },
      h("h2", null, title),
      text ? h("p", null, text) : null,
      body || null,
      fields.map((f) => {
        values[f.name] = f.value || "";
        const box = input(f.name, {
          type: f.type || "text",
          value: f.value || "",
          placeholder: f.placeholder || "",
          required: f.required,
        });
        return [h("label", null, f.label, box), f.choices ? choiceButtons(f, box) : null];
      }),
      reason
        ? h(
            "label",
            null,
            "Reason (stored with the change)",
            input("reason", { type: "text", maxlength: 2000 }),
          )
        : null,
      same,
      h(
        "div",
        { class: "buttons" },
        h("button", { type: "button", class: "quiet", onclick: () => close(null) }, "close"),
        h("button", { type: "submit", class: danger ? "danger" : "main" }, act),
      ),
    );
    const dialog = h("dialog", { "aria-label": title, oncancel: () => close(null) }, form);
    showCommand();
    const close = (value) => {
      dialog.close();
      dialog.remove();
      done(value);
    };
    document.body.append(dialog);
    dialog.showModal();
    const first = dialog.querySelector("input, textarea, button.main, button.danger");
    if (first) first.focus();
  });
}

// Buttons that fill in the usual values of a field.
/** @param {DialogField} field @param {HTMLInputElement} box */
function choiceButtons({ label, choices }, box) {
  const take = (value) => {
    box.value = value;
    box.dispatchEvent(new Event("input"));
  };
  return h(
    "div",
    { class: "chips", role: "group", "aria-label": label },
    choices.map(([value, text]) => button(text, () => take(value), { kind: "chip" })),
  );
}

// Quote one argument for a POSIX shell.
export const shellQuote = (text) =>
  /^[\w.,:/@%+=-]+$/.test(text) ? String(text) : `'${String(text).replaceAll("'", "'\\''")}'`;

/** The options of a command, without empty values. @param {Record<string, string | undefined>} values */
export const commandOptions = (values) =>
  Object.entries(values)
    .filter(([, value]) => value)
    .map(([name, value]) => ` --${name.replaceAll("_", "-")} ${shellQuote(value)}`)
    .join("");

/**
 * Run an action; show its message, or what went wrong.
 * @template T
 * @param {() => Promise<T>} work @param {string} [message] @param {{label: string, run: () => void}} [undo]
 * @returns {Promise<T | null>} the answer, or null if it failed
 */
export async function tryAction(work, message, undo) {
  try {
    const answer = await work();
    if (message) toast(message, "", undo);
    return answer;
  } catch (problem) {
    toast(problemLines(problem).join(" · "), "bad");
    return null;
  }
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

// Update countdowns between two refreshes.
export function updateTimes(root) {
  for (const node of root.querySelectorAll("time[data-away]")) {
    const iso = node.getAttribute("datetime"),
      text = distance(iso, node.dataset.away);
    node.classList.toggle("warn", isLate(iso, node.dataset.away));
    if (node.firstChild && node.firstChild.data !== text) node.firstChild.data = text;
  }
  for (const node of root.querySelectorAll("[data-since]")) {
    const share = Math.min(
      1,
      Math.max(0, -secondsUntil(node.dataset.since) / Number(node.dataset.limit || 300)),
    );
    node.style.setProperty("width", `${(share * 100).toFixed(1)}%`);
  }
}

// The fields that differ between two values; objects are compared recursively, lists as a whole.
export function differences(before, after) {
  const rows = [];
  const walk = (was, is, path) => {
    if (isObject(was) && isObject(is))
      for (const key of new Set([...Object.keys(was), ...Object.keys(is)]))
        walk(was[key], is[key], path ? `${path}.${key}` : key);
    else if (JSON.stringify(was) !== JSON.stringify(is)) rows.push([path, was, is]);
  };
  walk(before, after, "");
  return rows;
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));

export function diff(before, after) {
  const rows = differences(before, after);
  if (!rows.length) return h("p", { class: "mute" }, "no differences");
  const gone = (value) => value === undefined || value === null || value === "";
  return h(
    "ul",
    { class: "diff" },
    rows.map(([path, was, is]) =>
      h(
        "li",
        { key: path },
        h("code", null, path || "value"),
        gone(was) ? null : h("del", null, text(was)),
        gone(is) ? (gone(was) ? null : h("span", { class: "mute" }, "removed")) : h("ins", null, text(is)),
      ),
    ),
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
