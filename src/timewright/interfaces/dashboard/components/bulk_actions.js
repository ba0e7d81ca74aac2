// Bulk actions: select rows, confirm once, then change each row with its own request.

import { refresh } from "../app/refresh.js";
import { currentNamespace, get, post } from "../base/api.js";
import { h } from "../base/dom.js";
import { shellQuote } from "./commands.js";
import { confirmDialog } from "./dialog.js";
import { button } from "./layout.js";
import { toast, tryAction } from "./messages.js";

const MAX_ROWS = 1000;

export class BulkActions {
  /**
   * @typedef {{path: (id: string) => string[], command: string, text?: string, label?: string, danger?:
   *   boolean,
   *   fits?: (row: any) => boolean}} Verb what it does to one row, and which rows it fits
   * @param {{noun: string, verbs: Record<string, Verb>, path: string[], field: string}} options `path` lists
   *   the
   *   rows, which are in `field` of the answer
   */
  constructor({ noun, verbs, path, field }) {
    this.noun = noun;
    this.verbs = verbs;
    this.path = path;
    this.field = field;
    this.rows = new Map();
    this.shownFor = "";
    this.moreMatch = false;
  }

  get selection() {
    return {
      selected: this.rows,
      onSelect: (key) => {
        if (!this.rows.delete(key)) this.rows.set(key, null);
        refresh();
      },
      onSelectAll: (keys, on) => {
        for (const key of keys) on ? this.rows.set(key, null) : this.rows.delete(key);
        refresh();
      },
    };
  }

  // Update the selected rows with their current data.
  update(rows) {
    for (const row of rows) if (this.rows.has(row.id)) this.rows.set(row.id, row);
  }

  clear() {
    this.rows.clear();
    this.moreMatch = false;
  }

  // Rows that a new filter or namespace hides must not be changed unseen.
  clearIfChanged(filters) {
    const shownFor = JSON.stringify([currentNamespace(), filters]);
    if (shownFor !== this.shownFor) this.clear();
    this.shownFor = shownFor;
  }

  async selectAll(filters) {
    const answer = await tryAction(() => get(this.path, { ...filters, cursor: "", limit: MAX_ROWS }));
    if (!answer) return;
    for (const row of answer[this.field]) this.rows.set(row.id, row);
    this.moreMatch = Boolean(answer.cursor);
    refresh();
  }

  toolbar(rows, { filters, more }) {
    this.clearIfChanged(filters);
    this.update(rows);
    if (!this.rows.size) return null;
    const allSelected = rows.length && rows.every((row) => this.rows.has(row.id)) && more;
    return h(
      "div",
      { class: "bulk", role: "toolbar", "aria-label": "Bulk actions" },
      h(
        "strong",
        null,
        `${this.rows.size} selected`,
        this.moreMatch ? `, more match: one action changes at most ${MAX_ROWS}` : "",
      ),
      allSelected && !this.moreMatch && this.rows.size < MAX_ROWS
        ? button(`select all matching, up to ${MAX_ROWS}`, () => this.selectAll(filters), { kind: "quiet" })
        : null,
      Object.keys(this.verbs).map((verb) =>
        button(this.verbs[verb].label || verb, () => this.confirmAndRun(verb)),
      ),
      button(
        "clear selection",
        () => {
          this.clear();
          refresh();
        },
        { kind: "quiet" },
      ),
    );
  }

  async confirmAndRun(verb) {
    const { fits = () => true, command, danger, label = verb, path, text = "" } = this.verbs[verb];
    const rows = [...this.rows].filter(([, row]) => row);
    const fit = rows.filter(([, row]) => fits(row));
    if (!fit.length)
      return toast(`${label}: none of the selected ${this.noun}s can be changed this way`, "bad");
    const left = this.rows.size - fit.length;
    const names = fit.map(([id, row]) => shellQuote(row.name || id));
    const shown =
      names.length > 1
        ? `for it in ${names.slice(0, 20).join(" ")}${names.length > 20 ? " …" : ""}; ` +
          `do ${command} "$it"; done`
        : `${command} ${names[0] || this.noun.toUpperCase()}`;
    const answer = await confirmDialog({
      title: `${label} ${fit.length} ${this.noun}${fit.length === 1 ? "" : "s"}?`,
      act: label,
      reason: true,
      danger,
      text: [
        text,
        left
          ? `${left} of the selected cannot be changed this way and stay as they are.`
          : "Each is changed separately; the first error stops the rest.",
      ]
        .filter(Boolean)
        .join(" "),
      command: () => shown,
    });
    if (!answer) return;
    const body = answer.reason ? { reason: answer.reason } : {};
    let done = 0;
    for (const [id] of fit) {
      if ((await tryAction(() => post(path(id), body))) === null) break;
      done += 1;
    }
    this.clear();
    await tryAction(refresh, `${label}: ${done} done`);
  }
}
