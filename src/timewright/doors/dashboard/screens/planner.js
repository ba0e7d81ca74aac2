// What the planner has looked at, what it proposed, what that cost, and the hints that are in force.

import { get } from "../api.js";
import { h } from "../dom.js";
import { empty, facts, link, pager, panel, place, table, time } from "../widgets.js";

const HINT = "timewright hint interval NAME --interval 1m --ttl 1h --reason 'a release'";
// Schedules that take hints are few; those whose next time a hint has decided are shown with what it would be without.
async function ledger() {
  const page = await get(["schedules"], { limit: 200, state: "active" });
  const hinted = page.schedules.filter((row) => String(row.source || "").startsWith("ai-")).slice(0, 20);
  return Promise.all(hinted.map((row) => get(["hints"], { schedule: row.name })));
}

export default {
  title: () => "Planner",
  every: 15,
  async load(_path, params) {
    const [told, hints] = await Promise.all([get(["analyses"], { cursor: params.cursor }), ledger().catch(() => [])]);
    return { ...told, hints };
  },
  view(data, _path, params, go) {
    const rows = data.analyses.map((one) => ({ key: one.id, cells: [time(one.at), link(place("schedules", one.schedule), one.schedule), h("span", { class: "names" }, one.advisor, one.model ? h("span", { class: "tag" }, one.model) : null), h("div", null, one.reasoning, more(one)), one.tokens ? String(one.tokens) : "—"] }));
    const wishes = data.hints.flatMap((told) => Object.entries(told.hints).filter(([, hint]) => hint).map(([kind, hint]) => ({ key: told.schedule + kind, cells: [link(place("schedules", told.schedule), told.schedule), hint.interval ? `every ${hint.interval}` : kind.replace("_", " "), h("span", null, hint.reason, hint.actor ? h("span", { class: "mute" }, ` by ${hint.actor}`) : ""), time(hint.expires_at || hint.until, undefined, "away"), time(told.next_at, undefined, "away"), time(told.without_hints, undefined, "away")] })));
    return h("div", { class: "screen" },
      wishes.length ? panel("Hints in force", table("hints", [{ name: "schedule" }, { name: "wish", kind: "tight" }, { name: "why" }, { name: "gone", kind: "tight" }, { name: "next", kind: "tight" }, { name: "without it", kind: "tight" }], wishes)) : null,
      rows.length ? panel("Analyses", table("analyses", [{ name: "when", kind: "tight" }, { name: "schedule" }, { name: "by" }, { name: "what it saw" }, { name: "tokens", kind: "tight" }], rows), { note: `${data.spent.tokens ?? 0} tokens this month` }) : empty(wishes.length ? "No advisor has looked at anything; these hints were given by hand." : "The planner has not looked at anything. Hints can be given by hand:", HINT), pager(data, params, go));
  },
};

const more = (one) => h("details", null, h("summary", null, one.proposals.length ? `${one.proposals.length} proposed` : "nothing proposed"), one.proposals.length ? h("ul", { class: "because" }, one.proposals.map((text) => h("li", null, String(text)))) : null, facts([["confidence", one.confidence], ["tools", one.tools.join(", ")], ["took", one.took], ["cost", one.cost ? String(one.cost) : ""], ["warnings", one.warnings.join("; ")], ["looks again", one.look_again_at ? time(one.look_again_at, undefined, "away") : ""]]));
