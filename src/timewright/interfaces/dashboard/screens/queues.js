// Queues: capacity, live leases, and which entries wait for what.

import { perform } from "../actions.js";
import { get, can, put } from "../api.js";
import { gauge } from "../charts.js";
import { h } from "../dom.js";
import { paint } from "../main.js";
import { runLabel, stateTone } from "../states.js";
import { formatDuration, now, parseDuration, secondsUntil } from "../times.js";
import {
  timeWithDistance,
  button,
  commandBlock,
  emptyState,
  definitionList,
  jsonBlock,
  link,
  pager,
  panel,
  routeTo,
  shellQuote,
  table,
  time,
} from "../widgets.js";

const list = {
  title: () => "Queues",
  every: 4,
  async load(_path, params) {
    const [queues, limits, budgets, providers] = await Promise.all([
      get(["queues"], { cursor: params.cursor }),
      get(["limits"]),
      get(["budgets"]).catch(() => ({ budgets: [] })),
      get(["providers"]).catch(() => ({ providers: [] })),
    ]);
    // Only the detail of a budget lists its users and waiting runs.
    const detailed = await Promise.all(
      budgets.budgets.slice(0, 20).map((one) => get(["budgets", one.budget]).catch(() => one)),
    );
    return {
      ...queues,
      limits: limits.limits,
      budgets: [...detailed, ...budgets.budgets.slice(20)],
      providers: providers.providers.filter((one) => one.closed_until),
    };
  },
  view(data, _path, params, go) {
    const rows = data.queues.map((q) => ({
      key: q.queue,
      to: routeTo("queues", q.queue),
      cells: [
        h(
          "span",
          { class: "names" },
          link(routeTo("queues", q.queue), q.queue),
          q.paused_by ? h("span", { class: "tag warn" }, `‖ paused: ${q.paused_by}`) : null,
        ),
        gauge(q.in_flight, q.max_concurrent, `leases of ${q.queue}`),
        ...["ready", "held", "leased", "parked"].map((state) =>
          h("span", { class: q.counts[state] ? stateTone(state) : "mute" }, String(q.counts[state] || 0)),
        ),
        q.oldest_at ? time(q.oldest_at, undefined, "for") : "—",
      ],
    }));
    return h(
      "div",
      { class: "screen" },
      rows.length
        ? panel(
            "Queues",
            table(
              "Queues",
              [
                { name: "Queue" },
                { name: "In use" },
                { name: "Ready", kind: "tight" },
                { name: "Held", kind: "tight" },
                { name: "Running", kind: "tight" },
                { name: "Parked", kind: "tight" },
                { name: "Oldest waits", kind: "tight" },
              ],
              rows,
            ),
          )
        : emptyState(
            "No queue has entries. Add one:",
            'timewright queue add mail --payload \'{"to": "ada"}\'',
          ),
      data.limits.length
        ? panel(
            "Named limits",
            table(
              "Named limits",
              [{ name: "Limit" }, { name: "In use" }],
              data.limits.map((one) => ({
                key: one.limit,
                cells: [
                  one.limit,
                  one.max_running && !one.key
                    ? gauge(one.in_flight, one.max_running, `uses of ${one.limit}`)
                    : String(one.in_flight),
                ],
              })),
            ),
            { note: "schedules that name a limit share it" },
          )
        : null,
      data.budgets.length
        ? panel("Budgets", budgets(data.budgets), {
            note: "runs wait for the next period when a budget is used up",
          })
        : null,
      data.providers.length
        ? panel("Closed providers", providers(data.providers), {
            note: "runs that use a closed provider wait",
          })
        : null,
      pager(data, params, go),
    );
  },
};

