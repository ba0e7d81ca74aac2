// One line to find things by: words and qualifiers (state:failed schedule:x), completed while one types.

import { get } from "./api.js";
import { h } from "./dom.js";
import { now } from "./times.js";

// "state:failed tag:a b" with the qualifiers of a screen becomes what the address holds, and back.
export function parsed(text, qualifiers, free) {
  const found = {};
  const words = [];
  for (const [, name, quotedValue, value, word] of text.matchAll(/([a-z]+):(?:"([^"]*)"|(\S*))|(\S+)/g)) {
    if (name && qualifiers[name]) found[name] = instant(quotedValue ?? value, qualifiers[name]);
    else words.push(name ? `${name}:${quotedValue ?? value}` : word);
  }
  if (words.length && free) found[free] = words.join(" ");
  return found;
}

export function spelled(params, qualifiers, free) {
  const said = Object.keys(qualifiers).filter((name) => params[name]).map((name) => `${name}:${/\s/.test(params[name]) ? `"${params[name]}"` : params[name]}`);
  return [free && params[free], ...said].filter(Boolean).join(" ");
}

// since:2h is two hours ago; an instant is itself.
function instant(value, { ago }) {
  const parts = ago && /^(\d+)([smhdw])$/.exec(value);
  return parts ? new Date(now() - Number(parts[1]) * { s: 1e3, m: 6e4, h: 36e5, d: 864e5, w: 6048e5 }[parts[2]]).toISOString() : value;
}

let offered = { at: -1, options: [] };
let asked = 0;

export function queryBar({ qualifiers, free, hint, states, params, go }) {
  const find = (text) => {
    const kept = Object.fromEntries(Object.entries(params).filter(([name]) => !(name in qualifiers) && name !== free && name !== "cursor"));
    offered = { at: -1, options: [] };
    go({ ...kept, ...parsed(text, qualifiers, free) });
  };
  const text = spelled(params, qualifiers, free);
  const box = h("input", { type: "search", value: text, placeholder: hint, "data-search": true, autocomplete: "off", spellcheck: "false", "aria-label": "find", role: "combobox", "aria-expanded": String(offered.options.length > 0), "aria-controls": "offers", "aria-autocomplete": "list",
    oninput: (e) => offer(e.target, qualifiers), onfocus: (e) => offer(e.target, qualifiers), onblur: (e) => setTimeout(close, 150, e.target), onkeydown: (e) => steer(e, qualifiers), onchange: (e) => { if (!offered.options.length || e.target.value === "") find(e.target.value); } });
  const chips = states ? h("div", { class: "chips", role: "group", "aria-label": "state" }, states.map(([value, said]) => h("button", { type: "button", class: "chip", "aria-pressed": String((params.state || "") === value), onclick: () => go({ ...params, state: value, cursor: "" }) }, said))) : null;
  return h("form", { class: "query", role: "search", onsubmit: (e) => { e.preventDefault(); find(e.target.querySelector("input").value); close(e.target.querySelector("input")); } },
    h("div", { class: "box" }, box, h("ul", { id: "offers", class: "offers", role: "listbox", "aria-label": "what could be meant" }, offers(qualifiers))), h("button", { type: "submit", class: "hidden" }, "find"), chips);
}

const last = (input) => input.value.slice(0, input.selectionStart ?? input.value.length).split(/\s+/).pop();

async function offer(input, qualifiers) {
  const mine = ++asked;
  const word = last(input);
  const [name, ...more] = word.split(":");
  const known = more.length ? qualifiers[name] : null;
  const begun = more.join(":");
  let options = [];
  if (known) options = (await values(known, begun)).filter((one) => one.startsWith(begun) && one !== begun).map((one) => `${name}:${/\s/.test(one) ? `"${one}"` : one}`);
  else if (input.value) options = Object.keys(qualifiers).filter((one) => one.startsWith(word)).map((one) => `${one}:`);
  if (mine !== asked || document.activeElement !== input) return;
  offered = { at: -1, options: options.slice(0, 8) };
  paint(input, qualifiers);
}

async function values(known, begun) {
  if (known.values) return known.values;
  if (!known.path) return [];
  try {
    const page = await get(known.path, { ...(known.ask ? known.ask(begun) : {}), limit: 8 });
    return page[known.field].map(known.pick);
  } catch { return []; }
}

function paint(input, qualifiers) {
  input.setAttribute("aria-expanded", String(offered.options.length > 0));
  input.parentNode.querySelector(".offers").replaceChildren(...offers(qualifiers));
}

function offers(qualifiers) {
  const pick = (option) => (event) => { event.preventDefault(); take(event.target.closest(".box").querySelector("input"), option, qualifiers); };
  return offered.options.map((option, n) => h("li", { role: "option", "aria-selected": String(n === offered.at), onmousedown: pick(option) }, option, h("span", { class: "mute" }, option.endsWith(":") ? ` ${qualifiers[option.slice(0, -1)].said}` : "")));
}

function take(input, option, qualifiers) {
  const place = input.selectionStart ?? input.value.length;
  const before = input.value.slice(0, place).replace(/\S*$/, "");
  const rest = input.value.slice(place);
  input.value = `${before}${option}${option.endsWith(":") ? "" : " "}${rest}`;
  offer(input, qualifiers);
}

function steer(event, qualifiers) {
  const input = event.target;
  const { options, at } = offered;
  if (event.key === "Escape" && options.length) { event.stopPropagation(); close(input); return; }
  if (!options.length) return;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    offered.at = (at + (event.key === "ArrowDown" ? 1 : -1) + options.length) % options.length;
    paint(input, qualifiers);
  } else if (event.key === "Tab" || (event.key === "Enter" && at >= 0)) {
    event.preventDefault();
    take(input, options[Math.max(0, at)], qualifiers);
  }
}

function close(input) {
  asked += 1;
  offered = { at: -1, options: [] };
  input.setAttribute("aria-expanded", "false");
  const list = input.parentNode && input.parentNode.querySelector(".offers");
  if (list) list.replaceChildren();
}

export const SCHEDULE_NAMES = { said: "of which schedule", path: ["schedules"], ask: (begun) => ({ name_starts: begun }), field: "schedules", pick: (row) => row.name };
export const QUEUE_NAMES = { said: "in which queue", path: ["queues"], field: "queues", pick: (row) => row.queue };
