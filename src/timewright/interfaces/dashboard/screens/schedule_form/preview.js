// The next occurrences, and those around a clock change.

import { refresh } from "../../app/refresh.js";
import { query } from "../../base/api.js";
import { h } from "../../base/dom.js";
import { clock, day, nextClockChange } from "../../base/times.js";
import { problemBox } from "../../components/messages.js";
import { table } from "../../components/table.js";
import { linkedText, time } from "../../components/texts.js";
import { fieldOf, form, trigger } from "./form.js";
import { change, upstreamResult } from "./inputs.js";

let requestNumber = 0;

export async function updatePreview(redraw) {
  const mine = ++requestNumber;
  const description = {
    delay: `${form.draft.delay} after its last run ends`,
    after: `each time ${form.draft.after || "the upstream schedule"} ${upstreamResult(form.draft.on)}`,
  }[form.draft.when];
  if (description) {
    // These times depend on when other runs end, so there is nothing to preview.
    form.preview = { trigger: description, next: [], problem: null, change: null };
    if (redraw) refresh();
    return;
  }
  try {
    const answer = await query(["schedules", "-", "next"], { ...trigger(), count: 10 });
    const change = ["cron", "words"].includes(form.draft.when) ? await clockChange(answer.zone) : null;
    if (mine === requestNumber) form.preview = { ...answer, change, problem: null };
  } catch (problem) {
    if (mine === requestNumber) form.preview = { next: [], change: null, problem };
  }
  if (redraw && mine === requestNumber) refresh();
}

// The occurrences before and after the next daylight-saving change.
async function clockChange(zone) {
  const change = zone ? nextClockChange(zone) : null;
  if (!change) return null;
  const moment = Date.parse(change.at);
  const within = async (hours) => {
    const [after, until] = [-hours, hours].map((some) => new Date(moment + some * 3_600_000).toISOString());
    return (await query(["schedules", "-", "next"], { ...trigger(), count: 100, after, until })).next;
  };
  const isBefore = (one) => Date.parse(one.planned_at) < moment;
  let near = await within(26);
  // On weekdays only, the occurrences nearest to a change on a Sunday are days away.
  if (!near.some(isBefore) || near.every(isBefore)) near = await within(8 * 24);
  const at = near.findIndex((one) => Date.parse(one.planned_at) >= Date.parse(change.at));
  return {
    ...change,
    zone,
    next: near.slice(Math.max(0, (at < 0 ? near.length : at) - 2), (at < 0 ? near.length : at) + 2),
  };
}

const utcOffset = (text) => text.replace("GMT", "UTC").replace(/:00$/, "");
function clockChangeTable({ change }) {
  if (!change) return null;
  const rows = change.next.map((one) => ({
    key: one.planned_at,
    cells: [
      Date.parse(one.planned_at) < Date.parse(change.at) ? "before" : "after",
      localTime(one.local),
      time(one.planned_at, change.zone),
    ],
  }));
  return h(
    "div",
    null,
    h(
      "h3",
      null,
      `Clock change in ${change.zone} on ${day(change.at, change.zone)} ${change.at.slice(0, 4)}, `,
      `${utcOffset(change.from)} to ${utcOffset(change.to)}`,
    ),
    rows.length
      ? table(
          "Occurrences around the clock change",
          [{ name: "Side" }, { name: "Schedule time" }, { name: "Your time" }],
          rows,
        )
      : h("p", { class: "mute" }, "no occurrence within a day of the change"),
  );
}

const localTime = (local) =>
  local
    ? local
        .replace("T", " ")
        .replace(/\.\d+/, "")
        .replace(/([+-]\d\d:\d\d)$/, " $1")
        .replace(/([+-]\d\d):00$/, "$1")
    : "";

export function previewPanel() {
  if (form.preview.problem)
    return fieldOf(form.preview.problem)
      ? h("p", { class: "mute" }, "The trigger is not valid yet.")
      : problemBox(form.preview.problem);
  return h(
    "div",
    null,
    h("p", null, linkedText(form.preview.trigger)),
    (form.preview.warnings || []).map((text) => h("p", { class: "warn" }, String(text.message || text))),
    !form.preview.next.length
      ? null
      : table(
          "Next occurrences",
          [{ name: "Your time" }, { name: form.preview.zone || "UTC" }, { name: "In" }],
          form.preview.next.map((one) => ({
            key: one.planned_at,
            cells: [
              h("span", null, day(one.planned_at), " ", clock(one.planned_at)),
              localTime(one.local),
              time(one.planned_at, form.preview.zone, "away"),
            ],
          })),
        ),
    clockChangeTable(form.preview),
  );
}
