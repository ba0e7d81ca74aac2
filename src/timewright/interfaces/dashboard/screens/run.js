// One run: timeline, attempts, explanation, request, result and output.

import { get, can, post } from "../api.js";
import { timeline } from "../charts.js";
import { h } from "../dom.js";
import { refresh, paint } from "../main.js";
import { badge, sourceText, reasonText, stateText } from "../states.js";
import { followOutput, fetchOutput } from "../run_output.js";
import { targetDetails } from "../target_details.js";
import { secondsBetween, now, formatDuration, startDelay, totalDuration } from "../times.js";
import {
  tryAction,
  button,
  confirmDialog,
  commandBlock,
  definitionList,
  jsonBlock,
  link,
  panel,
  routeTo,
  linkedText,
  shellQuote,
  table,
  time,
} from "../widgets.js";

// The target as defined by the schedule revision that created the run.
async function loadTarget({ run, revision }) {
  if (!run.schedule) return { target: null };
  const detail = await get(["schedules", run.schedule]).catch(() => null);
  const zone = detail ? detail.schedule.trigger.zone : undefined;
  if (detail && detail.schedule.revision === revision) return { target: detail.schedule.target, zone };
  const kept = await get(["schedules", run.schedule, "revisions"], { limit: 200 }).catch(() => ({
    revisions: [],
  }));
  const found = kept.revisions.find((one) => one.revision === revision);
  return { target: found ? found.schedule.target : null, zone };
}

const targets = new Map();
let output = null;

// Poll the output every second while the run is in progress; the rest refreshes less often.
function pollOutput(id) {
  const isShown = () => location.hash.startsWith(`#${routeTo("runs", id)}`);
  followOutput(id, {
    isShown,
    onOutput: (latest) => {
      output = latest;
      paint();
    },
    onEnd: refresh,
  });
}

export default {
  title: (_path, data) =>
    data ? `${data.run.schedule || data.run.queue || "Manual run"} · ${stateText(data.run.state)}` : "Run",
  every: 2,
  async load([id]) {
    const [detail, why, logs] = await Promise.all([
      get(["runs", id]),
      get(["runs", id, "explain"]),
      fetchOutput(id).catch(() => null),
    ]);
    if (!targets.has(id)) {
      targets.clear();
      targets.set(id, await loadTarget(detail));
    }
    output = logs;
    if (detail.run.state === "leased") pollOutput(id);
    return { ...detail, why, ...targets.get(id) };
  },
  view(data) {
    const { run, attempts, why } = data;
    return h(
      "div",
      { class: "screen" },
      h(
        "div",
        { class: "lead" },
        badge(run.state, reasonText(run.reason)),
        run.schedule
          ? link(routeTo("schedules", run.schedule), run.schedule)
          : run.queue
            ? link(routeTo("queues", run.queue), `queue ${run.queue}`)
            : h("span", null, "manual"),
        h(
          "span",
          null,
          "planned ",
          time(run.planned_at, data.zone),
          " ",
          h("span", { class: "mute" }, time(run.planned_at, data.zone, "away")),
        ),
        h("span", { class: "tag" }, sourceText(run.source)),
        run.reason ? h("span", { class: "mute" }, reasonText(run.reason)) : null,
        data.note ? h("p", null, h("strong", null, "Note: "), data.note) : null,
      ),
      actions(run),
      run.error ? panel("Error", h("pre", { class: "error", tabindex: "0" }, run.error)) : null,
      h(
        "div",
        { class: "columns" },
        h(
          "div",
          null,
          panel("Timeline", timeline(run, attempts, now(), attemptStart())),
          run.state === "leased" ? outputPanel(run) : null,
          panel(
            "Why",
            h(
              "div",
              null,
              h("p", null, linkedText(why.summary)),
              h(
                "ul",
                { class: "reasons" },
                why.because.map((text) => h("li", null, linkedText(text))),
              ),
              rejectedTimes(data.trail),
              why.remedies.map((r) => commandBlock(r.command)),
            ),
          ),
          run.state === "leased" || !attempts.length ? null : outputPanel(run),
        ),
        h(
          "div",
          null,
          panel("Attempts", attemptsTable(attempts, data.zone)),
          requestPanel(data),
          resultPanel(attempts),
          costPanel(data.charges),
          panel(
            "Details",
            definitionList([
              ["run", h("code", { class: "break" }, run.id)],
              ["idempotency key", h("code", { class: "break" }, data.key)],
              ["fence", run.fence],
              ["lease", data.lease_id ? h("code", { class: "break" }, data.lease_id) : ""],
              ["holder", run.holder],
              ["start delay", run.first_started_at ? startDelay(run) : ""],
              ["duration", run.first_started_at && run.finished_at ? totalDuration(run) : ""],
              ["lease expires", run.lease_until ? time(run.lease_until, undefined, "away") : ""],
              ["cancel requested", run.cancel_at ? time(run.cancel_at) : ""],
              ["queue", run.queue],
              ["priority", run.priority],
              ["schedule revision", data.revision ? String(data.revision) : ""],
              [
                "parent",
                data.parent ? link(routeTo("runs", data.parent), `run …${data.parent.slice(-6)}`) : "",
              ],
              [
                "backfill of",
                data.backfill_of
                  ? link(routeTo("runs", data.backfill_of), `run …${data.backfill_of.slice(-6)}`)
                  : "",
              ],
              ["missed occurrences", run.missed || ""],
            ]),
          ),
        ),
      ),
    );
  },
};

