// The artifacts of a run: files that its attempts wrote, to download.

import { downloadUrl, get } from "../../base/api.js";
import { h } from "../../base/dom.js";
import { panel } from "../../components/layout.js";

const sizeText = (bytes) =>
  bytes < 1024
    ? `${bytes} B`
    : bytes < 1024 ** 2
      ? `${(bytes / 1024).toFixed(1)} KiB`
      : `${(bytes / 1024 ** 2).toFixed(1)} MiB`;

/** @param {string} run */
export async function fetchArtifacts(run) {
  return (await get(["runs", run, "artifacts"])).artifacts;
}

/** A panel with the files, or null if there are none. */
export function artifactsPanel(found) {
  if (!found || !found.length) return null;
  const several = new Set(found.map((one) => one.fence)).size > 1;
  const row = (one) =>
    h(
      "li",
      null,
      h(
        "a",
        {
          href: downloadUrl(["runs", one.run, "artifacts", one.name], { fence: one.fence }),
          download: one.name,
          title: one.digest,
        },
        one.name,
      ),
      h(
        "span",
        { class: "mute" },
        ` ${sizeText(one.size)} · ${one.type}${several ? ` · fence ${one.fence}` : ""}`,
      ),
    );
  return panel("Artifacts", h("ul", { class: "reasons" }, found.map(row)));
}
