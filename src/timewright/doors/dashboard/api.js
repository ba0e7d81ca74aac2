// The one way to the server: /api/v1 as any other client uses it, and the stream of facts.

const session = { actor: "", scopes: [], namespaces: [], csrf: "" };
let namespace = "";

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.message || body.title || `the server answered ${status}`);
    Object.assign(this, { status, ...body });
  }
}

// Whatever is written waits until we know who is here; what is only read does not.
let entered = Promise.resolve();
export function enter() {
  entered = ask("GET", "/session").then((told) => Object.assign(session, told));
  return entered;
}

export const leave = () => ask("DELETE", "/session");

export const me = () => session;
export const may = (scope) => session.scopes.includes(scope);
export const chosen = () => namespace;
export function choose(name) { namespace = name || ""; }

// What was asked for before this module was there is taken once, by whoever asks the same first.
function early(method, path) {
  const { answers, namespace: of } = window.early || {};
  const found = method === "GET" && answers && (path === "/session" || of === namespace) ? answers.get(path) : null;
  if (found) answers.delete(path);
  return found;
}
export const forgetEarly = () => { if (window.early) window.early.answers.clear(); };

async function ask(method, path, body, headers = {}) {
  if (method !== "GET") await entered;
  const init = { method, headers: { accept: "application/json", ...headers }, credentials: "same-origin" };
  if (namespace) init.headers["timewright-namespace"] = namespace;
  if (method !== "GET") init.headers["timewright-csrf"] = session.csrf;
  if (body !== undefined) {
    init.headers["content-type"] = "application/json";
    init.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await (early(method, path) || fetch(path, init));
  } catch {
    throw new Problem(0, { code: "away", detail: "The server does not answer. This page looks again by itself, and goes on when it is back.", fix: "timewright up" });
  }
  const text = await answer.text();
  let data = {};
  try { data = text ? JSON.parse(text) : {}; } catch { data = { detail: text.slice(0, 200) }; }
  if (!answer.ok) throw new Problem(answer.status, data);
  return data;
}

const clean = (query) => {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query || {})) {
    if (value === undefined || value === null || value === "") continue;
    for (const one of Array.isArray(value) ? value : [value]) params.append(name, one);
  }
  const text = params.toString();
  return text ? `?${text}` : "";
};

const at = (...parts) => "/api/v1/" + parts.map(encodeURIComponent).join("/");

export const get = (parts, query) => ask("GET", at(...parts) + clean(query));
// A read whose request is a list or an object goes in a body; it still changes nothing.
export const read = (parts, body) => ask("POST", at(...parts), body);
export const post = (parts, body) => ask("POST", at(...parts), body || {}, { "idempotency-key": crypto.randomUUID() });
export const patchTo = (parts, body) => ask("PATCH", at(...parts), body);
export const put = (parts, body) => ask("PUT", at(...parts), body);
export const remove = (parts, query) => ask("DELETE", at(...parts) + clean(query));

// Facts wake the page; without a stream it polls as before, only less eagerly told.
export function listen(heard, changed) {
  let source = null;
  let timer = 0;
  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource("/api/v1/events" + clean({ namespace }));
    source.onopen = () => changed(true);
    source.onerror = () => {
      changed(false);
      if (source && source.readyState === EventSource.CLOSED) { source = null; clearTimeout(timer); timer = setTimeout(open, 5000); }
    };
    for (const kind of FACTS) source.addEventListener(kind, (event) => heard(kind, event.data));
  };
  const close = () => { if (source) source.close(); source = null; clearTimeout(timer); };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  open();
  return () => { close(); open(); };
}

const FACTS = [
  "run-admitted", "run-skipped", "occurrences-dropped", "run-leased", "attempt-started", "run-succeeded",
  "run-will-retry", "run-released", "run-failed", "run-parked", "run-cancelled", "cancel-requested", "run-freed",
  "run-reset", "lease-lost", "answer-stale", "schedule-moved", "schedule-parked", "schedule-finished",
  "schedule-changed", "clock-stepped", "changed",
];
