// Actions on the server: confirm, perform, say what was done, and offer to undo it.

import { refresh } from "../app/refresh.js";
import { post } from "../base/api.js";
import { confirmDialog } from "./dialog.js";
import { tryAction } from "./messages.js";

/**
 * @typedef {{path: string[], body?: Record<string, any>, done: string, label?: string}} Undo
 *
 * Confirm an action in a dialog and perform it. The values of the dialog's fields and its reason are the
 * request,
 * together with `request`; `toBody` turns the values into other fields.
 * @param {import("./dialog.js").Dialog & {path: string[], request?: Record<string, any>, done?: string,
 *   undo?: Undo,
 *   toBody?: (values: Record<string, string>) => Record<string, any>,
 *   send?: (path: string[], body: any) => Promise<any>}} action
 * @returns {Promise<any>} the answer, or null if it was not performed
 */
export async function perform({ path, request = {}, toBody = (v) => v, done, undo, send = post, ...dialog }) {
  const given = await confirmDialog({ reason: true, ...dialog });
  if (!given) return null;
  const filled = Object.fromEntries(Object.entries(given).filter(([, value]) => value));
  const message = done || `${dialog.act || "action"}: done`;
  const answer = await tryAction(
    () => send(path, { ...request, ...toBody(filled) }),
    message,
    undo && undoButton(undo),
  );
  if (answer) await refresh();
  return answer;
}

/** @param {Undo} undo */
const undoButton = ({ path, body = {}, done, label = "undo" }) => ({
  label,
  run: async () => {
    if (await tryAction(() => post(path, { ...body, reason: "undo" }), done)) refresh();
  },
});
