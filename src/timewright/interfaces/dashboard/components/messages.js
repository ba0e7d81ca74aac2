// Messages: toasts, and what is wrong with a request.

import { Problem } from "../base/api.js";
import { h } from "../base/dom.js";
import { fixHint } from "./commands.js";
import { button } from "./layout.js";

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
