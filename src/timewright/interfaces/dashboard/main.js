// The application shell: session, routing, navigation and refresh. Each screen module is loaded when it is
// first opened.

import {
  loadSession,
  currentNamespace,
  setNamespace,
  dropPreloaded,
  get,
  endSession,
  subscribeToEvents,
  currentUser,
  can,
  watchSession,
  Problem,
} from "./api.js";
import { h, replace } from "./dom.js";
import { tryAction, problemBox, routeTo, showAllZones, updateTimes, toast } from "./widgets.js";
import { localZone, clockOffset } from "./times.js";

const SCREENS = [
  ["overview", "Overview", "./screens/overview.js"],
  [
    "schedules",
    "Schedules",
    ([name, edit]) =>
      `./screens/${!name ? "schedule_list" : edit === "edit" ? "edit_schedule" : "schedule"}.js`,
  ],
  ["runs", "Runs", ([id]) => `./screens/${id ? "run" : "run_list"}.js`],
  ["grid", "Grid", "./screens/grid.js"],
  ["queues", "Queues", "./screens/queues.js"],
  ["workflows", "Workflows", "./screens/workflows.js"],
  ["forecast", "Forecast", "./screens/forecast.js"],
  ["planner", "Planner", "./screens/planner.js"],
  ["instances", "Instances", "./screens/instances.js"],
  ["audit", "Audit", "./screens/audit.js"],
  ["settings", "Settings", "./screens/settings.js"],
  ["incidents", "Incidents", "./screens/incidents.js"],
];
const HIDDEN = { create: "./screens/edit_schedule.js" };

let current = { screen: null, name: "", path: [], params: {}, data: null, problem: null, asked: 0 };
let live = false;
let timer = 0;
let namespaces = [];
let events = { end: () => {}, reconnect: () => {} };
let signedOut = false;
let painted = false; // whether the first screen was painted

function screenFile({ name: wanted, path }) {
  const file = (SCREENS.find(([name]) => name === wanted) || [])[2] || HIDDEN[wanted];
  return typeof file === "function" ? file(path) : file;
}

function parseHash() {
  const [path, query] = location.hash.replace(/^#/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  return {
    name: parts[0] || "overview",
    path: parts.slice(1),
    params: Object.fromEntries(new URLSearchParams(query || "")),
  };
}

export function go(params) {
  const kept = Object.fromEntries(
    Object.entries(params).filter(([, v]) => v !== "" && v !== undefined && v !== null),
  );
  const query = new URLSearchParams(kept).toString();
  const path = "/" + [current.name, ...current.path].map(encodeURIComponent).join("/");
  location.hash = path + (query ? `?${query}` : "");
}

// Where each entry of the browser's history was scrolled to. A new entry has no number yet.
const scrolled = new Map();
let entry = 0;
let entries = 0;
function rememberScroll() {
  scrolled.set(entry, scrollY);
  const known = (history.state || {}).entry;
  entry = known || ++entries;
  if (!known) history.replaceState({ entry }, "");
  return known ? scrolled.get(known) || 0 : 0;
}

async function route() {
  if (signedOut) return;
  const scrollTop = rememberScroll();
  const next = parseHash();
  const before = document.activeElement;
  const file = screenFile(next);
  const fresh = next.name !== current.name || next.path.join("/") !== current.path.join("/");
  if (!file)
    return show({
      ...next,
      screen: null,
      problem: { message: `no screen named ${next.name}`, fix: "choose a screen in the navigation" },
    });
  const module = await import(file).catch(() => null);
  if (!module) return retryRoute(next);
  const screen = module.pick ? module.pick(next.path) : module.default;
  current = { ...next, screen, data: fresh ? null : current.data, problem: null, asked: 0 };
  syncNamespace(next.params.namespace);
  // Data that arrives within 60 ms is painted once; otherwise show the empty screen first.
  const waiting = setTimeout(requestPaint, 60);
  await refresh();
  clearTimeout(waiting);
  if (fresh) {
    const item = document.querySelector(".side [aria-current]");
    if (item) item.scrollIntoView({ block: "nearest", inline: "center" });
    scrollTo(0, scrollTop);
    const main = document.getElementById("main");
    if (main && focusUnchanged(before)) main.focus({ preventScroll: true });
  }
}

// A screen that was never opened cannot be loaded while the server is unreachable.
function retryRoute(next) {
  show({
    ...next,
    screen: null,
    data: null,
    problem: new Problem(0, {
      code: "unreachable",
      detail: "The server does not respond. This page retries until it is back.",
      fix: "timewright up",
    }),
  });
  clearTimeout(timer);
  timer = setTimeout(route, 3000);
}

