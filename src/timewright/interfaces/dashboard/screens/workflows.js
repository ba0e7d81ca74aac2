// Workflows, and the step graph of one workflow with the states of a run.

import { get, can, post } from "../api.js";
import { h } from "../dom.js";
import { dependencyGraph } from "../graph.js";
import { refresh } from "../main.js";
import { badge } from "../states.js";
import { secondsBetween, now, formatDuration, formatTime } from "../times.js";
import {
  tryAction,
  button,
  confirmDialog,
  commandBlock,
  emptyState,
  definitionList,
  jsonBlock,
  link,
  pager,
  panel,
  routeTo,
  shellQuote,
  table,
  time,
} from "../widgets.js";

const list = {
  title: () => "Workflows",
  every: 10,
  load: (_path, params) => get(["workflows"], { cursor: params.cursor }),
  view(data, _path, params, go) {
    const rows = data.workflows.map((one) => ({
      key: one.workflow,
      to: routeTo("workflows", one.workflow),
      cells: [
        link(routeTo("workflows", one.workflow), one.workflow),
        `v${one.version}`,
        time(one.at),
        h(
          "span",
          { class: "names" },
          one.schedules.length
            ? one.schedules.map((name) => link(routeTo("schedules", name), name))
            : h("span", { class: "mute" }, "manual only"),
        ),
      ],
    }));
    return h(
      "div",
      { class: "screen" },
      rows.length
        ? panel(
            "Workflows",
            table(
              "Workflows",
              [
                { name: "Workflow" },
                { name: "Version", kind: "tight" },
                { name: "Updated", kind: "tight" },
                { name: "Schedules" },
              ],
              rows,
            ),
          )
        : emptyState("No workflows. Create one:", "timewright workflow put --file workflow.yaml"),
      pager(data, params, go),
    );
  },
};

// The runs of a workflow: those of its schedules and manual ones. The newest is shown unless another is selected.
async function runsOf(name, schedules) {
  const pages = await Promise.all([
    ...schedules
      .slice(0, 5)
      .map((one) => get(["runs"], { schedule: one, limit: 8 }).catch(() => ({ runs: [] }))),
    get(["runs"], { state: "leased", limit: 100 }).catch(() => ({ runs: [] })),
  ]);
  const named = pages.slice(0, -1).flatMap((page) => page.runs);
  const maybe = pages[pages.length - 1].runs
    .filter((run) => run.source === "manual" && !run.schedule && !run.queue)
    .slice(0, 5);
  const ours = await Promise.all(
    maybe.map((run) =>
      get(["workflows", name, "graph"], { run: run.id }).then(
        () => true,
        () => false,
      ),
    ),
  );
  const manual = maybe.filter((_, n) => ours[n]);
  return [...named, ...manual]
    .filter((run) => run.started_at || run.state === "leased")
    .sort((a, b) => (a.planned_at < b.planned_at ? 1 : -1))
    .slice(0, 12);
}

