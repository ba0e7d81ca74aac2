// Tables with sortable columns and selectable rows.

import { h } from "../base/dom.js";
import { button, scrollArea } from "./layout.js";

/** @typedef {import("../base/dom.js").Child} Child */

/**
 * @typedef {{name: string, label?: string, kind?: string, sort?: {order: "" | "ascending" | "descending",
 *   run: () => void}}} Column `label` names a column without a visible name
 * @typedef {{key: any, cells: Child[], to?: string | null, tone?: string, label?: string, place?: number}}
 *   Row
 *   `place` identifies the row across paints instead of `key`, so that new rows on top move no other row
 *
 * @param {string} caption @param {Column[]} columns @param {Row[]} rows
 * @param {{selected?: Map<any, any>, onSelect?: (key: any) => void,
 *   onSelectAll?: (keys: any[], on: boolean) => void, fixed?: boolean}} [options] `fixed` columns have the
 *   width of their kind, whatever the rows contain
 */
export function table(caption, columns, rows, { selected, onSelect, onSelectAll, fixed } = {}) {
  const all = rows.length > 0 && selected && rows.every((row) => selected.has(row.key));
  const head = h(
    "tr",
    null,
    onSelect
      ? h(
          "th",
          { scope: "col", class: "narrow" },
          h("input", {
            type: "checkbox",
            "aria-label": "Select all on this page",
            checked: all,
            onchange: () =>
              onSelectAll(
                rows.map((row) => row.key),
                !all,
              ),
          }),
        )
      : null,
    columns.map((c) =>
      h(
        "th",
        { scope: "col", class: c.kind || null, "aria-sort": c.sort && c.sort.order ? c.sort.order : null },
        c.sort
          ? button(`${c.name}${{ ascending: " ▲", descending: " ▼" }[c.sort.order] || ""}`, c.sort.run, {
              kind: "sort",
            })
          : c.name || h("span", { class: "hidden" }, c.label),
      ),
    ),
  );
  const body = rows.map((row) =>
    h(
      "tr",
      { key: row.place ?? row.key, class: "row", "data-to": row.to || null, "data-tone": row.tone || null },
      onSelect
        ? h(
            "td",
            { class: "narrow" },
            h("input", {
              type: "checkbox",
              "aria-label": `Select ${row.label || row.key}`,
              checked: selected.has(row.key),
              onchange: () => onSelect(row.key),
            }),
          )
        : null,
      columns.map((c, n) =>
        h(
          "td",
          { class: row.cells[n] === "—" ? `${c.kind || ""} none` : c.kind || null, "data-name": c.name },
          row.cells[n],
        ),
      ),
    ),
  );
  const node = h(
    "table",
    { class: fixed ? "fixed" : columns.length <= 3 ? "few" : null },
    h("caption", { class: "hidden" }, caption),
    fixed
      ? h(
          "colgroup",
          null,
          onSelect ? h("col", { class: "narrow" }) : null,
          columns.map((c) => h("col", { class: c.kind || null })),
        )
      : null,
    h("thead", null, head),
    h("tbody", null, body),
  );
  return scrollArea(node);
}
