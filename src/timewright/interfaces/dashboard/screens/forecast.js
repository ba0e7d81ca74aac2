// The forecast load per hour, the schedules behind each peak, and commands that spread them.

import { get } from "../base/api.js";
import { h } from "../base/dom.js";
import { day, durationText, formatDuration, minute } from "../base/times.js";
import { heatmap } from "../charts/heatmap.js";
import { commandBlock, commandOptions } from "../components/commands.js";
import { panel } from "../components/layout.js";
import { searchBar } from "../components/search_bar.js";
import { table } from "../components/table.js";
import { link, routeTo } from "../components/texts.js";

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
    // The arrow keys move by hours and days while the heat map has the focus.
    const move = (event) => {
      const hours = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -24, ArrowDown: 24 }[event.key];
      if (!hours || !busy) return;
      event.preventDefault();
      const at = data.hours.findIndex((hour) => hour.at === (selectedHour || busy.at));
      const next = data.hours[at + hours];
      if (next) selectHour(data, next.at);
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
        { onmouseover: hover, onkeydown: move },
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
          { note: "point at an hour, or use the arrow keys, for its schedules" },
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
  for (const cell of document.querySelectorAll(".heat.chosen")) cell.classList.remove("chosen");
  document.querySelector(`.heat[data-hour="${at}"]`)?.classList.add("chosen");
}

function hourDetails(hour) {
  if (!hour) return [];
  return [
    h("strong", null, `${day(hour.at)} ${minute(hour.at)}`),
    h("span", null, ` ${number(hour.starts)} starts, ${formatDuration(hour.seconds) || "0 s"} of work: `),
    h(
      "span",
      { class: "names inline" },
      hour.busiest.map((one) =>
        h(
          "span",
          null,
          link(routeTo("schedules", one.schedule), one.schedule),
          h("span", { class: "mute" }, ` × ${number(one.starts)}`),
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
      { name: "Starts", kind: "tight" },
      { name: "With the fix", kind: "tight" },
      { name: "Schedules" },
      { name: "Fix" },
    ],
    data.herds.map((herd) => ({
      key: herd.at,
      cells: [
        `${day(herd.at)} ${minute(herd.at)}`,
        `${herd.schedules.length}${herd.more ? "+" : ""}`,
        String(herd.after),
        h(
          "span",
          { class: "names" },
          herd.schedules.map((name) => link(routeTo("schedules", name), name)),
        ),
        h(
          "details",
          null,
          h("summary", null, `spread over up to ${durationText(herd.spread)}`),
          herd.commands.map((command) => commandBlock(command)),
        ),
      ],
    })),
  );
}
