// The command that does the same as the form.

import { shellQuote } from "../../components/commands.js";
import { form, request } from "./form.js";

// The options of a target of which only the main field is set; others are given as data.
const TARGET_OPTIONS = {
  note: ({ text, ...rest }) => [rest, "--note", text],
  call: ({ name, ...rest }) => [rest, "--call", name],
  http: ({ method = "GET", url, ...rest }) => [rest, "--http", method, url],
  handoff: (rest) => [rest, "--handoff"],
};
function targetOptions({ kind, ...fields }) {
  const [rest, ...words] = (TARGET_OPTIONS[kind] || ((all) => [all]))(fields);
  const isShort = words.length && !Object.keys(rest).length && words.every((word) => word !== undefined);
  return isShort ? words : ["--target", JSON.stringify({ kind, ...fields })];
}

export function command() {
  const { target, ...made } = request();
  const words = [
    ...(form.editing ? ["update", form.editing] : ["create", form.draft.name || "NAME"]),
    ...(target ? targetOptions(target) : []),
  ];
  for (const [name, value] of Object.entries(made)) {
    const option = `--${name.replaceAll("_", "-")}`;
    const isTexts = Array.isArray(value) && value.length > 0 && value.every((one) => typeof one === "string");
    if (value === true) words.push(option);
    else if (isTexts) words.push(...value.flatMap((one) => [option.replace(/s$/, ""), one]));
    else words.push(option, typeof value === "string" ? value : JSON.stringify(value));
  }
  return `timewright schedule ${words.map(shellQuote).join(" ")}`;
}
