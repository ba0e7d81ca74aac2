// The screens: their names and the modules that are loaded when they are first opened.

export const SCREENS = [
  ["overview", "Overview"],
  ["schedules", "Schedules"],
  ["runs", "Runs"],
  ["grid", "Grid"],
  ["incidents", "Incidents"],
  ["queues", "Queues"],
  ["workflows", "Workflows"],
  ["forecast", "Forecast"],
  ["planner", "Planner"],
  ["instances", "Instances"],
  ["audit", "Audit"],
  ["settings", "Settings"],
];

// With a slash: the screen of one schedule or one run. Other screens show one thing in the same module.
const MODULES = {
  overview: "overview/overview",
  schedules: "schedules/schedule_list",
  "schedules/": "schedules/schedule",
  create: "schedule_form/edit_schedule",
  runs: "runs/run_list",
  "runs/": "runs/run",
  grid: "grid",
  incidents: "incidents",
  queues: "queues/queues",
  workflows: "workflows/workflows",
  forecast: "forecast",
  planner: "planner",
  instances: "instances",
  audit: "audit",
  settings: "settings",
};
const load = (module) => import(`../screens/${module}.js`);

/**
 * Load the module of a screen.
 * @param {{name: string, path: string[]}} route
 * @returns {Promise<any> | null} null if there is no such screen
 */
export function loadScreen({ name, path }) {
  const isForm = name === "schedules" && path[1] === "edit";
  const module = isForm ? MODULES.create : (path.length && MODULES[`${name}/`]) || MODULES[name];
  return module ? load(module) : null;
}

// Load the other screens when the browser is idle, so that they open while the server is unreachable.
export const loadAllScreens = () =>
  requestIdleCallback(() => {
    for (const module of Object.values(MODULES)) load(module).catch(() => {});
  });
