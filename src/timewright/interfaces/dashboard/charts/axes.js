// The axes of a chart: round values and round times.

import { h } from "../base/dom.js";
import { day, minute } from "../base/times.js";

const MAX_TICK_SHARE = 0.96; // a label further to the right would be cut off
/** The labels of a time axis. @param {{since: string, until: string}} series */
export function timeAxis({ since, until }) {
  const from = Date.parse(since),
    span = Date.parse(until) - from;
  return h(
    "div",
    { class: "axis x", "aria-hidden": "true" },
    timeTicks(from, span)
      .filter(({ at }) => at - from < span * MAX_TICK_SHARE)
      .map(({ at, text }) =>
        h("span", { style: { left: `${(((at - from) / span) * 100).toFixed(2)}%` } }, text),
      ),
  );
}

// The next of 1, 2, 4, 6, 8, 10, 20 … that is not below a value.
export function niceTop(value) {
  if (!(value > 0)) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].find((step) => step * unit >= value) * unit;
}

// The same in the largest unit that fits: 4 m, not 6 m 40 s.
export function niceDuration(seconds) {
  const unit = [3600, 60].find((one) => seconds >= one) || 1;
  return niceTop(seconds / unit) * unit;
}

// Labels of a time axis at round times of the browser's zone: ten minutes, three hours or a day apart.
function timeTicks(from, span) {
  const hours = span / 3_600_000;
  const apart = hours <= 2 ? 600_000 : hours <= 30 ? 3 * 3_600_000 : 86_400_000;
  const offset = new Date(from).getTimezoneOffset() * 60_000;
  const ticks = [];
  for (let at = Math.ceil((from - offset) / apart) * apart + offset; at < from + span; at += apart) {
    const iso = new Date(at).toISOString();
    ticks.push({ at, text: apart === 86_400_000 ? day(iso) : minute(iso) });
  }
  return ticks;
}

export const compactNumber = (n) =>
  n > 0 && n < 0.5
    ? "<1"
    : n >= 10000
      ? `${Math.round(n / 1000)}k`
      : n >= 1000
        ? `${(n / 1000).toFixed(1)}k`
        : String(Math.round(n));
