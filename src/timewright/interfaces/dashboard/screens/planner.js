// Analyses of the planner with their proposals and cost, and the active hints.

import { get } from "../base/api.js";
import { h } from "../base/dom.js";
import { durationText } from "../base/times.js";
import { definitionList, emptyState, pager, panel } from "../components/layout.js";
import { table } from "../components/table.js";
import { link, routeTo, time } from "../components/texts.js";

const HINT = "timewright hint interval NAME --interval 1m --ttl 1h --reason 'a release'";
// Schedules whose next occurrence was decided by a hint; at most 20.
async function activeHints() {
  const page = await get(["schedules"], { limit: 200, state: "active" });
  const hinted = page.schedules.filter((row) => String(row.source || "").startsWith("ai-")).slice(0, 20);
  return Promise.all(hinted.map((row) => get(["hints"], { schedule: row.name })));
}

export default {
  title: () => "Planner",
  every: 15,
  async load(_path, params) {
    const [page, hints] = await Promise.all([
      get(["analyses"], { cursor: params.cursor }),
      activeHints().catch(() => []),
    ]);
    return { ...page, hints };
  },
  view(data, _path, params, go) {
    const rows = data.analyses.map((one) => ({
      key: one.id,
      cells: [
        time(one.at),
        link(routeTo("schedules", one.schedule), one.schedule),
        h("span", { class: "names" }, one.advisor, one.model ? h("span", { class: "tag" }, one.model) : null),
        h("div", null, one.reasoning, analysisDetails(one)),
        one.tokens ? String(one.tokens) : "—",
      ],
    }));
    const hintRows = data.hints.flatMap((answer) =>
      Object.entries(answer.hints)
        .filter(([, hint]) => hint)
        .map(([kind, hint]) => ({
          key: answer.schedule + kind,
          cells: [
            link(routeTo("schedules", answer.schedule), answer.schedule),
            hint.interval ? `every ${durationText(hint.interval)}` : kind.replace("_", " "),
            h("span", null, hint.reason, hint.actor ? h("span", { class: "mute" }, ` by ${hint.actor}`) : ""),
            time(hint.expires_at || hint.until, undefined, "away"),
            time(answer.next_at, undefined, "due"),
            time(answer.without_hints, undefined, "away"),
          ],
        })),
    );
    return h(
      "div",
      { class: "screen" },
      hintRows.length
        ? panel(
            "Active hints",
            table(
              "Hints",
              [
                { name: "Schedule" },
                { name: "Hint", kind: "tight" },
                { name: "Reason" },
                { name: "Expires", kind: "tight" },
                { name: "Next", kind: "tight" },
                { name: "Next without hint", kind: "tight" },
              ],
              hintRows,
            ),
          )
        : null,
      rows.length
        ? panel(
            "Analyses",
            table(
              "Analyses",
              [
                { name: "Time", kind: "tight" },
                { name: "Schedule" },
                { name: "Advisor" },
                { name: "Reasoning" },
                { name: "Tokens", kind: "tight" },
              ],
              rows,
            ),
            { note: `${data.spent.tokens ?? 0} tokens this month` },
          )
        : emptyState(
            hintRows.length
              ? "No analyses; these hints were set manually."
              : "No analyses yet. You can set a hint manually:",
            HINT,
          ),
      pager(data, params, go),
    );
  },
};

const proposalCount = (count) => `${count || "no"} ${count === 1 ? "proposal" : "proposals"}`;
const analysisDetails = (one) =>
  h(
    "details",
    null,
    h("summary", null, proposalCount(one.proposals.length)),
    one.proposals.length
      ? h(
          "ul",
          { class: "reasons" },
          one.proposals.map((text) => h("li", null, String(text))),
        )
      : null,
    definitionList([
      ["confidence", one.confidence],
      ["tools", one.tools.join(", ")],
      ["duration", one.took],
      ["cost", one.cost ? String(one.cost) : ""],
      ["warnings", one.warnings.join("; ")],
      ["next analysis", one.look_again_at ? time(one.look_again_at, undefined, "away") : ""],
    ]),
  );
