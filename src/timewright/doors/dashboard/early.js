// Runs before any module is there: asks for what the first screen shows, and fetches the modules it is made of.

(() => {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name = "now", ...inner] = path.split("/").filter(Boolean);
  const params = new URLSearchParams(query || "");
  const namespace = params.get("namespace") || "";
  params.delete("namespace");
  const listed = ["query.js", "bulk.js"];
  const screens = {
    now: [["screens/now.js"], ["now?back=1m"]],
    schedules: [["screens/schedule_list.js", ...listed], ["schedules?limit=50"]],
    "schedules/": inner[1] ? [["screens/create.js"]] : [["screens/schedule.js", "charts.js", "chain.js", "graph.js"], ["", "/health", "/revisions?limit=10"].map((part) => `schedules/${inner[0]}${part}`)],
    runs: [["screens/run_list.js", ...listed], ["runs?limit=50"]],
    "runs/": [["screens/run.js", "charts.js", "tail.js"], ["", "/explain", "/logs"].map((part) => `runs/${inner[0]}${part}`)],
    queues: [["screens/queues.js", "charts.js"], ["queues", "limits", "budgets", "providers"]],
    "queues/": [["screens/queues.js", "charts.js"], [`queues/${inner[0]}`, `queues/${inner[0]}/plan`]],
    workflows: [["screens/workflows.js", "graph.js"], ["workflows"]],
    "workflows/": [["screens/workflows.js", "graph.js"], [`workflows/${inner[0]}`]],
    forecast: [["screens/forecast.js", "charts.js", "query.js"], ["forecast?days=7"]],
    planner: [["screens/planner.js"], ["analyses"]],
    instances: [["screens/instances.js", "charts.js"], ["instances", "runs?state=leased&limit=1000", "doctor"]],
    audit: [["screens/audit.js", "query.js"], ["audit"]],
    settings: [["screens/settings.js"], ["limits", "calendars", "namespaces", "doctor", "reminders"]],
    create: [["screens/create.js"]],
  };
  const [modules = [], data = []] = screens[inner.length ? `${name}/` : name] || [];
  const headers = { accept: "application/json", ...(namespace && namespace !== "default" ? { "timewright-namespace": namespace } : {}) };
  const ask = (url) => { const answer = fetch(url, { headers, credentials: "same-origin" }); answer.catch(() => {}); return [url, answer]; };
  // A filter changes what is asked for, so that only a screen as it is opened is asked for ahead.
  const wanted = [...params].length ? [] : data.map((part) => `/api/v1/${part}`);
  window.early = { namespace: headers["timewright-namespace"] || "", answers: new Map([...wanted, "/session"].map(ask)) };
  const here = document.currentScript.src.replace(/[^/]*$/, "");
  for (const module of modules) {
    const link = document.createElement("link");
    Object.assign(link, { rel: "modulepreload", href: here + module });
    document.head.append(link);
  }
})();
