// Runs before any module is there: asks for what the first screen shows, and fetches the modules it is made of.

(() => {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean);
  const params = new URLSearchParams(query || "");
  const namespace = params.get("namespace") || "";
  params.delete("namespace");
  const screens = {
    now: [["/api/v1/now", "/api/v1/instances"], ["screens/now.js"]],
    schedules: [["/api/v1/schedules?limit=50"], ["screens/schedule_list.js", "query.js", "bulk.js"]],
    runs: [["/api/v1/runs?limit=50"], ["screens/run_list.js", "query.js", "bulk.js"]],
  };
  const [data, modules] = parts.length > 1 ? [[], []] : screens[parts[0] || "now"] || [[], []];
  const headers = { accept: "application/json", ...(namespace && namespace !== "default" ? { "timewright-namespace": namespace } : {}) };
  const ask = (url) => { const answer = fetch(url, { headers, credentials: "same-origin" }); answer.catch(() => {}); return [url, answer]; };
  // A filter changes what is asked for, so that only a screen as it is opened is asked for ahead.
  window.early = { namespace: headers["timewright-namespace"] || "", answers: new Map(["/session", ...([...params].length ? [] : data)].map(ask)) };
  const here = document.currentScript.src.replace(/[^/]*$/, "");
  for (const module of modules) {
    const link = document.createElement("link");
    Object.assign(link, { rel: "modulepreload", href: here + module });
    document.head.append(link);
  }
})();
