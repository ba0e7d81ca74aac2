// The dialog that confirms an action.

import { h } from "../base/dom.js";
import { commandBlock, shellQuote } from "./commands.js";
import { button } from "./layout.js";

/** @typedef {import("../base/dom.js").Child} Child */

/**
 * A dialog that confirms an action: what will happen, its fields and the equivalent command.
 * @typedef {{name: string, label: string, value?: string, type?: string, placeholder?: string, required?:
 *   boolean,
 *   choices?: string[][], options?: string[][]}} DialogField `choices` are buttons that fill the field in,
 *   `options` are all values that it can have
 * @typedef {{title: string, text?: Child, body?: Child, act?: string, reason?: boolean, fields?:
 *   DialogField[],
 *   danger?: boolean, command?: string | ((values: Record<string, string>) => string)}} Dialog
 *
 * @param {Dialog} dialog
 * @returns {Promise<Record<string, string> | null>} the values, or null if it was closed
 */
export function confirmDialog({
  title,
  text,
  body,
  command,
  act = "confirm",
  reason = false,
  fields = [],
  danger = false,
}) {
  return new Promise((done) => {
    const values = {};
    const commandFor = typeof command === "function" ? command : () => command;
    const same = h("div", null);
    const showCommand = () => {
      const text = commandFor(values);
      same.replaceChildren(
        ...(text
          ? [h("span", { class: "mute" }, "Equivalent command:"), commandBlock(text + reasonOption(values))]
          : []),
      );
    };
    const input = (name, { type, options = [], ...props }) => {
      const tag = ["textarea", "select"].includes(type) ? type : "input";
      const shared = {
        ...props,
        name,
        oninput: (e) => {
          values[name] = e.target.value;
          showCommand();
        },
      };
      if (tag === "select")
        return h(
          tag,
          shared,
          options.map(([value, text]) => h("option", { value, selected: value === props.value }, text)),
        );
      return h(tag, tag === "textarea" ? { rows: "4", ...shared } : { type, ...shared });
    };
    const reasonOption = (given) =>
      typeof command === "string" && reason && given.reason ? ` --reason ${shellQuote(given.reason)}` : "";
    const form = h(
      "form",
      {
        method: "dialog",
        onsubmit: (e) => {
          e.preventDefault();
          close(values);
        },
      },
      h("h2", null, title),
      text ? h("p", null, text) : null,
      body || null,
      fields.map((f) => {
        values[f.name] = f.value || "";
        const box = input(f.name, {
          type: f.options ? "select" : f.type || "text",
          value: f.value || "",
          placeholder: f.placeholder || null,
          required: f.required,
          options: f.options,
        });
        return [h("label", null, f.label, box), f.choices ? choiceButtons(f, box) : null];
      }),
      reason
        ? h(
            "label",
            null,
            "Reason (stored with the change)",
            input("reason", { type: "text", maxlength: 2000 }),
          )
        : null,
      same,
      h(
        "div",
        { class: "buttons" },
        h("button", { type: "button", class: "quiet", onclick: () => close(null) }, "close"),
        h("button", { type: "submit", class: danger ? "danger" : "main" }, act),
      ),
    );
    const dialog = h("dialog", { "aria-label": title, oncancel: () => close(null) }, form);
    showCommand();
    const close = (value) => {
      dialog.close();
      dialog.remove();
      done(value);
    };
    document.body.append(dialog);
    dialog.showModal();
    const first = dialog.querySelector("input, textarea, button.main, button.danger");
    if (first) first.focus();
  });
}

// Buttons that fill in the usual values of a field.
/** @param {DialogField} field @param {HTMLInputElement} box */
function choiceButtons({ label, choices }, box) {
  const take = (value) => {
    box.value = value;
    box.dispatchEvent(new Event("input"));
  };
  return h(
    "div",
    { class: "chips", role: "group", "aria-label": label },
    choices.map(([value, text]) => button(text, () => take(value), { kind: "chip" })),
  );
}