function budgets(rows) {
  return table(
    "Budgets",
    [
      { name: "Budget" },
      { name: "Used" },
      { name: "Limit", kind: "tight" },
      { name: "Remaining", kind: "tight" },
      { name: "Resets", kind: "tight" },
      { name: "Used by" },
    ],
    rows.map((one) => ({
      key: one.budget,
      cells: [
        one.budget,
        gauge(
          Number(one.used) + Number(one.held),
          Number(one.limit),
          `use of ${one.budget}`,
          `${one.used}${Number(one.held) ? ` and ${one.held} held` : ""}`,
        ),
        `${one.limit} ${one.currency || one.unit} a ${one.period}`,
        one.left,
        time(one.until, one.zone, "away"),
        h(
          "span",
          { class: "names" },
          (one.named_by || []).map((name) => link(routeTo("schedules", name), name)),
          one.waiting
            ? h(
                "span",
                { class: "warn" },
                `${one.waiting} ${one.waiting === 1 ? "run waits" : "runs wait"} for the next period`,
              )
            : null,
        ),
      ],
    })),
  );
}

function providers(rows) {
  return table(
    "Closed providers",
    [
      { name: "Provider" },
      { name: "Closed until", kind: "tight" },
      { name: "Reason" },
      { name: "Waiting", kind: "tight" },
      { name: "", label: "Actions", kind: "tight" },
    ],
    rows.map((one) => ({
      key: one.provider,
      cells: [
        one.provider,
        timeWithDistance(one.closed_until),
        h("span", null, one.why, one.closed_by ? h("span", { class: "mute" }, ` by ${one.closed_by}`) : null),
        String(one.waiting),
        can("write") ? button("open", () => reopen(one)) : null,
      ],
    })),
  );
}

const reopen = (one) =>
  perform({
    title: `Open ${one.provider} now?`,
    text: `${one.waiting} waiting runs may start immediately.`,
    act: "open",
    command: `timewright provider open ${shellQuote(one.provider)}`,
    path: ["providers", one.provider, "open"],
  });

// The payloads that the viewer has opened, by run.
/** @type {Map<string, any>} */
const payloads = new Map();

const one = {
  title: ([name]) => name,
  every: 3,
  async load([name], params) {
    const [detail, plan] = await Promise.all([
      get(["queues", name], { cursor: params.cursor }),
      get(["queues", name, "plan"]),
    ]);
    return { ...detail, plan };
  },
  view(data, [name], params, go) {
    const { plan, queue } = data;
    const by = new Map(data.entries.map((run) => [run.id, run]));
    const leased = data.entries.filter((run) => run.state === "leased");
    const parked = data.entries.filter((run) => run.state === "parked");
    const waiting = plan.waiting.filter((wait) => !["leased", "parked"].includes(wait.reason));
    return h(
      "div",
      { class: "screen" },
      h(
        "div",
        { class: "lead" },
        gauge(plan.in_flight, plan.max_concurrent, `leases of ${name}`),
        h("span", null, `${plan.available} free`),
        queue.paused_by ? h("span", { class: "warn" }, `‖ paused: ${queue.paused_by}`) : null,
        h(
          "span",
          { class: "mute" },
          `${plan.leases.length} can start now, ${waiting.length} waiting, ${parked.length} parked`,
        ),
      ),
      isAbandoned(data) ? abandoned(data, name) : null,
      can("write") ? actions(data, name) : null,
      activity(data),
      h(
        "div",
        { class: "columns" },
        h(
          "div",
          null,
          panel(
            "Live leases",
            leased.length
              ? table(
                  "Live leases",
                  [
                    { name: "Run" },
                    { name: "Holder" },
                    { name: "Lease expires", kind: "tight" },
                    { name: "Fence", kind: "tight" },
                  ],
                  leased.map((run) => ({
                    key: run.id,
                    to: routeTo("runs", run.id),
                    cells: [
                      runLink(run.id, run),
                      run.holder,
                      time(run.lease_until, undefined, "away"),
                      String(run.fence),
                    ],
                  })),
                )
              : h("p", { class: "mute" }, "no live leases"),
          ),
          parked.length
            ? panel(
                "Parked (need attention)",
                table(
                  "Parked runs",
                  [{ name: "Run" }, { name: "Error" }, { name: "", label: "Actions", kind: "tight" }],
                  parked.map((run) => ({
                    key: run.id,
                    to: routeTo("runs", run.id),
                    cells: [
                      runLink(run.id, run),
                      h("span", { class: "ellipsis", title: run.error }, run.error || run.reason),
                      can("trigger") ? button("reset", () => reset(run)) : null,
                    ],
                  })),
                ),
              )
            : null,
          panel("Policy", policyPanel(data.policy, name)),
        ),
        h(
          "div",
          null,
          panel(
            "Next to start",
            plan.leases.length
              ? table(
                  "Next to start",
                  [
                    { name: "Run" },
                    { name: "Priority", kind: "tight" },
                    { name: "Since", kind: "tight" },
                    { name: "", label: "Payload", kind: "tight" },
                  ],
                  plan.leases.slice(0, 50).map((run) => ({
                    key: run.id,
                    to: routeTo("runs", run.id),
                    cells: [
                      runLink(run.id, run),
                      String(run.priority),
                      time(run.planned_at, undefined, "away"),
                      payloadButton(run.id),
                    ],
                  })),
                )
              : h("p", { class: "mute" }, "none"),
            { note: "in this order" },
          ),
          panel(
            "Waiting",
            h(
              "div",
              null,
              waiting.length
                ? table(
                    "Waiting runs",
                    [{ name: "Run" }, { name: "Waiting for" }, { name: "Until", kind: "tight" }],
                    waiting.slice(0, 50).map((wait) => ({
                      key: wait.run_id,
                      to: routeTo("runs", wait.run_id),
                      cells: [
                        runLink(wait.run_id, by.get(wait.run_id)),
                        waitReason(wait),
                        wait.until ? time(wait.until, undefined, "away") : "",
                      ],
                    })),
                  )
                : h("p", { class: "mute" }, "none"),
              commandBlock(`timewright queue plan ${shellQuote(name)}`),
            ),
          ),
        ),
      ),
      pager(data, params, go),
    );
  },
};

