// The definition of a schedule and its revisions.

import { refresh } from "../../app/refresh.js";
import { can, post } from "../../base/api.js";
import { h } from "../../base/dom.js";
import { durationText } from "../../base/times.js";
import { confirmDialog } from "../../components/dialog.js";
import { diff } from "../../components/diff.js";
import { button, definitionList, jsonBlock } from "../../components/layout.js";
import { tryAction } from "../../components/messages.js";
import { targetDetails } from "../../components/target_details.js";
import { time } from "../../components/texts.js";

export function definition({ schedule, trigger: description }) {
  const { trigger, target } = schedule;
  return h(
    "div",
    null,
    definitionList([
      [
        "trigger",
        trigger.expression || (trigger.interval ? `every ${durationText(trigger.interval)}` : description),
      ],
      ["zone", trigger.zone],
      ["clock changes", trigger.dst],
      ["overlap", schedule.overlap],
      ["catch-up", `${schedule.catch_up} within ${durationText(schedule.catch_up_window)}`],
      ["attempts", schedule.retry.max_attempts],
      ["exhausted", schedule.retry.exhausted],
      ["time limit", durationText(schedule.lease.time_limit)],
      ["jitter", schedule.jitter === "0s" ? "" : durationText(schedule.jitter)],
      ["queue", schedule.queue],
      ["limits", schedule.limits.join(", ")],
      [
        "created",
        h(
          "span",
          null,
          time(schedule.created_at),
          ` by ${schedule.created_by || "?"} (${schedule.origin || "?"})`,
        ),
      ],
    ]),
    h("h3", null, "Target"),
    targetDetails(target),
    h("details", null, h("summary", null, "full definition"), jsonBlock(schedule)),
  );
}

export function revisions(data, name) {
  const restore = async (revision) => {
    const sure = await confirmDialog({
      title: `Restore revision ${revision}?`,
      act: "restore",
      reason: true,
      text: "It is stored as a new revision; the history is kept.",
      command: `timewright schedule restore ${name} --to ${revision}`,
    });
    if (
      sure &&
      (await tryAction(
        () =>
          post(["schedules", name, "restore"], {
            to: revision,
            ...(sure.reason ? { reason: sure.reason } : {}),
          }),
        "restored",
      ))
    )
      refresh();
  };
  return h(
    "ol",
    { class: "lines" },
    data.revisions.map((one, n) =>
      h(
        "li",
        { key: one.revision },
        h(
          "div",
          { class: "line" },
          h("strong", null, `r${one.revision}`),
          time(one.at),
          h("span", { class: "mute" }, one.actor),
          h("span", { class: "grow ellipsis" }, one.reason),
          n > 0 && can("write") && data.progress.state !== "archived"
            ? button("restore", () => restore(one.revision), { kind: "quiet" })
            : null,
        ),
        one.changed.length && data.revisions[n + 1] ? changed(one, data.revisions[n + 1]) : null,
      ),
    ),
  );
}

const only = (fields, schedule) => Object.fromEntries(fields.map((field) => [field, schedule[field]]));
const changed = (one, before) => diff(only(one.changed, before.schedule), only(one.changed, one.schedule));
