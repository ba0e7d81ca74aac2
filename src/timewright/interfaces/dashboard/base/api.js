// Requests to /api/v1, and the event stream.

import { checkClock } from "./times.js";

/**
 * What a request answers. The server checks its own answers against their types, so screens take them as
 * they are.
 * @typedef {any} Answer
 */

/** @type {{actor: string, scopes: string[], namespaces: string[], csrf: string, program: string,
 *   store_option: string | null, sign_in_url: string, session: string}} */
export const session = {
  actor: "",
  scopes: [],
  namespaces: [],
  csrf: "",
  program: "timewright",
  store_option: "",
  sign_in_url: "",
  session: "",
};

// The path below which everything is mounted; empty when it is served alone.
const root = new URL(import.meta.url).pathname.replace(/(\/v\/[^/]+)?\/base\/[^/]*$/, "");
let namespace = "";

// A refused request: what is wrong, which field, the rule and the remedy.
export class Problem extends Error {
  /** @type {number} */ status;
  /** @type {string | undefined} */ code;
  /** @type {string | undefined} */ field;
  /** @type {string | undefined} */ rule;
  /** @type {string | undefined} */ fix;
  /** @param {number} status @param {Record<string, any>} body */
  constructor(status, body) {
    super(body.detail || body.message || body.title || `the server responded with ${status}`);
    Object.assign(this, { status, ...body });
  }
}

// Writes wait for the session because they need its CSRF token; reads do not.
/** @type {Promise<any>} */
let sessionLoaded = Promise.resolve();
export function loadSession() {
  sessionLoaded = request("GET", "/session").then((found) => Object.assign(session, found));
  return sessionLoaded;
}

// The session ends for all tabs of this browser, since they share its cookie.
const otherTabs = new BroadcastChannel("timewright-session");
let onSessionEnd = () => {};
/** @param {() => void} call called when the session has ended, in this tab or another */
export function watchSession(call) {
  onSessionEnd = call;
  otherTabs.onmessage = call;
}

export async function endSession() {
  await request("DELETE", "/session");
  otherTabs.postMessage("ended");
  onSessionEnd();
}

export const currentUser = () => session;
export const can = (scope) => session.scopes.includes(scope);
export const currentNamespace = () => namespace;
export function setNamespace(name) {
  namespace = name || "";
}

// Take a response that preload.js has already requested; each is used once.
/** @type {{preloaded?: {answers: Map<string, Promise<Response>>, namespace: string}}} */
const page = /** @type {any} */ (window);
function preloaded(method, path) {
  const { answers = null, namespace: of = "" } = page.preloaded || {};
  const found =
    method === "GET" && answers && (path === "/session" || of === namespace) ? answers.get(path) : null;
  if (found) answers.delete(path);
  return found;
}
export const dropPreloaded = () => {
  if (page.preloaded) page.preloaded.answers.clear();
};

/**
 * @param {string} method @param {string} path @param {any} [body] @param {Record<string, string>} [headers]
 * @returns {Promise<Answer>}
 */
async function request(method, path, body, headers = {}) {
  if (method !== "GET") await sessionLoaded;
  /** @type {RequestInit & {headers: Record<string, string>}} */
  const init = { method, headers: { accept: "application/json", ...headers }, credentials: "same-origin" };
  if (namespace) init.headers["timewright-namespace"] = namespace;
  if (method !== "GET") init.headers["timewright-csrf"] = session.csrf;
  if (body !== undefined) {
    init.headers["content-type"] = "application/json";
    init.body = JSON.stringify(body);
  }
  let answer;
  const early = preloaded(method, path);
  // A preloaded request was sent when the page was opened.
  const sentAt = Date.now() - (early ? performance.now() : 0);
  try {
    answer = await (early || fetch(root + path, init));
  } catch {
    throw new Problem(0, {
      code: "unreachable",
      detail: "The server does not respond. This page retries until it is back.",
      fix: "timewright up",
    });
  }
  checkClock(answer.headers.get("date"), sentAt);
  const text = await answer.text();
  /** @type {Answer} */
  let data = {};
  try {
    data = text ? JSON.parse(text) : {};
  } catch {
    data = { detail: text.slice(0, 200) };
  }
  if (answer.status === 401) onSessionEnd();
  if (!answer.ok) throw new Problem(answer.status, data);
  return data;
}

const queryString = (query) => {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query || {})) {
    if (value === undefined || value === null || value === "") continue;
    for (const one of Array.isArray(value) ? value : [value]) params.append(name, one);
  }
  const text = params.toString();
  return text ? `?${text}` : "";
};

const apiPath = (...parts) => "/api/v1/" + parts.map(encodeURIComponent).join("/");

/** @param {string[]} parts @param {Record<string, any>} [query] */
export const get = (parts, query) => request("GET", apiPath(...parts) + queryString(query));
/**
 * The address of a file; a link carries no headers.
 * @param {string[]} parts @param {Record<string, any>} [query]
 */
export const downloadUrl = (parts, query) => root + apiPath(...parts) + queryString({ ...query, namespace });
// A read whose request does not fit into a query string is sent as a POST body; it changes nothing.
/** @param {string[]} parts @param {any} body */
export const query = (parts, body) => request("POST", apiPath(...parts), body);
/** @param {string[]} parts @param {any} [body] */
export const post = (parts, body) =>
  request("POST", apiPath(...parts), body || {}, { "idempotency-key": crypto.randomUUID() });
export const patchJson = (parts, body) => request("PATCH", apiPath(...parts), body);
export const put = (parts, body) => request("PUT", apiPath(...parts), body);
/** @param {string[]} parts @param {Record<string, any>} [query] */
export const remove = (parts, query) => request("DELETE", apiPath(...parts) + queryString(query));

// Each event triggers a refresh. Without a stream the page polls.
export function subscribeToEvents(onEvent, onConnection) {
  let source = null;
  let timer = 0;
  let ended = false;
  const open = () => {
    if (source || ended || document.hidden) return;
    source = new EventSource(root + "/api/v1/events" + queryString({ namespace }));
    source.onopen = () => onConnection(true);
    source.onerror = () => {
      onConnection(false);
      if (source && source.readyState === EventSource.CLOSED) {
        source = null;
        clearTimeout(timer);
        timer = setTimeout(open, 5000);
      }
    };
    source.addEventListener("bye", (event) => {
      if (JSON.parse(event.data).reason === "unauthorized") {
        close();
        onSessionEnd();
      }
    });
    for (const kind of EVENTS) source.addEventListener(kind, (event) => onEvent(kind, event.data));
  };
  const close = () => {
    if (source) source.close();
    source = null;
    clearTimeout(timer);
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  open();
  return {
    end: () => {
      ended = true;
      close();
    },
    reconnect: () => {
      close();
      open();
    },
  };
}

const EVENTS = [
  "run-admitted",
  "run-skipped",
  "occurrences-dropped",
  "run-leased",
  "attempt-started",
  "run-succeeded",
  "run-will-retry",
  "run-released",
  "run-failed",
  "run-parked",
  "run-cancelled",
  "cancel-requested",
  "run-freed",
  "run-reset",
  "lease-lost",
  "answer-stale",
  "schedule-moved",
  "schedule-parked",
  "schedule-finished",
  "schedule-changed",
  "clock-stepped",
  "changed",
];
