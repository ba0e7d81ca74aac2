"""Decodes schedules, edits of schedules, and queue policies from JSON-like data.

Aliases from other schedulers are accepted; `encoding` writes one canonical form.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.input.aliases import FIELD_ALIASES, snake_case
from timewright.core.input.input_errors import check_name, input_error, raise_at_path
from timewright.core.input.instant_text import (
    DefaultZone,
    describe_instant,
    resolve_schedule_instants,
    resolve_zone,
    zone_in,
    zone_in_text,
)
from timewright.core.input.scalars import check_size
from timewright.core.input.shorthand import expand_trigger, names_trigger, with_hash_key
from timewright.core.input.struct_decoder import canonical_fields, read_struct, read_value, type_info
from timewright.core.moments import SECOND, as_instant, check_storable
from timewright.core.policies.policies import FLOORS, OUTSIDE_LEASE, PRESETS, Floor, LeaseTerms, QueuePolicy
from timewright.core.recurrence import ZonedTrigger
from timewright.core.recurrence.triggers import (
    After,
    AnyOf,
    AnyTrigger,
    Cron,
    Every,
    Once,
    Rrule,
    parts_of,
    with_anchor,
    with_start,
    with_zone,
    without_anchor,
    zone_of,
)
from timewright.core.schedule.likely_mistakes import check_new_schedule
from timewright.core.schedule.schedule import Preset, Schedule
from timewright.core.target import Handoff, Http
from timewright.errors import TimewrightError

if TYPE_CHECKING:
    from timewright.core.recurrence.phrases import Recurrence

T = TypeVar("T")

POLICY_VERSIONS = (1,)

# Fields that a request may not set.
FIELDS_WE_SET = ("revision", "created_at", "created_by", "origin", "owner")
_NAME_LENGTHS = {"name": 255, "namespace": 64, "group": 255, "queue": 255, "provider": 255}
_NAME_LIST_LENGTHS = {"tags": 64, "limits": 255, "budgets": 255, "runs_on": 64}


@overload
def decode(raw: Any, into: type[T], *, field: str = "", base: T | Mapping[str, Any] | None = None) -> T: ...
@overload
def decode(raw: Any, into: Any, *, field: str = "", base: Any = None) -> Any: ...
def decode(raw: Any, into: Any, *, field: str = "", base: Any = None) -> Any:
    """Decode JSON-like data as a type or a union of types: `decode("SUCCESS", Outcome)`.

    Missing fields come from `base`, else from the defaults.
    """
    check_size(raw, field)
    if isinstance(into, type) and issubclass(into, Struct) and isinstance(base, Mapping):
        return read_struct(canonical_fields(raw, into, field), into, field, base)
    return read_value(raw, type_info(into), field, base)


def decode_schedule(
    raw: Any,
    *,
    id: str,  # noqa: A002 - the field has this name everywhere
    now: datetime,
    floor: Floor = Floor(),  # noqa: B008 - a frozen value
    defaults: Mapping[str, Any] | None = None,
    zone: DefaultZone = "UTC",
    namespace: str = "default",
    revision: int = 1,
    created_by: str = "",
    origin: str = "human",
    before: Schedule | None = None,
) -> Schedule:
    """Decode a new schedule and apply its preset, the minimum interval and the anchor.

    Names are normalized, and a schedule that could never run is refused. `defaults` are the instance's values
    for missing fields; a preset overrides them. `zone` is the zone of a schedule that names none. `before` is
    the definition that this one replaces; its anchor stays if the trigger and `start_at` do.
    """
    check_size(raw)
    given = canonical_fields(_http_timeout(raw), Schedule)
    _refuse_system_fields(given, id=id)
    given = _read_reboot(given)
    given = resolve_schedule_instants(given, Schedule, now=as_instant(now, field="now"), zone=zone)
    preset = read_value(given.get("preset"), type_info(Preset | None), "preset")
    base = {"namespace": namespace, **(defaults or {}), **PRESETS.get(preset or "", {})}
    if "trigger" in given:
        given = _read_trigger(given, key=id)
    fields = {
        **_check_names(given),
        "id": id,
        "created_at": as_instant(now, field="now"),
        "created_by": created_by,
        "origin": origin,
        "revision": revision,
    }
    schedule = cast("Schedule", read_struct(fields, Schedule, "", base))
    trigger = _complete_trigger(schedule, zone=zone, floor=floor, before=before)
    schedule = replace(schedule, trigger=trigger, lease=_lease_terms(schedule, given))
    check_new_schedule(schedule, now=schedule.created_at, catch_up_given="catch_up" in given)
    return schedule


def decode_changes(
    raw: Any,
    *,
    of: Schedule,
    now: datetime,
    floor: Floor = Floor(),  # noqa: B008 - a frozen value
    zone: DefaultZone = "UTC",
) -> Schedule:
    """Decode an edit of a schedule: given fields change, missing ones keep their value.

    A new interval keeps the anchor, a new zone alone the expression, and new wall-clock times the zone. A
    preset overrides the old values, and the given fields override the preset.
    """
    check_size(raw)
    given = canonical_fields(_http_timeout(raw), Schedule)
    _refuse_system_fields(given, id=of.id)
    zone = zone_of(of.trigger) or zone
    given = _read_reboot(given)
    given = resolve_schedule_instants(given, Schedule, now=as_instant(now, field="now"), zone=zone)
    for part in ("trigger", "target"):
        if part in given:
            given[part] = _with_current_kind(given[part], getattr(of, part))
    if "trigger" in given:
        given = _read_trigger(given, key=of.id)
    preset = read_value(given.get("preset"), type_info(Preset | None), "preset")
    base = {name: getattr(of, name) for name in Schedule.__struct_fields__} | dict(
        PRESETS.get(preset or "", {})
    )
    schedule = cast("Schedule", read_struct(_check_names(given), Schedule, "", base))
    if "trigger" in given:
        schedule = replace(schedule, trigger=_complete_trigger(schedule, zone=zone, floor=floor))
    if "target" in given:
        schedule = replace(schedule, lease=_lease_terms(schedule, given))
    if {"trigger", "start_at", "end_at", "deadline"} & set(given):
        check_new_schedule(schedule, now=now, catch_up_given="catch_up" in given)
    return schedule


def decode_policy(raw: Any, *, field: str = "policy") -> QueuePolicy:
    """Decode the policy of a queue; None gives the defaults."""
    if raw is None:
        return QueuePolicy()
    if isinstance(raw, Mapping):
        version = next(
            (key for key in raw if isinstance(key, str) and snake_case(key) == "schema_version"), None
        )
        if version is not None and raw[version] not in POLICY_VERSIONS:
            rule = f"version {', '.join(map(str, POLICY_VERSIONS))}"
            raise input_error(
                f"{field}.{version}",
                raw[version],
                "is not supported",
                rule=rule,
                fix="install a newer version of Timewright",
            )
        raw = {key: value for key, value in raw.items() if key != version}
    return decode(raw, QueuePolicy, field=field)


def _http_timeout(raw: Any) -> Any:
    """Rename `timeout` next to `url`: there it is the request's timeout, elsewhere the run's time limit."""
    if not isinstance(raw, Mapping) or "url" not in {snake_case(key) for key in raw if isinstance(key, str)}:
        return raw
    renamed = {"timeout": "http_timeout", "timeout_ms": "http_timeout_ms"}
    return {
        renamed.get(snake_case(key), key) if isinstance(key, str) else key: value
        for key, value in raw.items()
    }


def _refuse_system_fields(given: Mapping[str, Any], *, id: str) -> None:  # noqa: A002
    for name in FIELDS_WE_SET:
        if name in given:
            raise input_error(
                name, given[name], "cannot be set", rule="Timewright sets it", fix="leave it out"
            )
    if given.get("id", id) != id:
        raise input_error(
            "id",
            given["id"],
            "is the id of another schedule",
            rule=f"the id of this schedule is {id}",
            fix="leave it out",
        )


def describe_phrase(raw: Any, schedule: Schedule, *, zone: DefaultZone = "UTC") -> str:
    """Return how the text of a trigger was read, with the zone of the schedule; empty if it was no text."""
    trigger = _read_reboot(canonical_fields(_http_timeout(raw), Schedule)).get("trigger")
    if not isinstance(trigger, str | list | tuple) and not names_trigger(trigger):
        return ""
    if isinstance(schedule.trigger, Once):
        texts = trigger.values() if isinstance(trigger, Mapping) else (trigger,)
        written = next(filter(None, map(zone_in_text, texts)), None)
        return describe_instant(schedule.trigger.at, zone=written or zone_in(trigger) or zone)
    zones = {
        part.expression if isinstance(part, Cron) else part.rule: part.zone
        for part in parts_of(schedule.trigger)
        if isinstance(part, Cron | Rrule)
    }
    readings: list[Recurrence] = []
    expand_trigger(_without_plain_cron(trigger) if zones else trigger, "trigger", readings)
    found: list[str] = []
    for reading in readings:
        unnamed = [zones[spec.text] for spec in reading.triggers if spec.zone is None and spec.text in zones]
        found.append(", ".join([reading.read_as, *unnamed[:1]]))
    return "; ".join(dict.fromkeys(found))


def _without_plain_cron(trigger: Any) -> Any:
    """Return texts as values of `cron`, so that a cron expression is not explained as a phrase."""
    if isinstance(trigger, list | tuple):
        return [_without_plain_cron(one) for one in trigger]
    return {"cron": trigger} if isinstance(trigger, str) else trigger


def _read_reboot(given: Mapping[str, Any]) -> dict[str, Any]:
    """Read `@reboot`, alone or in a list, as `run_at_start`."""
    trigger = given.get("trigger")
    parts = list(trigger) if isinstance(trigger, list | tuple) else [trigger]
    kept = [part for part in parts if not _is_reboot(part)]
    if len(kept) == len(parts):
        return dict(given)
    return {"run_at_start": True, **given, "trigger": kept or {"kind": "manual"}}


def _is_reboot(part: Any) -> bool:
    text = next(iter(part.values())) if isinstance(part, Mapping) and len(part) == 1 else part
    return isinstance(text, str) and text.strip().lower() == "@reboot"


def _read_trigger(given: Mapping[str, Any], *, key: str) -> dict[str, Any]:
    """Expand the trigger; the calendars that its phrase names are added to the calendar rule."""
    if isinstance(given["trigger"], Struct):
        return dict(given)
    readings: list[Recurrence] = []
    trigger = with_hash_key(expand_trigger(given["trigger"], "trigger", readings), key)
    named = {
        "except": [name for reading in readings for name in reading.excluded],
        "only": [name for reading in readings for name in reading.only],
    }
    if not any(named.values()):
        return {**given, "trigger": trigger}
    if given.get("calendar") is not None:
        rule = "one calendar rule, in the phrase or in its field"
        raise input_error(
            "calendar", given["calendar"], "is given twice", rule=rule, fix="remove one of them"
        )
    return {**given, "trigger": trigger, "calendar": {word: names for word, names in named.items() if names}}


def _with_current_kind(raw: Any, base: Struct) -> Any:
    """Add the kind of the current value if the edit has only fields of that kind."""
    # A short form such as `call: {name: …, args: …}` names its kind already.
    if not isinstance(raw, Mapping) or "kind" in raw or isinstance(raw.get(_kind_of(base)), Mapping):
        return raw
    known = {*base.__struct_encode_fields__, *FIELD_ALIASES.get(type(base), {})}
    words = {snake_case(key).removesuffix("_ms") if isinstance(key, str) else key for key in raw}
    return {"kind": _kind_of(base), **raw} if words <= known else raw


def _kind_of(part: Struct) -> str:
    return str(part.__struct_config__.tag)


def _check_names(given: Mapping[str, Any]) -> dict[str, Any]:
    checked = dict(given)
    for name, max_length in _NAME_LENGTHS.items():
        if checked.get(name) is not None:
            checked[name] = check_name(checked[name], field=name, max_length=max_length)
    for name, max_length in _NAME_LIST_LENGTHS.items():
        if isinstance(checked.get(name), list | tuple):
            rows = enumerate(checked[name])
            checked[name] = [
                # A limit may be defined where it is named.
                one
                if name == "limits" and isinstance(one, Mapping | Struct)
                else check_name(one, field=f"{name}[{i}]", max_length=max_length)
                for i, one in rows
            ]
    return checked


def _complete_trigger(
    schedule: Schedule, *, zone: DefaultZone, floor: Floor, before: Schedule | None = None
) -> AnyTrigger:
    """Return the trigger with its zone and its anchor, and with intervals of at least the minimum.

    The minimum of the preset comes first, because it may raise an interval that `floor` would refuse.
    """
    trigger = with_default_zone(schedule.trigger, zone)
    own = FLOORS.get(schedule.preset or "")
    try:
        for minimum in (own, floor) if own is not None else (floor,):
            trigger = _apply_floor(trigger, minimum)
        trigger = _with_anchor(trigger, schedule, before=before)
    except TimewrightError as error:
        raise_at_path("trigger", error)
    for part in trigger.triggers if isinstance(trigger, AnyOf) else (trigger,):
        if isinstance(part, Every | Rrule) and part.anchor is not None:
            check_storable(part.anchor, field="trigger.anchor")
    return trigger


def _with_anchor(trigger: AnyTrigger, schedule: Schedule, *, before: Schedule | None) -> AnyTrigger:
    """Return the trigger counted from `start_at`, else from the creation, unless it has an anchor."""
    if schedule.start_at is not None:
        is_same = before is not None and (
            (schedule.start_at, trigger) == (before.start_at, without_anchor(before.trigger))
        )
        return before.trigger if before is not None and is_same else with_start(trigger, schedule.start_at)
    if isinstance(trigger, Every) and (schedule.watch or schedule.check):
        return trigger.with_anchor(_first_look(schedule.created_at, trigger.interval))
    return with_anchor(trigger, schedule.created_at)


def _first_look(created_at: datetime, interval: timedelta) -> datetime:
    """The first whole second that is at least one interval after the creation.

    A watch or a check looks often and mostly finds nothing. At whole seconds many of them share an instant,
    and with it one tick and one transaction, whenever they were created.
    """
    first = created_at + interval
    return first + timedelta(microseconds=-first.microsecond % 1_000_000)


def _apply_floor(trigger: AnyTrigger, floor: Floor) -> AnyTrigger:
    if isinstance(trigger, Every):
        return replace(trigger, interval=floor.apply(trigger.interval))
    if isinstance(trigger, After) and not trigger.schedule:
        return replace(trigger, delay=floor.apply(trigger.delay, field="after"))
    if isinstance(trigger, AnyOf):
        parts = tuple(_apply_floor(part, floor) for part in trigger.triggers)
        return AnyOf(cast("tuple[Every, ...]", parts))
    return trigger


def with_default_zone(trigger: AnyTrigger, zone: DefaultZone) -> AnyTrigger:
    """Return the trigger with the default zone where it names none."""
    parts = trigger.triggers if isinstance(trigger, AnyOf) else (trigger,)
    if all(part.names_zone for part in parts if isinstance(part, ZonedTrigger)):
        return trigger
    return with_zone(trigger, resolve_zone(zone))


def _lease_terms(schedule: Schedule, given: Mapping[str, Any]) -> Any:
    """Return lease terms that fit the target, where they were not given.

    A request may take its timeout plus 10 s; a run that is leased from outside has a longer lease.
    """
    given_lease, lease, target = given.get("lease"), schedule.lease, schedule.target
    if isinstance(given_lease, Struct):
        return lease
    words = set()
    if isinstance(given_lease, Mapping):
        words = {snake_case(str(key)).removesuffix("_ms") for key in given_lease}
    if isinstance(target, Http) and not words & {"time_limit", "timeout"}:
        limit = target.timeout + 10 * SECOND
        return replace(lease, time_limit=max(lease.time_limit or limit, limit))
    if isinstance(target, Handoff) and lease.length == LeaseTerms().length and given_lease is None:
        return replace(lease, length=OUTSIDE_LEASE)
    return lease
