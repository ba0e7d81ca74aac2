"""Writes stored values as fields of a definition file, without defaults; the file gives the same value."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields, replace

from timewright.core.calendars import Calendar
from timewright.core.input.aliases import TARGET_VALUE_FIELDS, TRIGGER_WORDS
from timewright.core.input.decode import FIELDS_WE_SET, decode_schedule
from timewright.core.input.encoding import encode, to_json_value
from timewright.core.policies.policies import Floor, FloorAction, QueuePolicy
from timewright.core.recurrence.triggers import After, AnyOf, AnyTrigger, Every, Manual, Once
from timewright.core.schedule.schedule import Schedule
from timewright.core.target import AnyTarget, Handoff, Http
from timewright.core.workflow import WorkflowSpec
from timewright.errors import TimewrightError

# Fields that Timewright sets, that the file gives, or that are written in their short form.
WRITTEN_FIELDS = frozenset({*FIELDS_WE_SET, "id", "name", "namespace", "trigger", "target"})
# Reading them from the class takes as long as decoding a schedule.
_SCHEDULE_FIELDS = fields(Schedule)
_NEVER_REFUSING_FLOOR = Floor(action=FloorAction.RAISE)


def schedule_fields(schedule: Schedule, *, always: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the fields of a schedule that differ from their defaults, and those in `always`."""
    written = {**_trigger_fields(schedule.trigger), **_target_fields(schedule.target)}
    for name in always - WRITTEN_FIELDS:
        written[name] = to_json_value(getattr(schedule, name))
    if schedule.preset is not None:
        written["preset"] = schedule.preset
    written |= _fields_that_differ(schedule, _decode_again(schedule, written))
    made = _decode_again(schedule, written)
    if made is None:
        # A schedule that ended before it was made was accepted because its `catch_up` was given.
        written["catch_up"] = schedule.catch_up.value
        made = _decode_again(schedule, written)
    if made != schedule:
        # A short form lost something: write the trigger and the target in full.
        rest = {key: value for key, value in written.items() if key in Schedule.__struct_fields__}
        written = {"trigger": encode(schedule.trigger), "target": encode(schedule.target), **rest}
    return written


def queue_fields(policy: QueuePolicy) -> dict[str, Any]:
    """Return the fields of a queue policy."""
    return struct_fields(policy)


def calendar_fields(calendar: Calendar) -> dict[str, Any]:
    """Return the fields of a calendar; days that were imported are written as they are."""
    return struct_fields(calendar, without=("name", "namespace", "revision"))


def workflow_fields(spec: WorkflowSpec) -> dict[str, Any]:
    """Return the fields of a workflow without its version, which a store counts itself."""
    return struct_fields(spec, without=("name", "namespace", "version"))


def struct_fields(value: Struct, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the fields of a value that differ from their defaults, also in its parts."""
    found = {}
    for field in fields(value):
        given = getattr(value, field.name)
        default = field.default if field.default is not NODEFAULT else NODEFAULT
        if field.default_factory is not NODEFAULT:
            default = field.default_factory()
        if field.name not in without and (default is NODEFAULT or given != default):
            found[field.encode_name] = _plain(given)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        config = value.__struct_config__
        tag = {config.tag_field: config.tag} if config.tag_field is not None else {}
        return {**tag, **struct_fields(value)}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    return to_json_value(value)


def _trigger_fields(trigger: AnyTrigger) -> dict[str, Any]:
    match trigger:
        case AnyOf():
            return {"trigger": encode(trigger)}
        case Manual():
            return {"manual": True}
        case After():
            name = trigger.schedule or to_json_value(trigger.delay)
            rest = ("schedule",) if trigger.schedule else ("schedule", "delay")
            return {"after": name, **struct_fields(trigger, without=rest)}
    kind = str(trigger.__struct_config__.tag)
    _, main = TRIGGER_WORDS[kind]
    zone = {} if isinstance(trigger, Every | Once) else {"zone": trigger.zone}
    others = struct_fields(trigger, without=(main, "zone"))
    return {kind: to_json_value(getattr(trigger, main)), **zone, **others}


def _target_fields(target: AnyTarget) -> dict[str, Any]:
    kind, given = str(target.__struct_config__.tag), struct_fields(target)
    if isinstance(target, Http) and given.keys() <= {"url", "method"}:
        return {kind: f"{target.method} {target.url}"}
    main = TARGET_VALUE_FIELDS[kind]
    if given.keys() == {main} and not isinstance(target, Handoff):
        return {kind: given[main]}
    return {kind: given or True}


def _decode_again(schedule: Schedule, written: Mapping[str, Any]) -> Schedule | None:
    """Return the schedule that a file with these fields would make; None if it would be refused."""
    created: datetime = schedule.created_at
    try:
        made = decode_schedule(
            {"name": schedule.name, **written},
            id=schedule.id,
            now=created,
            floor=_NEVER_REFUSING_FLOOR,
            namespace=schedule.namespace,
            revision=schedule.revision,
            created_by=schedule.created_by,
            origin=schedule.origin,
        )
    except TimewrightError:
        return None
    return replace(made, owner=schedule.owner)


def _fields_that_differ(schedule: Schedule, made: Schedule | None) -> dict[str, Any]:
    """Return the fields that a file has to name, because their default is another value."""
    names = (field for field in _SCHEDULE_FIELDS if field.name not in WRITTEN_FIELDS)
    # A preset also gives values to the parts of a field, so these are written in full.
    write = _plain if schedule.preset is None else to_json_value
    return {
        field.encode_name: write(getattr(schedule, field.name))
        for field in names
        if made is None or getattr(made, field.name) != getattr(schedule, field.name)
    }
