// The pieces every screen is built from.

import { h } from "./dom.js";
import { Problem } from "./api.js";
import { away, span, until, when, whole } from "./times.js";

export const link = (to, ...children) => h("a", { href: `#${to}` }, ...children);
export const place = (...parts) => "/" + parts.map(encodeURIComponent).join("/");

export function time(iso, zone, mode = "when") {
  if (!iso) return h("span", { class: "mute" }, "—");
  if (mode === "when") return h("time", { datetime: iso, "data-zone": zone }, when(iso));
  return h("time", { datetime: iso, "data-zone": zone, "data-away": mode, class: isLate(iso, mode) ? "warn" : null }, distance(iso, mode));
}

// What was to come and has not is late, and says so; a few seconds are the time it takes to hear of it.
const isLate = (iso, mode) => mode === "due" && until(iso) < -5;
const distance = (iso, mode) => (mode === "for" ? span(Math.max(0, -until(iso))) : isLate(iso, mode) ? `late by ${span(-until(iso))}` : mode === "due" && until(iso) < 0 ? "now" : away(iso));

// An instant in every zone that matters is spelled when somebody points at it, not for all the others on the page.
export function tellTime({ target }) {
  const node = target.closest && target.closest("time[datetime]");
  if (!node) return;
  const text = whole(node.getAttribute("datetime"), node.dataset.zone);
  if (node.title !== text) node.title = text;
}

// Prose of the server with its instants in this zone and its runs as links; whatever else it holds stays text.
const TELLING = /(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))|(run_[0-9A-Z]{26})/g;
export function prose(text, zone) {
  const parts = String(text || "").split(TELLING);
  return parts.map((part, n) => (part === undefined ? "" : n % 3 === 1 ? time(part, zone) : n % 3 === 2 ? link(place("runs", part), `${/\brun $/.test(parts[n - 2] || "") ? "" : "run "}…${part.slice(-6)}`) : part));
}

export const both = (iso, zone, mode = "away") => !iso ? time(iso) : h("span", { class: "both" }, time(iso, zone), " ", h("span", { class: "mute" }, time(iso, zone, mode)));

export function panel(title, body, { more, id, note } = {}) {
  return h("section", { class: "panel", "aria-label": title, id },
    h("header", null, h("h2", null, title), note ? h("span", { class: "mute" }, note) : null, h("span", { class: "grow" }), more || null), body);
}

export function empty(text, command) {
  return h("div", { class: "empty" }, h("p", null, text), command ? copied(command) : null);
}

// A command with a button that copies it: whatever is done here can be done there.
export function copied(command) {
  return h("div", { class: "command" }, h("code", null, wholeWords(command)),
    h("button", { type: "button", class: "quiet", "aria-label": `copy: ${command}`, onclick: () => copy(command) }, "copy"));
}

// A way out that is one command can be copied, any other is read.
export const remedy = (fix) => (!fix ? null : /^timewright [^,;]+$/.test(fix) ? copied(fix) : h("div", { class: "mute" }, fix));

// An option is not broken at its dashes; only a word that is longer than a line may be.
const wholeWords = (command) => command.split(/( +)/).map((word) => (word.length > 1 && word.length < 36 ? h("span", { class: "word" }, word) : word));

async function copy(text) {
  try { await navigator.clipboard.writeText(text); toast("copied"); } catch { toast("select the text and copy it by hand"); }
}

export function table(caption, columns, rows, { selected, choose, chooseAll } = {}) {
  const all = rows.length > 0 && selected && rows.every((row) => selected.has(row.key));
  const head = h("tr", null, choose ? h("th", { scope: "col", class: "narrow" }, h("input", { type: "checkbox", "aria-label": "choose all on this page", checked: all, onchange: () => chooseAll(rows.map((row) => row.key), !all) })) : null,
    columns.map((c) => h("th", { scope: "col", class: c.kind || null }, c.name)));
  const body = rows.map((row) => h("tr", { key: row.key, class: "row", "data-to": row.to || null, "data-tone": row.tone || null },
    choose ? h("td", { class: "narrow" }, h("input", { type: "checkbox", "aria-label": `choose ${row.label || row.key}`, checked: selected.has(row.key), onchange: () => choose(row.key) })) : null,
    columns.map((c, n) => h("td", { class: row.cells[n] === "—" ? `${c.kind || ""} none` : c.kind || null, "data-name": c.name }, row.cells[n]))));
  return h("div", { class: "scroll" }, h("table", { class: columns.length <= 3 ? "few" : null }, h("caption", { class: "hidden" }, caption), h("thead", null, head), h("tbody", null, body)));
}

export function numbers(items) {
  return h("ul", { class: "numbers" }, items.map(([name, value, to, kind]) =>
    h("li", { class: kind || null }, h("a", { href: `#${to}` }, h("strong", null, value), h("span", null, name)))));
}

export function toast(text, kind = "") {
  const node = h("div", { class: `toast ${kind}` }, text);
  document.getElementById("toasts").append(node);
  setTimeout(() => node.remove(), kind === "bad" ? 9000 : 3500);
}

export function explain(problem) {
  const lines = [problem.message];
  if (problem.field) lines.push(`field: ${problem.field}`);
  if (problem.rule) lines.push(`rule: ${problem.rule}`);
  if (problem.fix) lines.push(`try: ${problem.fix}`);
  return lines;
}

export function failure(problem) {
  const { fix = "", ...told } = problem instanceof Problem ? { ...problem, message: problem.message } : { message: String(problem.message || problem), fix: problem.fix };
  const [first, ...more] = explain(told);
  return h("div", { class: "failure", role: "alert" }, h("strong", null, first), more.map((line) => h("div", { class: "mute" }, line)), fix.startsWith("timewright ") ? remedy(fix) : fix ? h("div", { class: "mute" }, `try: ${fix}`) : null);
}

