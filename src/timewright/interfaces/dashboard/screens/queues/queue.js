// One queue: capacity, live leases, and which entries wait for what.

import { paint } from "../../app/paint.js";
import { can, get, put } from "../../base/api.js";
import { h } from "../../base/dom.js";
import { runLabel } from "../../base/states.js";
import { formatDuration, now, parseDuration, secondsUntil } from "../../base/times.js";
import { gauge } from "../../charts/gauge.js";
import { perform } from "../../components/actions.js";
import { commandBlock, shellQuote } from "../../components/commands.js";
import { button, definitionList, jsonBlock, pager, panel } from "../../components/layout.js";
import { table } from "../../components/table.js";
import { link, routeTo, time } from "../../components/texts.js";
import { reset } from "./queues.js";

// The payloads that the viewer has opened, by run.
/** @type {Map<string, any>} */
const payloads = new Map();

export const one = {
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
        gauge(plan.in_flight, plan.max_running, `leases of ${name}`),
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
          name: "max_running",
          label: "Maximum concurrent",
          type: "number",
          value: String(policy.max_running),
          required: true,
        },
      ],
      command: (v) => `timewright queue policy set ${shellQuote(name)} --max-running ${v.max_running}`,
      path: ["queues", name, "policy"],
      send: put,
      toBody: ({ max_running: max, ...rest }) => ({ ...rest, max_running: Number(max) }),
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
      ["max running", policy.max_running],
      ["max attempts", policy.max_attempts],
      ["lease duration", formatDuration(parseDuration(policy.lease))],
      [
        "backoff",
        `${policy.backoff.kind}, from ${formatDuration(parseDuration(policy.backoff.base || "0s"))}`,
      ],
      ["when exhausted", policy.exhausted],
    ]),
    commandBlock(`timewright queue policy set ${shellQuote(name)} --max-running ${policy.max_running}`),
  );
}
