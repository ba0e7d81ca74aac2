// What waits for a person: questions, approvals and incidents.

import { refresh } from "../../app/refresh.js";
import { can, post } from "../../base/api.js";
import { h } from "../../base/dom.js";
import { confirmDialog } from "../../components/dialog.js";
import { button, statusBadge, worstFirst } from "../../components/layout.js";
import { tryAction } from "../../components/messages.js";
import { approvalDetails } from "../../components/target_details.js";
import { link, linkedText, routeTo, time } from "../../components/texts.js";
import { answers, approvals, incidents } from "./details.js";

export function answerList() {
  return h(
    "ul",
    { class: "lines" },
    answers.map((one) =>
      h(
        "li",
        { key: one.run, class: "line" },
        h(
          "span",
          { class: "grow" },
          link(`/runs/${one.run}`, one.question),
          h("span", { class: "mute" }, ` ${one.workflow}.${one.step}${one.to ? ` for ${one.to}` : ""}`),
        ),
        one.until ? time(one.until, undefined, "away") : null,
        can("trigger") ? button("answer", () => giveAnswer(one), { kind: "main" }) : null,
      ),
    ),
  );
}

const YES_NO = [
  ["yes", "yes"],
  ["no", "no"],
];
async function giveAnswer(one) {
  const form = Object.entries(one.form);
  const fields = form.map(([name, field]) => ({
    name: `answer_${name}`,
    label: field.label || name,
    required: field.required,
    ...(field.type === "boolean"
      ? { choices: YES_NO }
      : field.choices.length
        ? { choices: field.choices.map((choice) => [choice, choice]) }
        : {}),
  }));
  const given = await confirmDialog({
    title: one.question,
    act: "answer",
    reason: true,
    body: Object.keys(one.payload).length ? h("pre", null, JSON.stringify(one.payload, null, 2)) : null,
    fields: form.length ? fields : [{ name: "answer_", label: "Answer", required: true }],
    command: `timewright run answer ${one.run} --answer …`,
  });
  if (!given) return;
  const typed = (field, text) =>
    field.type === "boolean" ? text === "yes" : field.type === "number" ? Number(text) : text;
  const answer = form.length
    ? Object.fromEntries(
        form
          .filter(([name]) => given[`answer_${name}`])
          .map(([name, field]) => [name, typed(field, given[`answer_${name}`])]),
      )
    : given.answer_;
  if (
    await tryAction(
      () => post(["runs", one.run, "answer"], { answer, ...(given.reason ? { reason: given.reason } : {}) }),
      "answered",
    )
  )
    refresh();
}

const MAX_INCIDENTS = 5;
export function incidentList() {
  const more = incidents.length - MAX_INCIDENTS;
  return h(
    "ul",
    { class: "lines" },
    [...incidents]
      .sort(worstFirst)
      .slice(0, MAX_INCIDENTS)
      .map((one) =>
        h(
          "li",
          { key: one.id, class: "line" },
          statusBadge(one.severity),
          h(
            "span",
            { class: "grow" },
            link(one.schedule ? routeTo("schedules", one.schedule) : "/incidents", one.sentence),
          ),
          time(one.since, undefined, "away"),
        ),
      ),
    more > 0
      ? h("li", { key: "more" }, link("/incidents", `and ${more}${incidents.length >= 50 ? "+" : ""} more`))
      : null,
  );
}

// Schedules created by agents that wait for approval.
export function approvalList() {
  return h(
    "ul",
    { class: "lines" },
    approvals.map((one) =>
      h(
        "li",
        { key: one.id },
        h(
          "div",
          { class: "line" },
          link(routeTo("schedules", one.name), one.name),
          h(
            "span",
            { class: "mute grow ellipsis" },
            linkedText(one.trigger),
            one.created_by ? `, by ${one.created_by}` : "",
          ),
          time(one.created_at, undefined, "away"),
        ),
        approvalDetails(one),
      ),
    ),
  );
}
