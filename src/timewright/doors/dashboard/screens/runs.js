// The list of runs, and one of them.

import list from "./run_list.js";
import one from "./run.js";

export const pick = (path) => (path.length ? one : list);
