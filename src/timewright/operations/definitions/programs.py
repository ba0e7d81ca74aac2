"""Many schedules at once: put by a request, or declared by a program and archived when it no longer does."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from timewright.core.finding import Finding, command_line
from timewright.core.input.input_errors import check_name, missing_field
from timewright.core.input.struct_decoder import canonical_fields
from timewright.core.schedule.schedule import Schedule, ScheduleState
from timewright.errors import InvalidInput
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
    ScheduleDraft,
    apply_schedules,
    archive_schedules_of,
    put_schedules,
)
from timewright.operations.registry import WriteRequest, operations
from timewright.ports import Transaction
from timewright.ports.schedules import SchedulesNamed

__all__ = ["EditRule", "Program", "save_declarations"]

MAX_NAMES_SHOWN = 5
_LOGGER = logging.getLogger("timewright")
_REQUEST_FIELDS = ("name", "reason", "force", "revision")

MAX_SCHEDULES = 10_000

Change = Literal["created", "updated", "unchanged"]
_KINDS: dict[str, Change] = {"created": "created", "updated": "updated", "unchanged": "unchanged"}


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
            changes += archive_schedules_of(nested, program.owner, undeclared, reason=reason, now=now)
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
            shown = ", ".join(names[:MAX_NAMES_SHOWN])
            more = f" and {len(names) - MAX_NAMES_SHOWN} more" if len(names) > MAX_NAMES_SHOWN else ""
            archive = command_line("schedule", "archive", names[0], namespace=scope.namespace)
            yield Finding.warn(
                "undeclared",
                f"{owner} no longer declares {shown}{more}",
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


def _draft(request: Mapping[str, Any]) -> ScheduleDraft:
    fields = {key: value for key, value in request.items() if key not in _REQUEST_FIELDS}
    return ScheduleDraft(name=request["name"], fields=fields)


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
    changes = in_transaction(
        context, lambda nested: put_schedules(nested, drafts, reason=request.reason, now=now)
    )
    items = tuple(PutItem(name=one.name, id=one.id, change=_KINDS[one.change]) for one in changes)
    counts = Counter(item.change for item in items)
    return PutManyResult(
        created=counts["created"], updated=counts["updated"], unchanged=counts["unchanged"], schedules=items
    )


def _put_draft(number: int, fields: dict[str, Any]) -> ScheduleDraft:
    name = canonical_fields(fields, Schedule).get("name")
    if name is None:
        raise missing_field(
            f"schedules[{number}].name",
            rule="put identifies a schedule by its name",
            fix="name: nightly-report",
        )
    return ScheduleDraft(
        name=check_name(name), fields={key: value for key, value in fields.items() if key != "name"}
    )
