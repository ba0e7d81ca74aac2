// Pauses of a scope: what is paused, pause and resume.

import { refresh } from "../../app/refresh.js";
import { can, currentNamespace, post } from "../../base/api.js";
import { h } from "../../base/dom.js";
import { commandOptions, fixHint } from "../../components/commands.js";
import { confirmDialog } from "../../components/dialog.js";
import { button } from "../../components/layout.js";
import { tryAction } from "../../components/messages.js";
import { time } from "../../components/texts.js";

const paused = (one) =>
  one.scope === "installation" ? "everything" : `${one.scope} ${one.name || one.namespace}`;
const subject = ({ scope, name }) => (scope === "installation" ? "" : commandOptions({ scope, name }));

// What is paused, by whom and why, on top of everything else.
export function pauseBanner(pauses) {
  return h(
    "div",
    { class: "paused", role: "status" },
    pauses.map((one) =>
      h(
        "div",
        { key: one.id, class: "line" },
        h(
          "span",
          { class: "grow" },
          h("strong", null, `Paused: ${paused(one)}`),
          ` since `,
          time(one.at, undefined, "away"),
          ` by ${one.actor}`,
          one.until ? [", until ", time(one.until)] : "",
          one.reason ? `: ${one.reason}` : "",
        ),
        one.origin === "clock"
          ? fixHint("timewright clock accept")
          : can(one.scope === "installation" ? "admin" : "write")
            ? button("resume", () => resume(one), { kind: "quiet" })
            : null,
      ),
    ),
  );
}

async function resume(one) {
  const answer = await confirmDialog({
    title: `Resume ${paused(one)}`,
    act: "resume",
    reason: true,
    command: `timewright resume${subject(one)}`,
  });
  if (
    answer &&
    (await tryAction(
      () =>
        post(["resume"], {
          scope: one.scope,
          ...(one.name ? { name: one.name } : {}),
          ...(answer.reason ? { reason: answer.reason } : {}),
        }),
      "resumed",
    ))
  )
    refresh();
}

const SCOPES = [
  ["installation", "everything"],
  ["namespace", "this namespace"],
  ["group", "a group"],
  ["owner", "an owner"],
  ["queue", "a queue"],
  ["provider", "a provider"],
];
export async function pauseAll() {
  const admin = can("admin");
  const options = (v) =>
    subject(v) +
    commandOptions({ until: v.until, due: v.due }) +
    (v.cancel_running === "yes" ? " --cancel-running" : "") +
    commandOptions({ reason: v.reason });
  const answer = await confirmDialog({
    title: "Pause all",
    act: "pause",
    danger: true,
    reason: true,
    text: "Nothing in this scope starts until it is resumed. Runs in progress continue unless cancelled.",
    fields: [
      {
        name: "scope",
        label: "What",
        value: admin ? "installation" : "namespace",
        options: admin ? SCOPES : SCOPES.slice(1),
      },
      { name: "name", label: "Name of the group, owner, queue or provider" },
      { name: "until", label: "Until (empty: until resumed)", placeholder: "in 2 hours" },
      {
        name: "due",
        label: "Occurrences that come due meanwhile",
        options: [
          ["", "as usual: a group skips them, other scopes let them wait"],
          ["wait", "wait"],
          ["skip", "skip"],
        ],
      },
      {
        name: "cancel_running",
        label: "Runs in progress",
        options: [
          ["", "continue"],
          ["yes", "are cancelled"],
        ],
      },
    ],
    command: (v) =>
      `timewright${currentNamespace() ? ` --namespace ${currentNamespace()}` : ""} pause${options(v)}`,
  });
  if (!answer) return;
  const { cancel_running: stops, ...given } = Object.fromEntries(
    Object.entries(answer).filter(([, value]) => value),
  );
  if (await tryAction(() => post(["pause"], { ...given, cancel_running: stops === "yes" }), "paused"))
    refresh();
}
