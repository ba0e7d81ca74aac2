// Queues with their limits, budgets and closed providers.

import { can, get } from "../../base/api.js";
import { h } from "../../base/dom.js";
import { stateTone } from "../../base/states.js";
import { gauge } from "../../charts/gauge.js";
import { perform } from "../../components/actions.js";
import { shellQuote } from "../../components/commands.js";
import { button, emptyState, pager, panel } from "../../components/layout.js";
import { table } from "../../components/table.js";
import { link, routeTo, time, timeWithDistance } from "../../components/texts.js";
import { one } from "./queue.js";

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
        gauge(q.in_flight, q.max_running, `leases of ${q.queue}`),
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
                  h("span", { class: "break" }, one.limit),
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
        h("span", { class: "break" }, one.budget),
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

export const reset = (run) =>
  perform({
    title: "Reset this run?",
    text: "Its attempt count is reset and it can start again.",
    act: "reset",
    command: `timewright queue reset ${run.id}`,
    path: ["runs", run.id, "reset"],
  });

export const pick = (path) => (path.length ? one : list);
