// Charts, drawn as SVG.

import { h } from "./dom.js";
import { reasonText, stateSign, stateTone, stateText } from "./states.js";
import { secondsBetween, clock, day, minute, parseDuration, formatDuration, formatTime } from "./times.js";
import { routeTo, scrollArea } from "./widgets.js";

const svg = (width, height, label, ...children) =>
  h(
    "svg",
    {
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label": label,
      preserveAspectRatio: "none",
      class: "chart",
    },
    ...children,
  );
const titled = (node, text) => {
  node.append(h("title", null, text));
  return node;
};

// Draw many marks as one path per colour; the mark under the pointer is computed from its position.
function markChart(props, { paths, count, nearest, describe, to }, ...more) {
  const at = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    return nearest((event.clientX - box.left) / (box.width || 1));
  };
  const title = h("title", null, "");
  const showTitle = (event) => {
    const n = at(event);
    const text = n >= 0 && n < count ? describe(n) : "";
    const holder = event.currentTarget.querySelector("title");
    if (holder.textContent !== text) holder.textContent = text;
  };
  const open = (event) => {
    const n = at(event);
    const run = n >= 0 && n < count ? to(n) : "";
    if (run) {
      event.stopPropagation();
      location.hash = routeTo("runs", run);
    }
  };
  return h(
    "svg",
    { ...props, role: "img", onmousemove: showTitle, onclick: open },
    title,
    more,
    [...paths].map(([kind, d]) => h("path", { d, class: `fill-${kind}` })),
  );
}

const addMark = (paths, kind, d) => paths.set(kind, (paths.get(kind) || "") + d);

// The most recent occurrences: a tall mark ran, a short one did not.
export function outcomeStrip(marks, { cells = 48, label = "" } = {}) {
  const shown = marks.slice(-cells),
    first = cells - shown.length;
  const stateOf = (mark) => (mark.dropped ? "dropped" : mark.state);
  const paths = new Map(),
    sums = new Map();
  shown.forEach((mark, n) => {
    const ran = mark.started_at !== null || mark.state === "leased";
    addMark(paths, stateTone(stateOf(mark)), `M${(first + n) * 7} ${ran ? 2 : 9}h5v${ran ? 16 : 5}h-5z`);
    sums.set(mark.state, (sums.get(mark.state) || 0) + 1);
  });
  const describe = (n) => {
    const mark = shown[n],
      took = secondsBetween(mark.started_at, mark.finished_at);
    return `${formatTime(mark.planned_at)} ${stateText(stateOf(mark))}${mark.dropped ? ` × ${mark.dropped}` : ""}${mark.reason ? ` (${reasonText(mark.reason)})` : ""}${took !== null ? `, ${formatDuration(took)}` : ""}`;
  };
  const counts = [...sums].map(([state, count]) => `${count} ${stateText(state)}`).join(", ");
  const props = {
    viewBox: `0 0 ${cells * 7} 20`,
    "aria-label": `${label} last ${shown.length} occurrences: ${counts || "none yet"}`,
    class: "strip",
  };
  return markChart(props, {
    paths,
    count: shown.length,
    nearest: (share) => Math.floor(share * cells) - first,
    describe,
    to: (n) => shown[n].run,
  });
}

const STACK_ORDER = [
  "succeeded",
  "leased",
  "ready",
  "held",
  "skipped",
  "cancelled",
  "missed",
  "parked",
  "failed",
];

export function stackedBars(bins, { label }) {
  const width = 600,
    height = 90,
    step = width / Math.max(1, bins.length);
  const most = Math.max(1, ...bins.map((b) => Object.values(b.outcomes).reduce((a, c) => a + c, 0)));
  const bars = bins.flatMap((bin, n) => {
    let y = height;
    return Object.entries(bin.outcomes)
      .sort((a, b) => STACK_ORDER.indexOf(a[0]) - STACK_ORDER.indexOf(b[0]))
      .map(([state, count]) => {
        const tall = (count / most) * (height - 4);
        y -= tall;
        return titled(
          h("rect", {
            x: n * step + 0.5,
            y,
            width: Math.max(0.5, step - 1),
            height: tall,
            class: `fill-${stateTone(state)}`,
          }),
          `${clock(bin.at)} ${count} ${stateText(state)}`,
        );
      });
  });
  return h("figure", null, svg(width, height, label, bars), axis(bins, most, "runs"));
}

