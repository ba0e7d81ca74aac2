// All instances: health, admission role, leases and clock offset.

import { get } from "../base/api.js";
import { h } from "../base/dom.js";
import { badge } from "../base/states.js";
import { formatDuration, parseDuration } from "../base/times.js";
import { gauge } from "../charts/gauge.js";
import { fixHint } from "../components/commands.js";
import { emptyState, panel } from "../components/layout.js";
import { table } from "../components/table.js";
import { link, linkedText, routeTo, time } from "../components/texts.js";

export default {
  title: () => "Instances",
  every: 5,
  async load() {
    const [page, leased, doctor] = await Promise.all([
      get(["instances"]),
      get(["runs"], { state: "leased", limit: 1000 }),
      get(["doctor"]).catch(() => ({ findings: [] })),
    ]);
    return { ...page, runs: leased.runs, findings: doctor.findings };
  },
  view(data) {
    const held = new Map();
    for (const run of data.runs) held.set(run.holder, [...(held.get(run.holder) || []), run]);
    const rows = data.instances.map((one) => ({
      key: one.instance,
      cells: [
        badge(one.state),
        h(
          "span",
          { class: "names" },
          h("span", { title: one.instance }, one.host || short(one.instance)),
          h("span", { class: "tag", title: one.instance }, short(one.instance)),
          h("span", { class: "mute" }, one.version),
        ),
        h(
          "span",
          null,
          "up ",
          time(one.started_at, undefined, "for"),
          h("div", { class: "mute" }, "last seen ", time(one.seen_at, undefined, "away")),
        ),
        admissionRole(one),
        gauge(one.under_way, one.capacity, `runs in progress on ${one.host}`),
        runLinks(held.get(one.instance) || []),
        clock(one),
      ],
    }));
    const known = new Set(data.instances.map((one) => one.instance));
    const outside = [...held]
      .filter(([holder]) => !known.has(holder))
      .map(([holder, runs]) => ({
        key: holder,
        cells: [
          holder || "unknown",
          String(runs.length),
          time(runs.map((run) => run.lease_until).sort()[0], undefined, "due"),
          runLinks(runs),
        ],
      }));
    return h(
      "div",
      { class: "screen" },
      warnings(data),
      rows.length
        ? panel(
            "Instances",
            table(
              "Instances",
              [
                { name: "Status", kind: "tight" },
                { name: "Host", kind: "main" },
                { name: "Uptime", kind: "tight" },
                { name: "Admits", kind: "tight" },
                { name: "In progress" },
                { name: "Leases" },
                { name: "Clock", kind: "tight" },
              ],
              rows,
            ),
            { note: "heartbeat every 15 s" },
          )
        : emptyState("No heartbeat within the last day. Start an instance:", "timewright up"),
      outside.length
        ? panel(
            "Other lease holders",
            table(
              "Lease holders",
              [
                { name: "Holder", kind: "main" },
                { name: "Leases", kind: "tight" },
                { name: "First expiry", kind: "tight" },
                { name: "Runs" },
              ],
              outside,
            ),
            { note: "workflows, and external workers that use queue lease" },
          )
        : null,
    );
  },
};

// Findings of `timewright doctor` about the instances of this store.
const INSTANCE_CHECKS = ["leader", "shards", "due", "leases", "policy_file"];
function warnings({ instances, findings }) {
  const none =
    instances.length && !instances.some((one) => one.state === "alive")
      ? [
          {
            kind: "alive",
            sentence: "No instance is alive. No run starts until one is.",
            remedy: "timewright up",
          },
        ]
      : [];
  const findingsShown = [
    ...none,
    ...findings.filter(
      (one) =>
        one.severity !== "ok" && INSTANCE_CHECKS.includes(one.kind) && !(none.length && one.kind === "due"),
    ),
  ];
  return findingsShown.length
    ? h(
        "div",
        { class: "failure", role: "alert" },
        findingsShown.map((one) =>
          h("div", { key: one.kind }, h("strong", null, linkedText(one.sentence)), fixHint(one.remedy)),
        ),
      )
    : null;
}

const isSharded = (shard) => Boolean(shard) && !shard.endsWith("/1");

function admissionRole(one) {
  if (one.state === "stopped") return h("span", { class: "mute" }, "nothing (stopped)");
  if (one.admit === "leader")
    return one.leads
      ? h(
          "span",
          { class: "badge good" },
          h("span", { class: "sign", "aria-hidden": "true" }, "★"),
          "leader: all schedules",
        )
      : h("span", { class: "mute" }, "standby");
  return isSharded(one.shard) ? `shard ${one.shard}` : "all schedules";
}

const MAX_LINKS = 5;
function runLinks(runs) {
  if (!runs.length) return h("span", { class: "mute" }, "none");
  return h(
    "span",
    { class: "names" },
    runs
      .slice(0, MAX_LINKS)
      .map((run) =>
        link(routeTo("runs", run.id), `${run.schedule || run.queue || "run"} …${run.id.slice(-4)}`),
      ),
    runs.length > MAX_LINKS ? h("span", { class: "mute" }, `and ${runs.length - MAX_LINKS} more`) : null,
  );
}

const short = (id) => (id.length > 20 ? `…${id.slice(-6)}` : id);

function clock(one) {
  const off = parseDuration(String(one.clock_offset).replace("-", "")) || 0;
  if (off < 0.1) return h("span", { class: "mute" }, "in sync");
  return h(
    "span",
    { class: off > 1 ? "warn" : "mute" },
    `${formatDuration(off)} ${String(one.clock_offset).startsWith("-") ? "ahead" : "behind"}`,
  );
}
