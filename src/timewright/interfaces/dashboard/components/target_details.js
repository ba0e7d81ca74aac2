// Everything that a target does, field by field. Secrets are stored and shown as references.

import { h } from "../base/dom.js";
import { shellQuote } from "./commands.js";
import { definitionList, jsonBlock } from "./layout.js";
import { link, routeTo, time } from "./texts.js";

const code = (text) => h("code", { class: "break" }, String(text));
const isEmpty = (value) =>
  value === null ||
  value === undefined ||
  value === "" ||
  value === false ||
  (typeof value === "object" && !Object.keys(value).length);

// The first row of each kind: what is executed. The other fields follow generically, so none is left out.
const MAIN_ROWS = {
  http: ({ method, url, ...rest }) => [["request", code(`${method} ${url}`)], rest],
  shell: ({ command, ...rest }) => [["command", code(command.map(shellQuote).join(" "))], rest],
  call: ({ name, ...rest }) => [["function", code(name)], rest],
  note: ({ text, ...rest }) => [["note", code(text)], rest],
  workflow: ({ workflow, ...rest }) => [["workflow", link(routeTo("workflows", workflow), workflow)], rest],
  publish: ({ name, to, ...rest }) => [["publish", code(`${name} to ${to}`)], rest],
  handoff: (rest) => [["handoff", "an external worker leases the run"], rest],
};

const FIELD_NAMES = {
  env: "environment",
  cwd: "working directory",
  args: "arguments",
  sign_with: "signed with",
};
const fieldName = (name) => FIELD_NAMES[name] || name.replaceAll("_", " ");

export function targetDetails({ kind, ...fields }) {
  const [main, rest] = (MAIN_ROWS[kind] || ((all) => [["kind", code(kind)], all]))(fields);
  const rows = Object.entries(rest).filter(([, value]) => !isEmpty(value));
  return definitionList([
    main,
    ...rows.map(([name, value]) => [
      fieldName(name),
      typeof value === "object" ? jsonBlock(value) : code(value),
    ]),
  ]);
}

// What a person decides on: the whole target, its budgets, and when it runs if it is approved now.
export function approvalDetails({ target, budgets = [], next = [], end_at: end }) {
  const times = next.length
    ? h(
        "ol",
        { class: "next" },
        next.map((at) => h("li", null, time(at))),
      )
    : "not at planned times";
  return h(
    "div",
    null,
    targetDetails(target),
    definitionList([
      ["budgets", budgets.length ? budgets.join(", ") : "none"],
      ["next runs if approved", times],
      ["ends", end ? time(end) : ""],
    ]),
  );
}