// Load the other screens when the browser is idle, so that they open while the server is unreachable.
const SCREEN_FILES = [
  "overview",
  "schedule_list",
  "schedule",
  "edit_schedule",
  "run_list",
  "run",
  "grid",
  "queues",
  "workflows",
  "forecast",
  "planner",
  "instances",
  "audit",
  "settings",
  "incidents",
];
const loadAllScreens = () =>
  requestIdleCallback(() => {
    for (const name of SCREEN_FILES) import(`./screens/${name}.js`).catch(() => {});
  });

// Whether the focus stayed where it was while the screen loaded; do not take it from someone who started
// typing.
const focusUnchanged = (before) => [before, document.body].includes(document.activeElement);

// Keep the namespace selected last, and put it into the address so that links can be shared.
function syncNamespace(asked) {
  const before = currentNamespace();
  if (asked !== undefined) setNamespace(asked === "default" ? "" : asked);
  if (asked === undefined && currentNamespace())
    history.replaceState(
      history.state,
      "",
      location.hash +
        `${location.hash.includes("?") ? "&" : "?"}namespace=${encodeURIComponent(currentNamespace())}`,
    );
  if (before !== currentNamespace()) events.reconnect();
}

function show(next) {
  current = { ...current, ...next };
  paint();
}

// One refresh at a time; a request during a refresh causes one more refresh after it.
let refreshing = false;
let refreshAgain = false;
export async function refresh() {
  if (signedOut) return;
  if (refreshing) {
    refreshAgain = true;
    return;
  }
  refreshing = true;
  clearTimeout(eventTimer);
  eventTimer = 0;
  [loadingSince, waitingSince] = [waitingSince, 0];
  const at = current,
    startedAt = Date.now();
  try {
    const data = at.screen && at.screen.load ? await at.screen.load(at.path, at.params) : {};
    if (current.screen === at.screen && current.name === at.name)
      current = { ...current, data, problem: null };
  } catch (problem) {
    waitingSince = loadingSince || waitingSince;
    if (current.screen === at.screen) current = { ...current, problem };
  } finally {
    refreshing = false;
    loadingSince = 0;
  }
  paint();
  scheduleRefresh();
  if (refreshAgain) {
    refreshAgain = false;
    refresh();
  } else if (waitingSince)
    eventTimer = setTimeout(
      refresh,
      Math.min(
        MAX_EVENT_DELAY_MS,
        Math.max((current.screen || {}).eventDelayMs || EVENT_DELAY_MS, Date.now() - startedAt),
      ),
    );
}

function scheduleRefresh() {
  clearTimeout(timer);
  // While the server is unreachable retry every 3 s, also on screens that do not refresh.
  const lost = isUnreachable();
  const every = lost ? 3 : (current.screen && current.screen.every) || 0;
  if (!every || document.hidden) return;
  timer = setTimeout(refresh, (live && !lost ? 4 : 1) * every * 1000);
}

const isUnreachable = () => Boolean(current.problem) && current.problem.code === "unreachable";

// The first event schedules a refresh; later events wait for it and never postpone it. Events that arrive
// during
// a refresh cause one more, after a pause as long as the refresh took, so that a slow server is not
// overloaded.
const EVENT_DELAY_MS = 150;
const MAX_EVENT_DELAY_MS = 2000;
const BEHIND_MS = 1000; // the page says how far it is behind if an event waits longer
let eventTimer = 0;
let waitingSince = 0; // arrival of the oldest event that no refresh has covered
let loadingSince = 0; // arrival of the oldest event that the current refresh covers
function onEvent() {
  if (!current.screen || !current.screen.every || document.hidden) return;
  waitingSince = waitingSince || Date.now();
  if (!refreshing && !eventTimer)
    eventTimer = setTimeout(refresh, current.screen.eventDelayMs || EVENT_DELAY_MS);
}