const runLink = (id, run) =>
  h(
    "span",
    { class: "names" },
    link(routeTo("runs", id), run && (run.schedule || run.workflow) ? runLabel(run) : `…${id.slice(-6)}`),
    run && run.attempts ? h("span", { class: "tag" }, `${run.attempts} failed`) : null,
    payloads.has(id) ? jsonBlock(payloads.get(id)) : null,
  );

const payloadButton = (id) =>
  button(
    payloads.has(id) ? "hide payload" : "payload",
    async () => {
      if (!payloads.delete(id)) payloads.set(id, (await get(["runs", id])).payload);
      paint();
    },
    { kind: "quiet" },
  );

// Entries that may start and wait, although nobody has leased one lately.
const ABANDONED_S = 60;
function isAbandoned({ queue, activity: { last_leased_at: last } }) {
  if (queue.paused_by || queue.in_flight || !queue.oldest_at) return false;
  return -secondsUntil(queue.oldest_at) > ABANDONED_S && (!last || -secondsUntil(last) > ABANDONED_S);
}

const abandoned = ({ activity: { last_leased_at: last } }, name) =>
  h(
    "div",
    { class: "paused", role: "status" },
    h("strong", null, "Nobody leases here. "),
    last ? ["The last lease was ", time(last, undefined, "away"), ". "] : "No entry was leased lately. ",
    "Start a worker that leases from this queue:",
    commandBlock(`timewright queue lease ${shellQuote(name)}`),
  );

// What happened lately, and how long the oldest entry waits.
function activity({ queue, activity: { since, added, succeeded, failed, last_leased_at: last } }) {
  const minutes = (now() - Date.parse(since)) / 60_000;
  const rate = (count) => `${count} in ${formatDuration(Math.round(minutes) * 60)}`;
  return h(
    "ul",
    { class: "figures" },
    [
      ["added", rate(added)],
      ["succeeded", rate(succeeded)],
      ["failed", rate(failed)],
      ["oldest waits", queue.oldest_at ? time(queue.oldest_at, undefined, "for") : "—"],
      ["last lease", last ? time(last, undefined, "away") : "—"],
    ].map(([name, value]) =>
      h("li", { key: name }, h("span", { class: "mute" }, name), h("strong", null, value)),
    ),
  );
}

