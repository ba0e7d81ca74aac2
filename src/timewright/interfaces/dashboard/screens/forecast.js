// The forecast load per hour, the schedules behind each peak, and commands that spread them.

import { get } from "../api.js";
import { heatmap } from "../charts.js";
import { h } from "../dom.js";
import { searchBar } from "../search_bar.js";
import { day, minute, formatDuration } from "../times.js";
import { commandBlock, commandOptions, link, panel, routeTo, shellQuote, table } from "../widgets.js";

const QUALIFIERS = {
  group: { hint: "group name" },
  days: { hint: "number of days", values: ["1", "7", "14", "31"] },
};
const totalSeconds = (hours) => hours.reduce((sum, hour) => sum + hour.seconds, 0);
const number = (value) => value.toLocaleString("en");
let selectedHour = "";

export default {
  title: () => "Forecast",
  load: (_path, params) => get(["forecast"], { days: params.days || 7, group: params.group }),
  view(data, _path, params, go) {
    const busy = [...data.hours].sort((a, b) => b.starts - a.starts)[0];
    const total = data.hours.reduce((sum, hour) => sum + hour.starts, 0);
    const bar = searchBar({
      qualifiers: QUALIFIERS,
      free: "group",
      hint: "press / to search: group, days:14",
      params,
      go,
    });
    const hover = (event) => {
      const cell = event.target.closest("[data-hour]");
      if (cell) selectHour(data, cell.dataset.hour);
    };
    return h(
      "div",
      { class: "screen" },
      bar,
      h(
        "p",
        { class: "lead" },
        `${number(total)} expected starts of `,
        data.more ? `${number(data.schedules)} of ` : "",
        `${number(data.total)} schedules`,
        data.more
          ? h(
              "span",
              { class: "warn" },
              `${Math.floor((data.schedules / data.total) * 100)} % of the schedules are in this picture; `,
              "choose fewer days or a group to see all",
            )
          : "",
      ),
      h(
        "div",
        { onmouseover: hover, onfocusin: hover },
        panel(
          "Starts per hour",
          h(
            "div",
            null,
            heatmap(data.hours, { value: (hour) => hour.starts, label: "Starts per hour" }),
            h(
              "div",
              { id: "hour", class: "hour", "aria-live": "polite" },
              hourDetails(data.hours.find((hour) => hour.at === selectedHour) || busy),
            ),
          ),
          { note: "hover over an hour for its schedules" },
        ),
      ),
      data.herds.length
        ? panel("Simultaneous starts", herdTable(data), {
            note: "schedules that start in the same minute, with commands that spread them",
          })
        : null,
      panel(
        "Work per hour",
        heatmap(data.hours, { value: (hour) => hour.seconds / 60, label: "Minutes of work per hour" }),
        {
          note: `in minutes, from usual durations; total ${formatDuration(totalSeconds(data.hours))}`,
        },
      ),
      commandBlock(`timewright forecast${commandOptions({ days: params.days, group: params.group })}`),
    );
  },
};

function selectHour(data, at) {
  if (selectedHour === at) return;
  selectedHour = at;
  const holder = document.getElementById("hour");
  const hour = data.hours.find((one) => one.at === at);
  if (holder && hour) holder.replaceChildren(...hourDetails(hour));
}

function hourDetails(hour) {
  if (!hour) return [];
  return [
    h("strong", null, `${day(hour.at)} ${minute(hour.at)}`),
    h("span", null, ` ${hour.starts} starts, ${formatDuration(hour.seconds) || "0 s"} of work: `),
    h(
      "span",
      { class: "names inline" },
      hour.busiest.map((one) =>
        h(
          "span",
          null,
          link(routeTo("schedules", one.schedule), one.schedule),
          h("span", { class: "mute" }, ` × ${one.starts}`),
        ),
      ),
    ),
  ];
}

function herdTable(data) {
  return table(
    "Simultaneous starts",
    [
      { name: "Minute", kind: "tight" },
      { name: "Count", kind: "tight" },
      { name: "Schedules" },
      { name: "Fix" },
    ],
    data.herds.map((herd) => ({
      key: herd.at,
      cells: [
        `${day(herd.at)} ${minute(herd.at)}`,
        h(
          "span",
          null,
          `${herd.schedules.length}${herd.more ? "+" : ""}`,
          h("span", { class: "mute" }, ` → ${herd.after}`),
        ),
        h(
          "span",
          { class: "names" },
          herd.schedules.map((name) => link(routeTo("schedules", name), name)),
        ),
        h(
          "details",
          null,
          h("summary", null, `spread over up to ${herd.spread}`),
          herd.commands.map((command) => commandBlock(command)),
        ),
      ],
    })),
  );
}
