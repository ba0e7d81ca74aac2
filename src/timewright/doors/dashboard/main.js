// The shell: who is here, where we are, what to look at next; screens are loaded when they are first shown.

import { enter, chosen, choose, forgetEarly, get, leave, listen, me, may } from "./api.js";
import { h, replace } from "./dom.js";
import { attempt, failure, place, tellTime, tickTimes, toast } from "./widgets.js";
import { here, offset } from "./times.js";

const SCREENS = [
  ["now", "Now", "./screens/now.js"],
  ["schedules", "Schedules", ([name, edit]) => `./screens/${!name ? "schedule_list" : edit === "edit" ? "create" : "schedule"}.js`],
  ["runs", "Runs", ([id]) => `./screens/${id ? "run" : "run_list"}.js`],
  ["queues", "Queues", "./screens/queues.js"],
  ["workflows", "Workflows", "./screens/workflows.js"],
  ["forecast", "Forecast", "./screens/forecast.js"],
  ["planner", "Planner", "./screens/planner.js"],
  ["instances", "Instances", "./screens/instances.js"],
  ["audit", "Audit", "./screens/audit.js"],
  ["settings", "Settings", "./screens/settings.js"],
];
const HIDDEN = { create: "./screens/create.js" };

let shown = { screen: null, name: "", path: [], params: {}, data: null, problem: null, asked: 0 };
let live = false;
let timer = 0;
let namespaces = [];
let reopen = () => {};
let closed = false;
let seen = false; // whether a first screen has been painted

function screenFile({ name: wanted, path }) {
  const file = (SCREENS.find(([name]) => name === wanted) || [])[2] || HIDDEN[wanted];
  return typeof file === "function" ? file(path) : file;
}

function read() {
  const [path, query] = location.hash.replace(/^#/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  return { name: parts[0] || "now", path: parts.slice(1), params: Object.fromEntries(new URLSearchParams(query || "")) };
}

export function go(params) {
  const kept = Object.fromEntries(Object.entries(params).filter(([, v]) => v !== "" && v !== undefined && v !== null));
  const query = new URLSearchParams(kept).toString();
  const path = "/" + [shown.name, ...shown.path].map(encodeURIComponent).join("/");
  location.hash = path + (query ? `?${query}` : "");
}

async function route() {
  const next = read();
  const before = document.activeElement;
  const file = screenFile(next);
  const fresh = next.name !== shown.name || next.path.join("/") !== shown.path.join("/");
  if (!file) return show({ ...next, screen: null, problem: { message: `there is no screen ${next.name}`, fix: "choose one on the left" } });
  const module = await import(file);
  const screen = module.pick ? module.pick(next.path) : module.default;
  shown = { ...next, screen, data: fresh ? null : shown.data, problem: null, asked: 0 };
  enterNamespace(next.params.namespace);
  // What comes at once is drawn once; who has to wait is shown where they are.
  const waiting = setTimeout(draw, 60);
  await look();
  clearTimeout(waiting);
  if (fresh) { const here = document.querySelector(".side [aria-current]"); if (here) here.scrollIntoView({ block: "nearest", inline: "center" }); scrollTo(0, 0); const main = document.getElementById("main"); if (main && left(before)) main.focus({ preventScroll: true }); }
}

// Whether nobody went somewhere else while the screen was fetched: who has begun to type is not taken away.
const left = (before) => [before, document.body].includes(document.activeElement);

// The namespace stays the one that was chosen last, and stands in the address so that it can be sent on.
function enterNamespace(asked) {
  const before = chosen();
  if (asked !== undefined) choose(asked === "default" ? "" : asked);
  if (asked === undefined && chosen()) history.replaceState(null, "", `${location.hash}${location.hash.includes("?") ? "&" : "?"}namespace=${encodeURIComponent(chosen())}`);
  if (before !== chosen()) reopen();
}

function show(next) { shown = { ...shown, ...next }; paint(); }

// One look at a time; whoever asks meanwhile is answered by one more look.
let looking = false;
let again = false;
export async function look() {
  if (looking) { again = true; return; }
  looking = true;
  const at = shown;
  try {
    const data = at.screen && at.screen.load ? await at.screen.load(at.path, at.params) : {};
    if (shown.screen === at.screen && shown.name === at.name) shown = { ...shown, data, problem: null };
  } catch (problem) {
    if (shown.screen === at.screen) shown = { ...shown, problem };
  } finally {
    looking = false;
  }
  paint();
  schedule();
  if (again) { again = false; look(); }
}

function schedule() {
  clearTimeout(timer);
  // Whoever lost the server looks for it, also where the screen does not change by itself.
  const lost = isAway();
  const every = lost ? 3 : (shown.screen && shown.screen.every) || 0;
  if (!every || document.hidden) return;
  timer = setTimeout(look, (live && !lost ? 4 : 1) * every * 1000);
}

const isAway = () => Boolean(shown.problem) && shown.problem.code === "away";

let woken = 0;
function heard() {
  if (!shown.screen || !shown.screen.every || document.hidden) return;
  clearTimeout(woken);
  woken = setTimeout(look, 250);
}

// What can wait until the page is seen, waits.
export const afterwards = (work) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(work, 0)));