function secondsBehind() {
  const since = loadingSince || waitingSince;
  return since && Date.now() - since > BEHIND_MS ? Math.round((Date.now() - since) / 1000) : 0;
}

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
  if (signedOut) return;
  const app = document.getElementById("app");
  const title =
    (current.screen && current.screen.title(current.path, current.data)) ||
    (SCREENS.find(([name]) => name === current.name) || [])[1] ||
    "Timewright";
  document.title = `${title} · Timewright`;
  let body;
  try {
    body =
      current.screen && current.data
        ? current.screen.view(current.data, current.path, current.params, go)
        : h("p", { class: "boot" }, current.problem ? "" : "Loading…");
  } catch (problem) {
    body = problemBox(problem);
  }
  const atEnd = scrolledToEnd();
  replace(
    app,
    h(
      "div",
      { class: "shell" },
      navigation(),
      h(
        "main",
        {
          id: "main",
          tabindex: "-1",
          "data-at": current.data || current.problem ? routeTo(current.name, ...current.path) : null,
        },
        h(
          "header",
          { class: "top" },
          h("h1", null, title),
          h("span", { class: "grow" }),
          searchButton(),
          status(),
        ),
        current.problem ? problemBox(current.problem) : null,
        body,
      ),
    ),
  );
  updateTimes(app);
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

// The row selected with j and k stays selected across refreshes.
let picked = "";
/** @returns {NodeListOf<HTMLElement>} */
const markedRows = () => document.querySelectorAll("tr.row[data-to]");
const tableRows = () => [...markedRows()];
function highlightRow() {
  for (const row of tableRows()) row.classList.toggle("picked", row.dataset.to === picked);
}

function navigation() {
  const items = SCREENS.map(([name, text]) =>
    h(
      "li",
      { key: name },
      h("a", { href: `#/${name}`, "aria-current": current.name === name ? "page" : null }, text),
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
        can("write") ? "editor" : can("trigger") ? "operator" : "viewer",
        currentUser().sign_in_url
          ? null
          : [" · ", h("button", { type: "button", class: "plain", onclick: signOut }, "sign out")],
      ),
      namespaces.length > 1
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
              namespaces.map((name) =>
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

// End the session of this browser; signing in again needs a new link.
export const signOut = () => tryAction(endSession);

// Replace the page by the way to sign in; the address stays, so that it leads back to the same screen.
const RETURN_TO = "timewright-return-to";
function showSignIn(title) {
  if (signedOut) return;
  signedOut = true;
  events.end();
  clearTimeout(timer);
  clearTimeout(eventTimer);
  for (const dialog of document.querySelectorAll("dialog")) dialog.remove();
  document.title = `${title} · Timewright`;
  // A provider sends the browser back without the part of the address after the #.
  sessionStorage.setItem(RETURN_TO, location.hash);
  const page = currentUser().sign_in_url;
  replace(
    document.getElementById("app"),
    h(
      "main",
      { id: "main", class: "closed", tabindex: "-1" },
      h("h1", null, title),
      h(
        "p",
        null,
        page
          ? h("a", { href: page }, "Sign in again")
          : h("button", { type: "button", class: "main", onclick: () => location.reload() }, "sign in"),
      ),
    ),
  );
}

function returnToScreen() {
  const hash = sessionStorage.getItem(RETURN_TO);
  sessionStorage.removeItem(RETURN_TO);
  if (hash && !location.hash) history.replaceState(null, "", hash);
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

function status() {
  const drift =
    Math.abs(clockOffset()) > 2000
      ? h("span", { class: "warn" }, `clocks differ by ${Math.round(Math.abs(clockOffset()) / 1000)} s`)
      : null;
  return h(
    "div",
    { class: "status" },
    drift,
    h(
      "span",
      { class: "mute", title: "time zone of this page; hover over a time for other zones" },
      painted ? localZone() : "",
    ),
    isUnreachable() ? h("span", { class: "warn" }, "✖ server unreachable, retrying") : liveStatus(),
  );
}

const searchButton = () =>
  h(
    "button",
    { type: "button", class: "search-all", "aria-keyshortcuts": "Control+K", onclick: openSearch },
    h("span", null, "Search"),
    h("kbd", null, "Ctrl K"),
  );
const openSearch = () =>
  import("./command_box.js").then((module) =>
    module.openCommandBox(SCREENS.map(([name, label]) => [String(name), String(label)])),
  );

function liveStatus() {
  const behind = secondsBehind();
  if (live && behind)
    return h(
      "span",
      { class: "warn", title: "events arrived that this page does not show yet" },
      `● live, ${behind} s behind`,
    );
  return h(
    "span",
    {
      class: live ? "live" : "polling",
      title: live ? "updates arrive as they happen" : "no event stream; the page polls",
    },
    live ? "● live" : "○ polling",
  );
}

function keys(event) {
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
    painted = true;
    loadAllScreens();
    get(["namespaces"]).then(
      (page) => {
        namespaces = [...new Set(["default", ...page.namespaces.map((one) => one.name)])];
        requestPaint();
      },
      () => {},
    );
    events = subscribeToEvents(onEvent, (connected) => {
      if (live !== connected) {
        live = connected;
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
