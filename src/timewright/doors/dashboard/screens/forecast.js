// The load ahead, a cell for each hour of the week; who makes the peaks, and what would flatten them.

import { get } from "../api.js";
import { heat } from "../charts.js";
import { h } from "../dom.js";
import { queryBar } from "../query.js";
import { day, minute, span } from "../times.js";
import { copied, link, panel, place, quoted, table } from "../widgets.js";

const QUALIFIERS = { group: { said: "of which group" }, days: { said: "how many ahead", values: ["1", "7", "14", "31"] } };
let pinned = "";

export default {
  title: () => "Forecast",
  load: (_path, params) => get(["forecast"], { days: params.days || 7, group: params.group }),
  view(data, _path, params, go) {
    const busy = [...data.hours].sort((a, b) => b.starts - a.starts)[0];
    const total = data.hours.reduce((sum, hour) => sum + hour.starts, 0);
    const bar = queryBar({ qualifiers: QUALIFIERS, free: "group", hint: "press / to find: a group, days:14", params, go });
    const hover = (event) => { const cell = event.target.closest("[data-hour]"); if (cell) tell(data, cell.dataset.hour); };
    return h("div", { class: "screen" }, bar, h("p", { class: "lead" }, `${total.toLocaleString("en")} starts of ${data.schedules} schedules, if nothing changes`, data.more ? " (there is more than was counted)" : ""),
      h("div", { onmouseover: hover, onfocusin: hover }, panel("Starts an hour", h("div", null, heat(data.hours, { value: (hour) => hour.starts, label: "starts in each hour" }), h("div", { id: "hour", class: "hour", "aria-live": "polite" }, told(data.hours.find((hour) => hour.at === pinned) || busy))), { note: "point at an hour to see who" })),
      data.herds.length ? panel("Too many at once", herds(data), { note: "schedules that start in the same minute, and what would spread them" }) : null,
      panel("Work an hour", heat(data.hours, { value: (hour) => hour.seconds / 60, label: "minutes of work in each hour" }), { note: `in minutes, as long as runs usually take; together ${span(data.hours.reduce((sum, hour) => sum + hour.seconds, 0))}` }),
      copied(`timewright forecast${params.days ? ` --days ${quoted(params.days)}` : ""}${params.group ? ` --group ${quoted(params.group)}` : ""}`));
  },
};

function tell(data, at) {
  if (pinned === at) return;
  pinned = at;
  const holder = document.getElementById("hour");
  const hour = data.hours.find((one) => one.at === at);
  if (holder && hour) holder.replaceChildren(...told(hour));
}

function told(hour) {
  if (!hour) return [];
  return [h("strong", null, `${day(hour.at)} ${minute(hour.at)}`), h("span", null, ` ${hour.starts} starts, ${span(hour.seconds) || "0 s"} of work: `), h("span", { class: "names inline" }, hour.most.map((one) => h("span", null, link(place("schedules", one.schedule), one.schedule), h("span", { class: "mute" }, ` × ${one.starts}`))))];
}

function herds(data) {
  return table("herds", [{ name: "minute", kind: "tight" }, { name: "together", kind: "tight" }, { name: "who" }, { name: "to spread them" }], data.herds.map((herd) => ({
    key: herd.at, cells: [`${day(herd.at)} ${minute(herd.at)}`, h("span", null, `${herd.schedules.length}${herd.more ? "+" : ""}`, h("span", { class: "mute" }, ` → ${herd.after}`)), h("span", { class: "names" }, herd.schedules.map((name) => link(place("schedules", name), name))), h("details", null, h("summary", null, `spread over up to ${herd.spread}`), herd.commands.map((command) => copied(command)))],
  })));
}
