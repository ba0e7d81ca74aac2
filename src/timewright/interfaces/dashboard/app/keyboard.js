// Keyboard shortcuts, and the row that they select.

import { can } from "../base/api.js";
import { h } from "../base/dom.js";
import { SCREENS } from "./screens.js";

// The row selected with j and k stays selected across refreshes.
let picked = "";
/** @returns {NodeListOf<HTMLElement>} */
const markedRows = () => document.querySelectorAll("tr.row[data-to]");
const tableRows = () => [...markedRows()];
export function highlightRow() {
  for (const row of tableRows()) row.classList.toggle("picked", row.dataset.to === picked);
}

export const openSearch = () => import("./command_box.js").then((module) => module.openCommandBox(SCREENS));

export function keys(event) {
  if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    return void openSearch();
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.closest("input, textarea, select, dialog");
  if (event.key === "Escape" && typing && !event.target.closest("dialog")) {
    // By default Escape would clear the search field, and the filter with it.
    event.preventDefault();
    return event.target.blur();
  }
  if (typing) return;
  const rows = tableRows();
  const at = rows.findIndex((row) => row.dataset.to === picked);
  const pick = (n) => {
    if (!rows[n]) return;
    picked = rows[n].dataset.to;
    highlightRow();
    rows[n].scrollIntoView({ block: "nearest" });
  };
  if (event.key === "/") {
    /** @type {HTMLInputElement} */
    const box = document.querySelector("input[data-search], input[type=search]");
    if (box) {
      event.preventDefault();
      box.focus();
      box.select();
    }
  } else if (event.key === "j") pick(Math.min(rows.length - 1, at + 1));
  else if (event.key === "k") pick(Math.max(0, at - 1));
  else if (event.key === "x" && at >= 0) {
    /** @type {HTMLInputElement} */
    const box = rows[at].querySelector("input[type=checkbox]");
    if (box) box.click();
  } else if (event.key === "Enter" && at >= 0) location.hash = rows[at].dataset.to;
  else if (event.key === "?") help();
  else if (event.key === "c" && can("write")) location.hash = "#/create";
  else if (/^[1-9]$/.test(event.key) && SCREENS[Number(event.key) - 1])
    location.hash = `#/${SCREENS[Number(event.key) - 1][0]}`;
}

function help() {
  const rows = [
    ["Ctrl K", "search everything, run an action"],
    ["/", "search in this list"],
    ["j / k", "next or previous row"],
    ["Enter", "open the row"],
    ["x", "select the row, for bulk actions"],
    ["1 … 9", "open a screen by its position"],
    ["c", "new schedule"],
    ["?", "show this list"],
    ["Esc", "leave a field or a dialog"],
  ];
  const dialog = h(
    "dialog",
    { "aria-label": "Keyboard shortcuts", onclose: () => dialog.remove() },
    h("h2", null, "Keyboard shortcuts"),
    h(
      "dl",
      { class: "facts" },
      rows.map(([key, text]) => [h("dt", null, h("kbd", null, key)), h("dd", null, text)]),
    ),
    h("form", { method: "dialog", class: "buttons" }, h("button", { class: "main" }, "close")),
  );
  document.body.append(dialog);
  dialog.showModal();
}
