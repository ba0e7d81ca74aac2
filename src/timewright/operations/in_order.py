"""Several schedules written at once: what others wait for comes first, in whatever order they came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from timewright.core.decoding import names_of
from timewright.core.schedule import Schedule
from timewright.core.shapes import need_shape, trigger_shape
from timewright.errors import TimewrightError

Draft = Mapping[str, Any]


def upstream_first(drafts: Sequence[Draft]) -> list[Draft]:
    """The same drafts, each after those it names; a ring stays as it is, and is refused when written."""
    by_name = {str(draft.get("name")): draft for draft in drafts}
    done: dict[str, Draft] = {}
    waiting = list(by_name)
    while waiting:
        free = [one for one in waiting if not (named_in(by_name[one]) & by_name.keys() - done.keys() - {one})]
        for name in free or waiting:
            done[name] = by_name[name]
        waiting = [name for name in waiting if name not in done]
    return list(done.values())


def named_in(draft: Draft) -> set[str]:
    """The schedules that a draft waits for; one that cannot be read names none, and is refused later."""
    try:
        given = names_of(draft, Schedule)
        trigger, needs = given.get("trigger"), given.get("needs", ())
        shaped = trigger if isinstance(trigger, Struct) else trigger_shape(trigger, "trigger")
        rows = [one if isinstance(one, Struct) else need_shape(one, "needs") for one in _listed(needs)]
    except TimewrightError:
        return set()
    return {name for one in (shaped, *rows) if isinstance(name := _schedule(one), str) and name}


def _listed(needs: Any) -> Iterable[Any]:
    return needs if isinstance(needs, list | tuple) else ()


def _schedule(one: Any) -> Any:
    return one.get("schedule") if isinstance(one, Mapping) else getattr(one, "schedule", "")
