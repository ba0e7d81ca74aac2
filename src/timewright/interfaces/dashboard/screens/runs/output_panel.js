// The output of a run.

import { paint } from "../../app/paint.js";
import { h } from "../../base/dom.js";
import { commandBlock } from "../../components/commands.js";
import { panel } from "../../components/layout.js";
import { download, outputLines, outputTools } from "./output_view.js";

// What is shown of one run: loaded once, and the viewer's filter of its output.
/** @type {{id: string, loaded: any, output: any, filter: {search: string, level: string}}} */
export const shown = { id: "", loaded: {}, output: null, filter: { search: "", level: "" } };

// The output of each attempt, newest first; live while one is in progress.
export function outputPanel(run) {
  const live = run.state === "leased";
  const { output, filter } = shown;
  const attempts = output ? output.attempts.filter((one) => Object.keys(one.streams).length) : [];
  const setFilter = (next) => {
    shown.filter = next;
    paint();
  };
  const streams = [...attempts]
    .reverse()
    .flatMap((one) => Object.entries(one.streams).map(([name, text]) => ({ one, name, text })));
  const save = () =>
    download(
      `${run.id}.log`,
      streams.map(({ one, name, text }) => `# attempt ${one.attempt}, ${name}\n${text}`).join("\n"),
    );
  const blocks = streams.map(({ one, name, text }) =>
    h(
      "div",
      { key: `${one.fence}${name}` },
      h("h3", null, `attempt ${one.attempt}, ${name}`),
      h(
        "pre",
        {
          class: `json tail${one.ended_at ? "" : " live"}`,
          tabindex: "0",
          "aria-label": `Output of attempt ${one.attempt}`,
        },
        outputLines(text, filter),
      ),
    ),
  );
  return panel(
    "Output",
    h(
      "div",
      null,
      blocks.length
        ? [outputTools(filter, setFilter, save), blocks]
        : h("p", { class: "mute" }, live ? "no output yet" : "no output"),
      commandBlock(`timewright run logs ${run.id}${live ? " --follow" : ""}`),
    ),
    { note: live ? "live, about 1 s behind" : "" },
  );
}
