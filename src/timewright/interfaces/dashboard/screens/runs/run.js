// One run: why it ran or not, its times, attempts, output and result.

import { paint } from "../../app/paint.js";
import { refresh } from "../../app/refresh.js";
import { can, get, query } from "../../base/api.js";
import { h } from "../../base/dom.js";
import { badge, reasonText, runLabel, sourceText, stateText } from "../../base/states.js";
import { parseDuration, startDelay, totalDuration } from "../../base/times.js";
import { perform } from "../../components/actions.js";
import { commandBlock, shellQuote } from "../../components/commands.js";
import { button, definitionList, panel } from "../../components/layout.js";
import { remedyButtons } from "../../components/remedies.js";
import { link, linkedText, routeTo, time } from "../../components/texts.js";
import { artifactsPanel, fetchArtifacts } from "./artifacts.js";
import { outputPanel, shown } from "./output_panel.js";
import { fetchOutput, followOutput } from "./run_output.js";
import { attemptsTable, costPanel, rejectedTimes, requestPanel, resultPanel } from "./run_panels.js";
import { timeline } from "./run_timeline.js";

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
      Object.assign(shown, { id, loaded: { ...target, usual }, filter: { search: "", level: "" } });
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
          panel("Attempts", attemptsTable(run, attempts, data.zone)),
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

const CANCEL_TEXT = {
  leased: "Its holder is asked to stop and has a grace period.",
  other: "It will not start.",
};

function actions(run) {
  /**
   * @param {string} verb @param {string} text
   * @param {{danger?: boolean, undo?: import("../../components/actions.js").Undo}} [options]
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
