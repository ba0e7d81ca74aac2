// Instants in the viewer's zone, durations in words, and a clock that follows the server's.

let ahead = 0; // milliseconds that the server's clock is ahead of this browser's

export const follow = (iso) => { if (iso) ahead = Date.parse(iso) - Date.now(); };
export const now = () => Date.now() + ahead;
export const offset = () => ahead;

// What this browser's zone is called; to ask costs more than to draw a page, so that nobody does before they must.
let named = "";
export const here = () => (named = named || Intl.DateTimeFormat().resolvedOptions().timeZone);

const cache = new Map();
function shape(of, options) {
  const key = of + JSON.stringify(options);
  if (!cache.has(key)) cache.set(key, new Intl.DateTimeFormat("en-GB", { timeZone: of, ...options }));
  return cache.get(key);
}

const DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const NUMBERS = { year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric", hourCycle: "h23" };
const two = (number) => String(number).padStart(2, "0");

// The wall clock of a zone, shifted so that its UTC fields are what the clock shows; without a zone that of this browser.
function wall(iso, of) {
  const at = new Date(iso);
  if (!of) return new Date(at.getTime() - at.getTimezoneOffset() * 60_000);
  const part = Object.fromEntries(shape(of, NUMBERS).formatToParts(at).map(({ type, value }) => [type, Number(value)]));
  return new Date(Date.UTC(part.year, part.month - 1, part.day, part.hour, part.minute, part.second));
}

const clockOf = (at) => `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}:${two(at.getUTCSeconds())}`;
const dayOf = (at) => `${DAYS[at.getUTCDay()]} ${two(at.getUTCDate())} ${MONTHS[at.getUTCMonth()]}`;
export const clock = (iso, of) => (iso ? clockOf(wall(iso, of)) : "");
export const minute = (iso, of) => clock(iso, of).slice(0, 5);
export const day = (iso, of) => dayOf(wall(iso, of));

// Today's instants need no date; others do.
export function when(iso, of) {
  if (!iso) return "";
  const at = wall(iso, of), today = wall(now(), of);
  const year = at.getUTCFullYear() !== today.getUTCFullYear() ? ` ${at.getUTCFullYear()}` : "";
  return !year && dayOf(at) === dayOf(today) ? clockOf(at) : `${dayOf(at)}${year} ${clockOf(at)}`;
}

const offsetAt = (ms, zone) => shape(zone, { timeZoneName: "longOffset" }).formatToParts(new Date(ms)).find((part) => part.type === "timeZoneName").value;

// The next instant, within a year, at which the clocks of a zone change; nothing where they never do.
export function nextChange(zone, from = now()) {
  let low = from;
  const began = offsetAt(low, zone);
  let high = low;
  do { low = high; high += 7 * 86_400_000; if (high > from + 370 * 86_400_000) return null; } while (offsetAt(high, zone) === began);
  while (high - low > 60_000) { const middle = (low + high) / 2; if (offsetAt(middle, zone) === began) low = middle; else high = middle; }
  const at = Math.round(high / 60_000) * 60_000;
  return { at: new Date(at).toISOString(), from: began, to: offsetAt(at + 60_000, zone) };
}

const WHOLE = { weekday: "short", day: "2-digit", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "shortOffset" };
export function whole(iso, of) {
  if (!iso) return "";
  const zones = [...new Set([here(), of || here(), "UTC"])];
  const spell = (z) => `${shape(z, WHOLE).format(new Date(iso))} (${z})`;
  return zones.map(spell).join("\n");
}

const UNITS = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

export function span(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "";
  const size = Math.abs(seconds);
  if (size < 0.0005) return "0 s";
  if (size < 1) return `${Math.round(size * 1000)} ms`;
  if (size < 10) return `${size.toFixed(1)} s`;
  let left = Math.round(size);
  const parts = [];
  for (const [unit, length] of UNITS) {
    const count = Math.floor(left / length);
    if (count && parts.length < 2) parts.push(`${count} ${unit}`);
    left -= count * length;
  }
  return parts.join(" ");
}

// One unit, for columns: 13 m rather than 13 m 2 s.
export function brief(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "—";
  if (seconds < 60) return span(seconds < 10 ? seconds : Math.round(seconds));
  const [unit, length] = UNITS.find(([, size]) => seconds >= size);
  const many = seconds / length;
  return `${many < 10 && unit !== "m" ? many.toFixed(1).replace(/\.0$/, "") : Math.round(many)} ${unit}`;
}

// What people mean by 4h is an instant, four hours from now; an instant is itself.
export function instant(text) {
  const ahead = /^(\d+(\.\d+)?(ms|w|d|h|m|s))+$/.test(text.trim()) ? seconds(text) : null;
  return ahead === null ? text : new Date(Math.round(now() / 1000 + ahead) * 1000).toISOString().replace(".000Z", "Z");
}

export const until = (iso) => (Date.parse(iso) - now()) / 1000;

export function away(iso) {
  const seconds = until(iso);
  if (Math.abs(seconds) < 0.5) return "now";
  return seconds > 0 ? `in ${span(seconds)}` : `${span(-seconds)} ago`;
}

export const between = (from, to) => (from && to ? (Date.parse(to) - Date.parse(from)) / 1000 : null);

// The API spells durations like 1h30m or 1.5s; charts need numbers.
export function seconds(text) {
  if (typeof text === "number") return text;
  if (!text) return null;
  let total = 0;
  for (const [, number, unit] of String(text).matchAll(/([\d.]+)(us|µs|ms|w|d|h|m|s)/g)) {
    total += Number(number) * { us: 1e-6, "µs": 1e-6, ms: 1e-3, s: 1, m: 60, h: 3600, d: 86400, w: 604800 }[unit];
  }
  return total;
}
