// Times in the browser's zone, durations as text, and a clock synchronized with the server.

let ahead = 0; // milliseconds that the server's clock is ahead of this browser's

export const syncClock = (iso) => {
  if (iso) ahead = Date.parse(iso) - Date.now();
};
export const now = () => Date.now() + ahead;

// The Date header of an answer is cut to the second and up to a second old, so it only corrects a clock that
// is further away than that.
const MAX_HEADER_ERROR_MS = 2000;
/**
 * The server writes the header at some time between the request and its answer, which may take long.
 * @param {string | null} date @param {number} sentAt by the browser's clock
 */
export function checkClock(date, sentAt) {
  const server = Date.parse(date || "") + MAX_HEADER_ERROR_MS / 2;
  if (server < sentAt + ahead - MAX_HEADER_ERROR_MS) ahead = server - sentAt;
  else if (server > now() + MAX_HEADER_ERROR_MS) ahead = server - Date.now();
}
export const clockOffset = () => ahead;

// The name of the browser's time zone. Reading it is slower than painting a page, so it is read on demand.
let zoneName = "";
export const localZone = () => (zoneName = zoneName || Intl.DateTimeFormat().resolvedOptions().timeZone);

const cache = new Map();
function formatter(of, options) {
  const key = of + JSON.stringify(options);
  if (!cache.has(key)) cache.set(key, new Intl.DateTimeFormat("en-GB", { timeZone: of, ...options }));
  return cache.get(key);
}

const DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const NUMBERS = {
  year: "numeric",
  month: "numeric",
  day: "numeric",
  hour: "numeric",
  minute: "numeric",
  second: "numeric",
  hourCycle: "h23",
};
const two = (number) => String(number).padStart(2, "0");

// A date whose UTC fields show the wall clock of a zone, or of the browser without a zone.
function wallClock(iso, of) {
  const at = new Date(iso);
  if (!of) return new Date(at.getTime() - at.getTimezoneOffset() * 60_000);
  const part = Object.fromEntries(
    formatter(of, NUMBERS)
      .formatToParts(at)
      .map(({ type, value }) => [type, Number(value)]),
  );
  return new Date(Date.UTC(part.year, part.month - 1, part.day, part.hour, part.minute, part.second));
}

const clockOf = (at) => `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}:${two(at.getUTCSeconds())}`;
const dayOf = (at) => `${DAYS[at.getUTCDay()]} ${two(at.getUTCDate())} ${MONTHS[at.getUTCMonth()]}`;
export const clock = (iso, of) => (iso ? clockOf(wallClock(iso, of)) : "");
export const minute = (iso, of) => clock(iso, of).slice(0, 5);
export const day = (iso, of) => dayOf(wallClock(iso, of));

// The time alone for today, otherwise with the date.
export function formatTime(iso, of) {
  if (!iso) return "";
  const at = wallClock(iso, of),
    today = wallClock(now(), of);
  const year = at.getUTCFullYear() !== today.getUTCFullYear() ? ` ${at.getUTCFullYear()}` : "";
  return !year && dayOf(at) === dayOf(today) ? clockOf(at) : `${dayOf(at)}${year} ${clockOf(at)}`;
}

const offsetAt = (ms, zone) =>
  formatter(zone, { timeZoneName: "longOffset" })
    .formatToParts(new Date(ms))
    .find((part) => part.type === "timeZoneName").value;

// The next daylight-saving change of a zone within a year, or null.
export function nextClockChange(zone, from = now()) {
  let low = from;
  const began = offsetAt(low, zone);
  let high = low;
  do {
    low = high;
    high += 7 * 86_400_000;
    if (high > from + 370 * 86_400_000) return null;
  } while (offsetAt(high, zone) === began);
  while (high - low > 60_000) {
    const middle = (low + high) / 2;
    if (offsetAt(middle, zone) === began) low = middle;
    else high = middle;
  }
  // The change is at a whole minute after `low` and not after `high`, which lies less than a minute later.
  const at = Math.floor(high / 60_000) * 60_000;
  return { at: new Date(at).toISOString(), from: began, to: offsetAt(at + 60_000, zone) };
}

const WHOLE = {
  weekday: "short",
  day: "2-digit",
  month: "short",
  year: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
  timeZoneName: "shortOffset",
};
export function fullTime(iso, of) {
  if (!iso) return "";
  const zones = [...new Set([localZone(), of || localZone(), "UTC"])];
  const format = (z) => `${formatter(z, WHOLE).format(new Date(iso))} (${z})`;
  return zones.map(format).join("\n");
}

/** @type {[string, number][]} */
const UNITS = [
  ["d", 86400],
  ["h", 3600],
  ["m", 60],
  ["s", 1],
];

export function formatDuration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "";
  const size = Math.abs(seconds);
  if (size < 0.0005) return "0 s";
  if (size < 1) return `${Math.round(size * 1000)} ms`;
  if (size < 9.95) return `${size.toFixed(1).replace(".0", "")} s`;
  let left = Math.round(size);
  const parts = [];
  for (const [unit, length] of UNITS) {
    const count = Math.floor(left / length);
    if (count && parts.length < 2) parts.push(`${count} ${unit}`);
    left -= count * length;
  }
  return parts.join(" ");
}

/** A duration of the API, such as 1h30m, as it is shown. @param {string | null | undefined} text */
export const durationText = (text) => (text ? formatDuration(parseDuration(text)) : "");

// A duration in one unit, for table columns: 13 m instead of 13 m 2 s.
export function shortDuration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "—";
  if (seconds < 60) return formatDuration(seconds < 10 ? seconds : Math.round(seconds));
  const [unit, length] = UNITS.find(([, size]) => seconds >= size);
  const count = seconds / length;
  return `${count < 10 && unit !== "m" ? count.toFixed(1).replace(/\.0$/, "") : Math.round(count)} ${unit}`;
}

// "4h" means four hours from now; an instant stays as it is.
export function toInstant(text) {
  const ahead = /^(\d+(\.\d+)?(ms|w|d|h|m|s))+$/.test(text.trim()) ? parseDuration(text) : null;
  return ahead === null
    ? text
    : new Date(Math.round(now() / 1000 + ahead) * 1000).toISOString().replace(".000Z", "Z");
}

export const secondsUntil = (iso) => (Date.parse(iso) - now()) / 1000;

export function relativeTime(iso) {
  const seconds = secondsUntil(iso);
  if (Math.abs(seconds) < 0.5) return "now";
  return seconds > 0 ? `in ${formatDuration(seconds)}` : `${formatDuration(-seconds)} ago`;
}

export const secondsBetween = (from, to) => (from && to ? (Date.parse(to) - Date.parse(from)) / 1000 : null);

// From the planned time to the first start, and from there to the end: retries lengthen a run but do not
// delay it.
export const startDelay = (run) =>
  formatDuration(secondsBetween(run.planned_at, run.first_started_at)) || "—";
export const totalDuration = (run) =>
  formatDuration(secondsBetween(run.first_started_at, run.finished_at)) || "—";

// Parse a duration of the API, such as 1h30m or 1.5s, into seconds.
export function parseDuration(text) {
  if (typeof text === "number") return text;
  if (!text) return null;
  let total = 0;
  for (const [, number, unit] of String(text).matchAll(/([\d.]+)(us|µs|ms|w|d|h|m|s)/g)) {
    total +=
      Number(number) * { us: 1e-6, µs: 1e-6, ms: 1e-3, s: 1, m: 60, h: 3600, d: 86400, w: 604800 }[unit];
  }
  return total;
}
