// Runs over time, and the health of the instance.

import { h } from "../../base/dom.js";
import { stateSign } from "../../base/states.js";
import { formatDuration, formatTime, parseDuration } from "../../base/times.js";
import { statusBadge, worstFirst } from "../../components/layout.js";
import { linkedText } from "../../components/texts.js";
import { charts, checked, counts, instances, OVERDUE_S } from "./details.js";

// Throughput, failures and start delay on one time axis, from counts by minute.
export function history(params, go) {
  const { series } = counts;
  if (!charts || !series) return h("div", { class: "plots" }, h("p", { class: "mute" }, "loading…"));
  if (!series.counted_until)
    return h(
      "p",
      { class: "mute" },
      "not counted yet: the first counts are made a minute after an instance started",
    );
  // A minute opens its runs; an hour of a week opens the minutes of that hour.
  const open = (bin) => {
    const end = Date.parse(bin.at) + series.step * 1000;
    if (series.step >= 3600) return go({ ...params, period: "1h", until: new Date(end).toISOString() });
    const until = new Date(end - 1).toISOString().replace("Z", "999Z");
    location.hash = `#/runs?since=${encodeURIComponent(bin.at)}&until=${encodeURIComponent(until)}`;
  };
  const per = series.step === 60 ? "minute" : series.step === 3600 ? "hour" : `${series.step / 60} minutes`;
  const { total } = series;
  return h(
    "div",
    { class: "plots" },
    charts.resultChart(series, { label: `Runs per ${per}`, open }),
    charts.resultChart(series, { label: `Failures per ${per}`, only: ["failed", "parked", "missed"], open }),
    charts.delayChart(series, { label: "Start delay, median and p95", open }),
    h(
      "p",
      { class: "legend" },
      charts.RESULTS.map(([name, tone, text]) =>
        h(
          "span",
          { class: total[name] ? null : "mute" },
          h("span", { class: `swatch ${tone}`, "aria-hidden": "true" }, h("span", null, stateSign(name))),
          `${(total[name] || 0).toLocaleString("en")} ${text}`,
        ),
      ),
      total.started
        ? h(
            "span",
            null,
            `start delay: median ${seconds(total.median)}, p95 ${seconds(total.p95)}, `,
            `max ${seconds(total.longest)}`,
          )
        : null,
      h(
        "span",
        { class: "mute" },
        params.until ? `${formatTime(series.since)} to ${formatTime(series.until)}, ` : "",
        `by planned time, counted until ${formatTime(series.counted_until).replace(/:00$/, "")}`,
      ),
    ),
  );
}
const seconds = (text) => formatDuration(parseDuration(text));

export function health(late) {
  const alive = instances.filter((one) => one.state === "alive");
  const capacity = alive.reduce((sum, one) => sum + one.capacity, 0),
    busy = alive.reduce((sum, one) => sum + one.under_way, 0);
  const lines = [
    h(
      "li",
      { key: "instances", class: "line" },
      statusBadge(alive.length ? "ok" : "warn"),
      h(
        "span",
        { class: "grow" },
        alive.length
          ? [
              `${alive.length} instance${alive.length === 1 ? "" : "s"} alive, `,
              `${busy} of ${capacity} slots in use`,
            ]
          : "no instance is alive",
      ),
    ),
  ];
  // The same figure as the warning above, so that both agree.
  lines.push(
    h(
      "li",
      { key: "overdue", class: "line" },
      statusBadge(late > OVERDUE_S ? "fail" : "ok"),
      h(
        "span",
        { class: "grow" },
        late > OVERDUE_S ? `an occurrence is overdue by ${formatDuration(late)}` : "nothing is overdue",
      ),
    ),
  );
  for (const [n, one] of [...checked.findings].sort(worstFirst).entries())
    lines.push(
      h(
        "li",
        { key: one.kind + n, class: "line" },
        statusBadge(one.severity),
        h("span", { class: "grow" }, linkedText(one.sentence)),
      ),
    );
  return h("ul", { class: "lines" }, lines);
}
