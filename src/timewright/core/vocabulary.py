"""Plain data into the one model: schedules, policies and queues as people and programs write them.

The words of other schedulers are understood on the way in; `encode` knows one spelling on the way out.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar, cast, overload

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.decoding import check_size, names_of, read, read_struct, type_of
from timewright.core.encoding import encode, plain
from timewright.core.moments import SECOND, as_instant, check_stored
from timewright.core.names import check_name
from timewright.core.policies import Floor, QueuePolicy
from timewright.core.presets import FLOORS, PRESETS
from timewright.core.queue_file import QueueEntry, decode_queue_file
from timewright.core.refusals import refuse_from, refused
from timewright.core.schedule import Preset, Schedule, check_new
from timewright.core.shapes import trigger_shape, with_key
from timewright.core.spellings import ALIASES, snake
from timewright.core.target import Http
from timewright.core.triggers import After, AnyOf, AnyTrigger, Every, Rrule, anchored
from timewright.errors import TimewrightError

__all__ = [
    "QueueEntry",
    "check_name",
    "decode",
    "decode_changes",
    "decode_policy",
    "decode_queue_file",
    "decode_schedule",
    "encode",
    "plain",
]

T = TypeVar("T")

POLICY_VERSIONS = (1,)

_OURS = ("revision", "created_at", "created_by", "origin")
_NAMED = {"name": 255, "namespace": 64, "group": 255, "queue": 255, "provider": 255}
_NAME_LISTS = {"tags": 64, "limits": 255, "budgets": 255}


@overload
def decode(raw: Any, into: type[T], *, field: str = "", base: T | Mapping[str, Any] | None = None) -> T: ...
@overload
def decode(raw: Any, into: Any, *, field: str = "", base: Any = None) -> Any: ...
def decode(raw: Any, into: Any, *, field: str = "", base: Any = None) -> Any:
    """Read plain data as a value of our model; what is left out comes from `base`, else from the defaults.

    `into` is a type of ours, or several of them: `decode("SUCCESS", Outcome)`.
    """
    check_size(raw, field)
    if isinstance(into, type) and issubclass(into, Struct) and isinstance(base, Mapping):
        return read_struct(names_of(raw, into, field), into, field, base)
    return read(raw, type_of(into), field, base)


def decode_schedule(
    raw: Any,
    *,
    id: str,  # noqa: A002 - the field is called so everywhere
    now: datetime,
    floor: Floor = Floor(),  # noqa: B008 - a frozen value
    defaults: Mapping[str, Any] | None = None,
    namespace: str = "default",
    revision: int = 1,
    created_by: str = "",
    origin: str = "human",
) -> Schedule:
    """Read a new schedule as someone wrote it, with its preset under it, its floor and its anchor.

    Names are kept in one form, and what could never run is refused. `defaults` are values of schedule
    fields that the house sets for all; a preset lies over them.
    """
    check_size(raw)
    given = names_of(_http_timeout(raw), Schedule)
    _refuse_ours(given, id=id)
    preset = read(given.get("preset"), type_of(Preset | None), "preset")
    base = {"namespace": namespace, **(defaults or {}), **PRESETS.get(preset or "", {})}
    if "trigger" in given:
        given["trigger"] = _keyed(given["trigger"], key=id)
    written = {
        **_checked_names(given),
        "id": id,
        "created_at": as_instant(now, field="now"),
        "created_by": created_by,
        "origin": origin,
        "revision": revision,
    }
    schedule = cast("Schedule", read_struct(written, Schedule, "", base))
    floors = (FLOORS[preset], floor) if preset in FLOORS else (floor,)
    trigger = _anchored(_floored(schedule.trigger, floors), schedule.created_at)
    _check_anchor(trigger)
    schedule = replace(schedule, trigger=trigger, lease=_time_limit(schedule, given))
    check_new(schedule, now=schedule.created_at, catch_up_asked="catch_up" in given)
    return schedule


def decode_changes(
    raw: Any,
    *,
    of: Schedule,
    now: datetime,
    floor: Floor = Floor(),  # noqa: B008 - a frozen value
) -> Schedule:
    """Read an edit of a schedule: what is written changes, what is left out stays as it is.

    An interval keeps its anchor, a zone alone keeps its expression. A preset that is named lies over what was
    there and under what is written beside it.
    """
    check_size(raw)
    given = names_of(_http_timeout(raw), Schedule)
    _refuse_ours(given, id=of.id)
    for part in ("trigger", "target"):
        if part in given:
            given[part] = _of_one_kind(given[part], getattr(of, part))
    if "trigger" in given:
        given["trigger"] = _keyed(given["trigger"], key=of.id)
    preset = read(given.get("preset"), type_of(Preset | None), "preset")
    base = {name: getattr(of, name) for name in Schedule.__struct_fields__} | dict(
        PRESETS.get(preset or "", {})
    )
    schedule = cast("Schedule", read_struct(_checked_names(given), Schedule, "", base))
    if "trigger" in given:
        own = FLOORS.get(schedule.preset or "")
        floors = (own, floor) if own is not None else (floor,)
        schedule = replace(schedule, trigger=_anchored(_floored(schedule.trigger, floors), of.created_at))
        _check_anchor(schedule.trigger)
    if "target" in given:
        schedule = replace(schedule, lease=_time_limit(schedule, given))
    if {"trigger", "start_at", "end_at", "deadline"} & set(given):
        check_new(schedule, now=now, catch_up_asked="catch_up" in given)
    return schedule


def decode_policy(raw: Any, *, field: str = "policy") -> QueuePolicy:
    """Read the standing policy of a queue; no file gives the cautious defaults, a wrong field is refused."""
    if raw is None:
        return QueuePolicy()
    if isinstance(raw, Mapping):
        version = next((key for key in raw if isinstance(key, str) and snake(key) == "schema_version"), None)
        if version is not None and raw[version] not in POLICY_VERSIONS:
            rule = f"version {', '.join(map(str, POLICY_VERSIONS))}"
            raise refused(
                f"{field}.{version}", raw[version], "is not known", rule=rule, fix="a newer Timewright"
            )
        raw = {key: value for key, value in raw.items() if key != version}
    return decode(raw, QueuePolicy, field=field)


def _http_timeout(raw: Any) -> Any:
    """Beside a URL, a timeout is the request's; elsewhere it is the limit of the whole run."""
    if not isinstance(raw, Mapping) or "url" not in {snake(key) for key in raw if isinstance(key, str)}:
        return raw
    renamed = {"timeout": "http_timeout", "timeout_ms": "http_timeout_ms"}
    return {
        renamed.get(snake(key), key) if isinstance(key, str) else key: value for key, value in raw.items()
    }


