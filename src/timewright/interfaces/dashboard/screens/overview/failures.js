// Failures by cause, with what can be done about each: retry all, mute the incident, pause the schedule.

import { refresh } from "../../app/refresh.js";
import { can, get, post } from "../../base/api.js";
import { h } from "../../base/dom.js";
import { formatTime } from "../../base/times.js";
import { shellQuote } from "../../components/commands.js";
import { confirmDialog } from "../../components/dialog.js";
import { button } from "../../components/layout.js";
import { tryAction } from "../../components/messages.js";
import { link, routeTo, time } from "../../components/texts.js";

const MAX_CAUSES = 8;
const MIN_INTERVAL_MS = 5000;

let loaded = { at: 0, namespace: "", page: null };

// Failures change seldom: ask at most every five seconds, and at once after an action.
export async function loadFailures(namespace) {
  if (loaded.namespace === namespace && Date.now() - loaded.at < MIN_INTERVAL_MS) return loaded.page;
  const before = loaded.namespace === namespace ? loaded.page : null;
  loaded = { at: Date.now(), namespace, page: before };
  loaded.page = await get(["runs", "failures"]).catch(() => before);
  return loaded.page;
}

async function act(dialog, work, message) {
  const answer = await confirmDialog(dialog);
  if (!answer) return;
  if (await tryAction(() => work(answer.reason ? { reason: answer.reason } : {}), message)) {
    loaded.at = 0;
    refresh();
  }
}

const times = (count) => `${count} ${count === 1 ? "time" : "times"}`;

function retryAll(one) {
  const options = [
    one.schedule ? `--schedule ${shellQuote(one.schedule)}` : "",
    one.queue ? `--queue ${shellQuote(one.queue)}` : "",
    `--cause ${shellQuote(one.cause)}`,
  ];
  const body = { schedule: one.schedule, queue: one.queue, cause: one.cause };
  act(
    {
      title: `Retry ${one.count} ${one.count === 1 ? "run" : "runs"}?`,
      text: `Failed runs are retried and parked runs are reset, the oldest first, at most 500 at a time.`,
      act: "retry all",
      reason: true,
      command: `timewright run retry-failures ${options.filter(Boolean).join(" ")}`,
    },
    (more) => post(["runs", "retry-failures"], { ...body, ...more }),
    `retried: ${one.cause}`,
  );
}

function mute(one) {
  act(
    {
      title: `Mute the incident of ${one.schedule}?`,
      text: "It is not repeated for a day. It stays open and is closed as usual.",
      act: "mute for a day",
      reason: true,
      command: `timewright incident snooze ${one.incident} --length 24h`,
    },
    (more) => post(["incidents", one.incident, "snooze"], { length: "24h", ...more }),
    `muted: ${one.schedule}`,
  );
}

function pause(one) {
  act(
    {
      title: `Pause ${one.schedule}?`,
      text: "It does not run until it is resumed. Runs in progress continue.",
      act: "pause",
      reason: true,
      command: `timewright schedule pause ${shellQuote(one.schedule)}`,
    },
    (more) => post(["schedules", one.schedule_id, "pause"], more),
    `paused: ${one.schedule}`,
  );
}

export function failureList(page) {
  if (!page) return h("p", { class: "mute" }, "loading…");
  if (!page.causes.length) return h("p", { class: "mute" }, "no failures");
  const more = page.causes.length - MAX_CAUSES;
  return h(
    "ul",
    { class: "lines causes" },
    page.causes.slice(0, MAX_CAUSES).map(cause),
    more > 0 ? h("li", { key: "more", class: "mute" }, `and ${more} more causes`) : null,
    page.more ? h("li", { key: "cut", class: "mute" }, `of the newest ${page.runs} runs`) : null,
  );
}

function cause(one) {
  const of = one.schedule || one.queue;
  const to = one.schedule
    ? routeTo("schedules", one.schedule)
    : one.queue
      ? routeTo("queues", one.queue)
      : "";
  return h(
    "li",
    { key: `${one.schedule_id} ${one.queue} ${one.cause}` },
    h("div", { class: "cause", title: one.error }, link(routeTo("runs", one.run), one.cause)),
    h(
      "div",
      { class: "line wrap" },
      h(
        "span",
        { class: "grow" },
        to ? link(to, of) : h("span", { class: "mute" }, "workflow step or manual run"),
        h("strong", { class: "bad" }, ` ${times(one.count)}`),
        one.count > 1 ? `, since ${formatTime(one.since).replace(/:\d\d$/, "")}` : "",
        h("span", { class: "mute" }, ", last ", time(one.last_at, undefined, "away")),
        one.parked ? h("span", { class: "tag" }, `${one.parked} parked`) : null,
      ),
      h(
        "span",
        { class: "row-actions" },
        can("trigger") ? button("retry all", () => retryAll(one), { kind: "quiet" }) : null,
        can("trigger") && one.incident ? button("mute", () => mute(one), { kind: "quiet" }) : null,
        can("write") && one.schedule ? button("pause", () => pause(one), { kind: "quiet" }) : null,
      ),
    ),
  );
}
