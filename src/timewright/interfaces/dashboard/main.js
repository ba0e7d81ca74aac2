// The start of the dashboard: session, listeners, first screen and event stream.

import { keys } from "./app/keyboard.js";
import { afterPaint, requestPaint } from "./app/paint.js";
import { onEvent, refresh, scheduleRefresh, secondsBehind } from "./app/refresh.js";
import { route } from "./app/route.js";
import { loadAllScreens } from "./app/screens.js";
import { returnToScreen, showSignIn } from "./app/sign_in.js";
import { app } from "./app/state.js";
import { dropPreloaded, get, loadSession, subscribeToEvents, watchSession } from "./base/api.js";
import { h, replace } from "./base/dom.js";
import { problemBox, toast } from "./components/messages.js";
import { showAllZones, updateTimes } from "./components/texts.js";

async function start() {
  // The first screen's data is already being fetched (preload.js), so waiting for the session costs nothing.
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  });
  try {
    await loadSession();
  } catch (problem) {
    return problem.status === 401
      ? showSignIn("Sign in")
      : replace(document.getElementById("app"), h("div", { class: "closed" }, problemBox(problem)));
  }
  returnToScreen();
  watchSession(() => showSignIn("You were signed out"));
  history.scrollRestoration = "manual";
  addEventListener("hashchange", route);
  document.addEventListener("keydown", keys);
  document.addEventListener("click", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    /** @type {HTMLElement} */
    const row = target.closest("tr.row[data-to]");
    if (row && !target.closest("a, button, input, label")) location.hash = row.dataset.to;
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) refresh();
  });
  setInterval(() => {
    if (!document.hidden) {
      updateTimes(document);
      if (secondsBehind()) requestPaint();
    }
  }, 1000);
  document.addEventListener("mousemove", showAllZones, { passive: true });
  await route();
  dropPreloaded();
  afterPaint(() => {
    app.painted = true;
    loadAllScreens();
    get(["namespaces"]).then(
      (page) => {
        app.namespaces = [...new Set(["default", ...page.namespaces.map((one) => one.name)])];
        requestPaint();
      },
      () => {},
    );
    app.events = subscribeToEvents(onEvent, (connected) => {
      if (app.live !== connected) {
        app.live = connected;
        requestPaint();
        scheduleRefresh();
      }
    });
  });
}

addEventListener("unhandledrejection", (event) =>
  toast(String((event.reason && event.reason.message) || event.reason), "bad"),
);
start();
