// The keyboard in the grid: one tab stop, arrow keys from cell to cell, Enter opens the run.

import { paint } from "../app/paint.js";

const PAGE_ROWS = 10;

/**
 * Which name or cell of the grid has the focus. A cell is remembered by its time, because slots move on.
 * @typedef {{schedule_id: string, cells: {slot: number, at: string}[]}} GridRow
 */
export class GridFocus {
  /** @type {GridRow[]} */ #rows = [];
  #row = ""; // the id of the schedule
  #at = ""; // the time of the cell, empty for the name of the schedule

  /** Take over the rows of a paint; a row or cell that is gone gives the focus to the one in its place. */
  show(rows) {
    const place = this.#place();
    this.#rows = rows;
    if (!rows.some((row) => row.schedule_id === this.#row)) {
      const next = rows[Math.max(0, Math.min(rows.length - 1, place))];
      [this.#row, this.#at] = [next ? next.schedule_id : "", ""];
    }
    const hadFocus = document.activeElement?.closest(".grid");
    // A row that moves to another place loses the focus.
    if (hadFocus) requestAnimationFrame(() => document.activeElement === document.body && this.#focus());
  }

  isName(row) {
    return row.schedule_id === this.#row && !this.cellOf(row);
  }

  /** The cell of a row that has the focus. @param {any} row */
  cellOf(row) {
    return row.schedule_id === this.#row && this.#at ? nearest(row, this.#at) : null;
  }

  /** A click on a name gives it the focus. */
  onFocus({ target }) {
    const row = target.closest("[data-row]");
    if (row && target.closest(".grid-name") && (this.#at || row.dataset.row !== this.#row)) {
      [this.#row, this.#at] = [row.dataset.row, ""];
      paint();
    }
  }

  onKey(event) {
    if (event.altKey || event.metaKey || event.shiftKey) return;
    const place = this.#place();
    const row = this.#rows[place];
    if (!row) return;
    const last = this.#rows.length - 1;
    const cell = this.cellOf(row);
    const at = cell ? row.cells.indexOf(cell) : -1;
    const moves = {
      ArrowLeft: [place, at - 1],
      ArrowRight: [place, at + 1],
      ArrowUp: [place - 1, null],
      ArrowDown: [place + 1, null],
      PageUp: [Math.max(0, place - PAGE_ROWS), null],
      PageDown: [Math.min(last, place + PAGE_ROWS), null],
      Home: [event.ctrlKey ? 0 : place, -1],
      End: event.ctrlKey ? [last, Infinity] : [place, Infinity],
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    this.#move(...moves[event.key]);
  }

  // Move to a cell of a row by its number; -1 is the name, null is the cell nearest in time.
  #move(place, number) {
    const row = this.#rows[place];
    if (!row) return;
    const wanted = row.cells[Math.min(row.cells.length - 1, number ?? 0)];
    const cell = number === null ? this.#at && nearest(row, this.#at) : number < 0 ? null : wanted;
    [this.#row, this.#at] = [row.schedule_id, cell ? cell.at : ""];
    paint();
    this.#focus();
  }

  #place() {
    return this.#rows.findIndex((row) => row.schedule_id === this.#row);
  }

  #focus() {
    /** @type {HTMLElement | null} */
    const node = document.querySelector('.grid [tabindex="0"]');
    if (node) node.focus();
  }
}

function nearest(row, at) {
  const distance = (cell) => Math.abs(Date.parse(cell.at) - Date.parse(at));
  return row.cells.reduce((best, cell) => (best && distance(best) <= distance(cell) ? best : cell), null);
}
