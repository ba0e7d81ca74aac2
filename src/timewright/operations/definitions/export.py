"""Exports a store as a definition file, and shows drift: what others changed since its owner wrote it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import fields as struct_fields

from timewright.core.definitions import SECTIONS, Definition, Kind, write_definitions
from timewright.core.definitions.export import schedule_fields
from timewright.core.schedule.schedule import Schedule, ScheduleState
from timewright.ledger.records.owners import Ownership, read_owned
from timewright.ledger.snapshot import read_fleet
from timewright.operations.context import OperationContext, check_may_block
from timewright.operations.definitions.apply import FieldChange, FileOptions, changed_fields, fields_of
from timewright.operations.definitions.objects import OBJECT_KINDS
from timewright.operations.definitions.plan import Files, make_plan, read_files
from timewright.operations.definitions.schedules import SCHEDULE, UNNAMED_APP
from timewright.operations.lookup import find_schedule, schedules_by_name
from timewright.operations.registry import ObjectName, OperationRequest, operations
from timewright.ports import Transaction
from timewright.ports.schedules import RevisionsOf, ScheduleHead

PAGE_ROWS = 1000
OwnerName = Annotated[str, Meta(max_length=255)]

_PRODUCT_DEFAULTS = {one.name: one.default for one in struct_fields(Schedule)}


class ExportDefinitions(OperationRequest, frozen=True, kw_only=True):
    """Which definitions: of one owner, or all that no program or workflow declares; some kinds, or all.

    With `schedules`, these schedules and nothing else, also if a program declares them or they are archived.
    """

    owner: OwnerName = ""
    kinds: tuple[Kind, ...] = ()
    schedules: Annotated[tuple[ObjectName, ...], Meta(max_length=PAGE_ROWS)] = ()


class ExportedFile(Struct, frozen=True, kw_only=True):
    """A file for `plan` and `apply`, and how many definitions it has and leaves to other owners."""

    text: str
    definitions: int
    left_out: int


class ShowDrift(OperationRequest, frozen=True, kw_only=True):
    """Whose definitions: of the owners of these files, of one owner, or of all owners."""

    files: Files = field(default_factory=dict)
    owner: OwnerName = ""


class DriftedDefinition(Struct, frozen=True, kw_only=True):
    """A definition that someone other than its owner changed: the fields as declared, and as they are now."""

    kind: Kind
    name: str
    owner: str
    drift: Literal["edited", "archived", "removed"]
    fields: tuple[FieldChange, ...] = ()
    actor: str = ""
    at: datetime | None = None
    reason: str = ""


class DriftReport(Struct, frozen=True, kw_only=True):
    """Whether anything drifted, and what."""

    changed: bool
    definitions: tuple[DriftedDefinition, ...]


@operations.read("export", scope="read", examples=({}, {"kinds": ["queue", "limit"]}))
def export_definitions(
    context: OperationContext, tx: Transaction, request: ExportDefinitions
) -> ExportedFile:
    """Write the definitions of the namespace as a file for `plan` and `apply`."""
    check_may_block(context)
    kinds = request.kinds or tuple(SECTIONS.values())
    found, left_out = list[Definition](), 0
    if request.schedules:
        named = [find_schedule(tx, context.namespace, name).schedule for name in request.schedules]
        found = [_definition(context, schedule) for schedule in named]
        return ExportedFile(text=write_definitions(found), definitions=len(found), left_out=0)
    for kind in kinds:
        owned = read_owned(tx, kind, context.namespace)
        for name, fields in _stored_fields(tx, context, kind):
            owner = owned[name].owner if name in owned else ""
            if owner == request.owner if request.owner else _is_in_files(owner):
                found.append(Definition(kind=kind, name=name, fields=fields))
            else:
                left_out += 1
    owner = request.owner.removeprefix("file:") if request.owner.startswith("file:") else ""
    text = write_definitions(found, owner=owner)
    return ExportedFile(text=text, definitions=len(found), left_out=left_out)


@operations.add("diff", scope="read", examples=({},))
def show_drift(context: OperationContext, request: ShowDrift) -> DriftReport:
    """Show drift: definitions that someone changed by hand since their owner declared them."""
    check_may_block(context)
    files = read_files(request.files) if request.files else []
    owners = {f"file:{file.owner}" for file in files} | ({request.owner} if request.owner else set())
    fields_in_files: dict[tuple[str, str], tuple[FieldChange, ...]] = {}
    if files:
        plan = make_plan(context, files, FileOptions())
        fields_in_files = {(one.kind, one.name): one.fields for one in plan.changes if one.kind != SCHEDULE}

    def work(tx: Transaction) -> DriftReport:
        found: list[DriftedDefinition] = []
        for kind in SECTIONS.values():
            owned = read_owned(tx, kind, context.namespace)
            own = {name: one for name, one in owned.items() if not owners or one.owner in owners}
            if kind == SCHEDULE:
                found += _drifted_schedules(tx, context.namespace, own)
            else:
                found += _drifted_objects(tx, context.namespace, kind, own, fields_in_files)
        return DriftReport(changed=bool(found), definitions=tuple(found))

    return context.store.read(work)


def _definition(context: OperationContext, schedule: Schedule) -> Definition:
    """Return a schedule as a definition of a file; fields with a default of this installation are written.

    A default that is the product's own is none of this installation.
    """
    defaults = context.settings.schedule_defaults.items()
    always = frozenset(name for name, value in defaults if value != _PRODUCT_DEFAULTS.get(name))
    return Definition(kind="schedule", name=schedule.name, fields=schedule_fields(schedule, always=always))


def _stored_fields(
    tx: Transaction, context: OperationContext, kind: Kind
) -> Iterator[tuple[str, dict[str, Any]]]:
    if kind != SCHEDULE:
        stored = OBJECT_KINDS[kind].stored(tx, context.namespace, None)
        yield from ((name, one.fields) for name, one in stored.items())
        return
    for record in read_fleet(tx, context.namespace):
        yield record.schedule.name, _definition(context, record.schedule).fields


def _is_in_files(owner: str) -> bool:
    """Whether a definition belongs to a file or to nobody; programs and workflows declare their own."""
    return owner.partition(":")[0] not in (UNNAMED_APP, "workflow")


def _drifted_schedules(
    tx: Transaction, namespace: str, owned: dict[str, Ownership]
) -> Iterator[DriftedDefinition]:
    heads = schedules_by_name(tx, namespace, owned) if owned else {}
    for name, one in sorted(owned.items()):
        head = heads.get(name)
        if head is None:
            yield DriftedDefinition(kind="schedule", name=name, owner=one.owner, drift="removed")
        elif head.state is ScheduleState.ARCHIVED or (head.id, head.revision) != (one.id, one.revision):
            yield _drifted_schedule(tx, one, head)


def _drifted_schedule(tx: Transaction, owned: Ownership, head: ScheduleHead) -> DriftedDefinition:
    # Archiving makes no revision, so the last one does not say who did it; the audit log does.
    is_archived = head.state is ScheduleState.ARCHIVED
    key = (owned.id, owned.revision)
    declared = tx.get_revisions([key]).get(key)
    current, at, actor, reason = tx.select(RevisionsOf(head.id, limit=1))[0]
    return DriftedDefinition(
        kind="schedule",
        name=head.name,
        owner=owned.owner,
        drift="archived" if is_archived else "edited",
        fields=() if is_archived else changed_fields(fields_of(declared), fields_of(current)),
        actor="" if is_archived else actor,
        at=None if is_archived else at,
        reason=tx.get_schedules([head.id])[head.id].progress.reason if is_archived else reason,
    )


def _drifted_objects(
    tx: Transaction,
    namespace: str,
    kind: Kind,
    owned: dict[str, Ownership],
    fields_in_files: dict[tuple[str, str], tuple[FieldChange, ...]],
) -> Iterator[DriftedDefinition]:
    stored = OBJECT_KINDS[kind].stored(tx, namespace, sorted(owned)) if owned else {}
    for name, one in sorted(owned.items()):
        now = stored.get(name)
        if now is None:
            yield DriftedDefinition(kind=kind, name=name, owner=one.owner, drift="removed")
        elif now.revision != one.revision:
            changes = fields_in_files.get((kind, name), ())
            # In a plan, `before` is the store and `after` the file; here it is the other way round.
            fields = tuple(FieldChange(field=f.field, before=f.after, after=f.before) for f in changes)
            yield DriftedDefinition(kind=kind, name=name, owner=one.owner, drift="edited", fields=fields)
