// The overview: running, upcoming and failed runs, and the health of the instance.

import { can, currentNamespace, get, post } from "../api.js";
import { h } from "../dom.js";
import { afterPaint, requestPaint, refresh } from "../main.js";
import { failureList, loadFailures } from "../failures.js";
import { stateDot, runLabel } from "../states.js";
import { approvalDetails } from "../target_details.js";
import { now, secondsBetween, syncClock, parseDuration, formatDuration, formatTime } from "../times.js";
import {
  button,
  commandBlock,
  commandOptions,
  confirmDialog,
  emptyState,
  fixHint,
  link,
  counters,
  panel,
  periodChips,
  routeTo,
  time,
  statusBadge,
  tryAction,
} from "../widgets.js";

// Running and upcoming runs are painted first; counts, failures, instances and health are loaded after that.
let charts = null;
let instances = null;
let approvals = []; // schedules created by agents that wait for approval
let answers = []; // steps of workflows that wait for a person
let incidents = []; // open ones
let failures = null;
const DETAILS_INTERVAL_MS = 3000;
let details = { at: 0, namespace: "", timer: 0 };
function forgetOtherNamespace() {
  if (details.namespace === currentNamespace()) return;
  details = { ...details, at: 0, namespace: currentNamespace() };
  [approvals, answers, incidents, failures] = [[], [], [], null];
}
async function loadDetails(params) {
  loadChecks();
  loadCounts(params);
  const { namespace } = details;
  const wait = details.at + DETAILS_INTERVAL_MS - Date.now();
  if (wait > 0) {
    // What happened since is loaded at the end of the interval, not with the next refresh.
    details.timer ||= setTimeout(() => {
      details.timer = 0;
      if (document.querySelector('main[data-at="/overview"]')) loadDetails(params);
    }, wait);
    return;
  }
  details.at = Date.now();
  const [chartModule, instancePage, approvalPage, incidentPage, failurePage] = await Promise.all([
    import("../charts.js"),
    get(["instances"]).catch(() => ({ instances: instances || [] })),
    get(["approvals"]).catch(() => ({ approvals: [], answers: [] })),
    get(["incidents"]).catch(() => ({ incidents: [] })),
    loadFailures(namespace),
  ]);
  if (details.namespace !== namespace) return;
  [charts, instances, approvals, answers, incidents, failures] = [
    chartModule,
    instancePage.instances,
    approvalPage.approvals,
    approvalPage.answers,
    incidentPage.incidents,
    failurePage,
  ];
  requestPaint();
}

// The server counts once a minute, so each minute is asked for once.
const PERIODS = [
  ["1h", "hour"],
  ["1d", "day"],
  ["7d", "week"],
];
let counts = { key: "", at: 0, series: null };
const periodOf = (params) => (PERIODS.some(([value]) => value === params.period) ? params.period : "1d");
async function loadCounts(params) {
  const wanted = { period: periodOf(params), until: params.until };
  const key = JSON.stringify([currentNamespace(), wanted]);
  const minutes = Math.floor((now() - 3000) / 60_000);
  if (counts.key === key && counts.at === minutes) return;
  counts = { key, at: minutes, series: counts.key === key ? counts.series : null };
  const found = await get(["runs", "counts"], wanted).catch(() => null);
  if (counts.key !== key || !found) return;
  // A minute that is over but not counted yet is asked for again.
  const fresh = Date.parse(found.counted_until || 0) >= minutes * 60_000;
  counts = { key, at: fresh ? minutes : 0, series: { ...found, step: parseDuration(found.step) } };
  requestPaint();
}

// The doctor reads files and settings too, so it is asked at most every 30 s.
const HEALTH_CHECKS = [
  "clock",
  "zones",
  "store",
  "file",
  "leases",
  "leader",
  "shards",
  "policy_file",
  "backlog",
  "backup",
  "unplaced",
];
const OVERDUE_S = 5; // allows for the delay of an update
const RANK = { fail: 0, warn: 1, ok: 2 };
let checked = { at: 0, findings: [] };
function loadChecks() {
  if (Date.now() - checked.at > 30_000) {
    checked = { ...checked, at: Date.now() };
    get(["doctor"]).then(
      (doctor) => {
        checked = { ...checked, findings: doctor.findings.filter((one) => HEALTH_CHECKS.includes(one.kind)) };
        requestPaint();
      },
      () => {},
    );
  }
}