// The start of the current attempt; the run only has the start of its last finished one.
const attemptStart = () => ((output && output.attempts.find((one) => !one.ended_at)) || {}).started_at;

function actions(run) {
  const command = `timewright run explain ${run.id}`;
  const act = (verb, text, danger) =>
    button(
      verb,
      async () => {
        const answer = await confirmDialog({
          title: `${verb} this run?`,
          text,
          act: verb,
          reason: true,
          danger,
          command: `timewright run ${verb} ${shellQuote(run.id)}`,
        });
        if (
          answer &&
          (await tryAction(
            () => post(["runs", run.id, verb], answer.reason ? { reason: answer.reason } : {}),
            `${verb}: done`,
          ))
        )
          refresh();
      },
      { kind: danger ? "danger" : "main" },
    );
  const buttons = [];
  if (can("trigger") && ["ready", "held", "leased", "parked"].includes(run.state))
    buttons.push(
      act(
        "cancel",
        run.state === "leased" ? "Its holder is asked to stop and has a grace period." : "It will not start.",
        true,
      ),
    );
  if (can("trigger") && ["failed", "cancelled"].includes(run.state))
    buttons.push(act("retry", "Run it again with the next fence.", false));
  if (can("trigger") && run.state === "parked")
    buttons.unshift(act("reset", "Its attempt count is reset and it can start again.", false));
  return h(
    "div",
    { class: "buttons", role: "toolbar", "aria-label": "Run actions" },
    buttons,
    h("span", { class: "grow" }),
    commandBlock(command),
  );
}

function attemptsTable(attempts, zone) {
  if (!attempts.length) return h("p", { class: "mute" }, "no attempt has finished yet");
  return table(
    "Attempts",
    [
      { name: "#", kind: "tight" },
      { name: "Status", kind: "tight" },
      { name: "Ended", kind: "tight" },
      { name: "Duration", kind: "tight" },
      { name: "Result" },
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

function rejectedTimes(lost) {
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
function requestPanel({ target, payload }) {
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

function resultPanel(attempts) {
  const last = [...attempts].reverse().find((one) => one.result !== null && one.result !== undefined);
  if (!last) return null;
  const isObject = typeof last.result === "object" && !Array.isArray(last.result);
  const short = isObject
    ? Object.entries(last.result).filter(
        ([, value]) =>
          ["number", "boolean"].includes(typeof value) || (typeof value === "string" && value.length < 80),
      )
    : [];
  const showJson = !isObject || short.length < Object.keys(last.result).length;
  return panel(
    "Result",
    h(
      "div",
      null,
      short.length ? definitionList(short.map(([name, value]) => [name, String(value)])) : null,
      showJson ? jsonBlock(last.result) : null,
    ),
    { note: `of attempt ${last.number}` },
  );
}

function costPanel(charges = []) {
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

// The output of each attempt, newest first; live while one is in progress.
function outputPanel(run) {
  const live = run.state === "leased";
  const attempts = output ? output.attempts.filter((one) => Object.keys(one.streams).length) : [];
  const blocks = attempts.length
    ? [...attempts].reverse().map((one) =>
        h(
          "div",
          { key: one.fence },
          Object.entries(one.streams).map(([name, text]) =>
            h(
              "div",
              { key: name },
              h("h3", null, `attempt ${one.attempt}, ${name}`),
              h(
                "pre",
                {
                  class: `json tail${one.ended_at ? "" : " live"}`,
                  tabindex: "0",
                  "aria-label": `Output of attempt ${one.attempt}`,
                },
                text,
              ),
            ),
          ),
        ),
      )
    : h("p", { class: "mute" }, live ? "no output yet" : "no output");
  return panel(
    "Output",
    h("div", null, blocks, commandBlock(`timewright run logs ${run.id}${live ? " --follow" : ""}`)),
    { note: live ? "live, about 1 s behind" : "" },
  );
}
