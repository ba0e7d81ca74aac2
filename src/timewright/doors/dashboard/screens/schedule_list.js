// Every schedule on one line: how it does, when it wants to run, when it is next, what became of the last 48.

import { get, may, read } from "../api.js";
import { Bulk } from "../bulk.js";
import { h } from "../dom.js";
import { afterwards, draw } from "../main.js";
import { queryBar } from "../query.js";
import { badge, dot } from "../states.js";
import { brief, seconds } from "../times.js";
import { both, empty, link, pager, panel, place, prose, table, time } from "../widgets.js";

const STATES = [["", "all"], ["active", "active"], ["paused", "paused"], ["parked", "parked"], ["pending_approval", "waits for approval"], ["finished", "finished"], ["archived", "archived"]];
const QUALIFIERS = { state: { said: "in which state", values: STATES.slice(1).map(([value]) => value) }, group: { said: "of which group" }, tag: { said: "with which tag" } };
const verb = (name, more = {}) => ({ path: (id) => ["schedules", id, name], command: `timewright schedule ${name}`, ...more });
const bulk = new Bulk({ noun: "schedule", path: ["schedules"], field: "schedules", verbs: { pause: verb("pause", { text: "None of them starts again until it is resumed.", fits: (row) => row.state === "active" }), resume: verb("resume", { text: "They go on with their next times, and catch up as each says.", fits: (row) => ["paused", "parked"].includes(row.state) }), run: verb("run", { said: "run now", text: "One run of each by hand; their plans stay as they are." }), archive: verb("archive", { danger: true, text: "They run no more; their history is kept.", fits: (row) => row.state !== "archived" }) } });
const filters = (params) => ({ state: params.state, name_starts: params.q, group: params.group, tag: params.tag });

// A screenful of lines is shown at once; the others, and what became of the last occurrences, when that comes.
const SCREENFUL = 20;
let strips = new Map();
let whole = false;
let charts = null;
async function remember(ids) {
  if (!ids.length) return;
  const [drawn, told] = await Promise.all([import("../charts.js"), read(["schedules", "strips"], { schedules: ids }).catch(() => ({ strips: [] }))]);
  charts = drawn;
  strips = new Map(told.strips.map((one) => [one.schedule_id, one]));
  whole = true;
  draw();
}

export default {
  title: () => "Schedules",
  every: 5,
  async load(_path, params) {
    const page = await get(["schedules"], { limit: 50, cursor: params.cursor, ...filters(params) });
    afterwards(() => remember(page.schedules.map((row) => row.id)));
    return page;
  },
  view(data, _path, params, go) {
    const rows = data.schedules.slice(0, whole ? undefined : SCREENFUL).map((row) => line(row, strips.get(row.id)));
    const bar = queryBar({ qualifiers: QUALIFIERS, free: "q", hint: "press / to find: a name, group:billing, tag:finance …", states: STATES, params, go });
    const none = Object.keys(params).some((name) => name !== "namespace") ? empty(["No schedule fits these filters. ", link("/schedules", "Show all of them")]) : empty("No schedules yet. The first one:", "timewright schedule create hello --every 5s --note 'hello'");
    return h("div", { class: "screen" }, bar, bulk.bar(data.schedules, { filters: filters(params), more: Boolean(data.cursor || params.cursor) }),
      rows.length ? panel("Schedules", table("schedules", COLUMNS, rows, may("write") ? bulk.handles : {}), { note: "a full mark ran, a low one did not" }) : none, pager(data, params, go));
  },
};

const COLUMNS = [{ name: "", kind: "narrow" }, { name: "name", kind: "main" }, { name: "when" }, { name: "next", kind: "tight" }, { name: "last 48", kind: "wide" }, { name: "takes", kind: "tight" }];

// The words of a trigger name its zone, where it has one.
const zoneOf = (row) => (/([A-Z]\w+\/[\w/+-]+) time/.exec(row.trigger) || [])[1];

function line(row, history) {
  const took = history && history.duration.median !== null ? h("span", { title: "half take less, and nineteen in twenty" }, brief(seconds(history.duration.median)), h("span", { class: "mute" }, ` – ${brief(seconds(history.duration.p95))}`)) : "—";
  const next = row.state === "active" ? both(row.next_at, zoneOf(row), "due") : h("span", { class: "both" }, badge(row.state, row.reason), row.state === "paused" && row.paused_until ? h("span", { class: "mute" }, "until ", time(row.paused_until, zoneOf(row))) : null, row.reason ? h("span", { class: "mute ellipsis short", title: row.reason }, row.reason) : null);
  return {
    key: row.id, label: row.name, to: place("schedules", row.name),
    cells: [dot(row), h("span", { class: "names" }, link(place("schedules", row.name), row.name), row.group ? h("span", { class: "tag" }, row.group) : null, row.tags.map((tag) => h("span", { class: "tag" }, tag))),
      h("span", null, prose(row.trigger), h("span", { class: "mute" }, ` · ${row.target}`)), next, history ? charts.strip(history.marks, { label: row.name }) : null, took],
  };
}
