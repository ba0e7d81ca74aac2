// One schedule: its next and last runs, its definition, hints and revisions.

import { get, query } from "../../base/api.js";
import { h } from "../../base/dom.js";
import { badge, reasonText, sourceText } from "../../base/states.js";
import {
  durationText,
  formatTime,
  localZone,
  parseDuration,
  secondsBetween,
  shortDuration,
  startDelay,
  syncClock,
  totalDuration,
} from "../../base/times.js";
import { lineChart } from "../../charts/line_chart.js";
import { outcomeStrip } from "../../charts/outcome_strip.js";
import { emptyState, panel } from "../../components/layout.js";
import { remedyButtons } from "../../components/remedies.js";
import { table } from "../../components/table.js";
import { approvalDetails } from "../../components/target_details.js";
import { link, linkedText, routeTo, time, timeWithDistance } from "../../components/texts.js";
import { definition, revisions } from "./definition.js";
import { dependencyPanel } from "./dependencies.js";
import { hints } from "./hints.js";
import { actions, approvalRequest, notPlannedText } from "./schedule_actions.js";

export default {
  title: ([name]) => name,
  every: 4,
  async load([name], params) {
    const at = ["schedules", name];
    const [detail, runs, next, health, hints, revisions, outcomes, trends, why] = await Promise.all([
      get(at),
      get(["runs"], { schedule: name, limit: 12 }),
      get([...at, "next"], { count: 10 }),
      get([...at, "health"]),
      get(["hints"], { schedule: name }).catch(() => null),
      get([...at, "revisions"], { limit: 10 }),
      query(["schedules", "outcomes"], { schedules: [name] }),
      get([...at, "trends"]).catch(() => ({ series: [] })),
      params.at
        ? get([...at, "explain"], { at: params.at })
        : get([...at, "explain"], { last: true }).catch(() => null),
    ]);
    syncClock(health.now);
    const request =
      detail.progress.state === "pending_approval" ? await approvalRequest(detail.schedule) : null;
    return {
      ...detail,
      request,
      runs: runs.runs,
      coming: next.next,
      warnings: next.warnings || [],
      health,
      hints,
      revisions: revisions.revisions,
      recent: outcomes.outcomes[0],
      trends: trends.series,
      why,
    };
  },
  view(data, [name], params, go) {
    const { schedule, progress } = data;
    return h(
      "div",
      { class: "screen" },
      head(data, name),
      actions(data, name),
      data.request
        ? panel("Requested", approvalDetails(data.request), { note: "it runs after approval" })
        : null,
      dependencyPanel(data),
      h(
        "div",
        { class: "columns" },
        h(
          "div",
          null,
          panel("Upcoming", upcoming(data), { note: schedule.trigger.zone || "" }),
          panel("Explain", explanation(data, params, go)),
          schedule.adaptive ? panel("Hints", hints(data, name)) : null,
          panel("Definition", definition(data)),
        ),
        h(
          "div",
          null,
          panel(
            "Recent runs",
            data.recent.marks.length
              ? h(
                  "div",
                  { class: "whole" },
                  outcomeStrip(data.recent.marks, { label: name }),
                  trendCharts(data),
                )
              : h("p", { class: "mute" }, "no runs yet"),
            { note: "last 48; each state has its own colour and shape" },
          ),
          panel("Health", health(data.health)),
          panel("Runs", runs(data), { more: link(`/runs?schedule=${encodeURIComponent(name)}`, "all") }),
          panel("Revisions", revisions(data, name)),
        ),
      ),
      progress.state === "archived"
        ? h("p", { class: "mute" }, "archived: it does not run; its history is kept")
        : null,
    );
  },
};

// Durations, and the numbers in the results, over the recent runs.
function trendCharts({ recent, trends }) {
  const took = recent.marks
    .filter((mark) => mark.started_at && mark.finished_at)
    .map((mark) => ({
      at: mark.planned_at,
      value: secondsBetween(mark.started_at, mark.finished_at),
      state: mark.state,
      run: mark.run,
    }));
  return h(
    "div",
    null,
    took.length > 1 ? lineChart(took, { label: "duration", format: shortDuration }) : null,
    trends
      .filter((one) => new Set(one.points.map((point) => point.value)).size > 1)
      .slice(0, 6)
      .map((one) =>
        h(
          "div",
          { key: one.field },
          lineChart(one.points, {
            label: one.field,
            format: (value) => String(Math.round(value * 100) / 100),
            height: 40,
          }),
        ),
      ),
  );
}

function head({ schedule, progress, trigger, in_flight: running, held }, name) {
  const zone = schedule.trigger.zone;
  return h(
    "div",
    { class: "lead" },
    badge(progress.state, progress.reason),
    h("span", null, linkedText(trigger)),
    schedule.group ? h("span", { class: "tag" }, schedule.group) : null,
    schedule.tags.map((tag) => h("span", { class: "tag" }, tag)),
    progress.state === "active"
      ? progress.next_at
        ? h("span", null, "next ", timeWithDistance(progress.next_at, zone, "due"))
        : null
      : h(
          "span",
          { class: "mute" },
          progress.paused_until
            ? ["until ", timeWithDistance(progress.paused_until, zone), progress.reason ? ": " : ""]
            : null,
          progress.reason,
        ),
    running ? h("span", null, badge("leased"), ` ${running}`) : null,
    held ? h("span", null, badge("held"), ` ${held}`) : null,
    schedule.description ? h("p", { class: "mute" }, schedule.description) : null,
  );
}

