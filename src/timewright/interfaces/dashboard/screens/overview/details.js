// What the overview loads after its first paint.

import { requestPaint } from "../../app/paint.js";
import { currentNamespace, get } from "../../base/api.js";
import { now, parseDuration } from "../../base/times.js";
import { loadFailures } from "./failures.js";

// Running and upcoming runs are painted first; counts, failures, instances and health are loaded after that.
export let charts = null;
export let instances = null;
export let approvals = []; // schedules created by agents that wait for approval
export let answers = []; // steps of workflows that wait for a person
export let incidents = []; // open ones
export let failures = null;
const DETAILS_INTERVAL_MS = 3000;
let details = { at: 0, namespace: "", timer: 0 };
export function forgetOtherNamespace() {
  if (details.namespace === currentNamespace()) return;
  details = { ...details, at: 0, namespace: currentNamespace() };
  [approvals, answers, incidents, failures] = [[], [], [], null];
}
export async function loadDetails(params) {
  loadChecks();
  loadCounts(params);
  const { namespace } = details;
  const wait = details.at + DETAILS_INTERVAL_MS - Date.now();
  if (wait > 0) {
    // What happened since is loaded at the end of the interval, not with the next refresh.
    details.timer ||= setTimeout(() => {
      details.timer = 0;
      if (document.querySelector('main[data-at="/overview"]')) loadDetails(params);
    }, wait);
    return;
  }
  details.at = Date.now();
  const [chartModule, instancePage, approvalPage, incidentPage, failurePage] = await Promise.all([
    import("../../charts/history.js"),
    get(["instances"]).catch(() => ({ instances: instances || [] })),
    get(["approvals"]).catch(() => ({ approvals: [], answers: [] })),
    get(["incidents"]).catch(() => ({ incidents: [] })),
    loadFailures(namespace),
  ]);
  if (details.namespace !== namespace) return;
  [charts, instances, approvals, answers, incidents, failures] = [
    chartModule,
    instancePage.instances,
    approvalPage.approvals,
    approvalPage.answers,
    incidentPage.incidents,
    failurePage,
  ];
  requestPaint();
}

// The server counts once a minute, so each minute is asked for once.
export const PERIODS = [
  ["1h", "hour"],
  ["1d", "day"],
  ["7d", "week"],
];
export let counts = { key: "", at: 0, series: null };
export const periodOf = (params) =>
  PERIODS.some(([value]) => value === params.period) ? params.period : "1d";
async function loadCounts(params) {
  const wanted = { period: periodOf(params), until: params.until };
  const key = JSON.stringify([currentNamespace(), wanted]);
  const minutes = Math.floor((now() - 3000) / 60_000);
  if (counts.key === key && counts.at === minutes) return;
  counts = { key, at: minutes, series: counts.key === key ? counts.series : null };
  const found = await get(["runs", "counts"], wanted).catch(() => null);
  if (counts.key !== key || !found) return;
  // A minute that is over but not counted yet is asked for again.
  const fresh = Date.parse(found.counted_until || 0) >= minutes * 60_000;
  counts = { key, at: fresh ? minutes : 0, series: { ...found, step: parseDuration(found.step) } };
  requestPaint();
}

// The doctor reads files and settings too, so it is asked at most every 30 s.
const HEALTH_CHECKS = [
  "clock",
  "zones",
  "store",
  "file",
  "leases",
  "leader",
  "shards",
  "policy_file",
  "backlog",
  "backup",
  "unplaced",
];
export const OVERDUE_S = 5; // allows for the delay of an update
export let checked = { at: 0, findings: [] };
function loadChecks() {
  if (Date.now() - checked.at > 30_000) {
    checked = { ...checked, at: Date.now() };
    get(["doctor"]).then(
      (doctor) => {
        checked = { ...checked, findings: doctor.findings.filter((one) => HEALTH_CHECKS.includes(one.kind)) };
        requestPaint();
      },
      () => {},
    );
  }
}
