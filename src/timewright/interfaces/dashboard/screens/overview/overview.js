// The overview: running, upcoming and failed runs, and the health of the instance.

import { afterPaint } from "../../app/paint.js";
import { can, get } from "../../base/api.js";
import { h } from "../../base/dom.js";
import { runLabel, stateDot } from "../../base/states.js";
import { formatDuration, parseDuration, secondsBetween, syncClock } from "../../base/times.js";
import { commandBlock } from "../../components/commands.js";
import { button, counters, emptyState, panel, periodChips } from "../../components/layout.js";
import { link, linkedText, routeTo, time } from "../../components/texts.js";
import { answerList, approvalList, incidentList } from "./attention.js";
import {
  answers,
  approvals,
  charts,
  counts,
  failures,
  forgetOtherNamespace,
  incidents,
  instances,
  loadDetails,
  OVERDUE_S,
  periodOf,
  PERIODS,
} from "./details.js";
import { failureList } from "./failures.js";
import { health, history } from "./history.js";
import { pauseAll, pauseBanner } from "./pauses.js";

export default {
  title: () => "Overview",
  every: 3,
  async load(_path, params) {
    forgetOtherNamespace();
    const data = await get(["now"]);
    syncClock(data.now);
    afterPaint(() => loadDetails(params));
    return data;
  },
  view(data, _path, params, go) {
    const { numbers: n } = data;
    const late = parseDuration(data.late_by) || 0;
    const capped = (count) => (count >= 1000 ? "1000+" : String(count));
    const empty =
      charts &&
      !n.running &&
      !n.due &&
      !n.failed &&
      !n.parked &&
      !n.waiting &&
      !(counts.series || {}).bins?.length;
    return h(
      "div",
      { class: "screen" },
      data.pauses.length ? pauseBanner(data.pauses) : null,
      late > OVERDUE_S ? overdue(late) : null,
      incidents.length ? panel("Open incidents", incidentList(), { more: link("/incidents", "all") }) : null,
      counters([
        ["Running", capped(n.running), "/runs?state=leased", n.running ? "busy" : ""],
        ["Waiting to start", capped(n.waiting), "/runs?state=ready", ""],
        ["Due within 1 hour", capped(n.due), "/schedules?state=active", ""],
        ["Failed in 24 hours", capped(n.failed), "/runs?state=failed", n.failed ? "bad" : ""],
        ["Parked", capped(n.parked), "/runs?state=parked", n.parked ? "warn" : ""],
      ]),
      empty
        ? emptyState(
            [
              "No runs in this period and none due in the next hour. ",
              link("/schedules", "Show all schedules"),
              ", or create one:",
            ],
            "timewright schedule create hello --every 5s --note 'hello'",
          )
        : null,
      panel("Runs over time", history(params, go), {
        id: "history",
        more: periodChips(PERIODS, params.until ? "" : periodOf(params), (period) =>
          go({ ...params, period, until: "" }),
        ),
      }),
      h(
        "div",
        { class: "columns" },
        h(
          "div",
          null,
          answers.length
            ? panel("Questions", answerList(), { note: "workflows that wait for an answer" })
            : null,
          approvals.length
            ? panel("Pending approvals", approvalList(), {
                note: "schedules created by agents; they run after approval",
              })
            : null,
          panel("Running", running(data), {
            more: can("write") ? button("pause all", pauseAll, { kind: "quiet" }) : null,
          }),
          panel("Upcoming", upcoming(data), { more: link("/forecast", "forecast") }),
        ),
        !charts
          ? null
          : h(
              "div",
              null,
              panel("Failures by cause", failureList(failures), {
                note: "last 24 hours",
                more: link("/runs?state=failed", "all"),
              }),
              panel("Health", health(late), { more: link("/instances", "instances") }),
            ),
      ),
    );
  },
};

function overdue(late) {
  const alive = instances && instances.some((one) => one.state === "alive");
  return h(
    "div",
    { class: "failure", role: "alert" },
    h(
      "strong",
      null,
      `Overdue: an occurrence has been due for ${formatDuration(late)} and was not processed.`,
    ),
    h(
      "div",
      { class: "mute" },
      alive
        ? "Instances are alive but cannot keep up. Start another worker:"
        : "No instance is running. Start one:",
    ),
    commandBlock(alive ? "timewright worker" : "timewright up"),
  );
}

// Paint the first rows of a list at once and the rest a moment later.
const FIRST_ROWS = 8;
const firstRows = (rows) => (charts ? rows : rows.slice(0, FIRST_ROWS));

function running(data) {
  if (!data.running.length) return h("p", { class: "mute" }, "no runs in progress");
  return h(
    "ul",
    { class: "lines" },
    firstRows(data.running).map((run) =>
      h(
        "li",
        { key: run.id },
        h(
          "div",
          { class: "line" },
          link(routeTo("runs", run.id), runLabel(run)),
          h(
            "span",
            { class: "mute grow ellipsis end" },
            run.holder ? `by ${run.holder.length > 20 ? `…${run.holder.slice(-6)}` : run.holder}` : "",
          ),
          h("span", null, "for ", time(run.started_at || run.fire_at, undefined, "for")),
        ),
        h(
          "div",
          { class: "elapsed", title: "elapsed share of the lease" },
          h("div", { "data-since": run.started_at || run.fire_at, "data-limit": String(leaseSeconds(run)) }),
        ),
      ),
    ),
  );
}

const leaseSeconds = (run) =>
  Math.max(1, secondsBetween(run.started_at || run.fire_at, run.lease_until) || 300);

function upcoming(data) {
  if (!data.coming.length) return h("p", { class: "mute" }, "nothing due within the next hour");
  const more = data.numbers.due - data.coming.length;
  return h(
    "ol",
    { class: "lines" },
    firstRows(data.coming).map((row) =>
      h(
        "li",
        { key: row.id, class: "line" },
        stateDot(row),
        link(routeTo("schedules", row.name), row.name),
        h("span", { class: "mute grow ellipsis" }, linkedText(row.trigger)),
        time(row.next_at, undefined, "due"),
      ),
    ),
    more > 0
      ? h("li", { key: "more", class: "mute" }, data.numbers.due >= 1000 ? "and more" : `and ${more} more`)
      : null,
  );
}
