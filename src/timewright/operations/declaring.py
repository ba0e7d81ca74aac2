"""What a program declares: the request that keeps it, refused where it was written and not at the start."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from timewright.core.encoding import encode
from timewright.core.moments import EARLIEST_STORED
from timewright.core.refusals import refused
from timewright.core.trigger import Trigger
from timewright.core.triggers import AnyTrigger, Every, Once
from timewright.core.vocabulary import decode_schedule
from timewright.settings import Settings

CRON_PARTS = frozenset({"zone", "timezone", "tz", "dst"})

When = AnyTrigger | str | timedelta | datetime | Sequence["AnyTrigger | str | timedelta | datetime"]

_RULE = "a trigger, its text, a timedelta, a datetime with an offset, or a list of these"


def spelled_trigger(when: Any) -> Any:
    """When it shall run, as a request spells it; a length of time is an interval, an instant is once."""
    if isinstance(when, str | dict):
        return when
    if isinstance(when, timedelta):
        return encode(Every(when))
    if isinstance(when, datetime):
        return encode(Once(when))
    if isinstance(when, Trigger):
        return encode(when)
    if isinstance(when, list | tuple):
        return [spelled_trigger(one) for one in when]
    fix = 'write it with a trigger: @app.schedule(every("5m"))' if callable(when) else 'every("5m")'
    raise refused("trigger", when, "is no trigger", rule=_RULE, fix=fix)


def worded(when: Any, policies: dict[str, Any]) -> dict[str, Any]:
    """A trigger as a request spells it and the policies beside it, in the words of a request."""
    if isinstance(policies.get("retry"), int):
        policies = {**policies, "retry": {"max_attempts": policies["retry"]}}
    # Beside a text these are parts of the trigger, and belong to a cron expression alone.
    is_cron = isinstance(when, str) and not CRON_PARTS.isdisjoint(policies)
    said = {"cron" if is_cron else "trigger": when} if when is not None else {}
    return {**said, **policies}


def declaration(name: str, when: Any, policies: dict[str, Any], *, settings: Settings) -> dict[str, Any]:
    """The request that keeps a function of this name as a schedule; refused at once if it never could."""
    if "id" in policies:
        fix = f"name={str(policies['id'])!r}"
        raise refused("id", policies["id"], "is given", rule="a schedule is known by its name", fix=fix)
    # What the function is given stands under one of these two names everywhere else.
    args = policies.get("args", policies.get("kwargs", {}))
    policies = {key: value for key, value in policies.items() if key not in ("args", "kwargs")}
    if isinstance(args, list | tuple):
        fix = "args={'team': 'finance'}"
        raise refused("args", args, "have no names", rule="arguments are given by name", fix=fix)
    called = {"kind": "call", "name": name, "args": args} if args else {"call": name}
    request = {"name": name, "target": called, **worded(when, policies)}
    # Whether an instant has passed is asked when it is kept: a program that restarts has kept it long ago.
    decode_schedule(
        {key: value for key, value in request.items() if key not in ("reason", "force", "revision")},
        id="sch_declared",
        now=EARLIEST_STORED,
        floor=settings.interval_floor,
        defaults=settings.for_schedules,
    )
    return request
