// Queues: capacity, live leases, and which entries wait for what.

import { get, can, post } from "../api.js";
import { gauge } from "../charts.js";
import { h } from "../dom.js";
import { refresh } from "../main.js";
import { stateTone } from "../states.js";
import {
  tryAction,
  timeWithDistance,
  button,
  confirmDialog,
  commandBlock,
  emptyState,
  definitionList,
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
        link(routeTo("queues", q.queue), q.queue),
        gauge(q.in_flight, q.max_concurrent, `leases of ${q.queue}`),
        ...["ready", "held", "leased", "parked"].map((state) =>
          h("span", { class: q.counts[state] ? stateTone(state) : "mute" }, String(q.counts[state] || 0)),
        ),
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
                cells: [one.limit, gauge(one.in_flight, one.max, `uses of ${one.limit}`)],
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

async function reopen(one) {
  const answer = await confirmDialog({
    title: `Open ${one.provider} now?`,
    text: `${one.waiting} waiting runs may start immediately.`,
    act: "open",
    reason: true,
    command: `timewright provider open ${shellQuote(one.provider)}`,
  });
  if (
    answer &&
    (await tryAction(
      () => post(["providers", one.provider, "open"], answer.reason ? { reason: answer.reason } : {}),
      "open",
    ))
  )
    refresh();
}

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
    const { plan } = data;
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
        h(
          "span",
          { class: "mute" },
          `${plan.leases.length} can start now, ${waiting.length} waiting, ${parked.length} parked`,
        ),
      ),
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
                  [{ name: "Run" }, { name: "Priority", kind: "tight" }, { name: "Since", kind: "tight" }],
                  plan.leases
                    .slice(0, 50)
                    .map((run) => ({
                      key: run.id,
                      to: routeTo("runs", run.id),
                      cells: [
                        runLink(run.id, run),
                        String(run.priority),
                        time(run.planned_at, undefined, "away"),
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
                    waiting
                      .slice(0, 50)
                      .map((wait) => ({
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
    link(routeTo("runs", id), (run && run.schedule) || `…${id.slice(-6)}`),
    run && run.attempts ? h("span", { class: "tag" }, `${run.attempts} failed`) : null,
  );

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
      ["lease duration", policy.lease],
      ["backoff", `${policy.backoff.kind}, from ${policy.backoff.base || "0s"}`],
      ["when exhausted", policy.exhausted],
    ]),
    commandBlock(`timewright queue policy set ${shellQuote(name)} --max-concurrent ${policy.max_concurrent}`),
  );
}

async function reset(run) {
  const answer = await confirmDialog({
    title: "Reset this run?",
    text: "Its attempt count is reset and it can start again.",
    act: "reset",
    reason: true,
    command: `timewright queue reset ${run.id}`,
  });
  if (
    answer &&
    (await tryAction(
      () => post(["runs", run.id, "reset"], answer.reason ? { reason: answer.reason } : {}),
      "reset: done",
    ))
  )
    refresh();
}

export const pick = (path) => (path.length ? one : list);
