// A search bar with free text and qualifiers (state:failed schedule:x), with completion.

import { get } from "../base/api.js";
import { h } from "../base/dom.js";
import { now } from "../base/times.js";

// Parse "state:failed tag:a b" into the parameters of the address; formatQuery does the reverse.
function parseQuery(text, qualifiers, free) {
  const found = {};
  const words = [];
  for (const [, name, quotedValue, value, word] of text.matchAll(/([a-z]+):(?:"([^"]*)"|(\S*))|(\S+)/g)) {
    if (name && qualifiers[name]) found[name] = instant(quotedValue ?? value, qualifiers[name]);
    else words.push(name ? `${name}:${quotedValue ?? value}` : word);
  }
  if (words.length && free) found[free] = words.join(" ");
  return found;
}

function formatQuery(params, qualifiers, free) {
  const parts = Object.keys(qualifiers)
    .filter((name) => params[name])
    .map((name) => `${name}:${/\s/.test(params[name]) ? `"${params[name]}"` : params[name]}`);
  return [free && params[free], ...parts].filter(Boolean).join(" ");
}

// since:2h means two hours ago; an instant stays as it is.
function instant(value, { ago }) {
  const parts = ago && /^(\d+)([smhdw])$/.exec(value);
  return parts
    ? new Date(
        now() - Number(parts[1]) * { s: 1e3, m: 6e4, h: 36e5, d: 864e5, w: 6048e5 }[parts[2]],
      ).toISOString()
    : value;
}

let suggestions = { at: -1, options: [] };
let requestNumber = 0;

/**
 * @param {{qualifiers: Record<string, any>, free: string, hint: string, states?: any[], params:
 *   Record<string, string>,
 *   go: (params: Record<string, any>) => void}} options
 */
export function searchBar({ qualifiers, free, hint, states, params, go }) {
  const search = (text) => {
    const kept = Object.fromEntries(
      Object.entries(params).filter(([name]) => !(name in qualifiers) && name !== free && name !== "cursor"),
    );
    suggestions = { at: -1, options: [] };
    go({ ...kept, ...parseQuery(text, qualifiers, free) });
  };
  const text = formatQuery(params, qualifiers, free);
  const box = h("input", {
    type: "search",
    value: text,
    placeholder: hint,
    "data-search": true,
    autocomplete: "off",
    spellcheck: "false",
    "aria-label": "Search",
    role: "combobox",
    "aria-expanded": String(suggestions.options.length > 0),
    "aria-controls": "suggestions",
    "aria-autocomplete": "list",
    oninput: (e) => suggest(e.target, qualifiers),
    onfocus: (e) => suggest(e.target, qualifiers),
    onblur: (e) => setTimeout(close, 150, e.target),
    onkeydown: (e) => onKey(e, qualifiers),
    onchange: (e) => {
      if (!suggestions.options.length || e.target.value === "") search(e.target.value);
    },
  });
  const chips = states
    ? h(
        "div",
        { class: "chips", role: "group", "aria-label": "state" },
        states.map(([value, label]) =>
          h(
            "button",
            {
              type: "button",
              class: "chip",
              "aria-pressed": String((params.state || "") === value),
              onclick: () => go({ ...params, state: value, cursor: "" }),
            },
            label,
          ),
        ),
      )
    : null;
  return h(
    "form",
    {
      class: "query",
      role: "search",
      onsubmit: (e) => {
        e.preventDefault();
        search(e.target.querySelector("input").value);
        close(e.target.querySelector("input"));
      },
    },
    h(
      "div",
      { class: "box" },
      box,
      h(
        "ul",
        { id: "suggestions", class: "suggestions", role: "listbox", "aria-label": "Suggestions" },
        suggestionItems(qualifiers),
      ),
    ),
    h("button", { type: "submit", class: "hidden" }, "Search"),
    chips,
  );
}

const lastWord = (input) =>
  input.value
    .slice(0, input.selectionStart ?? input.value.length)
    .split(/\s+/)
    .pop();

async function suggest(input, qualifiers) {
  const mine = ++requestNumber;
  const word = lastWord(input);
  const [name, ...more] = word.split(":");
  const known = more.length ? qualifiers[name] : null;
  const begun = more.join(":");
  let options = [];
  if (known)
    options = (await values(known, begun))
      .filter((one) => one.startsWith(begun) && one !== begun)
      .map((one) => `${name}:${/\s/.test(one) ? `"${one}"` : one}`);
  else if (input.value)
    options = Object.keys(qualifiers)
      .filter((one) => one.startsWith(word))
      .map((one) => `${one}:`);
  if (mine !== requestNumber || document.activeElement !== input) return;
  suggestions = { at: -1, options: options.slice(0, 8) };
  paintSuggestions(input, qualifiers);
}

async function values(known, begun) {
  if (known.values) return known.values;
  if (!known.path) return [];
  try {
    const page = await get(known.path, { ...(known.ask ? known.ask(begun) : {}), limit: 8 });
    return page[known.field].map(known.pick);
  } catch {
    return [];
  }
}

function paintSuggestions(input, qualifiers) {
  input.setAttribute("aria-expanded", String(suggestions.options.length > 0));
  input.parentNode.querySelector(".suggestions").replaceChildren(...suggestionItems(qualifiers));
}

function suggestionItems(qualifiers) {
  const pick = (option) => (event) => {
    event.preventDefault();
    take(event.target.closest(".box").querySelector("input"), option, qualifiers);
  };
  return suggestions.options.map((option, n) =>
    h(
      "li",
      { role: "option", "aria-selected": String(n === suggestions.at), onmousedown: pick(option) },
      option,
      h("span", { class: "mute" }, option.endsWith(":") ? ` ${qualifiers[option.slice(0, -1)].hint}` : ""),
    ),
  );
}

function take(input, option, qualifiers) {
  const place = input.selectionStart ?? input.value.length;
  const before = input.value.slice(0, place).replace(/\S*$/, "");
  const rest = input.value.slice(place);
  input.value = `${before}${option}${option.endsWith(":") ? "" : " "}${rest}`;
  suggest(input, qualifiers);
}

function onKey(event, qualifiers) {
  const input = event.target;
  const { options, at } = suggestions;
  if (event.key === "Escape" && options.length) {
    event.stopPropagation();
    close(input);
    return;
  }
  if (!options.length) return;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    suggestions.at = (at + (event.key === "ArrowDown" ? 1 : -1) + options.length) % options.length;
    paintSuggestions(input, qualifiers);
  } else if (event.key === "Tab" || (event.key === "Enter" && at >= 0)) {
    event.preventDefault();
    take(input, options[Math.max(0, at)], qualifiers);
  }
}

function close(input) {
  requestNumber += 1;
  suggestions = { at: -1, options: [] };
  input.setAttribute("aria-expanded", "false");
  const list = input.parentNode && input.parentNode.querySelector(".suggestions");
  if (list) list.replaceChildren();
}

export const SCHEDULE_NAMES = {
  hint: "schedule name",
  path: ["schedules"],
  ask: (begun) => ({ name_starts: begun }),
  field: "schedules",
  pick: (row) => row.name,
};
export const QUEUE_NAMES = {
  hint: "queue name",
  path: ["queues"],
  field: "queues",
  pick: (row) => row.queue,
};