function actions({ queue, policy }, name) {
  const scope = { scope: "queue", name };
  const pause = () =>
    perform({
      title: `Pause queue ${name}?`,
      text: "Nothing of it starts. Entries in progress continue.",
      act: "pause",
      done: "paused",
      command: `timewright pause --scope queue --name ${shellQuote(name)}`,
      path: ["pause"],
      request: scope,
      undo: { path: ["resume"], body: scope, done: "resumed" },
    });
  const resume = () =>
    perform({
      title: `Resume queue ${name}?`,
      text: "Waiting entries may start immediately.",
      act: "resume",
      done: "resumed",
      command: `timewright resume --scope queue --name ${shellQuote(name)}`,
      path: ["resume"],
      request: scope,
    });
  const limit = () =>
    perform({
      title: `How many entries of ${name} may run at once?`,
      act: "set limit",
      fields: [
        {
          name: "max_concurrent",
          label: "Maximum concurrent",
          type: "number",
          value: String(policy.max_concurrent),
          required: true,
        },
      ],
      command: (v) => `timewright queue policy set ${shellQuote(name)} --max-concurrent ${v.max_concurrent}`,
      path: ["queues", name, "policy"],
      send: put,
      toBody: ({ max_concurrent: max, ...rest }) => ({ ...rest, max_concurrent: Number(max) }),
    });
  const waiting = (queue.counts.ready || 0) + (queue.counts.held || 0);
  const purge = () =>
    perform({
      title: `Cancel ${waiting} waiting ${waiting === 1 ? "entry" : "entries"} of ${name}?`,
      text: "They will not start. Entries in progress or parked stay. One call cancels at most 1000.",
      act: "purge",
      done: "purged",
      danger: true,
      command: `timewright queue purge ${shellQuote(name)}`,
      path: ["queues", name, "purge"],
    });
  return h(
    "div",
    { class: "buttons", role: "toolbar", "aria-label": `Actions for queue ${name}` },
    queue.paused_by ? button("resume", resume, { kind: "main" }) : button("pause", pause),
    button("limit…", limit),
    button("purge…", purge, { disabled: !waiting }),
  );
}

const WAIT_REASONS = {
  limit: "a free slot",
  capacity: "a free instance slot",
  backoff: "its backoff",
  held: "the previous run",
  budget: "its budget",
  provider: "its provider",
};
const waitReason = (wait) =>
  h(
    "span",
    { title: wait.blocked_by || wait.reason },
    WAIT_REASONS[wait.reason] || wait.reason,
    wait.blocked_by
      ? h(
          "span",
          { class: "mute" },
          ` in ${String(wait.blocked_by).replace(/^(queue|limit):[^/]*\//, "$1 ")}`,
        )
      : "",
  );

function policyPanel(policy, name) {
  return h(
    "div",
    null,
    definitionList([
      ["max concurrent", policy.max_concurrent],
      ["max attempts", policy.max_attempts],
      ["lease duration", formatDuration(parseDuration(policy.lease))],
      [
        "backoff",
        `${policy.backoff.kind}, from ${formatDuration(parseDuration(policy.backoff.base || "0s"))}`,
      ],
      ["when exhausted", policy.exhausted],
    ]),
    commandBlock(`timewright queue policy set ${shellQuote(name)} --max-concurrent ${policy.max_concurrent}`),
  );
}

const reset = (run) =>
  perform({
    title: "Reset this run?",
    text: "Its attempt count is reset and it can start again.",
    act: "reset",
    command: `timewright queue reset ${run.id}`,
    path: ["runs", run.id, "reset"],
  });

export const pick = (path) => (path.length ? one : list);
