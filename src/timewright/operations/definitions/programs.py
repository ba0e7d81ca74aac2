"""Many schedules at once: declared by a program, and archived when it no longer does, or put by a request."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from timewright.core.definitions import Definition
from timewright.core.finding import Finding, command_line, list_names
from timewright.core.input.decode import decode_schedule
from timewright.core.input.encoding import encode
from timewright.core.input.input_errors import check_name, input_error, missing_field
from timewright.core.input.shorthand import expand_trigger
from timewright.core.input.struct_decoder import canonical_fields, expand_need
from timewright.core.moments import MIN_STORED_INSTANT
from timewright.core.recurrence import Trigger, ZonedTrigger
from timewright.core.recurrence.triggers import AnyOf, AnyTrigger, Every, Once
from timewright.core.schedule.schedule import Schedule, ScheduleState
from timewright.core.zones import name_of_zone
from timewright.errors import InvalidInput, TimewrightError
from timewright.ledger.alerts.findings import CheckScope, checks
from timewright.ledger.records.owners import (
    EditRule,
    names_declared_by_live_instances,
    read_owned,
    record_declarer,
)
from timewright.operations.context import OperationContext, in_transaction
from timewright.operations.definitions.schedules import (
    SCHEDULE,
    UNNAMED_APP,
    DefinitionOwner,
    ScheduleChange,
    apply_schedules,
    archive_schedules_of,
    decode_call,
    definition_shape,
    put_schedules,
)
from timewright.operations.registry import WriteRequest, operations
from timewright.ports import Transaction
from timewright.ports.schedules import SchedulesNamed
from timewright.settings import Settings

__all__ = ["EditRule", "Program", "save_declarations"]

MAX_NAMES_SHOWN = 5
_LOGGER = logging.getLogger("timewright")
_REQUEST_FIELDS = ("name", "reason", "force", "revision")

MAX_SCHEDULES = 10_000

Change = Literal["created", "updated", "unchanged"]
_KINDS: dict[str, Change] = {"created": "created", "updated": "updated", "unchanged": "unchanged"}

CRON_FIELDS = frozenset({"zone", "timezone", "tz", "dst"})

TriggerInput = AnyTrigger | str | timedelta | datetime | Sequence["AnyTrigger | str | timedelta | datetime"]

_RULE = "a trigger, its text, a timedelta, a datetime with an offset, or a list of these"


class Program(Struct, frozen=True, kw_only=True):
    """A program that declares schedules: its name, and what its declarations mean.

    With `declares_all`, what no live instance of the program declares is archived. `edits` says whether an
    edit by hand of a declared schedule is refused, or only warned about.
    """

    name: str = ""
    declares_all: bool = False
    edits: EditRule = "warn"

    @property
    def owner(self) -> str:
        """The owner of its schedules."""
        return f"{UNNAMED_APP}:{self.name}" if self.name else UNNAMED_APP


def save_declarations(
    context: OperationContext,
    program: Program,
    requests: Mapping[str, Mapping[str, Any]],
    *,
    instance: str,
    only: str | None = None,
) -> list[ScheduleChange]:
    """Write what a program declares, in one transaction; an invalid declaration leaves the store unchanged.

    With `only`, this schedule was declared after the others were saved.
    """
    now = context.now()
    drafts = [_draft(requests[name]) for name in ([only] if only is not None else requests)]
    owner = DefinitionOwner(name=program.owner, edits=program.edits, takes_over=frozenset({UNNAMED_APP}))

    def work(nested: OperationContext) -> list[ScheduleChange]:
        # Instances that start together wait here; the second finds what the first has created.
        nested.store.write(lambda tx: tx.lock(f"declarations:{nested.namespace}"))
        changes = apply_schedules(nested, owner, drafts, now=now)
        names = frozenset(requests)
        nested.store.write(
            lambda tx: record_declarer(
                tx, program.owner, instance, names, namespace=nested.namespace, now=now
            )
        )
        if program.declares_all and only is None:
            undeclared = nested.store.read(
                lambda tx: _undeclared(tx, program.owner, names, namespace=nested.namespace, now=now)
            )
            reason = f"{program.owner} no longer declares it"
            changes += archive_schedules_of(nested.with_reason(reason), program.owner, undeclared, now=now)
        return changes

    changes = in_transaction(context, work)
    for change in changes:
        if change.change == "stays_archived":
            _LOGGER.warning(
                "schedule %s is declared, but someone archived it: it stays archived", change.name
            )
        elif change.drifted:
            _LOGGER.warning("schedule %s was edited by hand; its declaration replaced the edit", change.name)
    return changes


@checks.add()
def check_undeclared(tx: Transaction, scope: CheckScope) -> Iterator[Finding]:
    """Report schedules of programs that no live instance of them declares any more."""
    owned = read_owned(tx, SCHEDULE, scope.namespace)
    owners = {one.owner for one in owned.values() if one.owner.partition(":")[0] == UNNAMED_APP}
    for owner in sorted(owners):
        live = names_declared_by_live_instances(tx, owner, namespace=scope.namespace, now=scope.now)
        if not live:
            continue
        names = _undeclared(tx, owner, frozenset(), namespace=scope.namespace, now=scope.now)
        if names:
            archive = command_line("schedule", "archive", names[0], namespace=scope.namespace)
            yield Finding.warn(
                "undeclared",
                f"{owner} no longer declares {list_names(names, max_shown=MAX_NAMES_SHOWN)}",
                remedy=f"{archive}, or Scheduler(declares_all=True)",
                subject=owner,
            )


def _undeclared(
    tx: Transaction, owner: str, names: frozenset[str], *, namespace: str, now: datetime
) -> list[str]:
    """Return the live schedules of a program that neither `names` nor a live instance of it declares."""
    known = names | names_declared_by_live_instances(tx, owner, namespace=namespace, now=now)
    owned = read_owned(tx, SCHEDULE, namespace)
    gone = sorted(name for name, one in owned.items() if one.owner == owner and name not in known)
    heads = tx.select(SchedulesNamed(namespace, gone)) if gone else []
    return sorted(head.name for head in heads if head.state is not ScheduleState.ARCHIVED)


def _draft(request: Mapping[str, Any]) -> Definition:
    fields = {key: value for key, value in request.items() if key not in _REQUEST_FIELDS}
    return Definition(kind=SCHEDULE, name=request["name"], fields=fields)


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


class PutManySchedules(WriteRequest, frozen=True, kw_only=True):
    """Complete schedules, each with the fields of `schedule put`; the names differ."""

    schedules: Annotated[tuple[dict[str, Any], ...], Meta(min_length=1, max_length=MAX_SCHEDULES)]


class PutItem(Struct, frozen=True, kw_only=True):
    """A schedule that was put, and whether it was created, updated or unchanged."""

    name: str
    id: str
    change: Change


class PutManyResult(Struct, frozen=True, kw_only=True):
    """How many schedules were created, updated and unchanged, and each in the order of the request."""

    created: int
    updated: int
    unchanged: int
    schedules: tuple[PutItem, ...]


@operations.add(
    "schedule put-many",
    scope="write",
    examples=(
        {
            "schedules": [
                {"name": "nightly-report", "cron": "30 3 * * *", "http": "POST https://example.com/report"},
                {"name": "weekly", "cron": "0 8 * * 1", "note": "time to plan the week"},
            ]
        },
    ),
)
def put_many_schedules(context: OperationContext, request: PutManySchedules) -> PutManyResult:
    """Create or replace many schedules by their names, in one transaction: all of them or none."""
    now = context.now()
    drafts = [_put_draft(number, fields) for number, fields in enumerate(request.schedules)]
    twice = [name for name, times in Counter(draft.name for draft in drafts).items() if times > 1]
    if twice:
        raise InvalidInput(
            f"schedule {twice[0]} is given {sum(draft.name == twice[0] for draft in drafts)} times",
            field="schedules",
            value=twice[0],
            rule="one definition a name",
            fix="remove one of them",
        )
    changes = in_transaction(context, lambda nested: put_schedules(nested, drafts, now=now))
    items = tuple(PutItem(name=one.name, id=one.id, change=_KINDS[one.change]) for one in changes)
    counts = Counter(item.change for item in items)
    return PutManyResult(
        created=counts["created"], updated=counts["updated"], unchanged=counts["unchanged"], schedules=items
    )


def _put_draft(number: int, fields: dict[str, Any]) -> Definition:
    name = canonical_fields(fields, Schedule).get("name")
    if name is None:
        raise missing_field(
            f"schedules[{number}].name",
            rule="put identifies a schedule by its name",
            fix="name: nightly-report",
        )
    rest = {key: value for key, value in fields.items() if key != "name"}
    return Definition(kind=SCHEDULE, name=check_name(name), fields=rest)
