// One run: timeline, attempts, explanation, request, result and output.

import { perform } from "../actions.js";
import { get, can, query } from "../api.js";
import { artifactsPanel, fetchArtifacts } from "../artifacts.js";
import { h } from "../dom.js";
import { refresh, paint } from "../main.js";
import { download, outputLines, outputTools } from "../output_view.js";
import { remedyButtons } from "../remedies.js";
import { badge, sourceText, reasonText, runLabel, stateSign, stateText, stateTone } from "../states.js";
import { followOutput, fetchOutput } from "../run_output.js";
import { targetDetails } from "../target_details.js";
import { secondsBetween, now, formatDuration, startDelay, totalDuration, parseDuration } from "../times.js";
import { waterfall } from "../waterfall.js";
import {
  button,
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

// How long the runs of the schedule usually take: the median of its newest ones.
async function loadUsualSeconds({ run }) {
  if (!run.schedule) return null;
  const answer = await query(["schedules", "outcomes"], { schedules: [run.schedule], each: 48 }).catch(
    () => null,
  );
  const median = answer && answer.outcomes[0] && answer.outcomes[0].duration.median;
  return median ? parseDuration(median) : null;
}

// What is shown of one run: loaded once, and the viewer's filter of its output.
/** @type {{id: string, loaded: any, output: any, filter: {search: string, level: string}}} */
let shown = { id: "", loaded: {}, output: null, filter: { search: "", level: "" } };

// Poll the output every second while the run is in progress; the rest refreshes less often.
function pollOutput(id) {
  const isShown = () => location.hash.startsWith(`#${routeTo("runs", id)}`);
  followOutput(id, {
    isShown,
    onOutput: (latest) => {
      shown.output = latest;
      paint();
    },
    onEnd: refresh,
  });
}

export default {
  title: (_path, data) => (data ? `${runLabel(data.run)} · ${stateText(data.run.state)}` : "Run"),
  every: 2,
  async load([id]) {
    const [detail, why, logs, artifacts] = await Promise.all([
      get(["runs", id]),
      get(["runs", id, "explain"]),
      fetchOutput(id).catch(() => null),
      fetchArtifacts(id).catch(() => null),
    ]);
    if (shown.id !== id) {
      const [target, usual] = await Promise.all([loadTarget(detail), loadUsualSeconds(detail)]);
      shown = { id, loaded: { ...target, usual }, output: null, filter: { search: "", level: "" } };
    }
    shown.output = logs;
    if (detail.run.state === "leased") pollOutput(id);
    return { ...detail, why, artifacts, ...shown.loaded };
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
          : run.workflow
            ? workflowLink(run, data.parent)
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
          panel("Timeline", timeline(data)),
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
              remedyButtons(why.remedies),
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
          artifactsPanel(data.artifacts),
          costPanel(data.charges),
          panel(
            "Details",
            definitionList([
              ["run", h("code", { class: "break" }, run.id)],
              ["idempotency key", h("code", { class: "break" }, data.key)],
              ["fence", run.fence],
              ["lease", data.lease_id ? h("code", { class: "break" }, data.lease_id) : ""],
              ["executed by", run.holder],
              ["start delay", run.first_started_at ? startDelay(run) : ""],
              ["duration", run.first_started_at && run.finished_at ? totalDuration(run) : ""],
              [
                "progress",
                run.progress === null
                  ? run.progress_note
                  : `${Math.round(run.progress * 100)} % ${run.progress_note}`,
              ],
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

// The workflow run that a step belongs to, or the steps of a workflow run.
function workflowLink(run, parent) {
  const [workflow] = run.workflow.split(" › ");
  return h(
    "a",
    { href: `#${routeTo("workflows", workflow)}?run=${encodeURIComponent(parent || run.id)}` },
    run.workflow,
  );
}

// The start of the current attempt; the run only has the start of its last finished one.
const attemptStart = () =>
  ((shown.output && shown.output.attempts.find((one) => !one.ended_at)) || {}).started_at;

const NAMES = {
  planned_at: "planned",
  fire_at: "may start",
  first_started_at: "started",
  finished_at: "ended",
};

// Planned, may start, started and ended on one axis, with a bar for each attempt and the usual length behind.
function timeline({ run, attempts, usual }) {
  const ms = (iso) => Date.parse(iso);
  const nowMs = now();
  const marks = Object.entries(NAMES)
    .filter(([field]) => run[field] && !(field === "fire_at" && run.fence > 1))
    .map(([field, name]) => ({ at: ms(run[field]), name }));
  const began = run.state === "leased" ? ms(attemptStart() || run.started_at || run.lease_at || nowMs) : null;
  const start = run.first_started_at ? ms(run.first_started_at) : began;
  const rows = [];
  const ended = attempts.map((one) => ({
    from: ms(one.started_at || one.leased_at),
    to: ms(one.ended_at),
    kind: stateTone(one.outcome),
    one,
  }));
  const waiting = ["ready", "held"].includes(run.state)
    ? nowMs
    : (start ?? ms(run.finished_at || run.planned_at));
  if (waiting > ms(run.planned_at))
    rows.push({
      key: "wait",
      name: ["ready", "held"].includes(run.state) ? "waiting" : "waited",
      bars: [{ from: ms(run.planned_at), to: waiting, kind: "wait" }],
      text: waitText(run, waiting - ms(run.planned_at)),
    });
  for (const { one, ...bar } of ended) {
    const took = formatDuration((bar.to - bar.from) / 1000);
    rows.push({
      key: one.fence,
      name: `attempt ${one.number}`,
      bars: [bar],
      text: `${stateSign(one.outcome)} ${stateText(one.outcome)} after ${took}`,
    });
  }
  if (began !== null)
    rows.push({
      key: "live",
      name: `attempt ${attempts.length + 1}`,
      bars: [{ from: began, to: nowMs, kind: "busy" }],
      text: `▶ running for ${formatDuration((nowMs - began) / 1000)}`,
    });
  if (usual && start)
    rows.push({
      key: "usual",
      name: "usual length",
      bars: [{ from: start, to: start + usual * 1000, kind: "ghost" }],
      text: `median ${formatDuration(usual)}`,
    });
  return waterfall(rows, { label: "Timeline of the run", marks });
}

function waitText(run, waitedMs) {
  const waited = formatDuration(waitedMs / 1000);
  if (run.state === "held") return `for the previous run, ${waited}`;
  return run.state === "ready" && Date.parse(run.fire_at) > now() ? "until it may start" : waited;
}

const CANCEL_TEXT = {
  leased: "Its holder is asked to stop and has a grace period.",
  other: "It will not start.",
};

function actions(run) {
  /**
   * @param {string} verb @param {string} text
   * @param {{danger?: boolean, undo?: import("../actions.js").Undo}} [options]
   */
  const act = (verb, text, { danger = false, undo } = {}) =>
    button(
      verb,
      () =>
        perform({
          title: `${verb} this run?`,
          text,
          act: verb,
          danger,
          undo,
          command: `timewright run ${verb} ${shellQuote(run.id)}`,
          path: ["runs", run.id, verb],
        }),
      { kind: danger ? "danger" : "main" },
    );
  const buttons = [];
  if (can("trigger") && run.state === "parked")
    buttons.push(act("reset", "Its attempt count is reset and it can start again."));
  if (can("trigger") && ["ready", "held", "leased", "parked"].includes(run.state))
    buttons.push(
      act("cancel", CANCEL_TEXT[run.state] || CANCEL_TEXT.other, {
        danger: true,
        // A run that is asked to stop can be retried once it has stopped.
        undo:
          run.state === "leased"
            ? undefined
            : { path: ["runs", run.id, "retry"], done: "the run waits again" },
      }),
    );
  if (can("trigger") && ["failed", "cancelled"].includes(run.state))
    buttons.push(act("retry", "Run it again with the next fence."));
  return h(
    "div",
    { class: "buttons", role: "toolbar", "aria-label": "Run actions" },
    buttons,
    h("span", { class: "grow" }),
    commandBlock(`timewright run explain ${run.id}`),
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

// What the output panel shows is not repeated in the result.
const OUTPUT_FIELDS = ["output", "stdout", "stderr", "traceback"];

function resultPanel(attempts) {
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
  const { output, filter } = shown;
  const attempts = output ? output.attempts.filter((one) => Object.keys(one.streams).length) : [];
  const setFilter = (next) => {
    shown.filter = next;
    paint();
  };
  const streams = [...attempts]
    .reverse()
    .flatMap((one) => Object.entries(one.streams).map(([name, text]) => ({ one, name, text })));
  const save = () =>
    download(
      `${run.id}.log`,
      streams.map(({ one, name, text }) => `# attempt ${one.attempt}, ${name}\n${text}`).join("\n"),
    );
  const blocks = streams.map(({ one, name, text }) =>
    h(
      "div",
      { key: `${one.fence}${name}` },
      h("h3", null, `attempt ${one.attempt}, ${name}`),
      h(
        "pre",
        {
          class: `json tail${one.ended_at ? "" : " live"}`,
          tabindex: "0",
          "aria-label": `Output of attempt ${one.attempt}`,
        },
        outputLines(text, filter),
      ),
    ),
  );
  return panel(
    "Output",
    h(
      "div",
      null,
      blocks.length
        ? [outputTools(filter, setFilter, save), blocks]
        : h("p", { class: "mute" }, live ? "no output yet" : "no output"),
      commandBlock(`timewright run logs ${run.id}${live ? " --follow" : ""}`),
    ),
    { note: live ? "live, about 1 s behind" : "" },
  );
}
