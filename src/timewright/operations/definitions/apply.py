"""Applies definition files inside one transaction: objects first, then schedules; prunes in reverse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.definitions import SECTIONS, Definition, DefinitionFile, Kind, locate_error
from timewright.core.definitions.export import schedule_fields
from timewright.core.schedule.schedule import Schedule
from timewright.errors import InvalidInput, TimewrightError
from timewright.ledger.records.owners import (
    Ownership,
    definition_digest,
    read_owned,
    release_owned,
    save_owned,
)
from timewright.operations.context import OperationContext
from timewright.operations.definitions.objects import OBJECT_KINDS, StoredDefinition
from timewright.operations.definitions.schedules import (
    SCHEDULE,
    BeforeChange,
    ChangeKind,
    DefinitionOwner,
    apply_schedules,
    archive_schedules_of,
    check_owner,
)


class FieldChange(Struct, frozen=True, kw_only=True):
    """A field that differs; None where it is not written, because it has its default."""

    field: str
    before: Any
    after: Any


class DefinitionChange(Struct, frozen=True, kw_only=True):
    """What happens to one definition."""

    kind: Kind
    name: str
    change: ChangeKind
    owner: str
    owner_before: str = ""
    drifted: bool = False
    """Someone else has changed it since its owner wrote it."""
    where: str = ""
    fields: tuple[FieldChange, ...] = ()
    digest: str = ""
    """A digest of the definition as the file has it."""
    revision_before: int = 0
    schedule_id: str = ""


# The schedules that differ, by name: as they were, and as the files have them.
Compared = dict[str, tuple[Schedule | None, Schedule | None]]


class FileOptions(Struct, frozen=True, kw_only=True):
    """How files are applied."""

    prune: bool = False
    take_over: tuple[str, ...] = ()
    recreate: tuple[str, ...] = ()


def apply_files(
    context: OperationContext,
    files: Sequence[DefinitionFile],
    options: FileOptions,
    *,
    now: datetime,
    before_change: BeforeChange,
    compared: Compared,
) -> list[DefinitionChange]:
    """Write what differs from the files, inside the caller's transaction; return what happened to each.

    `before_change` is called with the ids of schedules before they are changed. The schedules that differ are
    put into `compared`: the caller lists their fields when no lock of the store is held.
    """
    check_names_across(files)
    owners = {file.owner: _owner(file, files, options) for file in files}
    changes: list[DefinitionChange] = []
    for kind in SECTIONS.values():
        for file in files:
            found = [one for one in file.definitions if one.kind == kind]
            applying = context.with_reason(context.by.reason or f"apply {file.name}")
            if found and kind == SCHEDULE:
                changes += _apply_schedules(
                    applying,
                    owners[file.owner],
                    found,
                    now=now,
                    before_change=before_change,
                    compared=compared,
                )
            elif found:
                changes += _apply_objects(applying, owners[file.owner], kind, found, now=now)
    if options.prune:
        kept = {(one.kind, one.name) for file in files for one in file.definitions}
        for owner in owners.values():
            changes += _prune(context, owner, kept, now=now, before_change=before_change)
    return changes


def changed_fields(before: dict[str, Any], after: dict[str, Any]) -> tuple[FieldChange, ...]:
    """Return the fields in which two definitions differ."""
    names = [*before, *(name for name in after if name not in before)]
    return tuple(
        FieldChange(field=name, before=before.get(name), after=after.get(name))
        for name in names
        if before.get(name) != after.get(name)
    )


def fields_of(schedule: Schedule | None) -> dict[str, Any]:
    """Return the fields of a schedule as a file writes them; none for no schedule."""
    return schedule_fields(schedule) if schedule is not None else {}


def check_names_across(files: Sequence[DefinitionFile]) -> None:
    """Raise if two files define the same thing, or if two files have the same owner."""
    places: dict[tuple[str, str], str] = {}
    owners: dict[str, str] = {}
    for file in files:
        if owners.setdefault(file.owner, file.name) != file.name:
            raise InvalidInput(
                f"{file.name} and {owners[file.owner]} have the same owner {file.owner}",
                field="owner",
                value=file.owner,
                rule="one owner a file",
                fix="owner: another-name, at the top of one of them",
            )
        for one in file.definitions:
            first = places.setdefault((one.kind, one.name), one.where)
            if first != one.where:
                raise InvalidInput(
                    f"{one.where}: {one.kind} {one.name} is also in {first}",
                    field="name",
                    value=one.name,
                    rule="one definition a name in all files",
                    fix="remove one of them",
                )


def _owner(file: DefinitionFile, files: Sequence[DefinitionFile], options: FileOptions) -> DefinitionOwner:
    # What moves from one of these files to another changes its owner without a question.
    others = {f"file:{one.owner}" for one in files}
    return DefinitionOwner(
        name=f"file:{file.owner}",
        takes_over=frozenset({*others, *options.take_over}),
        recreates=frozenset(options.recreate),
    )


def _apply_schedules(
    context: OperationContext,
    owner: DefinitionOwner,
    found: Sequence[Definition],
    *,
    now: datetime,
    before_change: BeforeChange,
    compared: Compared,
) -> list[DefinitionChange]:
    by_name = {one.name: one for one in found}
    zoned = [replace(one, zone=one.zone or "UTC") for one in found]
    applied = apply_schedules(context, owner, zoned, now=now, before_change=before_change)
    compared.update({one.name: (one.before, one.after) for one in applied if one.change != "unchanged"})
    return [
        DefinitionChange(
            kind="schedule",
            name=one.name,
            change=one.change,
            owner=owner.name,
            owner_before=one.owner_before,
            drifted=one.drifted,
            where=by_name[one.name].where,
            digest=_digest(by_name[one.name]),
            revision_before=one.before.revision if one.before is not None else 0,
            schedule_id=one.id,
        )
        for one in applied
    ]


def _apply_objects(
    context: OperationContext,
    owner: DefinitionOwner,
    kind: Kind,
    found: Sequence[Definition],
    *,
    now: datetime,
) -> list[DefinitionChange]:
    handler, names = OBJECT_KINDS[kind], [one.name for one in found]
    namespace = context.namespace
    owned = context.store.read(lambda tx: read_owned(tx, kind, namespace, names))
    stored = _stored(context, kind, names)
    changes, saved = list[DefinitionChange](), dict[str, Ownership]()
    for one in found:
        before, had, digest = stored.get(one.name), owned.get(one.name), _digest(one)
        try:
            if had is not None and before is not None:
                check_owner(kind, one.name, had, owner)
            same = had is not None and before is not None and had.revision == before.revision
            if not (same and had is not None and (had.owner, had.digest) == (owner.name, digest)):
                handler.put(context, one.name, one.fields)
        except TimewrightError as error:
            raise locate_error(error, f"{one.where} ({one.name})") from None
        after = _stored(context, kind, [one.name])[one.name]
        saved[one.name] = Ownership(owner=owner.name, digest=digest, revision=after.revision)
        changes.append(_object_change(one, owner, before, after, had))
    new = {name: one for name, one in saved.items() if owned.get(name) != one}
    if new:
        context.store.write(lambda tx: save_owned(tx, kind, namespace, new, now=now))
    return changes


def _object_change(
    one: Definition,
    owner: DefinitionOwner,
    before: StoredDefinition | None,
    after: StoredDefinition,
    had: Ownership | None,
) -> DefinitionChange:
    differs = changed_fields(before.fields if before is not None else {}, after.fields)
    change: ChangeKind = "updated" if differs else "unchanged"
    if before is None:
        change = "created"
    elif not differs and (had is None or had.owner != owner.name):
        change = "adopted"
    return DefinitionChange(
        kind=one.kind,
        name=one.name,
        change=change,
        owner=owner.name,
        owner_before=had.owner if had is not None else "",
        drifted=had is not None and before is not None and had.revision != before.revision,
        where=one.where,
        digest=_digest(one),
        fields=differs,
        revision_before=before.revision if before is not None else 0,
    )


def _prune(
    context: OperationContext,
    owner: DefinitionOwner,
    kept: set[tuple[Kind, str]],
    *,
    now: datetime,
    before_change: BeforeChange,
) -> list[DefinitionChange]:
    """Remove what this owner made and its file no longer has; nothing else."""
    changes: list[DefinitionChange] = []
    for kind in reversed(SECTIONS.values()):
        owned = _owned(context, kind)
        gone = sorted(n for n, one in owned.items() if one.owner == owner.name and (kind, n) not in kept)
        if not gone:
            continue
        pruning = context.with_reason(f"no longer in {owner.name}")
        if kind == SCHEDULE:
            before_change([owned[name].id for name in gone])
            done: Iterable[tuple[str, dict[str, Any], str]] = [
                (one.name, fields_of(one.before), one.id)
                for one in archive_schedules_of(pruning, owner.name, gone, now=now)
            ]
        else:
            done = _remove_objects(pruning, kind, gone)
        changes += [
            DefinitionChange(
                kind=kind,
                name=name,
                change="archived" if kind == SCHEDULE else "removed",
                owner=owner.name,
                owner_before=owner.name,
                fields=changed_fields(fields, {}),
                revision_before=owned[name].revision,
                schedule_id=schedule_id,
            )
            for name, fields, schedule_id in done
        ]
    return changes


def _remove_objects(
    context: OperationContext, kind: Kind, names: list[str]
) -> list[tuple[str, dict[str, Any], str]]:
    stored = _stored(context, kind, names)
    for name in stored:
        OBJECT_KINDS[kind].remove(context, name)
    context.store.write(lambda tx: release_owned(tx, kind, context.namespace, names))
    return [(name, one.fields, "") for name, one in stored.items()]


def _stored(context: OperationContext, kind: Kind, names: list[str]) -> dict[str, StoredDefinition]:
    return context.store.read(lambda tx: OBJECT_KINDS[kind].stored(tx, context.namespace, names))


def _owned(context: OperationContext, kind: Kind) -> dict[str, Ownership]:
    return context.store.read(lambda tx: read_owned(tx, kind, context.namespace))


def _digest(definition: Definition) -> str:
    return definition_digest(definition.fields, definition.zone)
