// Runs before the modules: requests the data of the first screen and preloads its modules.

// The modules of each screen, besides those that index.html preloads for all of them.
const MODULES = {
  overview: [
    "screens/overview/overview.js",
    "screens/overview/attention.js",
    "components/target_details.js",
    "screens/overview/details.js",
    "screens/overview/failures.js",
    "screens/overview/history.js",
    "screens/overview/pauses.js",
  ],
  schedules: ["screens/schedules/schedule_list.js", "components/bulk_actions.js", "components/search_bar.js"],
  "schedules/": [
    "screens/schedules/schedule.js",
    "charts/line_chart.js",
    "charts/marks.js",
    "charts/outcome_strip.js",
    "charts/cells.js",
    "components/remedies.js",
    "components/actions.js",
    "components/diff.js",
    "components/target_details.js",
    "screens/schedules/definition.js",
    "screens/schedules/dependencies.js",
    "charts/graph.js",
    "screens/schedules/hints.js",
    "screens/schedules/schedule_actions.js",
  ],
  create: [
    "screens/schedule_form/edit_schedule.js",
    "screens/schedule_form/command.js",
    "screens/schedule_form/form.js",
    "screens/schedule_form/field_values.js",
    "screens/schedule_form/schedule_fields.js",
    "screens/schedule_form/inputs.js",
    "screens/schedule_form/preview.js",
  ],
  grid: [
    "screens/grid.js",
    "screens/grid_focus.js",
    "charts/cells.js",
    "charts/axes.js",
    "charts/grid_strip.js",
    "charts/marks.js",
    "components/search_bar.js",
  ],
  runs: ["screens/runs/run_list.js", "components/bulk_actions.js", "components/search_bar.js"],
  "runs/": [
    "screens/runs/run.js",
    "components/actions.js",
    "components/remedies.js",
    "components/diff.js",
    "screens/runs/artifacts.js",
    "screens/runs/output_panel.js",
    "screens/runs/output_view.js",
    "screens/runs/run_output.js",
    "screens/runs/run_panels.js",
    "components/target_details.js",
    "screens/runs/run_timeline.js",
    "charts/waterfall.js",
  ],
  queues: ["screens/queues/queues.js", "charts/gauge.js", "components/actions.js", "screens/queues/queue.js"],
  workflows: [
    "screens/workflows/workflows.js",
    "charts/graph.js",
    "components/actions.js",
    "components/diff.js",
    "screens/schedule_form/field_values.js",
    "screens/schedule_form/schedule_fields.js",
    "screens/workflows/steps.js",
    "charts/waterfall.js",
  ],
  forecast: ["screens/forecast.js", "charts/heatmap.js", "charts/axes.js", "components/search_bar.js"],
  planner: ["screens/planner.js"],
  instances: ["screens/instances.js", "charts/gauge.js"],
  audit: ["screens/audit.js", "components/diff.js", "components/search_bar.js"],
  settings: ["screens/settings.js", "components/actions.js"],
  incidents: ["screens/incidents.js"],
};

(() => {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name = "overview", ...inner] = path.split("/").filter(Boolean);
  const params = new URLSearchParams(query || "");
  const namespace = params.get("namespace") || "";
  params.delete("namespace");
  const isForm = name === "schedules" && inner[1];
  const parts = (...ends) => ends.map((part) => `${name}/${inner[0]}${part}`);
  const requests = {
    overview: ["now"],
    schedules: ["schedules?limit=50&count=true"],
    "schedules/": parts("", "/health", "/revisions?limit=10"),
    runs: ["runs?limit=50"],
    "runs/": parts("", "/explain", "/logs", "/artifacts"),
    queues: ["queues", "limits", "budgets", "providers"],
    "queues/": parts("", "/plan"),
    workflows: ["workflows"],
    "workflows/": parts(""),
    forecast: ["forecast?days=7"],
    planner: ["analyses"],
    instances: ["instances", "runs?state=leased&limit=1000", "doctor"],
    audit: ["audit"],
    settings: ["limits", "calendars", "namespaces", "doctor", "reminders"],
    incidents: ["channels", "alerts"],
  };
  const screen = isForm ? "create" : inner.length ? `${name}/` : name;
  const modules = MODULES[screen] || MODULES[name] || [];
  const data = requests[screen] || [];
  const headers = {
    accept: "application/json",
    ...(namespace && namespace !== "default" ? { "timewright-namespace": namespace } : {}),
  };
  const base = /** @type {HTMLScriptElement} */ (document.currentScript).src.replace(/[^/]*$/, "");
  const root = new URL(base).pathname.replace(/(\/v\/[^/]+)?\/$/, "");
  const request = (url) => {
    const answer = fetch(root + url, { headers, credentials: "same-origin" });
    answer.catch(() => {});
    return /** @type {const} */ ([url, answer]);
  };
  // A filter changes the requests, so data is only preloaded for a screen without filters.
  const wanted = [...params].length ? [] : data.map((part) => `/api/v1/${part}`);
  /** @type {any} */ (window).preloaded = {
    namespace: headers["timewright-namespace"] || "",
    answers: new Map([...wanted, "/session"].map(request)),
  };
  for (const module of modules) {
    const link = document.createElement("link");
    Object.assign(link, { rel: "modulepreload", href: base + module });
    document.head.append(link);
  }
})();