export default {
  title: () => "Overview",
  every: 3,
  async load(_path, params) {
    forgetOtherNamespace();
    const data = await get(["now"]);
    syncClock(data.now);
    afterPaint(() => loadDetails(params));
    return data;
  },
  view(data, _path, params, go) {
    const { numbers: n } = data;
    const late = parseDuration(data.late_by) || 0;
    const capped = (count) => (count >= 1000 ? "1000+" : String(count));
    const empty =
      charts &&
      !n.running &&
      !n.due &&
      !n.failed &&
      !n.parked &&
      !n.waiting &&
      !(counts.series || {}).bins?.length;
    return h(
      "div",
      { class: "screen" },
      data.pauses.length ? pauseBanner(data.pauses) : null,
      late > OVERDUE_S ? overdue(late) : null,
      incidents.length ? panel("Open incidents", incidentList(), { more: link("/incidents", "all") }) : null,
      counters([
        ["Running", capped(n.running), "/runs?state=leased", n.running ? "busy" : ""],
        ["Waiting to start", capped(n.waiting), "/runs?state=ready", ""],
        ["Due within 1 hour", capped(n.due), "/schedules?state=active", ""],
        ["Failed in 24 hours", capped(n.failed), "/runs?state=failed", n.failed ? "bad" : ""],
        ["Parked", capped(n.parked), "/runs?state=parked", n.parked ? "warn" : ""],
      ]),
      empty
        ? emptyState(
            [
              "No runs in this period and none due in the next hour. ",
              link("/schedules", "Show all schedules"),
              ", or create one:",
            ],
            "timewright schedule create hello --every 5s --note 'hello'",
          )
        : null,
      panel("Runs over time", history(params, go), {
        id: "history",
        more: periodChips(PERIODS, params.until ? "" : periodOf(params), (period) =>
          go({ ...params, period, until: "" }),
        ),
      }),
      h(
        "div",
        { class: "columns" },
        h(
          "div",
          null,
          answers.length
            ? panel("Questions", answerList(), { note: "workflows that wait for an answer" })
            : null,
          approvals.length
            ? panel("Pending approvals", approvalList(), {
                note: "schedules created by agents; they run after approval",
              })
            : null,
          panel("Running", running(data), {
            more: can("write") ? button("pause all", pauseAll, { kind: "quiet" }) : null,
          }),
          panel("Upcoming", upcoming(data), { more: link("/forecast", "forecast") }),
        ),
        !charts
          ? null
          : h(
              "div",
              null,
              panel("Failures by cause", failureList(failures), {
                note: "last 24 hours",
                more: link("/runs?state=failed", "all"),
              }),
              panel("Health", health(late), { more: link("/instances", "instances") }),
            ),
      ),
    );
  },
};

// Throughput, failures and start delay on one time axis, from counts by minute.
function history(params, go) {
  const { series } = counts;
  if (!charts || !series) return h("div", { class: "plots" }, h("p", { class: "mute" }, "loading…"));
  if (!series.counted_until)
    return h(
      "p",
      { class: "mute" },
      "not counted yet: the first counts are made a minute after an instance started",
    );
  // A minute opens its runs; an hour of a week opens the minutes of that hour.
  const open = (bin) => {
    const end = Date.parse(bin.at) + series.step * 1000;
    if (series.step >= 3600) return go({ ...params, period: "1h", until: new Date(end).toISOString() });
    const until = new Date(end - 1).toISOString().replace("Z", "999Z");
    location.hash = `#/runs?since=${encodeURIComponent(bin.at)}&until=${encodeURIComponent(until)}`;
  };
  const per = series.step === 60 ? "minute" : series.step === 3600 ? "hour" : `${series.step / 60} minutes`;
  const { total } = series;
  return h(
    "div",
    { class: "plots" },
    charts.resultChart(series, { label: `Runs per ${per}`, open }),
    charts.resultChart(series, { label: `Failures per ${per}`, only: ["failed", "parked", "missed"], open }),
    charts.delayChart(series, { label: "Start delay, median and p95", open }),
    h(
      "p",
      { class: "legend" },
      charts.RESULTS.map(([name, tone, text]) =>
        h(
          "span",
          { class: total[name] ? null : "mute" },
          h("span", { class: `swatch ${tone}`, "aria-hidden": "true" }),
          `${(total[name] || 0).toLocaleString("en")} ${text}`,
        ),
      ),
      total.started
        ? h(
            "span",
            null,
            `start delay: median ${seconds(total.median)}, p95 ${seconds(total.p95)}, `,
            `max ${seconds(total.longest)}`,
          )
        : null,
      h(
        "span",
        { class: "mute" },
        params.until ? `${formatTime(series.since)} to ${formatTime(series.until)}, ` : "",
        `by planned time, counted until ${formatTime(series.counted_until).replace(/:00$/, "")}`,
      ),
    ),
  );
}
const seconds = (text) => formatDuration(parseDuration(text));

