// The attempts, request, result and cost of a run.

import { h } from "../../base/dom.js";
import { badge, sourceText } from "../../base/states.js";
import { formatDuration, secondsBetween } from "../../base/times.js";
import { definitionList, jsonBlock, panel } from "../../components/layout.js";
import { table } from "../../components/table.js";
import { targetDetails } from "../../components/target_details.js";
import { linkedText, time } from "../../components/texts.js";

export function attemptsTable(run, attempts, zone) {
  if (!attempts.length)
    return h("p", { class: "mute" }, run.finished_at ? "it did not start" : "no attempt has finished yet");
  return table(
    "Attempts",
    [
      { name: "#", kind: "tight" },
      { name: "Status", kind: "tight" },
      { name: "Ended", kind: "tight" },
      { name: "Duration", kind: "tight" },
      { name: "Result", kind: "cut" },
    ],
    attempts.map((one) => ({
      key: one.fence,
      cells: [
        String(one.number),
        badge(one.outcome),
        time(one.ended_at, zone),
        formatDuration(secondsBetween(one.started_at || one.leased_at, one.ended_at)) || "0 s",
        h("span", { class: "ellipsis", title: one.error }, one.error || one.outcome_label),
      ],
    })),
  );
}

export function rejectedTimes(lost) {
  if (!lost || !lost.length) return null;
  return h(
    "div",
    null,
    h("h3", null, "Rejected candidates"),
    h(
      "ul",
      { class: "reasons" },
      lost.map((one) =>
        h("li", null, one.at ? time(one.at) : "", ` ${sourceText(one.source)}: `, linkedText(one.why)),
      ),
    ),
  );
}

// The whole target, and the payload of this run.
export function requestPanel({ target, payload }) {
  if (!target && payload === null) return null;
  const head = target ? targetDetails(target) : null;
  return panel(
    "Request",
    h(
      "div",
      null,
      head,
      payload !== null ? h("div", null, h("h3", null, "Payload"), jsonBlock(payload)) : null,
    ),
  );
}

// What the output panel shows is not repeated in the result.
const OUTPUT_FIELDS = ["output", "stdout", "stderr", "traceback"];

export function resultPanel(attempts) {
  const last = [...attempts].reverse().find((one) => one.result !== null && one.result !== undefined);
  if (!last) return null;
  const isObject = typeof last.result === "object" && !Array.isArray(last.result);
  const result = isObject
    ? Object.fromEntries(Object.entries(last.result).filter(([name]) => !OUTPUT_FIELDS.includes(name)))
    : last.result;
  if (isObject && !Object.keys(result).length) return null;
  const short = isObject
    ? Object.entries(result).filter(
        ([, value]) =>
          ["number", "boolean"].includes(typeof value) || (typeof value === "string" && value.length < 80),
      )
    : [];
  const showJson = !isObject || short.length < Object.keys(result).length;
  return panel(
    "Result",
    h(
      "div",
      null,
      short.length ? definitionList(short.map(([name, value]) => [name, String(value)])) : null,
      showJson ? jsonBlock(result) : null,
    ),
    { note: `of attempt ${last.number}` },
  );
}

export function costPanel(charges = []) {
  if (!charges.length) return null;
  return panel(
    "Cost",
    table(
      "Charges",
      [
        { name: "Budget" },
        { name: "Attempt", kind: "tight" },
        { name: "Used", kind: "tight" },
        { name: "Reserved", kind: "tight" },
      ],
      charges.map((one) => ({
        key: one.budget + one.fence,
        cells: [one.budget, String(one.fence), one.used, one.held],
      })),
    ),
  );
}
