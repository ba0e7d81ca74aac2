// Draw the page: navigation, title, status and the screen.

import { h, replace } from "../base/dom.js";
import { problemBox } from "../components/messages.js";
import { routeTo, updateTimes } from "../components/texts.js";
import { highlightRow } from "./keyboard.js";
import { navigation, searchButton, status } from "./navigation.js";
import { go } from "./route.js";
import { SCREENS } from "./screens.js";
import { app } from "./state.js";

// Run work after the browser has painted the page.
export const afterPaint = (work) =>
  requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(work, 0)));

// Paint once per frame, however often a paint is requested.
let frame = 0;
export function requestPaint() {
  if (!frame) frame = requestAnimationFrame(paint);
}

export function paint() {
  cancelAnimationFrame(frame);
  frame = 0;
  if (app.signedOut) return;
  const holder = document.getElementById("app");
  const title =
    (app.current.screen && app.current.screen.title(app.current.path, app.current.data)) ||
    (SCREENS.find(([name]) => name === app.current.name) || [])[1] ||
    "Timewright";
  document.title = `${title} · Timewright`;
  let body;
  try {
    body =
      app.current.screen && app.current.data
        ? app.current.screen.view(app.current.data, app.current.path, app.current.params, go)
        : h("p", { class: "boot" }, app.current.problem ? "" : "Loading…");
  } catch (problem) {
    body = problemBox(problem);
  }
  const atEnd = scrolledToEnd();
  replace(
    holder,
    h(
      "div",
      { class: "shell" },
      navigation(),
      h(
        "main",
        {
          id: "main",
          tabindex: "-1",
          "data-at":
            app.current.data || app.current.problem ? routeTo(app.current.name, ...app.current.path) : null,
        },
        h(
          "header",
          { class: "top" },
          h("h1", null, title),
          h("span", { class: "grow" }),
          searchButton(),
          status(),
        ),
        app.current.problem ? problemBox(app.current.problem) : null,
        body,
      ),
    ),
  );
  updateTimes(holder);
  highlightRow();
  for (const node of document.querySelectorAll("pre.tail"))
    if (atEnd.has(node) ? atEnd.get(node) : node.classList.contains("live"))
      node.scrollTop = node.scrollHeight;
}

// Output that is scrolled to its end stays at the end; output scrolled up keeps its position.
const scrolledToEnd = () =>
  new Map(
    [...document.querySelectorAll("pre.tail")].map((node) => [
      node,
      node.scrollHeight - node.scrollTop - node.clientHeight < 24,
    ]),
  );
