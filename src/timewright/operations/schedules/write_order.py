"""Sort schedules that are written together, so that each comes after those it depends on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from timewright.core.input.shorthand import expand_trigger
from timewright.core.input.struct_decoder import canonical_fields, expand_need
from timewright.core.schedule.schedule import Schedule
from timewright.errors import TimewrightError

ScheduleDraft = Mapping[str, Any]


def sort_by_dependency(drafts: Sequence[ScheduleDraft]) -> list[ScheduleDraft]:
    """Return the drafts, each after those it depends on; writing a cycle is rejected later."""
    by_name = {str(draft.get("name")): draft for draft in drafts}
    upstream = {name: (upstream_names_in(draft) & by_name.keys()) - {name} for name, draft in by_name.items()}
    done: dict[str, ScheduleDraft] = {}
    waiting = list(by_name)
    while waiting:
        unblocked = [name for name in waiting if upstream[name] <= done.keys()]
        for name in unblocked or waiting:
            done[name] = by_name[name]
        waiting = [name for name in waiting if name not in done]
    return list(done.values())


def upstream_names_in(draft: ScheduleDraft) -> set[str]:
    """Return the schedules that a draft depends on; none if it is invalid, which the write reports."""
    try:
        given = canonical_fields(draft, Schedule)
        trigger, needs = given.get("trigger"), given.get("needs", ())
        shaped = trigger if isinstance(trigger, Struct) else expand_trigger(trigger, "trigger")
        rows = [one if isinstance(one, Struct) else expand_need(one, "needs") for one in _as_list(needs)]
    except TimewrightError:
        return set()
    return {name for one in (shaped, *rows) if isinstance(name := _schedule(one), str) and name}


def _as_list(needs: Any) -> Iterable[Any]:
    return needs if isinstance(needs, list | tuple) else ()


def _schedule(one: Any) -> Any:
    return one.get("schedule") if isinstance(one, Mapping) else getattr(one, "schedule", "")
