// Load the data of the screen: at intervals, and soon after an event.

import { paint } from "./paint.js";
import { app } from "./state.js";

let timer = 0;
const RETRY_S = 3; // after a failure, also if an event waits: a retry may need ten requests

// One refresh at a time; a request during a refresh causes one more refresh after it.
let refreshing = false;
let refreshAgain = false;
export async function refresh() {
  if (app.signedOut) return;
  if (refreshing) {
    refreshAgain = true;
    return;
  }
  refreshing = true;
  clearTimeout(eventTimer);
  eventTimer = 0;
  [loadingSince, waitingSince] = [waitingSince, 0];
  const at = app.current,
    startedAt = Date.now();
  try {
    const data = at.screen && at.screen.load ? await at.screen.load(at.path, at.params) : {};
    if (app.current.screen === at.screen && app.current.name === at.name)
      app.current = { ...app.current, data, problem: null };
  } catch (problem) {
    waitingSince = loadingSince || waitingSince;
    if (app.current.screen === at.screen) app.current = { ...app.current, problem };
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
      app.current.problem
        ? RETRY_S * 1000
        : Math.min(
            MAX_EVENT_DELAY_MS,
            Math.max((app.current.screen || {}).eventDelayMs || EVENT_DELAY_MS, Date.now() - startedAt),
          ),
    );
}

export function scheduleRefresh() {
  clearTimeout(timer);
  // While the server is unreachable retry, also on screens that do not refresh.
  const lost = isUnreachable();
  const every = lost ? RETRY_S : (app.current.screen && app.current.screen.every) || 0;
  if (!every || document.hidden) return;
  refreshLater((app.live && !lost ? 4 : 1) * every);
}

export function refreshLater(seconds, work = refresh) {
  clearTimeout(timer);
  timer = setTimeout(work, seconds * 1000);
}

export function stopRefreshing() {
  clearTimeout(timer);
  clearTimeout(eventTimer);
}

export const isUnreachable = () => Boolean(app.current.problem) && app.current.problem.code === "unreachable";

// The first event schedules a refresh; later events wait for it and never postpone it. Events that arrive
// during a refresh cause one more, after a pause as long as the refresh took, so that a slow server is not
// overloaded.
const EVENT_DELAY_MS = 150;
const MAX_EVENT_DELAY_MS = 2000;
const BEHIND_MS = 1000; // the page says how far it is behind if an event waits longer
let eventTimer = 0;
let waitingSince = 0; // arrival of the oldest event that no refresh has covered
let loadingSince = 0; // arrival of the oldest event that the current refresh covers
export function onEvent() {
  if (!app.current.screen || !app.current.screen.every || document.hidden) return;
  waitingSince = waitingSince || Date.now();
  if (!refreshing && !eventTimer)
    eventTimer = setTimeout(refresh, app.current.screen.eventDelayMs || EVENT_DELAY_MS);
}

export function secondsBehind() {
  const since = loadingSince || waitingSince;
  return since && Date.now() - since > BEHIND_MS ? Math.round((Date.now() - since) / 1000) : 0;
}
