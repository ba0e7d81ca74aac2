// The differences of two values.

import { h } from "../base/dom.js";

// The fields that differ between two values; objects are compared recursively, lists as a whole.
export function differences(before, after) {
  const rows = [];
  const walk = (was, is, path) => {
    if (isObject(was) && isObject(is))
      for (const key of new Set([...Object.keys(was), ...Object.keys(is)]))
        walk(was[key], is[key], path ? `${path}.${key}` : key);
    else if (JSON.stringify(was) !== JSON.stringify(is)) rows.push([path, was, is]);
  };
  walk(before, after, "");
  return rows;
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
export const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));

export function diff(before, after) {
  const rows = differences(before, after);
  if (!rows.length) return h("p", { class: "mute" }, "no differences");
  const gone = (value) => value === undefined || value === null || value === "";
  return h(
    "ul",
    { class: "diff" },
    rows.map(([path, was, is]) =>
      h(
        "li",
        { key: path },
        h("code", null, path || "value"),
        gone(was) ? null : h("del", null, text(was)),
        gone(is) ? (gone(was) ? null : h("span", { class: "mute" }, "removed")) : h("ins", null, text(is)),
      ),
    ),
  );
}