function answerList() {
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

function overdue(late) {
  const alive = instances && instances.some((one) => one.state === "alive");
  return h(
    "div",
    { class: "failure", role: "alert" },
    h(
      "strong",
      null,
      `Overdue: an occurrence has been due for ${formatDuration(late)} and was not processed.`,
    ),
    h(
      "div",
      { class: "mute" },
      alive
        ? "Instances are alive but cannot keep up. Start another worker:"
        : "No instance is running. Start one:",
    ),
    commandBlock(alive ? "timewright worker" : "timewright up"),
  );
}

const paused = (one) =>
  one.scope === "installation" ? "everything" : `${one.scope} ${one.name || one.namespace}`;
const subject = ({ scope, name }) => (scope === "installation" ? "" : commandOptions({ scope, name }));

// What is paused, by whom and why, on top of everything else.
function pauseBanner(pauses) {
  return h(
    "div",
    { class: "paused", role: "status" },
    pauses.map((one) =>
      h(
        "div",
        { key: one.id, class: "line" },
        h(
          "span",
          { class: "grow" },
          h("strong", null, `Paused: ${paused(one)}`),
          ` since `,
          time(one.at, undefined, "away"),
          ` by ${one.actor}`,
          one.until ? [", until ", time(one.until)] : "",
          one.reason ? `: ${one.reason}` : "",
        ),
        one.origin === "clock"
          ? fixHint("timewright clock accept")
          : can(one.scope === "installation" ? "admin" : "write")
            ? button("resume", () => resume(one), { kind: "quiet" })
            : null,
      ),
    ),
  );
}

async function resume(one) {
  const answer = await confirmDialog({
    title: `Resume ${paused(one)}`,
    act: "resume",
    reason: true,
    command: `timewright resume${subject(one)}`,
  });
  if (
    answer &&
    (await tryAction(
      () =>
        post(["resume"], {
          scope: one.scope,
          ...(one.name ? { name: one.name } : {}),
          ...(answer.reason ? { reason: answer.reason } : {}),
        }),
      "resumed",
    ))
  )
    refresh();
}

const SCOPES = ["installation", "namespace", "group", "owner", "queue", "provider"].map((scope) => [
  scope,
  scope,
]);
async function pauseAll() {
  const admin = can("admin");
  const options = (v) =>
    subject(v) +
    commandOptions({ until: v.until, due: v.due }) +
    (v.cancel_running === "yes" ? " --cancel-running" : "") +
    commandOptions({ reason: v.reason });
  const answer = await confirmDialog({
    title: "Pause all",
    act: "pause",
    danger: true,
    reason: true,
    text: "Nothing of it starts until it is resumed. Runs in progress continue unless you stop them.",
    fields: [
      {
        name: "scope",
        label: "What",
        value: admin ? "installation" : "namespace",
        required: true,
        choices: admin ? SCOPES : SCOPES.slice(1),
      },
      { name: "name", label: "Name of the group, owner, queue or provider" },
      { name: "until", label: "Until (empty: until resumed)", placeholder: "in 2 hours" },
      {
        name: "due",
        label: "What comes due",
        placeholder: "a group skips, others wait",
        choices: [
          ["wait", "wait"],
          ["skip", "skip"],
        ],
      },
      {
        name: "cancel_running",
        label: "Stop runs under way",
        value: "no",
        choices: [
          ["no", "no"],
          ["yes", "yes"],
        ],
      },
    ],
    command: (v) =>
      `timewright${currentNamespace() ? ` --namespace ${currentNamespace()}` : ""} pause${options(v)}`,
  });
  if (!answer) return;
  const { cancel_running: stops, ...given } = Object.fromEntries(
    Object.entries(answer).filter(([, value]) => value),
  );
  if (await tryAction(() => post(["pause"], { ...given, cancel_running: stops === "yes" }), "paused"))
    refresh();
}

const MAX_INCIDENTS = 5;
function incidentList() {
  const more = incidents.length - MAX_INCIDENTS;
  return h(
    "ul",
    { class: "lines" },
    incidents
      .slice(0, MAX_INCIDENTS)
      .map((one) =>
        h(
          "li",
          { key: one.id, class: "line" },
          statusBadge(one.severity),
          h("span", { class: "grow" }, link("/incidents", one.sentence)),
          time(one.since, undefined, "away"),
        ),
      ),
    more > 0
      ? h("li", { key: "more" }, link("/incidents", `and ${more}${incidents.length >= 50 ? "+" : ""} more`))
      : null,
  );
}

// Schedules created by agents that wait for approval.
function approvalList() {
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
            one.trigger,
            one.created_by ? `, by ${one.created_by}` : "",
          ),
          time(one.created_at, undefined, "away"),
        ),
        approvalDetails(one),
      ),
    ),
  );
}

