// Pictures from rectangles and lines, drawn as SVG.

import { h } from "./dom.js";
import { reasoned, sign, tone, word } from "./states.js";
import { between, clock, day, minute, seconds, span, when } from "./times.js";
import { place } from "./widgets.js";

const svg = (width, height, label, ...children) => h("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, preserveAspectRatio: "none", class: "chart" }, ...children);
const titled = (node, text) => { node.append(h("title", null, text)); return node; };

// Many marks are few nodes: one path for each colour; which mark is meant is found from where the pointer is.
function marked(props, { paths, count, nearest, tell, to }, ...more) {
  const at = (event) => { const box = event.currentTarget.getBoundingClientRect(); return nearest((event.clientX - box.left) / (box.width || 1)); };
  const said = h("title", null, "");
  const told = (event) => { const n = at(event); const text = n >= 0 && n < count ? tell(n) : ""; const holder = event.currentTarget.querySelector("title"); if (holder.textContent !== text) holder.textContent = text; };
  const open = (event) => { const n = at(event); const run = n >= 0 && n < count ? to(n) : ""; if (run) { event.stopPropagation(); location.hash = place("runs", run); } };
  return h("svg", { ...props, role: "img", onmousemove: told, onclick: open }, said, more, [...paths].map(([kind, d]) => h("path", { d, class: `fill-${kind}` })));
}

const into = (paths, kind, d) => paths.set(kind, (paths.get(kind) || "") + d);

// The last occurrences, those that ran and those that did not; a full cell ran, a low one did not.
export function strip(marks, { cells = 48, label = "" } = {}) {
  const shown = marks.slice(-cells), first = cells - shown.length;
  const stateOf = (mark) => (mark.dropped ? "dropped" : mark.state);
  const paths = new Map(), sums = new Map();
  shown.forEach((mark, n) => {
    const ran = mark.started_at !== null || mark.state === "leased";
    into(paths, tone(stateOf(mark)), `M${(first + n) * 7} ${ran ? 2 : 9}h5v${ran ? 16 : 5}h-5z`);
    sums.set(mark.state, (sums.get(mark.state) || 0) + 1);
  });
  const tell = (n) => {
    const mark = shown[n], took = between(mark.started_at, mark.finished_at);
    return `${when(mark.planned_at)} ${word(stateOf(mark))}${mark.dropped ? ` × ${mark.dropped}` : ""}${mark.reason ? ` (${reasoned(mark.reason)})` : ""}${took !== null ? `, ${span(took)}` : ""}`;
  };
  const counts = [...sums].map(([state, count]) => `${count} ${word(state)}`).join(", ");
  const props = { viewBox: `0 0 ${cells * 7} 20`, "aria-label": `${label} last ${shown.length} occurrences: ${counts || "none yet"}`, class: "strip" };
  return marked(props, { paths, count: shown.length, nearest: (share) => Math.floor(share * cells) - first, tell, to: (n) => shown[n].run });
}

const ORDER = ["succeeded", "leased", "ready", "held", "skipped", "cancelled", "missed", "parked", "failed"];

export function stacked(bins, { label }) {
  const width = 600, height = 90, step = width / Math.max(1, bins.length);
  const most = Math.max(1, ...bins.map((b) => Object.values(b.outcomes).reduce((a, c) => a + c, 0)));
  const bars = bins.flatMap((bin, n) => {
    let y = height;
    return Object.entries(bin.outcomes).sort((a, b) => ORDER.indexOf(a[0]) - ORDER.indexOf(b[0])).map(([state, count]) => {
      const tall = (count / most) * (height - 4);
      y -= tall;
      return titled(h("rect", { x: n * step + 0.5, y, width: Math.max(0.5, step - 1), height: tall, class: `fill-${tone(state)}` }), `${clock(bin.at)} ${count} ${word(state)}`);
    });
  });
  return h("figure", null, svg(width, height, label, bars), axis(bins, most, "runs"));
}

export function delays(bins, { label }) {
  const width = 600, height = 70, step = width / Math.max(1, bins.length);
  const points = bins.map((b, n) => [n, seconds(b.delay.p95), seconds(b.delay.median), b]).filter(([, high]) => high !== null);
  const most = Math.max(0.05, ...points.map(([, high]) => high));
  const y = (v) => height - 3 - (v / most) * (height - 8);
  const marks = points.map(([n, high, mid, bin]) => titled(h("g", null,
    h("rect", { x: n * step + step * 0.4, width: step * 0.2, y: y(high), height: Math.max(0, y(mid) - y(high)), class: "whisker" }),
    h("rect", { x: n * step + step * 0.1, width: step * 0.8, y: y(mid) - 1.5, height: 3, class: "fill-busy" })), `${clock(bin.at)} median ${span(mid)}, p95 ${span(high)}`));
  return h("figure", null, svg(width, height, label, marks), axis(bins, span(most), ""));
}

// Values over time, the newest at the right: a line, and a mark for each.
export function line(points, { label, spell = String, height = 54 }) {
  const width = 600;
  let top = 0, bottom = 0;
  for (const { value } of points) { if (value > top) top = value; if (value < bottom) bottom = value; }
  const reach = top - bottom || 1, wide = (width - 8) / Math.max(1, points.length - 1), half = Math.min(2.2, Math.max(0.4, wide / 3));
  const drawn = [], paths = new Map();
  points.forEach((point, n) => {
    const x = Math.round((4 + n * wide) * 10) / 10, y = Math.round((height - 5 - ((point.value - bottom) / reach) * (height - 10)) * 10) / 10;
    drawn.push(`${x},${y}`);
    into(paths, tone(point.state), `M${x - half} ${y - 2.2}h${half * 2}v4.4h${-half * 2}z`);
  });
  const last = points[points.length - 1].value;
  const tell = (n) => `${when(points[n].at)} ${spell(points[n].value)}${points[n].state !== "succeeded" ? ` (${word(points[n].state)})` : ""}`;
  const props = { viewBox: `0 0 ${width} ${height}`, "aria-label": `${label}: ${points.length} values, the last ${spell(last)}, the highest ${spell(top)}`, preserveAspectRatio: "none", class: "chart low" };
  const nearest = (share) => Math.round((share * width - 4) / wide);
  return h("figure", { class: "trend" }, marked(props, { paths, count: points.length, nearest, tell, to: (n) => points[n].run || "" }, h("polyline", { points: drawn.join(" "), class: "trace" })),
    h("figcaption", null, h("span", null, label), h("span", null, `last ${spell(last)}, top ${spell(top)}`)));
}

function axis(bins, most, unit) {
  if (!bins.length) return null;
  return h("figcaption", null, h("span", null, minute(bins[0].at)), h("span", null, `top ${most} ${unit}`.trim()), h("span", null, "now"));
}

// Days down, hours across; the darker the more. The number stands in the cell too.
export function heat(hours, { value, label, zone }) {
  const most = Math.max(1, ...hours.map(value));
  const days = [];
  for (const hour of hours) {
    const name = day(hour.at, zone);
    if (!days.length || days[days.length - 1].name !== name) days.push({ name, cells: [] });
    days[days.length - 1].cells.push(hour);
  }
  const cell = (hour) => {
    const share = value(hour) / most;
    const who = hour.most.map((m) => `${m.schedule} × ${m.starts}`).join("\n");
    return h("td", { class: `heat h${Math.ceil(share * 8)}`, "data-hour": hour.at, title: `${day(hour.at, zone)} ${clock(hour.at, zone).slice(0, 5)}: ${hour.starts} starts, ${span(hour.seconds)} of work\n${who}` }, value(hour) ? short(value(hour)) : "");
  };
  const spot = (row) => { const map = new Map(row.cells.map((c) => [Number(clock(c.at, zone).slice(0, 2)), c])); return [...Array(24).keys()].map((n) => (map.has(n) ? cell(map.get(n)) : h("td", { class: "heat h0" }))); };
  return h("div", { class: "scroll" }, h("table", { class: "heatmap" }, h("caption", { class: "hidden" }, label),
    h("thead", null, h("tr", null, h("th", { scope: "col" }, ""), [...Array(24).keys()].map((n) => h("th", { scope: "col" }, String(n).padStart(2, "0"))))),
    h("tbody", null, days.map((row) => h("tr", { key: row.name }, h("th", { scope: "row" }, row.name), spot(row))))));
}

const short = (n) => (n > 0 && n < 0.5 ? "<1" : n >= 10000 ? `${Math.round(n / 1000)}k` : n >= 1000 ? `${(n / 1000).toFixed(1)}k` : String(Math.round(n)));

export function gauge(used, most, label, said = `${used} of ${most}`) {
  const share = most ? Math.min(1, used / most) : 0;
  return h("div", { class: "gauge", role: "meter", "aria-label": label, "aria-valuemin": "0", "aria-valuemax": String(most), "aria-valuenow": String(used) },
    h("div", { class: share >= 1 ? "full" : "", style: { width: `${share * 100}%` } }), h("span", null, said));
}

// Attempts of a run on one line of time: waited, ran, backed off.
export function waterfall(run, attempts, nowMs, begun) {
  const from = Date.parse(run.planned_at);
  const end = Math.max(from + 1, run.finished_at ? Date.parse(run.finished_at) : nowMs);
  const x = (iso) => Math.max(0, Math.min(100, ((Date.parse(iso) - from) / (end - from)) * 100));
  const rows = [], is = new Date(nowMs).toISOString();
  let last = run.planned_at;
  for (const one of attempts) {
    if (between(last, one.leased_at) > 0.05) rows.push(bar(x(last), x(one.leased_at), "wait", `${last === run.planned_at ? "waited" : "backed off"} ${span(between(last, one.leased_at))}`));
    rows.push(bar(x(one.started_at || one.leased_at), x(one.ended_at), tone(one.outcome), `attempt ${one.number}: ${word(one.outcome)} after ${span(between(one.started_at || one.leased_at, one.ended_at))}${one.holder ? ` by ${one.holder}` : ""}`, sign(one.outcome)));
    last = one.ended_at;
  }
  if (run.state === "leased") {
    const began = begun || run.started_at || last;
    if (between(last, began) > 0.05) rows.push(bar(x(last), x(began), "wait", `${attempts.length ? "backed off" : "waited"} ${span(between(last, began))}`));
    rows.push(bar(x(began), 100, "busy", `running for ${span(between(began, is))}, since ${when(began)}`, "▶"));
  }
  else if (["ready", "held"].includes(run.state)) rows.push(bar(x(last), x(is), "wait", waiting(run, nowMs)));
  return h("ol", { class: "waterfall" }, rows.filter(Boolean));
}

function waiting(run, nowMs) {
  if (run.state === "held") return `has waited ${span(between(run.planned_at, new Date(nowMs).toISOString()))} for the run before it`;
  return Date.parse(run.fire_at) > nowMs ? `waits until ${when(run.fire_at)}` : `has been due since ${when(run.fire_at)}`;
}

function bar(from, to, kind, text, mark = "") {
  return h("li", null, h("span", { class: "track" }, h("span", { class: `bar ${kind}`, style: { marginLeft: `${from}%`, width: `${Math.max(0.6, to - from)}%` } })), h("span", { class: "said" }, mark ? `${mark} ` : "", text));
}