def _refuse_ours(given: Mapping[str, Any], *, id: str) -> None:  # noqa: A002
    for name in _OURS:
        if name in given:
            raise refused(
                name, given[name], "is not set by hand", rule="Timewright writes it", fix="leave it out"
            )
    if given.get("id", id) != id:
        raise refused("id", given["id"], "is another schedule's", rule=f"the id is {id}", fix="leave it out")


def _keyed(trigger: Any, *, key: str) -> Any:
    return with_key(trigger_shape(trigger, "trigger"), key) if not isinstance(trigger, Struct) else trigger


def _of_one_kind(raw: Any, base: Struct) -> Any:
    """A part that has only fields of the kind it changes is of that kind, also if it does not say so."""
    # A short form that holds the whole part, as `call: {name: …, args: …}`, says its kind by its word.
    if not isinstance(raw, Mapping) or "kind" in raw or isinstance(raw.get(_kind_of(base)), Mapping):
        return raw
    known = {*base.__struct_encode_fields__, *ALIASES.get(type(base), {})}
    words = {snake(key).removesuffix("_ms") if isinstance(key, str) else key for key in raw}
    return {"kind": _kind_of(base), **raw} if words <= known else raw


def _kind_of(part: Struct) -> str:
    return str(part.__struct_config__.tag)


def _checked_names(given: Mapping[str, Any]) -> dict[str, Any]:
    checked = dict(given)
    for name, longest in _NAMED.items():
        if checked.get(name) is not None:
            checked[name] = check_name(checked[name], field=name, longest=longest)
    for name, longest in _NAME_LISTS.items():
        if isinstance(checked.get(name), list | tuple):
            rows = enumerate(checked[name])
            checked[name] = [check_name(one, field=f"{name}[{i}]", longest=longest) for i, one in rows]
    return checked


def _floored(trigger: AnyTrigger, floors: tuple[Floor, ...]) -> AnyTrigger:
    """The trigger with its intervals at or above each floor; one may raise what the next would refuse."""
    for floor in floors:
        try:
            if isinstance(trigger, Every):
                trigger = replace(trigger, interval=floor.apply(trigger.interval))
            elif isinstance(trigger, After) and not trigger.schedule:
                trigger = replace(trigger, delay=floor.apply(trigger.delay, field="after"))
            elif isinstance(trigger, AnyOf):
                parts = (_floored(part, (floor,)) for part in trigger.triggers)
                trigger = AnyOf(tuple(cast("tuple[Every, ...]", tuple(parts))))
        except TimewrightError as error:
            refuse_from("trigger", error)
    return trigger


def _anchored(trigger: AnyTrigger, at: datetime) -> AnyTrigger:
    try:
        return anchored(trigger, at)
    except TimewrightError as error:
        refuse_from("trigger", error)


def _check_anchor(trigger: AnyTrigger) -> None:
    for part in trigger.triggers if isinstance(trigger, AnyOf) else (trigger,):
        if isinstance(part, Every | Rrule) and part.anchor is not None:
            check_stored(part.anchor, field="trigger.anchor")


def _time_limit(schedule: Schedule, given: Mapping[str, Any]) -> Any:
    """A request may take its timeout and a little more, unless someone set the limit of the run."""
    lease = given.get("lease")
    words = {snake(str(key)).removesuffix("_ms") for key in lease} if isinstance(lease, Mapping) else set()
    said = isinstance(lease, Struct) or words & {"time_limit", "timeout"}
    if not isinstance(schedule.target, Http) or said:
        return schedule.lease
    longest = max(schedule.lease.time_limit, schedule.target.timeout + 10 * SECOND)
    return replace(schedule.lease, time_limit=longest)
