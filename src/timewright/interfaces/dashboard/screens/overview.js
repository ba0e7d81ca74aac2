// The overview: running, upcoming and failed runs, and the health of the instance.

import { can, currentNamespace, get, post } from "../api.js";
import { h } from "../dom.js";
import { afterPaint, requestPaint, refresh } from "../main.js";
import { badge, stateDot, reasonText, runLabel } from "../states.js";
import { approvalDetails } from "../target_details.js";
import { secondsBetween, syncClock, parseDuration, formatDuration } from "../times.js";
import {
  button,
  commandBlock,
  confirmDialog,
  emptyState,
  fixHint,
  link,
  counters,
  panel,
  routeTo,
  shellQuote,
  table,
  time,
  statusBadge,
  tryAction,
} from "../widgets.js";

// Running and upcoming runs are painted first; history, instances and health are loaded after that.
let charts = null;
let instances = null;
let approvals = []; // schedules created by agents that wait for approval
let answers = []; // steps of workflows that wait for a person
let incidents = []; // open ones
async function loadDetails() {
  loadChecks();
  const first = !charts;
  const [chartModule, instancePage, approvalPage, incidentPage] = await Promise.all([
    import("../charts.js"),
    get(["instances"]).catch(() => ({ instances: instances || [] })),
    get(["approvals"]).catch(() => ({ approvals: [], answers: [] })),
    get(["incidents"]).catch(() => ({ incidents: [] })),
  ]);
  [charts, instances, approvals, answers, incidents] = [
    chartModule,
    instancePage.instances,
    approvalPage.approvals,
    approvalPage.answers,
    incidentPage.incidents,
  ];
  first ? refresh() : requestPaint();
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
  async load() {
    const first = !charts;
    const data = await get(["now"], first ? { back: "1m" } : {});
    syncClock(data.now);
    afterPaint(loadDetails);
    return { ...data, whole: !first };
  },
  view(data) {
    const { numbers: n } = data;
    const late = parseDuration(data.late_by) || 0;
    const capped = (count) => (count >= 1000 ? "1000+" : String(count));
    const idle =
      data.whole &&
      !n.running &&
      !n.due &&
      !n.failed &&
      !n.parked &&
      !n.waiting &&
      !data.behind.some((b) => Object.keys(b.outcomes).length);
    return h(
      "div",
      { class: "screen" },
      data.pauses.length ? pauseBanner(data.pauses) : null,
      late > OVERDUE_S ? overdue(late) : null,
      incidents.length ? panel("Open incidents", incidentList(), { more: link("/incidents", "all") }) : null,
      counters([
        ["Running", capped(n.running), "/runs?state=leased", n.running ? "busy" : ""],
        ["Ready", capped(n.waiting), "/runs?state=ready", ""],
        ["Due within 1 hour", capped(n.due), "/schedules?state=active", ""],
        ["Failed in 24 hours", capped(n.failed), "/runs?state=failed", n.failed ? "bad" : ""],
        ["Parked", capped(n.parked), "/runs?state=parked", n.parked ? "warn" : ""],
      ]),
      idle
        ? emptyState(
            [
              "No runs in the last hour and none due in the next. ",
              link("/schedules", "Show all schedules"),
              ", or create one:",
            ],
            "timewright schedule create hello --every 5s --note 'hello'",
          )
        : null,
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
          instances ? panel("Health", health(late), { more: link("/instances", "instances") }) : null,
        ),
        !data.whole
          ? null
          : h(
              "div",
              null,
              panel(
                "Recent runs",
                h(
                  "div",
                  null,
                  charts.stackedBars(data.behind, { label: "Runs of the last hour by result" }),
                  legend(data),
                ),
                { note: data.more ? "last hour, newest 1000 runs" : "last hour" },
              ),
              panel(
                "Start delay",
                h(
                  "div",
                  null,
                  charts.delayChart(data.behind, { label: "Start delay over the last hour" }),
                  h(
                    "p",
                    { class: "mute" },
                    data.delay.median === null
                      ? "no run has started"
                      : `median ${formatDuration(parseDuration(data.delay.median))}, p95 ${formatDuration(parseDuration(data.delay.p95))}, max ${formatDuration(parseDuration(data.delay.longest))}`,
                  ),
                ),
              ),
              panel("Failed in the last 24 hours", runTable(data.failed), {
                more: link("/runs?state=failed", "all"),
              }),
              data.parked.length
                ? panel("Parked runs (need attention)", runTable(data.parked), {
                    more: link("/runs?state=parked", "all"),
                  })
                : null,
            ),
      ),
    );
  },
};

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
const subject = (one) =>
  one.scope === "installation"
    ? ""
    : ` --scope ${one.scope}${one.name ? ` --name ${shellQuote(one.name)}` : ""}`;

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
    `${v.scope === "installation" ? "" : ` --scope ${v.scope}${v.name ? ` --name ${shellQuote(v.name)}` : ""}`}${v.until ? ` --until ${shellQuote(v.until)}` : ""}${v.due ? ` --due ${v.due}` : ""}${v.cancel_running === "yes" ? " --cancel-running" : ""}${v.reason ? ` --reason ${shellQuote(v.reason)}` : ""}`;
  const answer = await confirmDialog({
    title: "Pause all",
    act: "pause",
    danger: true,
    reason: true,
    text: "Nothing of it starts on any instance until it is resumed. Runs under way continue unless you stop them.",
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

function incidentList() {
  return h(
    "ul",
    { class: "lines" },
    incidents
      .slice(0, 10)
      .map((one) =>
        h(
          "li",
          { key: one.id, class: "line" },
          statusBadge(one.severity),
          h("span", { class: "grow" }, link("/incidents", one.sentence)),
          time(one.since, undefined, "away"),
        ),
      ),
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

function runTable(runs) {
  if (!runs.length) return h("p", { class: "mute" }, "no failures");
  return table(
    "Failed runs",
    [{ name: "Run" }, { name: "Time", kind: "tight" }, { name: "Error", kind: "cut" }],
    runs.slice(0, 8).map((run) => ({
      key: run.id,
      to: routeTo("runs", run.id),
      cells: [
        h("span", { class: "names one" }, badge(run.state), link(routeTo("runs", run.id), runLabel(run))),
        time(run.finished_at || run.planned_at, undefined, "away"),
        h("span", { title: run.error || reasonText(run.reason) }, run.error || reasonText(run.reason)),
      ],
    })),
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
          ? `${alive.length} ${alive.length === 1 ? "instance" : "instances"} alive, ${busy} of ${capacity} slots in use`
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

function legend(data) {
  const sums = {};
  for (const bin of data.behind)
    for (const [state, count] of Object.entries(bin.outcomes)) sums[state] = (sums[state] || 0) + count;
  return h(
    "p",
    { class: "legend" },
    Object.entries(sums).map(([state, count]) => h("span", null, badge(state), ` ${count} `)),
  );
}