// Whoever has news says so; all that came since the last frame is drawn at once.
let drawing = 0;
export function draw() {
  if (!drawing) drawing = requestAnimationFrame(paint);
}

export function paint() {
  cancelAnimationFrame(drawing);
  drawing = 0;
  if (closed) return;
  const app = document.getElementById("app");
  const title = (shown.screen && shown.screen.title(shown.path, shown.data)) || "Timewright";
  document.title = `${title} · Timewright`;
  let body;
  try {
    body = shown.screen && shown.data ? shown.screen.view(shown.data, shown.path, shown.params, go) : h("p", { class: "boot" }, shown.problem ? "" : "Looking…");
  } catch (problem) {
    body = failure(problem);
  }
  const tails = readers();
  replace(app, h("div", { class: "shell" }, side(), h("main", { id: "main", tabindex: "-1", "data-at": shown.data || shown.problem ? place(shown.name, ...shown.path) : null },
    h("header", { class: "top" }, h("h1", null, title), h("span", { class: "grow" }), status()),
    shown.problem ? failure(shown.problem) : null, body)));
  tickTimes(app);
  mark();
  for (const node of document.querySelectorAll("pre.tail")) if (tails.has(node) ? tails.get(node) : node.classList.contains("live")) node.scrollTop = node.scrollHeight;
}

// Who reads along at the end of an output stays at the end; one who has scrolled up is left alone.
const readers = () => new Map([...document.querySelectorAll("pre.tail")].map((node) => [node, node.scrollHeight - node.scrollTop - node.clientHeight < 24]));

// The row that keys have picked stays picked while the page looks again.
let picked = "";
const rowsShown = () => [...document.querySelectorAll("tr.row[data-to]")];
function mark() { for (const row of rowsShown()) row.classList.toggle("picked", row.dataset.to === picked); }

function side() {
  const items = SCREENS.map(([name, text]) => h("li", { key: name }, h("a", { href: `#/${name}`, "aria-current": shown.name === name ? "page" : null }, text)));
  return h("nav", { class: "side", "aria-label": "screens" }, h("a", { class: "brand", href: "#/now" }, icon(), "Timewright"),
    h("ul", null, items), may("write") ? h("a", { class: "create", href: "#/create" }, "New schedule") : null,
    h("div", { class: "who" }, h("span", { class: "name" }, me().actor || "…"), h("span", { class: "mute" }, may("write") ? "may edit" : may("trigger") ? "may run" : "may look", " · ", h("button", { type: "button", class: "plain", onclick: out }, "sign out")),
      namespaces.length > 1 ? h("label", null, h("span", { class: "hidden" }, "namespace"), h("select", { name: "namespace", value: chosen() || "default", onchange: (e) => { location.hash = `#/now?namespace=${encodeURIComponent(e.target.value)}`; } }, namespaces.map((name) => h("option", { value: name, selected: name === (chosen() || "default") }, name)))) : chosen() ? h("span", { class: "mute" }, `in ${chosen()}`) : null));
}

// This browser is forgotten; whoever comes back needs a new link.
export async function out() {
  if (await attempt(leave)) location.reload();
}

