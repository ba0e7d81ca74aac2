// How much of a limit is in use.

import { h } from "../base/dom.js";

export function gauge(used, max, label, text = `${used} of ${max}`) {
  const share = max ? Math.min(1, used / max) : 0;
  return h(
    "div",
    {
      class: "gauge",
      role: "meter",
      "aria-label": label,
      "aria-valuemin": "0",
      "aria-valuemax": String(max),
      "aria-valuenow": String(used),
    },
    h("div", { class: share >= 1 ? "full" : "", style: { width: `${share * 100}%` } }),
    h("span", null, text),
  );
}
