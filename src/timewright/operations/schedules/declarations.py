"""Schedules that a program declares: builds and orders the requests, and rejects errors early."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from timewright.core.input.decode import decode, decode_schedule
from timewright.core.input.encoding import encode
from timewright.core.input.input_errors import check_name, input_error
from timewright.core.input.shorthand import expand_trigger
from timewright.core.input.struct_decoder import canonical_fields, expand_need
from timewright.core.moments import MIN_STORED_INSTANT
from timewright.core.recurrence import Trigger, ZonedTrigger
from timewright.core.recurrence.triggers import AnyOf, AnyTrigger, Every, Once
from timewright.core.schedule.schedule import Schedule
from timewright.core.target import AnyTarget, Call
from timewright.core.zones import name_of_zone
from timewright.errors import TimewrightError
from timewright.ledger.records.owners import definition_digest
from timewright.settings import Settings

CRON_FIELDS = frozenset({"zone", "timezone", "tz", "dst"})

TriggerInput = AnyTrigger | str | timedelta | datetime | Sequence["AnyTrigger | str | timedelta | datetime"]

_RULE = "a trigger, its text, a timedelta, a datetime with an offset, or a list of these"


def encode_trigger(when: Any) -> Any:
    """Return a trigger in the form of a request; a timedelta is an interval, a datetime runs once."""
    if isinstance(when, str | dict):
        return when
    if isinstance(when, timedelta):
        return encode(Every(when))
    if isinstance(when, datetime):
        return encode(Once(when))
    if isinstance(when, Trigger):
        return _encode_struct(when)
    if isinstance(when, list | tuple):
        return [encode_trigger(one) for one in when]
    fix = 'write it with a trigger: @app.schedule(every("5m"))' if callable(when) else 'every("5m")'
    raise input_error("trigger", when, "is not a trigger", rule=_RULE, fix=fix)


def _encode_struct(trigger: Trigger) -> dict[str, Any]:
    """Return a trigger as a mapping, without a zone that it does not name."""
    if isinstance(trigger, AnyOf):
        return {"kind": "any_of", "triggers": [_encode_struct(one) for one in trigger.triggers]}
    encoded = encode(trigger)
    if isinstance(trigger, ZonedTrigger) and not trigger.names_zone:
        del encoded["zone"]
    return encoded


def request_fields(when: Any, policies: dict[str, Any]) -> dict[str, Any]:
    """Return the request fields of a trigger and its policies."""
    policies = {name: name_of_zone(value) for name, value in policies.items()}
    if isinstance(policies.get("retry"), int):
        policies = {**policies, "retry": {"max_attempts": policies["retry"]}}
    # With a text trigger, these fields belong to a cron expression.
    is_cron = isinstance(when, str) and not CRON_FIELDS.isdisjoint(policies)
    trigger = {"cron" if is_cron else "trigger": when} if when is not None else {}
    return {**trigger, **policies}


def build_declaration(
    name: str, when: Any, policies: dict[str, Any], *, settings: Settings, valid_shapes: set[str]
) -> dict[str, Any]:
    """Return the request that stores a function as a schedule; raises at once if it can never be valid.

    `valid_shapes` are those of earlier declarations, which need no second check.
    """
    if "id" in policies:
        fix = f"name={str(policies['id'])!r}"
        raise input_error(
            "id",
            policies["id"],
            "cannot be chosen",
            rule="a schedule gets its id when it is created, and is known by its name",
            fix=fix,
        )
    # Both names are accepted for the function's arguments.
    args = policies.get("args", policies.get("kwargs", {}))
    policies = {key: value for key, value in policies.items() if key not in ("args", "kwargs")}
    if isinstance(args, list | tuple):
        fix = "args={'team': 'finance'}"
        raise input_error("args", args, "have no names", rule="arguments are given by name", fix=fix)
    called = {"kind": "call", "name": name, "args": args} if args else {"call": name}
    request = {"name": name, "target": called, **request_fields(when, policies)}
    shape = definition_shape(request)
    if shape in valid_shapes and decode_call(request) is not None:
        check_name(name)
        return request
    # Whether an instant has passed is checked on storing: it may have been stored long ago.
    decode_schedule(
        {key: value for key, value in request.items() if key not in ("reason", "force", "revision")},
        id="sch_declared",
        now=MIN_STORED_INSTANT,
        floor=settings.interval_floor,
        defaults=settings.schedule_defaults,
    )
    if shape:
        valid_shapes.add(shape)
    return request


def decode_call(fields: Mapping[str, Any]) -> Call | None:
    """Return the target of a declared function, which can be decoded apart from the other fields."""
    target = fields.get("target")
    if type(target) is not dict or not (target.keys() == {"call"} or target.get("kind") == "call"):
        return None
    found = decode(target, AnyTarget, field="target")
    return found if isinstance(found, Call) else None


def definition_shape(fields: Mapping[str, Any]) -> str:
    """Return what two drafts have in common that differ only in name and target; "" if none can be stored."""
    try:
        return definition_digest({key: fields[key] for key in fields if key not in ("name", "target")})
    except (TypeError, ValueError, RecursionError):
        return ""


def sort_by_dependency(drafts: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the drafts, each after those it depends on; writing a cycle is rejected later."""
    by_name = {str(draft.get("name")): draft for draft in drafts}
    upstream = {name: (upstream_names_in(draft) & by_name.keys()) - {name} for name, draft in by_name.items()}
    done: dict[str, Mapping[str, Any]] = {}
    waiting = list(by_name)
    while waiting:
        unblocked = [name for name in waiting if upstream[name] <= done.keys()]
        for name in unblocked or waiting:
            done[name] = by_name[name]
        waiting = [name for name in waiting if name not in done]
    return list(done.values())


def upstream_names_in(draft: Mapping[str, Any]) -> set[str]:
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