// Drawn and not fetched: a picture would be asked for again by every draw.
const icon = () => h("svg", { viewBox: "0 0 32 32", width: 22, height: 22, class: "icon", "aria-hidden": "true" }, h("rect", { width: 32, height: 32, rx: 7 }), h("path", { d: "M16 7v9l6 4" }), h("circle", { cx: 16, cy: 16, r: 10.5 }));

function status() {
  const drift = Math.abs(offset()) > 2000 ? h("span", { class: "warn" }, `clocks differ by ${Math.round(Math.abs(offset()) / 1000)} s`) : null;
  return h("div", { class: "status" }, drift, h("span", { class: "mute", title: "times are shown in this zone; hover for others" }, seen ? here() : ""),
    isAway() ? h("span", { class: "warn" }, "✖ server away, trying again") : h("span", { class: live ? "live" : "polling", title: live ? "changes are shown as they happen" : "no stream; the page looks by itself" }, live ? "● live" : "○ polling"));
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.closest("input, textarea, select, dialog");
  if (event.key === "Escape" && typing && !event.target.closest("dialog")) {
    // A browser would empty a search field, and the filter with it.
    event.preventDefault();
    return event.target.blur();
  }
  if (typing) return;
  const rows = rowsShown();
  const at = rows.findIndex((row) => row.dataset.to === picked);
  const pick = (n) => { if (!rows[n]) return; picked = rows[n].dataset.to; mark(); rows[n].scrollIntoView({ block: "nearest" }); };
  if (event.key === "/") { const box = document.querySelector("input[data-search], input[type=search]"); if (box) { event.preventDefault(); box.focus(); box.select(); } }
  else if (event.key === "j") pick(Math.min(rows.length - 1, at + 1));
  else if (event.key === "k") pick(Math.max(0, at - 1));
  else if (event.key === "x" && at >= 0) { const box = rows[at].querySelector("input[type=checkbox]"); if (box) box.click(); }
  else if (event.key === "Enter" && at >= 0) location.hash = rows[at].dataset.to;
  else if (event.key === "?") help();
  else if (event.key === "c" && may("write")) location.hash = "#/create";
  else if (/^[1-9]$/.test(event.key) && SCREENS[Number(event.key) - 1]) location.hash = `#/${SCREENS[Number(event.key) - 1][0]}`;
}

function help() {
  const rows = [["/", "find"], ["j / k", "next or previous row"], ["Enter", "open the row"], ["x", "choose the row, to change several at once"], ["1 … 9", "the first nine screens, from the top"], ["c", "new schedule"], ["?", "this list"], ["Esc", "leave a field or a dialog"]];
  const dialog = h("dialog", { "aria-label": "keys", onclose: () => dialog.remove() }, h("h2", null, "Keys"),
    h("dl", { class: "facts" }, rows.map(([key, text]) => [h("dt", null, h("kbd", null, key)), h("dd", null, text)])),
    h("form", { method: "dialog", class: "buttons" }, h("button", { class: "main" }, "close")));
  document.body.append(dialog);
  dialog.showModal();
}

async function start() {
  // What the first screen shows is already on its way, so that to know first who is here costs nothing.
  try { await enter(); } catch (problem) {
    closed = true;
    return replace(document.getElementById("app"), h("div", { class: "closed" }, failure(problem), h("p", null, "Open the link that `timewright up` has printed; it works once.")));
  }
  addEventListener("hashchange", route);
  document.addEventListener("keydown", keys);
  document.addEventListener("click", (event) => {
    const row = event.target.closest("tr.row[data-to]");
    if (row && !event.target.closest("a, button, input, label")) location.hash = row.dataset.to;
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
  setInterval(() => { if (!document.hidden) tickTimes(document); }, 1000);
  document.addEventListener("mousemove", tellTime, { passive: true });
  await route();
  forgetEarly();
  afterwards(() => {
    seen = true;
    get(["namespaces"]).then((told) => { namespaces = [...new Set(["default", ...told.namespaces.map((one) => one.name)])]; draw(); }, () => {});
    reopen = listen(heard, (is) => { if (live !== is) { live = is; draw(); schedule(); } });
  });
}

addEventListener("unhandledrejection", (event) => toast(String(event.reason && event.reason.message || event.reason), "bad"));
start();
