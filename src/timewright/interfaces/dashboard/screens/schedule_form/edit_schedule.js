// Create or edit a schedule; the next occurrences are shown while you type.

import { paint } from "../../app/paint.js";
import { get, patchJson, post } from "../../base/api.js";
import { h } from "../../base/dom.js";
import { localZone } from "../../base/times.js";
import { commandBlock } from "../../components/commands.js";
import { panel } from "../../components/layout.js";
import { problemBox, problemLines, toast } from "../../components/messages.js";
import { routeTo } from "../../components/texts.js";
import { command } from "./command.js";
import { draftFields } from "./field_values.js";
import { blank, fieldOf, form, request } from "./form.js";
import { policyPanel, targetFields, textInput, triggerFields } from "./inputs.js";
import { previewPanel, updatePreview } from "./preview.js";
import { POLICIES } from "./schedule_fields.js";

export default {
  title: ([name]) => (name ? `Edit ${name}` : "New schedule"),
  async load([name]) {
    if ((name || null) !== form.editing) {
      form.editing = name || null;
      form.draft = form.editing ? draftOf((await get(["schedules", form.editing])).schedule) : blank();
      form.before = { ...form.draft, ...(form.editing ? {} : { what: "" }) };
      form.refusal = null;
    }
    await updatePreview(false);
    return {};
  },
  view() {
    return h(
      "form",
      {
        class: "screen columns",
        novalidate: true,
        onsubmit: (e) => {
          e.preventDefault();
          save();
        },
      },
      h(
        "div",
        null,
        form.editing ? null : panel("Name", h("div", { class: "fields" }, textInput(NAME_FIELD))),
        panel("Trigger", triggerFields()),
        panel("Target", targetFields()),
        POLICIES.map(policyPanel),
      ),
      h(
        "div",
        { class: "stay" },
        panel("Preview", previewPanel()),
        panel("Equivalent command", commandBlock(command())),
        form.refusal && !fieldOf(form.refusal) ? problemBox(form.refusal) : null,
        form.editing ? h("div", { class: "fields" }, textInput(REASON_FIELD)) : null,
        h(
          "div",
          { class: "buttons" },
          h("button", { type: "submit", class: "main" }, form.editing ? "save" : "create"),
          h(
            "a",
            {
              class: "button quiet",
              href: form.editing ? `#${routeTo("schedules", form.editing)}` : "#/schedules",
            },
            "cancel",
          ),
        ),
      ),
    );
  },
};

const NAME_FIELD = { path: "name", label: "Name", placeholder: "nightly-report" };
const REASON_FIELD = { path: "reason", label: "Reason (stored with the change)" };

// The draft of a stored schedule. A trigger of several parts is edited as JSON.
function draftOf(schedule) {
  const { trigger } = schedule;
  const { kind, zone, ...rest } = trigger;
  const fields = {
    cron: { when: "cron", cron: rest.expression },
    every: { when: "every", every: rest.interval },
    once: { when: "once", once: rest.at },
    rrule: { when: "rrule", rrule: rest.rule },
    manual: { when: "manual" },
    after: rest.schedule
      ? { when: "after", after: rest.schedule, on: rest.on }
      : { when: "delay", delay: rest.delay },
  };
  return {
    ...blank(),
    ...draftFields(schedule),
    ...(fields[kind] || { when: "triggers", triggers: JSON.stringify(rest.triggers) }),
    name: schedule.name,
    zone: zone || localZone(),
    what: schedule.target.kind,
  };
}

async function save() {
  const made = { ...request(), ...(form.draft.reason ? { reason: form.draft.reason } : {}) };
  if (form.editing && !Object.keys(made).length)
    return void (location.hash = `#${routeTo("schedules", form.editing)}`);
  try {
    if (form.editing) await patchJson(["schedules", form.editing], made);
    else await post(["schedules"], { ...made, name: form.draft.name });
  } catch (problem) {
    form.refusal = problem;
    paint();
    /** @type {HTMLElement | null} */
    const input = document.querySelector("form [aria-invalid=true]");
    if (input) input.closest("details")?.setAttribute("open", "");
    if (input) input.focus();
    else toast(problemLines(problem).join(" · "), "bad");
    return;
  }
  toast(form.editing ? "saved" : "created");
  const name = form.editing || form.draft.name;
  form.editing = undefined;
  location.hash = `#${routeTo("schedules", name)}`;
}
