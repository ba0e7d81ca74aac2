// The hints of a schedule.

import { refresh } from "../../app/refresh.js";
import { can, post } from "../../base/api.js";
import { h } from "../../base/dom.js";
import { durationText, formatDuration, secondsBetween } from "../../base/times.js";
import { commandOptions, shellQuote } from "../../components/commands.js";
import { confirmDialog } from "../../components/dialog.js";
import { button } from "../../components/layout.js";
import { tryAction } from "../../components/messages.js";
import { time, timeWithDistance } from "../../components/texts.js";

const HINT_TEXTS = {
  interval: (hint) => `every ${durationText(hint.interval)}`,
  one_shot: (hint) => ["once at ", time(hint.at)],
  pause: (hint) => ["paused until ", time(hint.until)],
};

export function hints(data, name) {
  const answer = data.hints;
  if (!answer) return h("p", { class: "mute" }, "none");
  const rows = Object.entries(answer.hints).filter(([, hint]) => hint);
  const clear = async () => {
    const answer = await confirmDialog({
      title: `Clear all hints of ${name}?`,
      act: "clear",
      reason: true,
      text: "The next occurrence is planned again without them.",
      command: `timewright hint clear ${shellQuote(name)}`,
    });
    if (
      answer &&
      (await tryAction(
        () => post(["hints", name, "clear"], answer.reason ? { reason: answer.reason } : {}),
        "hints cleared",
      ))
    )
      refresh();
  };
  const sooner =
    answer.next_at && answer.without_hints ? secondsBetween(answer.next_at, answer.without_hints) : null;
  return h(
    "div",
    null,
    rows.length
      ? h(
          "ul",
          { class: "lines" },
          rows.map(([kind, hint]) =>
            h(
              "li",
              { key: kind },
              h(
                "div",
                { class: "line" },
                h("strong", { class: "grow" }, (HINT_TEXTS[kind] || (() => kind))(hint)),
                h(
                  "span",
                  { class: "mute" },
                  kind === "pause" ? "ends " : "expires ",
                  time(hint.expires_at || hint.until, undefined, "away"),
                ),
              ),
              h(
                "div",
                { class: "mute" },
                hint.reason || "no reason given",
                hint.actor ? `, by ${hint.actor}` : "",
                hint.created_at ? ", " : "",
                hint.created_at ? time(hint.created_at, undefined, "away") : null,
              ),
            ),
          ),
        )
      : h("p", { class: "mute" }, "no active hints"),
    h(
      "dl",
      { class: "facts" },
      h("dt", null, "next with hints"),
      h("dd", null, timeWithDistance(answer.next_at, undefined, "due")),
      h("dt", null, "next without hints"),
      h(
        "dd",
        null,
        timeWithDistance(answer.without_hints),
        sooner && Math.abs(sooner) > 1
          ? h(
              "span",
              { class: "mute" },
              ` (${formatDuration(Math.abs(sooner))} ${sooner > 0 ? "later" : "sooner"})`,
            )
          : null,
      ),
      h("dt", null, "changes left this hour"),
      h("dd", null, String(answer.changes_left)),
    ),
    can("hint")
      ? h(
          "div",
          { class: "buttons" },
          button("hint…", () => addHint(name)),
          rows.length ? button("clear", clear) : null,
        )
      : null,
  );
}

async function addHint(name) {
  const answer = await confirmDialog({
    title: `Interval hint for ${name}`,
    act: "hint",
    reason: true,
    text: "Applies immediately, stays within the clamp, and expires.",
    fields: [
      { name: "interval", label: "Interval", value: "1m", required: true },
      { name: "ttl", label: "Duration", value: "1h", required: true },
    ],
    command: (v) =>
      `timewright hint interval ${shellQuote(name)}` +
      commandOptions({ interval: v.interval, ttl: v.ttl, reason: v.reason }),
  });
  if (!answer) return;
  const given = Object.fromEntries(Object.entries(answer).filter(([, value]) => value));
  if (await tryAction(() => post(["hints", name, "interval"], given), "hinted")) refresh();
}
