// Runs before the modules: requests the data of the first screen and preloads its modules.

(() => {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name = "overview", ...inner] = path.split("/").filter(Boolean);
  const params = new URLSearchParams(query || "");
  const namespace = params.get("namespace") || "";
  params.delete("namespace");
  const listModules = ["search_bar.js", "bulk_actions.js"];
  const screens = {
    overview: [["screens/overview.js", "target_details.js"], ["now"]],
    schedules: [["screens/schedule_list.js", ...listModules], ["schedules?limit=50&count=true"]],
    "schedules/": inner[1]
      ? [["screens/edit_schedule.js"]]
      : [
          ["screens/schedule.js", "charts.js", "target_details.js", "dependencies.js", "graph.js"],
          ["", "/health", "/revisions?limit=10"].map((part) => `schedules/${inner[0]}${part}`),
        ],
    grid: [["screens/grid.js", "charts.js", "search_bar.js"]],
    runs: [["screens/run_list.js", ...listModules], ["runs?limit=50"]],
    "runs/": [
      ["screens/run.js", "charts.js", "target_details.js", "run_output.js", "artifacts.js"],
      ["", "/explain", "/logs", "/artifacts"].map((part) => `runs/${inner[0]}${part}`),
    ],
    queues: [
      ["screens/queues.js", "charts.js"],
      ["queues", "limits", "budgets", "providers"],
    ],
    "queues/": [
      ["screens/queues.js", "charts.js"],
      [`queues/${inner[0]}`, `queues/${inner[0]}/plan`],
    ],
    workflows: [["screens/workflows.js", "graph.js"], ["workflows"]],
    "workflows/": [["screens/workflows.js", "graph.js"], [`workflows/${inner[0]}`]],
    forecast: [["screens/forecast.js", "charts.js", "search_bar.js"], ["forecast?days=7"]],
    planner: [["screens/planner.js"], ["analyses"]],
    instances: [
      ["screens/instances.js", "charts.js"],
      ["instances", "runs?state=leased&limit=1000", "doctor"],
    ],
    audit: [["screens/audit.js", "search_bar.js"], ["audit"]],
    settings: [["screens/settings.js"], ["limits", "calendars", "namespaces", "doctor", "reminders"]],
    incidents: [["screens/incidents.js"], ["channels", "alerts"]],
    create: [["screens/edit_schedule.js"]],
  };
  const [modules = [], data = []] = screens[inner.length ? `${name}/` : name] || [];
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
