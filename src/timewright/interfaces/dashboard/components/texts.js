// Links, times and texts from the server.

import { h } from "../base/dom.js";
import {
  clock,
  formatDuration,
  formatTime,
  fullTime,
  minute,
  parseDuration,
  relativeTime,
  secondsUntil,
} from "../base/times.js";

/** @typedef {import("../base/dom.js").Child} Child */
export const link = (to, ...children) => h("a", { href: `#${to}` }, ...children);
export const routeTo = (...parts) => "/" + parts.map(encodeURIComponent).join("/");

export function time(iso, zone, mode = "when") {
  if (!iso) return h("span", { class: "mute" }, "—");
  if (mode === "when") return h("time", { datetime: iso, "data-zone": zone }, formatTime(iso));
  return h(
    "time",
    { datetime: iso, "data-zone": zone, "data-away": mode, class: isLate(iso, mode) ? "warn" : null },
    distance(iso, mode),
  );
}

// A time that has passed is shown as late after 5 s, which allows for the delay of an update.
const isLate = (iso, mode) => mode === "due" && secondsUntil(iso) < -5;
const distance = (iso, mode) =>
  mode === "for"
    ? formatDuration(Math.max(0, -secondsUntil(iso)))
    : isLate(iso, mode)
      ? `late by ${formatDuration(-secondsUntil(iso))}`
      : mode === "due" && secondsUntil(iso) < 0
        ? "now"
        : relativeTime(iso);

// Show a time in all relevant zones as its tooltip, computed only when the pointer is over it.
export function showAllZones({ target }) {
  const node = target.closest && target.closest("time[datetime]");
  if (!node) return;
  const text = fullTime(node.getAttribute("datetime"), node.dataset.zone);
  if (node.title !== text) node.title = text;
}

// Text from the server: its instants in the local zone, its durations as everywhere else, its run ids as
// links.
const PARTS = [
  /(?<instant>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))/,
  /(?<run>\brun_[0-9A-Z]{26})/,
  /(?<![\w.-])(?<duration>(?:\d+(?:\.\d+)?(?:us|ms|s|m|h|d|w))+)(?![\w-])/,
];
const LINKED = new RegExp(PARTS.map((part) => part.source).join("|"), "g");

/** @param {string} text @param {string} [zone] @returns {Child[]} */
export function linkedText(text, zone) {
  const given = String(text || "");
  const parts = [];
  let end = 0;
  for (const found of given.matchAll(LINKED)) {
    const { instant, run, duration } = found.groups;
    const before = given.slice(end, found.index);
    const node = instant
      ? time(instant, zone)
      : run
        ? link(routeTo("runs", run), `${/\brun $/.test(before) ? "" : "run "}…${run.slice(-6)}`)
        : formatDuration(parseDuration(duration));
    parts.push(before, node);
    end = found.index + found[0].length;
  }
  return [...parts, given.slice(end)];
}

export const timeWithDistance = (iso, zone, mode = "away") =>
  !iso
    ? time(iso)
    : h(
        "span",
        { class: "both" },
        time(iso, zone),
        " ",
        h("span", { class: "mute" }, time(iso, zone, mode)),
        zoneTime(iso, zone),
      );

// The time in the zone of a schedule, where it differs from the browser's.
const zoneTime = (iso, zone) =>
  !zone || clock(iso, zone) === clock(iso)
    ? null
    : h("span", { class: "mute zone" }, ` ${minute(iso, zone)} ${zone}`);

// Update countdowns between two refreshes.
export function updateTimes(root) {
  for (const node of root.querySelectorAll("time[data-away]")) {
    const iso = node.getAttribute("datetime"),
      text = distance(iso, node.dataset.away);
    node.classList.toggle("warn", isLate(iso, node.dataset.away));
    if (node.firstChild && node.firstChild.data !== text) node.firstChild.data = text;
  }
  for (const node of root.querySelectorAll("[data-since]")) {
    const share = Math.min(
      1,
      Math.max(0, -secondsUntil(node.dataset.since) / Number(node.dataset.limit || 300)),
    );
    node.style.setProperty("width", `${(share * 100).toFixed(1)}%`);
  }
}
