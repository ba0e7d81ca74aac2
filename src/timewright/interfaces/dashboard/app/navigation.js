// The navigation, and the status of the connection.

import { can, currentNamespace, currentUser } from "../base/api.js";
import { h } from "../base/dom.js";
import { clockOffset, localZone, shortDuration } from "../base/times.js";
import { openSearch } from "./keyboard.js";
import { isUnreachable, secondsBehind } from "./refresh.js";
import { SCREENS } from "./screens.js";
import { signOut } from "./sign_in.js";
import { app } from "./state.js";

export function navigation() {
  const items = SCREENS.map(([name, text]) =>
    h(
      "li",
      { key: name },
      h("a", { href: `#/${name}`, "aria-current": app.current.name === name ? "page" : null }, text),
    ),
  );
  return h(
    "nav",
    { class: "side", "aria-label": "Screens" },
    h("a", { class: "brand", href: "#/overview" }, icon(), "Timewright"),
    h("ul", null, items),
    can("write") ? h("a", { class: "create", href: "#/create" }, "New schedule") : null,
    h(
      "div",
      { class: "who" },
      h("span", { class: "name" }, currentUser().actor || "…"),
      h(
        "span",
        { class: "mute" },
        can("admin") ? "admin" : can("write") ? "editor" : can("trigger") ? "operator" : "viewer",
        currentUser().sign_in_url
          ? null
          : [" · ", h("button", { type: "button", class: "plain", onclick: signOut }, "sign out")],
      ),
      app.namespaces.length > 1
        ? h(
            "label",
            null,
            h("span", { class: "hidden" }, "namespace"),
            h(
              "select",
              {
                name: "namespace",
                value: currentNamespace() || "default",
                onchange: (e) => {
                  location.hash = `#/overview?namespace=${encodeURIComponent(e.target.value)}`;
                },
              },
              app.namespaces.map((name) =>
                h("option", { value: name, selected: name === (currentNamespace() || "default") }, name),
              ),
            ),
          )
        : currentNamespace()
          ? h("span", { class: "mute" }, `in ${currentNamespace()}`)
          : null,
    ),
  );
}

// Inline SVG: an image file would be requested again on every paint.
const icon = () =>
  h(
    "svg",
    { viewBox: "0 0 32 32", width: 22, height: 22, class: "icon", "aria-hidden": "true" },
    h("rect", { width: 32, height: 32, rx: 7 }),
    h("path", { d: "M16 7v9l6 4" }),
    h("circle", { cx: 16, cy: 16, r: 10.5 }),
  );

export function status() {
  const drift =
    Math.abs(clockOffset()) > 2000
      ? h(
          "span",
          { class: "warn", title: "times on this page follow the clock of the server" },
          `this browser's clock is ${shortDuration(Math.abs(clockOffset()) / 1000)} `,
          clockOffset() > 0 ? "slow" : "fast",
        )
      : null;
  return h(
    "div",
    { class: "status" },
    drift,
    h(
      "span",
      { class: "mute", title: "time zone of this page; hover over a time for other zones" },
      app.painted ? localZone() : "",
    ),
    isUnreachable() ? h("span", { class: "warn" }, "✖ server unreachable, retrying") : liveStatus(),
  );
}

export const searchButton = () =>
  h(
    "button",
    { type: "button", class: "search-all", "aria-keyshortcuts": "Control+K", onclick: openSearch },
    h("span", null, "Search"),
    h("kbd", null, "Ctrl K"),
  );
function liveStatus() {
  const behind = secondsBehind();
  if (app.live && behind)
    return h(
      "span",
      { class: "warn", title: "events arrived that this page does not show yet" },
      `● live, ${behind} s behind`,
    );
  return h(
    "span",
    {
      class: app.live ? "live" : "polling",
      title: app.live ? "updates arrive as they happen" : "no event stream; the page polls",
    },
    app.live ? "● live" : "○ polling",
  );
}