const one = {
  title: ([name]) => name,
  every: 4,
  async load([name], params) {
    const detail = await get(["workflows", name]);
    const runs = await runsOf(name, Object.keys(detail.schedules));
    const run = params.run || (runs[0] && runs[0].id);
    const withoutRun = () => get(["workflows", name, "graph"]);
    const graph = await (run ? get(["workflows", name, "graph"], { run }).catch(withoutRun) : withoutRun());
    return { detail, graph, runs };
  },
  view({ detail, graph, runs }, [name], params, go) {
    const run = async () => {
      const answer = await confirmDialog({
        title: `Run ${name} now?`,
        act: "run now",
        reason: true,
        command: `timewright workflow run ${shellQuote(name)}`,
      });
      const made =
        answer &&
        (await tryAction(
          () => post(["workflows", name, "run"], answer.reason ? { reason: answer.reason } : {}),
          "started",
        ));
      if (made) {
        go({ ...params, run: made.run.id });
        refresh();
      }
    };
    const shownRun = graph.run ? runs.find((one) => one.id === graph.run) : null;
    const done = graph.steps.filter((step) => ["succeeded", "skipped"].includes(step.state)).length;
    return h(
      "div",
      { class: "screen" },
      can("trigger")
        ? h(
            "div",
            { class: "buttons" },
            button("run now", run, { kind: "main" }),
            shownRun && shownRun.state === "leased" ? runActions(shownRun.id) : null,
          )
        : null,
      panel(
        "Steps",
        h(
          "div",
          null,
          dependencyGraph(graph),
          graph.run ? null : commandBlock(`timewright workflow graph ${shellQuote(name)}`),
        ),
        {
          note: graph.run
            ? `run …${graph.run.slice(-6)}${shownRun ? `, planned ${formatTime(shownRun.planned_at)}` : ""}: ${done} of ${graph.steps.length} done`
            : `version ${graph.version}`,
          more: graph.run ? link(routeTo("runs", graph.run), "show run") : null,
        },
      ),
      h(
        "div",
        { class: "columns" },
        h(
          "div",
          null,
          panel(
            "Runs",
            runs.length
              ? table(
                  "Runs",
                  [
                    { name: "Planned", kind: "tight" },
                    { name: "Status", kind: "tight" },
                    { name: "Duration" },
                    { name: "", label: "Actions" },
                  ],
                  runs.map((each) => ({
                    key: each.id,
                    cells: [
                      link(routeTo("runs", each.id), time(each.planned_at)),
                      badge(each.state, each.reason),
                      formatDuration(
                        secondsBetween(
                          each.first_started_at,
                          each.finished_at || new Date(now()).toISOString(),
                        ),
                      ),
                      each.id === graph.run
                        ? h("span", { class: "mute" }, "shown above")
                        : button("show", () => go({ ...params, run: each.id }), { kind: "quiet" }),
                    ],
                  })),
                )
              : h("p", { class: "mute" }, "no runs yet"),
          ),
        ),
        h(
          "div",
          null,
          panel(
            "Step details",
            table(
              "Steps",
              [{ name: "Step" }, { name: "Status", kind: "tight" }, { name: "Needs" }, { name: "Reason" }],
              graph.steps.map((step) => ({
                key: step.step,
                to: step.run ? routeTo("runs", step.run) : null,
                cells: [
                  step.run ? link(routeTo("runs", step.run), step.step) : step.step,
                  step.state ? badge(step.state) : "",
                  step.needs.join(", "),
                  h("span", { class: "ellipsis", title: step.reason }, step.reason),
                ],
              })),
            ),
          ),
          panel(
            "Definition",
            h(
              "div",
              null,
              definitionList([
                [
                  "version",
                  `${detail.version}${detail.newest !== detail.version ? ` of ${detail.newest}` : ""}`,
                ],
                ["updated", time(detail.at)],
                [
                  "schedules",
                  h(
                    "span",
                    { class: "names" },
                    Object.keys(detail.schedules).map((each) => link(routeTo("schedules", each), each)),
                  ),
                ],
              ]),
              h("details", null, h("summary", null, "full definition"), jsonBlock(detail.workflow)),
            ),
          ),
        ),
      ),
    );
  },
};

// Actions on the shown run while it is in progress.
function runActions(run) {
  const act = (verb, label, path, text, danger) =>
    button(label, async () => {
      const answer = await confirmDialog({
        title: `${label}?`,
        text,
        act: verb,
        reason: true,
        danger,
        command: `timewright ${path[0].slice(0, -1)} ${verb} ${run}`,
      });
      if (
        answer &&
        (await tryAction(
          () => post([...path, verb], answer.reason ? { reason: answer.reason } : {}),
          `${verb}: done`,
        ))
      )
        refresh();
    });
  return [
    act("pause", "pause this run", ["workflows", run], "No further step starts; steps in progress continue."),
    act("resume", "resume this run", ["workflows", run], "Its steps continue where they stopped."),
    act(
      "cancel",
      "cancel this run",
      ["runs", run],
      "No further step starts, and steps in progress are asked to stop.",
      true,
    ),
  ];
}

export const pick = (path) => (path.length ? one : list);
