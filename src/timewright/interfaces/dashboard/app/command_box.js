// One box for everything (Ctrl-K): finds schedules, runs, queues, workflows and screens, and runs actions on
// them.

import { can, get, post } from "../base/api.js";
import { h } from "../base/dom.js";
import { badge } from "../base/states.js";
import { shellQuote } from "../components/commands.js";
import { confirmDialog } from "../components/dialog.js";
import { tryAction } from "../components/messages.js";
import { routeTo } from "../components/texts.js";
import { refresh } from "./refresh.js";

const DELAY_MS = 120; // after the last key
const MAX_ACTION_SUBJECTS = 3;

/**
 * One line of the list.
 * @typedef {{key: string, label: string, kind: string, state?: string, match?: string, run: () => void}}
 *   Option
 */
const open = (to) => {
  location.hash = to;
};

const ROUTES = { schedule: "schedules", run: "runs", queue: "queues", workflow: "workflows" };

/** @returns {Option} */
function openOption(found) {
  const name = found.kind === "run" ? found.id : found.name;
  const label = found.kind === "run" ? `${found.name || "run"} …${found.id.slice(-6)}` : found.name;
  return {
    key: `${found.kind} ${name}`,
    label,
    kind: found.kind,
    state: found.state,
    match: found.match,
    run: () => open(routeTo(ROUTES[found.kind], name)),
  };
}

const ACTIONS = {
  "run now": {
    scope: "trigger",
    verb: "run",
    text: "Starts one manual run. The planned occurrences do not change.",
    fits: (state) => ["active", "paused"].includes(state),
  },
  pause: {
    scope: "write",
    verb: "pause",
    text: "It does not run until it is resumed.",
    fits: (state) => state === "active",
  },
  resume: {
    scope: "write",
    verb: "resume",
    text: "It continues with its next occurrence; its catch-up policy applies.",
    fits: (state) => ["paused", "parked"].includes(state),
  },
};

async function confirmAndRun(label, { verb, text }, found) {
  const answer = await confirmDialog({
    title: `${label} ${found.name}?`,
    text,
    act: label,
    reason: true,
    command: `timewright schedule ${verb} ${shellQuote(found.name)}`,
  });
  if (!answer) return;
  const body = answer.reason ? { reason: answer.reason } : {};
  if (await tryAction(() => post(["schedules", found.id, verb], body), `${label}: ${found.name}`)) refresh();
}

/** @returns {Option[]} the actions on a schedule that the caller may run */
const actionOptions = (found) =>
  Object.entries(ACTIONS)
    .filter(([, action]) => can(action.scope) && action.fits(found.state))
    .map(([label, action]) => ({
      key: `${label} ${found.name}`,
      label: `${label}: ${found.name}`,
      kind: "action",
      run: () => confirmAndRun(label, action, found),
    }));

// "pause nightly" looks for nightly and offers to pause it first.
const asVerb = (text) => /^(run now|run|pause|resume|open)\s+(\S.*)$/i.exec(text);

/** @returns {Promise<Option[]>} */
async function find(text, screens) {
  const typed = asVerb(text);
  const wanted = typed ? typed[2] : text;
  const places = screens
    .filter(([, label]) => label.toLowerCase().includes(text.toLowerCase()))
    .map(([name, label]) => ({ key: `screen ${name}`, label, kind: "screen", run: () => open(`/${name}`) }));
  if (!wanted.trim()) return places;
  const { found } = await get(["search"], { text: wanted }).catch(() => ({ found: [] }));
  const schedules = found.filter((one) => one.kind === "schedule");
  const actions = schedules.slice(0, MAX_ACTION_SUBJECTS).flatMap(actionOptions);
  const opened = found.map(openOption);
  if (!typed || typed[1].toLowerCase() === "open") return [...opened, ...places, ...actions];
  const verb = typed[1].toLowerCase() === "run" ? "run now" : typed[1].toLowerCase();
  return [
    ...schedules.flatMap(actionOptions).filter((one) => one.label.startsWith(`${verb}:`)),
    ...opened,
    ...places,
  ];
}

/** Open the box. @param {string[][]} screens names and titles of the screens */
export function openCommandBox(screens) {
  if (document.querySelector("dialog")) return;
  /** @type {Option[]} */
  let options = [];
  let chosen = 0;
  let asked = 0;
  let timer = 0;
  let searched = null; // the text that the options belong to
  const list = h("ul", { id: "found", class: "found", role: "listbox", "aria-label": "Results" });
  const status = h("p", { class: "mute", "aria-live": "polite" }, "");
  const take = (option) => {
    if (!option) return;
    close();
    option.run();
  };
  const paint = () => {
    list.replaceChildren(
      ...options.map((one, n) =>
        h(
          "li",
          {
            id: `found-${n}`,
            role: "option",
            "aria-selected": String(n === chosen),
            onmousedown: (event) => {
              event.preventDefault();
              take(one);
            },
          },
          h("span", { class: "mute kind" }, one.kind),
          h(
            "span",
            { class: "grow" },
            one.label,
            one.match ? h("span", { class: "mute" }, ` ${one.match}`) : null,
          ),
          one.state ? badge(one.state) : null,
        ),
      ),
    );
    box.setAttribute("aria-activedescendant", options.length ? `found-${chosen}` : "");
    const current = list.children[chosen];
    if (current) current.scrollIntoView({ block: "nearest" });
  };
  const search = async () => {
    const mine = ++asked;
    const text = box.value.trim();
    const found = await find(text, screens);
    if (mine !== asked) return;
    [options, chosen, searched] = [found, 0, text];
    status.textContent = options.length ? "" : "nothing found";
    paint();
  };
  const box = h("input", {
    type: "text",
    name: "everything",
    placeholder: "name, tag, error, id, or an action such as pause …",
    "aria-label": "Search everything",
    role: "combobox",
    "aria-expanded": "true",
    "aria-controls": "found",
    autocomplete: "off",
    spellcheck: "false",
    oninput: () => {
      clearTimeout(timer);
      timer = setTimeout(search, DELAY_MS);
    },
    onkeydown: (event) => {
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        event.preventDefault();
        const turn = event.key === "ArrowDown" ? 1 : -1;
        chosen = (chosen + turn + options.length) % Math.max(1, options.length);
        paint();
      } else if (event.key === "Enter") {
        event.preventDefault();
        // What was typed last may not have been looked for yet.
        clearTimeout(timer);
        if (box.value.trim() === searched) take(options[chosen]);
        else search().then(() => take(options[chosen]));
      }
    },
  });
  const dialog = h(
    "dialog",
    {
      class: "command-box",
      "aria-label": "Search everything",
      onclick: (event) => {
        if (event.target === dialog) close();
      },
      onclose: () => dialog.remove(),
    },
    box,
    list,
    status,
    h(
      "p",
      { class: "mute keys" },
      h("kbd", null, "↑ ↓"),
      " choose ",
      h("kbd", null, "Enter"),
      " open ",
      h("kbd", null, "Esc"),
      " close",
    ),
  );
  const close = () => {
    clearTimeout(timer);
    asked += 1;
    dialog.close();
    dialog.remove();
  };
  document.body.append(dialog);
  dialog.showModal();
  box.focus();
  search();
}
