// The output of an attempt: search, levels, colours, download, and instants in the viewer's zone.

import { h } from "../../base/dom.js";
import { clock } from "../../base/times.js";
import { button } from "../../components/layout.js";

const LINE = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z) (DEBUG|INFO|WARNING|ERROR|CRITICAL) (.*)$/s;
const LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR"];
const MAX_LINES = 5000; // lines in the page; all of them are in the download

/**
 * @typedef {{at: string, level: string, text: string}} OutputLine without level: part of the line before
 */

/** @param {string} text @returns {OutputLine[]} */
export function parseOutput(text) {
  return text
    .replace(/\n$/, "")
    .split("\n")
    .map((line) => {
      const found = LINE.exec(line);
      return found
        ? { at: found[1], level: found[2] === "CRITICAL" ? "ERROR" : found[2], text: found[3] }
        : { at: "", level: "", text: line };
    });
}

/**
 * The lines of at least a level that contain a text; a line without a level follows the one before it.
 * @param {OutputLine[]} lines @param {{search: string, level: string}} filter
 */
export function filterOutput(lines, { search, level }) {
  const wanted = search.toLowerCase();
  let last = "INFO";
  return lines.filter((line) => {
    last = line.level || last;
    return (
      (!level || LEVELS.indexOf(last) >= LEVELS.indexOf(level)) &&
      (!wanted || line.text.toLowerCase().includes(wanted))
    );
  });
}

// The colours and weights that programs print for a terminal; other control sequences are left out.
const SGR = /\x1b\[([\d;]*)m/;
const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

/** @param {string} text @returns {{text: string, classes: string}[]} */
export function parseColours(text) {
  const parts = text.replace(/\x1b\[[\d;?]*[A-Za-ln-z]|\x1b\][^\x07]*\x07/g, "").split(SGR);
  let classes = [];
  return parts.flatMap((part, n) => {
    if (n % 2) {
      for (const code of (part || "0").split(";").map(Number)) classes = withCode(classes, code);
      return [];
    }
    return part ? [{ text: part, classes: classes.join(" ") }] : [];
  });
}

function withCode(classes, code) {
  const without = (pattern) => classes.filter((one) => !pattern.test(one));
  if (code === 0) return [];
  if (code === 1) return [...without(/^ansi-bold$/), "ansi-bold"];
  if (code === 22) return without(/^ansi-bold$/);
  if (code === 39) return without(/^ansi-(?!bold)/);
  const colour = COLOURS[code >= 90 && code <= 97 ? code - 90 : code - 30];
  return colour && code >= 30 && code <= 97 ? [...without(/^ansi-(?!bold)/), `ansi-${colour}`] : classes;
}

/** @param {string} text @param {string} search */
function marked(text, search) {
  const at = search ? text.toLowerCase().indexOf(search.toLowerCase()) : -1;
  if (at < 0) return text;
  const end = at + search.length;
  return [text.slice(0, at), h("mark", null, text.slice(at, end)), marked(text.slice(end), search)];
}

/** @param {OutputLine} line @param {string} search */
const lineNode = (line, search) =>
  h(
    "span",
    { class: line.level ? `log ${line.level.toLowerCase()}` : "log" },
    line.at ? [h("time", { datetime: line.at }, clock(line.at)), " "] : null,
    line.level ? [h("b", null, line.level), " "] : null,
    parseColours(line.text).map((part) =>
      h("span", { class: part.classes || null }, marked(part.text, search)),
    ),
    "\n",
  );

/** @param {string} text @param {{search: string, level: string}} filter */
export function outputLines(text, filter) {
  const found = filterOutput(parseOutput(text), filter);
  const shown = found.slice(-MAX_LINES);
  return [
    found.length > shown.length
      ? `… ${found.length - shown.length} earlier lines are in the download\n`
      : null,
    shown.map((line) => lineNode(line, filter.search)),
  ];
}

/**
 * The search field and the level above the output; the screen owns the filter.
 * @param {{search: string, level: string}} filter @param {(filter: {search: string, level: string}) => void}
 *   onChange
 * @param {() => void} onDownload
 */
export const outputTools = (filter, onChange, onDownload) =>
  h(
    "div",
    { class: "filters output-tools" },
    h("input", {
      name: "output-search",
      type: "search",
      placeholder: "search the output",
      "aria-label": "Search the output",
      value: filter.search,
      oninput: (event) => onChange({ ...filter, search: event.target.value }),
    }),
    h(
      "select",
      {
        name: "output-level",
        "aria-label": "Lowest level",
        value: filter.level,
        onchange: (event) => onChange({ ...filter, level: event.target.value }),
      },
      [["", "all levels"], ...LEVELS.slice(1).map((level) => [level, `${level} and above`])].map(
        ([value, text]) => h("option", { value, selected: filter.level === value }, text),
      ),
    ),
    button("download", onDownload),
  );

/** @param {string} name @param {string} text */
export function download(name, text) {
  const link = h("a", {
    href: URL.createObjectURL(new Blob([text], { type: "text/plain" })),
    download: name,
  });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