function upcoming({ coming, warnings, schedule, progress, trigger }) {
  if (!coming.length) return h("p", { class: "mute" }, notPlannedText(progress, trigger));
  const zone = schedule.trigger.zone;
  return h(
    "div",
    null,
    warnings.map((text) => h("p", { class: "warn" }, String(text.message || text))),
    table(
      "Next occurrences",
      [{ name: "Time", kind: "tight" }, { name: "In", kind: "tight" }, { name: "Triggered by" }],
      coming.map((one) => ({
        key: one.planned_at + one.verdict,
        tone: one.verdict,
        cells: [
          h(
            "span",
            null,
            time(one.planned_at, zone),
            zone && zone !== localZone()
              ? h("div", { class: "mute" }, `${formatTime(one.planned_at, zone)} ${zone}`)
              : null,
          ),
          time(one.planned_at, zone, "due"),
          h(
            "span",
            null,
            one.verdict === "fire" ? sourceText(one.source) : badge("skipped", reasonText(one.reason)),
            one.reason ? ` ${reasonText(one.reason)}` : "",
            one.count > 1 ? ` × ${one.count}` : "",
            one.note ? h("div", { class: "mute" }, `note: ${one.note}`) : null,
          ),
        ],
      })),
    ),
  );
}

function explanation({ why: answer }, params, go) {
  const form = h(
    "form",
    {
      class: "filters",
      onsubmit: (e) => {
        e.preventDefault();
        const value = e.target.elements.at.value;
        go({ ...params, at: value ? new Date(value).toISOString() : "" });
      },
    },
    h(
      "label",
      null,
      h("span", null, "Explain at"),
      h("input", { type: "datetime-local", step: "1", name: "at", "aria-label": "Time to explain" }),
    ),
    h("button", { type: "submit" }, "explain"),
  );
  if (!answer) return h("div", null, form, h("p", { class: "mute" }, "no runs yet"));
  return h(
    "div",
    null,
    form,
    h("p", null, badge(answer.status, answer.reason), " ", linkedText(answer.summary)),
    h(
      "ul",
      { class: "reasons" },
      answer.because.map((text) => h("li", null, linkedText(text))),
    ),
    answer.trail && answer.trail.length
      ? h(
          "div",
          null,
          h("h3", null, "Rejected candidates"),
          h(
            "ul",
            { class: "reasons" },
            answer.trail.map((lost) =>
              h(
                "li",
                null,
                lost.at ? time(lost.at) : "",
                ` ${sourceText(lost.source)}: `,
                linkedText(lost.why),
              ),
            ),
          ),
        )
      : null,
    answer.run && answer.run.id ? h("p", null, link(routeTo("runs", answer.run.id), "show run")) : null,
    remedyButtons(answer.remedies),
  );
}

function health(data) {
  const rows = Object.entries(data.windows).map(([name, w]) => ({
    key: name,
    cells: [
      durationText(name),
      String(w.total),
      w.success_rate === null ? "—" : `${Math.round(w.success_rate * 100)} %`,
      `${shortDuration(parseDuration(w.duration.median))} / ${shortDuration(parseDuration(w.duration.p95))}`,
      shortDuration(parseDuration(w.delay.p95)),
    ],
  }));
  return h(
    "div",
    null,
    data.failures ? h("p", { class: "bad" }, `${data.failures} failed in a row`) : null,
    table(
      "Health",
      [
        { name: "Window" },
        { name: "Runs" },
        { name: "Success rate" },
        { name: "Duration p50 / p95" },
        { name: "Delay p95" },
      ],
      rows,
    ),
  );
}

export function runs({ runs: rows, schedule }) {
  if (!rows.length) return emptyState("No runs yet.", `timewright schedule run ${schedule.name}`);
  const zone = schedule.trigger.zone;
  return table(
    "Runs",
    [
      { name: "Planned", kind: "tight" },
      { name: "Status", kind: "tight" },
      { name: "Delay", kind: "tight" },
      { name: "Duration", kind: "tight" },
      { name: "Result", kind: "cut" },
    ],
    rows.map((run) => ({
      key: run.id,
      to: routeTo("runs", run.id),
      cells: [
        h("a", { href: `#${routeTo("runs", run.id)}` }, time(run.planned_at, zone)),
        badge(run.state, reasonText(run.reason)),
        startDelay(run),
        totalDuration(run),
        h(
          "span",
          { class: "ellipsis", title: run.error || reasonText(run.reason) },
          run.error || reasonText(run.reason) || run.outcome_label,
        ),
      ],
    })),
  );
}