export function delayChart(bins, { label }) {
  const width = 600,
    height = 70,
    step = width / Math.max(1, bins.length);
  const points = bins
    .map((b, n) => [n, parseDuration(b.delay.p95), parseDuration(b.delay.median), b])
    .filter(([, high]) => high !== null);
  const most = Math.max(0.05, ...points.map(([, high]) => high));
  const y = (v) => height - 3 - (v / most) * (height - 8);
  const marks = points.map(([n, high, mid, bin]) =>
    titled(
      h(
        "g",
        null,
        h("rect", {
          x: n * step + step * 0.4,
          width: step * 0.2,
          y: y(high),
          height: Math.max(0, y(mid) - y(high)),
          class: "whisker",
        }),
        h("rect", {
          x: n * step + step * 0.1,
          width: step * 0.8,
          y: y(mid) - 1.5,
          height: 3,
          class: "fill-busy",
        }),
      ),
      `${clock(bin.at)} median ${formatDuration(mid)}, p95 ${formatDuration(high)}`,
    ),
  );
  return h("figure", null, svg(width, height, label, marks), axis(bins, formatDuration(most), ""));
}

// Values over time, newest on the right: a line, and a mark for each value.
export function lineChart(points, { label, format = String, height = 54 }) {
  const width = 600;
  let top = 0,
    bottom = 0;
  for (const { value } of points) {
    if (value > top) top = value;
    if (value < bottom) bottom = value;
  }
  const reach = top - bottom || 1,
    wide = (width - 8) / Math.max(1, points.length - 1),
    half = Math.min(2.2, Math.max(0.4, wide / 3));
  const vertices = [],
    paths = new Map();
  points.forEach((point, n) => {
    const x = Math.round((4 + n * wide) * 10) / 10,
      y = Math.round((height - 5 - ((point.value - bottom) / reach) * (height - 10)) * 10) / 10;
    vertices.push(`${x},${y}`);
    addMark(paths, stateTone(point.state), `M${x - half} ${y - 2.2}h${half * 2}v4.4h${-half * 2}z`);
  });
  const last = points[points.length - 1].value;
  const describe = (n) =>
    `${formatTime(points[n].at)} ${format(points[n].value)}${points[n].state !== "succeeded" ? ` (${stateText(points[n].state)})` : ""}`;
  const props = {
    viewBox: `0 0 ${width} ${height}`,
    "aria-label": `${label}: ${points.length} values, last ${format(last)}, highest ${format(top)}`,
    preserveAspectRatio: "none",
    class: "chart low",
  };
  const nearest = (share) => Math.round((share * width - 4) / wide);
  return h(
    "figure",
    { class: "trend" },
    markChart(
      props,
      { paths, count: points.length, nearest, describe, to: (n) => points[n].run || "" },
      h("polyline", { points: vertices.join(" "), class: "trace" }),
    ),
    h(
      "figcaption",
      null,
      h("span", null, label),
      h("span", null, `last ${format(last)}, max ${format(top)}`),
    ),
  );
}

function axis(bins, most, unit) {
  if (!bins.length) return null;
  return h(
    "figcaption",
    null,
    h("span", null, minute(bins[0].at)),
    h("span", null, `max ${most} ${unit}`.trim()),
    h("span", null, "now"),
  );
}

// A row per day, a column per hour; darker means more. Each cell also shows its number.
export function heatmap(hours, { value, label, zone }) {
  const most = Math.max(1, ...hours.map(value));
  const days = [];
  for (const hour of hours) {
    const name = day(hour.at, zone);
    if (!days.length || days[days.length - 1].name !== name) days.push({ name, cells: [] });
    days[days.length - 1].cells.push(hour);
  }
  const cell = (hour) => {
    const share = value(hour) / most;
    const who = hour.busiest.map((m) => `${m.schedule} × ${m.starts}`).join("\n");
    return h(
      "td",
      {
        class: `heat h${Math.ceil(share * 8)}`,
        "data-hour": hour.at,
        title: `${day(hour.at, zone)} ${clock(hour.at, zone).slice(0, 5)}: ${hour.starts} starts, ${formatDuration(hour.seconds)} of work\n${who}`,
      },
      value(hour) ? compactNumber(value(hour)) : "",
    );
  };
  const cells = (row) => {
    const byHour = new Map(row.cells.map((c) => [Number(clock(c.at, zone).slice(0, 2)), c]));
    return [...Array(24).keys()].map((n) =>
      byHour.has(n) ? cell(byHour.get(n)) : h("td", { class: "heat h0" }),
    );
  };
  return scrollArea(
    h(
      "table",
      { class: "heatmap" },
      h("caption", { class: "hidden" }, label),
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          h("th", { scope: "col" }, h("span", { class: "hidden" }, "Day")),
          [...Array(24).keys()].map((n) => h("th", { scope: "col" }, String(n).padStart(2, "0"))),
        ),
      ),
      h(
        "tbody",
        null,
        days.map((row) => h("tr", { key: row.name }, h("th", { scope: "row" }, row.name), cells(row))),
      ),
    ),
  );
}