// Ask before what cannot be taken back: what will happen, the command that does the same, and a way out.
export function confirm({ title, text, command, act = "do it", reason = false, fields = [], danger = false }) {
  return new Promise((done) => {
    const values = {};
    const spelled = typeof command === "function" ? command : () => command;
    const same = h("div", null);
    const spell = () => { const words = spelled(values); same.replaceChildren(...(words ? [h("span", { class: "mute" }, "The same at the command line:"), copied(words + told(values))] : [])); };
    const input = (name, props) => h("input", { ...props, name, oninput: (e) => { values[name] = e.target.value; spell(); } });
    const told = (given) => (typeof command === "string" && reason && given.reason ? ` --reason ${quoted(given.reason)}` : "");
    const form = h("form", { method: "dialog", onsubmit: (e) => { e.preventDefault(); close(values); } },
      h("h2", null, title), text ? h("p", null, text) : null,
      fields.map((f) => { values[f.name] = f.value || ""; const box = input(f.name, { type: f.type || "text", value: f.value || "", placeholder: f.placeholder || "", required: f.required }); return [h("label", null, f.label, box), f.choices ? chosen(f, box) : null]; }),
      reason ? h("label", null, "Why (kept with the change)", input("reason", { type: "text", maxlength: 2000 })) : null,
      same,
      h("div", { class: "buttons" }, h("button", { type: "button", class: "quiet", onclick: () => close(null) }, "leave it"),
        h("button", { type: "submit", class: danger ? "danger" : "main" }, act)));
    const dialog = h("dialog", { "aria-label": title, oncancel: () => close(null) }, form);
    spell();
    const close = (value) => { dialog.close(); dialog.remove(); done(value); };
    document.body.append(dialog);
    dialog.showModal();
    const first = dialog.querySelector("input, button.main, button.danger");
    if (first) first.focus();
  });
}

// What is meant most often is one press away; the field takes whatever else is meant.
function chosen({ label, choices }, box) {
  const take = (value) => { box.value = value; box.dispatchEvent(new Event("input")); };
  return h("div", { class: "chips", role: "group", "aria-label": label }, choices.map(([value, said]) => button(said, () => take(value), { kind: "chip" })));
}

// One word of a command, as a shell reads it.
export const quoted = (text) => (/^[\w.,:/@%+=-]+$/.test(text) ? String(text) : `'${String(text).replaceAll("'", "'\\''")}'`);

export async function attempt(work, said) {
  try {
    const answer = await work();
    if (said) toast(said);
    return answer;
  } catch (problem) {
    toast(explain(problem).join(" · "), "bad");
    return null;
  }
}

export const button = (text, onclick, { kind = "", title, disabled } = {}) => h("button", { type: "button", class: kind, title, disabled, onclick }, text);

export function pager(data, params, go) {
  if (!data.cursor && !params.cursor) return null;
  return h("nav", { class: "pager", "aria-label": "pages" },
    params.cursor ? button("from the start", () => go({ ...params, cursor: "" }), { kind: "quiet" }) : null,
    data.cursor ? button("next page", () => go({ ...params, cursor: data.cursor })) : h("span", { class: "mute" }, "that is all"));
}

// Countdown texts move by themselves between two looks at the server.
export function tickTimes(root) {
  for (const node of root.querySelectorAll("time[data-away]")) {
    const iso = node.getAttribute("datetime"), text = distance(iso, node.dataset.away);
    node.classList.toggle("warn", isLate(iso, node.dataset.away));
    if (node.firstChild && node.firstChild.data !== text) node.firstChild.data = text;
  }
  for (const node of root.querySelectorAll("[data-since]")) {
    const share = Math.min(1, Math.max(0, -until(node.dataset.since) / Number(node.dataset.limit || 300)));
    node.style.setProperty("width", `${(share * 100).toFixed(1)}%`);
  }
}

// What changed between two values, a line for each field that differs; objects are walked, lists are not.
export function differences(before, after) {
  const rows = [];
  const walk = (was, is, path) => {
    if (isPlain(was) && isPlain(is)) for (const key of new Set([...Object.keys(was), ...Object.keys(is)])) walk(was[key], is[key], path ? `${path}.${key}` : key);
    else if (JSON.stringify(was) !== JSON.stringify(is)) rows.push([path, was, is]);
  };
  walk(before, after, "");
  return rows;
}

const isPlain = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const spell = (value) => (typeof value === "string" ? value : JSON.stringify(value));

export function diff(before, after) {
  const rows = differences(before, after);
  if (!rows.length) return h("p", { class: "mute" }, "nothing that is kept differs");
  const gone = (value) => value === undefined || value === null || value === "";
  return h("ul", { class: "diff" }, rows.map(([path, was, is]) => h("li", { key: path }, h("code", null, path || "value"), gone(was) ? null : h("del", null, spell(was)), gone(is) ? (gone(was) ? null : h("span", { class: "mute" }, "gone")) : h("ins", null, spell(is)))));
}

export const json = (value) => h("pre", { class: "json", tabindex: "0" }, typeof value === "string" ? value : JSON.stringify(value, null, 2));
export const facts = (pairs) => h("dl", { class: "facts" }, pairs.filter(([, v]) => v !== null && v !== undefined && v !== "").map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));

const VERDICTS = { ok: ["✔", "good"], warn: ["!", "warn"], fail: ["✖", "bad"], failed: ["✖", "bad"] };
export function verdict(text) {
  const [mark, kind] = VERDICTS[text] || ["·", "mute"];
  return h("span", { class: `badge ${kind}` }, h("span", { class: "sign", "aria-hidden": "true" }, mark), text || "");
}
