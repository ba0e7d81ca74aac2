// The list of schedules, and one of them: the path decides which.

import list from "./schedule_list.js";
import one from "./schedule.js";
import edit from "./create.js";

export const pick = (path) => (path.length === 0 ? list : path[1] === "edit" ? edit : one);