const compactNumber = (n) =>
  n > 0 && n < 0.5
    ? "<1"
    : n >= 10000
      ? `${Math.round(n / 1000)}k`
      : n >= 1000
        ? `${(n / 1000).toFixed(1)}k`
        : String(Math.round(n));

export function gauge(used, max, label, text = `${used} of ${max}`) {
  const share = max ? Math.min(1, used / max) : 0;
  return h(
    "div",
    {
      class: "gauge",
      role: "meter",
      "aria-label": label,
      "aria-valuemin": "0",
      "aria-valuemax": String(max),
      "aria-valuenow": String(used),
    },
    h("div", { class: share >= 1 ? "full" : "", style: { width: `${share * 100}%` } }),
    h("span", null, text),
  );
}

// The timeline of a run: waiting, running and backoff, a bar each.
export function timeline(run, attempts, nowMs, attemptStart) {
  const from = Date.parse(run.planned_at);
  const end = Math.max(from + 1, run.finished_at ? Date.parse(run.finished_at) : nowMs);
  const x = (iso) => Math.max(0, Math.min(100, ((Date.parse(iso) - from) / (end - from)) * 100));
  const rows = [],
    nowIso = new Date(nowMs).toISOString();
  let last = run.planned_at;
  for (const one of attempts) {
    if (secondsBetween(last, one.leased_at) > 0.05)
      rows.push(
        bar(
          x(last),
          x(one.leased_at),
          "wait",
          `${last === run.planned_at ? "waited" : "backoff"} ${formatDuration(secondsBetween(last, one.leased_at))}`,
        ),
      );
    rows.push(
      bar(
        x(one.started_at || one.leased_at),
        x(one.ended_at),
        stateTone(one.outcome),
        `attempt ${one.number}: ${stateText(one.outcome)} after ${formatDuration(secondsBetween(one.started_at || one.leased_at, one.ended_at))}${one.holder ? ` by ${one.holder}` : ""}`,
        stateSign(one.outcome),
      ),
    );
    last = one.ended_at;
  }
  if (run.state === "leased") {
    const began = attemptStart || run.started_at || last;
    if (secondsBetween(last, began) > 0.05)
      rows.push(
        bar(
          x(last),
          x(began),
          "wait",
          `${attempts.length ? "backoff" : "waited"} ${formatDuration(secondsBetween(last, began))}`,
        ),
      );
    rows.push(
      bar(
        x(began),
        100,
        "busy",
        `running for ${formatDuration(secondsBetween(began, nowIso))}, since ${formatTime(began)}`,
        "▶",
      ),
    );
  } else if (["ready", "held"].includes(run.state))
    rows.push(bar(x(last), x(nowIso), "wait", waitText(run, nowMs)));
  return h("ol", { class: "timeline" }, rows.filter(Boolean));
}

function waitText(run, nowMs) {
  if (run.state === "held")
    return `waiting for the previous run for ${formatDuration(secondsBetween(run.planned_at, new Date(nowMs).toISOString()))}`;
  return Date.parse(run.fire_at) > nowMs
    ? `waiting until ${formatTime(run.fire_at)}`
    : `due since ${formatTime(run.fire_at)}`;
}

function bar(from, to, kind, text, mark = "") {
  return h(
    "li",
    null,
    h(
      "span",
      { class: "track" },
      h("span", {
        class: `bar ${kind}`,
        style: { marginLeft: `${from}%`, width: `${Math.max(0.6, to - from)}%` },
      }),
    ),
    h("span", { class: "label" }, mark ? `${mark} ` : "", text),
  );
}
