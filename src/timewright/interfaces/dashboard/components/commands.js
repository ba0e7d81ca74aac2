// Commands that can be copied.

import { session } from "../base/api.js";
import { h } from "../base/dom.js";
import { toast } from "./messages.js";

// A command as it can be typed: this installation's program and this server's store, or its address.
function runnable(command) {
  const loop = /^(for .*; do )(.*)(; done)$/.exec(command);
  if (loop) return loop[1] + runnable(loop[2]) + loop[3];
  const starts = /^timewright (up|serve|worker|dashboard)\b/.test(command);
  const option =
    session.store_option === null ? (starts ? "" : `--server ${location.origin}`) : session.store_option;
  const [words, ...rest] = command
    .trim()
    .replace(/^timewright /, `${session.program || "timewright"} `)
    .split(" -- ");
  return [`${words} ${option}`.trim(), ...rest].join(" -- ");
}

// A command line with a copy button.
export const commandBlock = (given) => copyBlock(runnable(given));

/** Text with a copy button. @param {string} text */
export const copyBlock = (text) =>
  h(
    "div",
    { class: "command" },
    h("code", null, unbrokenWords(text)),
    h(
      "button",
      { type: "button", class: "quiet", "aria-label": `Copy: ${text}`, onclick: () => copy(text) },
      "copy",
    ),
  );

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

// Quote one argument for a POSIX shell.
export const shellQuote = (text) =>
  /^[\w.,:/@%+=-]+$/.test(text) ? String(text) : `'${String(text).replaceAll("'", "'\\''")}'`;

/** The options of a command, without empty values. @param {Record<string, string | undefined>} values */
export const commandOptions = (values) =>
  Object.entries(values)
    .filter(([, value]) => value)
    .map(([name, value]) => ` --${name.replaceAll("_", "-")} ${shellQuote(value)}`)
    .join("");
