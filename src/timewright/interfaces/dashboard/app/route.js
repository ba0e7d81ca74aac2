// The address of the page and the screen that it names.

import { currentNamespace, Problem, setNamespace } from "../base/api.js";
import { paint, requestPaint } from "./paint.js";
import { refresh, refreshLater } from "./refresh.js";
import { loadScreen } from "./screens.js";
import { app } from "./state.js";

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
  const path = "/" + [app.current.name, ...app.current.path].map(encodeURIComponent).join("/");
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

let routes = 0;
export async function route() {
  if (app.signedOut) return;
  const mine = ++routes;
  const scrollTop = rememberScroll();
  const next = parseHash();
  // At once: the next address keeps the namespace, also if this screen is left before it is loaded.
  syncNamespace(next.params.namespace);
  const before = document.activeElement;
  const loading = loadScreen(next);
  const fresh = next.name !== app.current.name || next.path.join("/") !== app.current.path.join("/");
  if (!loading)
    return show({
      ...next,
      screen: null,
      problem: { message: `no screen named ${next.name}`, fix: "choose a screen in the navigation" },
    });
  const module = await loading.catch(() => null);
  if (mine !== routes) return; // another address was opened while the module was loaded
  if (!module) return retryRoute(next);
  const screen = module.pick ? module.pick(next.path) : module.default;
  app.current = { ...next, screen, data: fresh ? null : app.current.data, problem: null };
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
  refreshLater(3, route);
}

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
  if (before !== currentNamespace()) app.events.reconnect();
}

function show(next) {
  app.current = { ...app.current, ...next };
  paint();
}
