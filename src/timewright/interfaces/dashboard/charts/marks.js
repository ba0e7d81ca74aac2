// Draw many marks as one path per colour, and find the mark under the pointer.

import { h } from "../base/dom.js";
import { routeTo } from "../components/texts.js";

// Draw many marks as one path per colour; the mark under the pointer is computed from its position.
export function markChart(props, { paths, count, nearest, describe, open }, ...more) {
  const at = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    return nearest((event.clientX - box.left) / (box.width || 1));
  };
  const title = h("title", null, "");
  const showTitle = (event) => {
    const n = at(event);
    const text = n >= 0 && n < count ? describe(n) : "";
    const holder = event.currentTarget.querySelector("title");
    if (holder.textContent !== text) holder.textContent = text;
  };
  const onClick = (event) => {
    const n = at(event);
    if (n < 0 || n >= count) return;
    event.stopPropagation();
    open(n);
  };
  return h(
    "svg",
    { ...props, role: "img", onmousemove: showTitle, onclick: onClick },
    title,
    more,
    [...paths].map(([kind, d]) => h("path", { d, class: `fill-${kind}` })),
  );
}

export const openRun = (run) => {
  if (run) location.hash = routeTo("runs", run);
};

export const addMark = (paths, kind, d) => paths.set(kind, (paths.get(kind) || "") + d);