// Paint the first rows of a list at once and the rest a moment later.
const FIRST_ROWS = 8;
const firstRows = (rows) => (charts ? rows : rows.slice(0, FIRST_ROWS));

function running(data) {
  if (!data.running.length) return h("p", { class: "mute" }, "no runs in progress");
  return h(
    "ul",
    { class: "lines" },
    firstRows(data.running).map((run) =>
      h(
        "li",
        { key: run.id },
        h(
          "div",
          { class: "line" },
          link(routeTo("runs", run.id), runLabel(run)),
          h(
            "span",
            { class: "mute grow ellipsis end" },
            run.holder ? `by ${run.holder.length > 20 ? `…${run.holder.slice(-6)}` : run.holder}` : "",
          ),
          time(run.started_at || run.fire_at, undefined, "away"),
        ),
        h(
          "div",
          { class: "elapsed", title: "elapsed share of the lease" },
          h("div", { "data-since": run.started_at || run.fire_at, "data-limit": String(leaseSeconds(run)) }),
        ),
      ),
    ),
  );
}

const leaseSeconds = (run) =>
  Math.max(1, secondsBetween(run.started_at || run.fire_at, run.lease_until) || 300);

function upcoming(data) {
  if (!data.coming.length) return h("p", { class: "mute" }, "nothing due within the next hour");
  const more = data.numbers.due - data.coming.length;
  return h(
    "ol",
    { class: "lines" },
    firstRows(data.coming).map((row) =>
      h(
        "li",
        { key: row.id, class: "line" },
        stateDot(row),
        link(routeTo("schedules", row.name), row.name),
        h("span", { class: "mute grow ellipsis" }, row.trigger),
        time(row.next_at, undefined, "due"),
      ),
    ),
    more > 0
      ? h("li", { key: "more", class: "mute" }, data.numbers.due >= 1000 ? "and more" : `and ${more} more`)
      : null,
  );
}

function health(late) {
  const alive = instances.filter((one) => one.state === "alive");
  const capacity = alive.reduce((sum, one) => sum + one.capacity, 0),
    busy = alive.reduce((sum, one) => sum + one.under_way, 0);
  const lines = [
    h(
      "li",
      { key: "instances", class: "line" },
      statusBadge(alive.length ? "ok" : "warn"),
      h(
        "span",
        { class: "grow" },
        alive.length
          ? [
              `${alive.length} instance${alive.length === 1 ? "" : "s"} alive, `,
              `${busy} of ${capacity} slots in use`,
            ]
          : "no instance is alive",
      ),
    ),
  ];
  // The same figure as the warning above, so that both agree.
  lines.push(
    h(
      "li",
      { key: "overdue", class: "line" },
      statusBadge(late > OVERDUE_S ? "fail" : "ok"),
      h(
        "span",
        { class: "grow" },
        late > OVERDUE_S ? `an occurrence is overdue by ${formatDuration(late)}` : "nothing is overdue",
      ),
    ),
  );
  for (const [n, one] of checked.findings.sort((a, b) => RANK[a.severity] - RANK[b.severity]).entries())
    lines.push(
      h(
        "li",
        { key: one.kind + n, class: "line" },
        statusBadge(one.severity),
        h("span", { class: "grow" }, one.sentence),
      ),
    );
  return h("ul", { class: "lines" }, lines);
}
