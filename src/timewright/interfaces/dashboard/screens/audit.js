// The audit log: who changed what and why, with the fields that differ.

import { refresh } from "../app/refresh.js";
import { get, query } from "../base/api.js";
import { h } from "../base/dom.js";
import { commandBlock } from "../components/commands.js";
import { diff } from "../components/diff.js";
import { emptyState, jsonBlock, pager, panel } from "../components/layout.js";
import { SCHEDULE_NAMES, searchBar } from "../components/search_bar.js";
import { table } from "../components/table.js";
import { link, routeTo, time } from "../components/texts.js";

const QUALIFIERS = {
  actor: { hint: "actor name" },
  action: {
    hint: "action prefix",
    values: ["schedule.", "run.", "queue.", "key.", "workflow.", "limit.", "calendar."],
  },
  schedule: SCHEDULE_NAMES,
  subject: { hint: "object id" },
  origin: { hint: "origin", values: ["human", "agent", "file", "api"] },
  since: { hint: "1d, or an instant", ago: true, values: ["1h", "1d", "7d"] },
};

// The log stores digests; the definitions of schedules are read from their revisions.
const names = new Map();
async function loadNames(entries) {
  const unknown = [...new Set(entries.map((one) => one.subject))]
    .filter((id) => id.startsWith("sch_") && !names.has(id))
    .slice(0, 100);
  if (!unknown.length) return;
  const page = await query(["schedules", "outcomes"], { schedules: unknown, each: 1 }).catch(() => ({
    outcomes: [],
  }));
  for (const id of unknown) names.set(id, "");
  for (const one of page.outcomes) names.set(one.schedule_id, one.schedule);
}

const revisions = new Map();
async function loadRevisions(id) {
  if (!revisions.has(id)) {
    revisions.set(id, null);
    revisions.set(
      id,
      (await get(["schedules", id, "revisions"], { limit: 200 }).catch(() => ({ revisions: [] }))).revisions,
    );
    refresh();
  }
}

export default {
  title: () => "Audit",
  every: 10,
  async load(_path, params) {
    const page = await get(["audit"], {
      cursor: params.cursor,
      ...Object.fromEntries(Object.keys(QUALIFIERS).map((name) => [name, params[name]])),
    });
    await loadNames(page.entries);
    return page;
  },
  view(data, _path, params, go) {
    const bar = searchBar({
      qualifiers: QUALIFIERS,
      free: "actor",
      hint: "press / to search: actor, action:schedule. schedule:x since:1d …",
      params,
      go,
    });
    const rows = data.entries.map((one, n) => auditRow(one, n));
    const columns = [
      { name: "Time", kind: "tight" },
      { name: "Actor" },
      { name: "Action", kind: "tight" },
      { name: "Object" },
      { name: "Reason and changes" },
    ];
    return h(
      "div",
      { class: "screen" },
      bar,
      rows.length
        ? panel("Changes", table("changes", columns, rows), { more: commandBlock("timewright audit verify") })
        : emptyState("No changes yet."),
      pager(data, params, go),
    );
  },
};

function auditRow(one, n) {
  const named = names.get(one.subject);
  const subject = named
    ? link(routeTo("schedules", named), named)
    : one.subject.startsWith("run_")
      ? link(routeTo("runs", one.subject), `run …${one.subject.slice(-6)}`)
      : h("span", { class: "break" }, one.subject);
  return {
    key: `${one.at}${one.subject}${n}`,
    cells: [
      time(one.at),
      h("span", { class: "names" }, one.actor, h("span", { class: "tag" }, one.origin)),
      one.action.replace(".", " "),
      h("span", { title: one.subject }, subject),
      h("div", null, one.reason, changed(one)),
    ],
  };
}

const revisionNumber = (text) => Number((/^revision (\d+)/.exec(text) || [])[1] || 0);

function changed(one) {
  if (!one.before && !one.after) return null;
  const is = revisionNumber(one.after),
    was = revisionNumber(one.before);
  if (!one.subject.startsWith("sch_") || !is || is === was)
    return h(
      "details",
      null,
      h("summary", null, "digests"),
      h(
        "ul",
        { class: "diff" },
        one.before ? h("li", null, h("del", null, one.before)) : null,
        one.after ? h("li", null, h("ins", null, one.after)) : null,
      ),
    );
  const kept = revisions.get(one.subject);
  const at = (number) => (kept || []).find((each) => each.revision === number);
  const now = at(is),
    before = was ? at(was) : null;
  const fields = now ? now.changed : [];
  const only = (schedule) => Object.fromEntries(fields.map((field) => [field, schedule[field]]));
  const body = !kept
    ? h("p", { class: "mute" }, "loading…")
    : !now
      ? h("p", { class: "mute" }, "that revision is no longer stored")
      : before
        ? diff(only(before.schedule), only(now.schedule))
        : jsonBlock(now.schedule);
  return h(
    "details",
    { ontoggle: () => loadRevisions(one.subject) },
    h("summary", null, was ? `revision ${was} to ${is}` : "definition"),
    body,
  );
}
