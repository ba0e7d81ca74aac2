"""Compares declared schedules with the stored ones, and writes the differences in one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.definitions import Definition, locate_error
from timewright.core.input.decode import decode
from timewright.core.input.input_errors import check_name
from timewright.core.input.instant_text import resolve_zone
from timewright.core.recurrence.triggers import Cron, parts_of
from timewright.core.schedule.schedule import Schedule, ScheduleState
from timewright.core.target import AnyTarget, Call
from timewright.errors import Conflict, NotAllowed, TimewrightError
from timewright.ledger.records.owners import (
    EditRule,
    Ownership,
    definition_digest,
    read_owned,
    release_owned,
    save_owned,
)
from timewright.ledger.replan import archive
from timewright.operations.context import OperationContext
from timewright.operations.lookup import schedules_by_name
from timewright.operations.schedules.agent_rules import (
    apply_agent_end,
    check_agent_creation,
    check_edit_by_hand,
)
from timewright.operations.schedules.writes import (
    build_schedule,
    check_schedule,
    checked_replacement,
    release_archived_name,
    save_new_schedules,
    save_revision,
)
from timewright.ports import ScheduleRecord
from timewright.ports.schedules import ScheduleHead

SCHEDULE: Final = "schedule"
# The owner of schedules that a program without a name declares; anybody may take them over.
UNNAMED_APP = "app"

ChangeKind = Literal["created", "updated", "unchanged", "adopted", "archived", "removed", "stays_archived"]
BeforeChange = Callable[[Sequence[str]], None]


class DefinitionOwner(Struct, frozen=True, kw_only=True):
    """Who declares (no name: a person), what it does about edits by hand, and what it may take over."""

    name: str
    edits: EditRule = "warn"
    takes_over: frozenset[str] = frozenset()
    """Other owners whose definitions become this owner's."""
    recreates: frozenset[str] = frozenset()
    """Names that are created again although someone archived them."""


class ScheduleChange(Struct, frozen=True, kw_only=True):
    """What happened to one schedule: its definition before and after, its owner before, and drift."""

    name: str
    change: ChangeKind
    id: str = ""
    before: Schedule | None = None
    after: Schedule | None = None
    owner_before: str = ""
    drifted: bool = False
    """Someone else had edited it since its owner declared it."""


class _Comparison(Struct, frozen=True):
    """A definition, the stored schedule of its name, and its owner."""

    definition: Definition
    digest: str
    head: ScheduleHead | None
    owned: Ownership | None


def apply_schedules(
    context: OperationContext,
    owner: DefinitionOwner,
    definitions: Sequence[Definition],
    *,
    now: datetime,
    before_change: BeforeChange | None = None,
) -> list[ScheduleChange]:
    """Create, update or leave each declared schedule, inside the caller's transaction; nothing is pruned.

    An unchanged schedule costs one comparison of digests. Pauses, hints and moved occurrences are not part of
    a definition and stay. A schedule that someone else archived stays archived.
    """
    names = [definition.name for definition in definitions]
    heads = context.store.read(lambda tx: schedules_by_name(tx, context.namespace, names))
    owned = context.store.read(lambda tx: read_owned(tx, SCHEDULE, context.namespace, names))
    digest = _Digests(context)
    rows = [_Comparison(d, digest(d), heads.get(d.name), owned.get(d.name)) for d in definitions]
    _check_owners(rows, owner)
    changes: dict[str, ScheduleChange] = {}
    new, changed = list[_Comparison](), list[_Comparison]()
    for row in rows:
        if row.head is None or row.head.state is ScheduleState.ARCHIVED:
            if row.head is not None and _was_archived_by_others(row, owner):
                changes[row.definition.name] = _change(row, "stays_archived")
            else:
                new.append(row)
        elif _is_unchanged(row, owner):
            changes[row.definition.name] = _change(row, "unchanged")
        else:
            changed.append(row)
    if before_change is not None:
        before_change([row.head.id for row in changed if row.head is not None])
    changes |= _create(context, owner, new, now=now)
    changes |= _update(context, owner, changed, now=now)
    _save_ownership(context, owner, rows, changes, now=now)
    return [changes[definition.name] for definition in definitions]


def put_schedules(
    context: OperationContext, definitions: Sequence[Definition], *, now: datetime
) -> list[ScheduleChange]:
    """Create or replace schedules by hand, inside the caller's transaction; their owners stay."""
    by_hand = DefinitionOwner(name="")
    names = [definition.name for definition in definitions]
    heads = context.store.read(lambda tx: schedules_by_name(tx, context.namespace, names))
    rows = [_Comparison(definition, "", heads.get(definition.name), None) for definition in definitions]
    new = [row for row in rows if row.head is None or row.head.state is ScheduleState.ARCHIVED]
    changes = _create(context, by_hand, new, now=now)
    changes |= _update(context, by_hand, [r for r in rows if r.definition.name not in changes], now=now)
    return [changes[name] for name in names]


def archive_schedules_of(
    context: OperationContext, owner: str, names: Iterable[str], *, now: datetime
) -> list[ScheduleChange]:
    """Archive schedules that their owner no longer declares, those that depend on others first."""
    wanted = sorted(names)
    heads = context.store.read(lambda tx: schedules_by_name(tx, context.namespace, wanted))
    waiting = [heads[n] for n in wanted if n in heads and heads[n].state is not ScheduleState.ARCHIVED]
    done: list[ScheduleChange] = []
    while waiting:
        blocked: list[ScheduleHead] = []
        for head in waiting:
            try:
                result = archive(context.store, head.id, by=context.by, now=now)
            except NotAllowed:
                if len(waiting) == 1 or (head is waiting[-1] and len(blocked) == len(waiting) - 1):
                    raise
                blocked.append(head)
                continue
            context.notify(result.facts)
            change = ScheduleChange(
                name=head.name, change="archived", id=head.id, before=result.schedule, owner_before=owner
            )
            done.append(change)
        waiting = blocked
    context.store.write(lambda tx: release_owned(tx, SCHEDULE, context.namespace, wanted))
    return done


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


class _Digests:
    """Digests of definitions, together with the settings that their decoding depends on."""

    def __init__(self, context: OperationContext) -> None:
        settings = context.settings
        self._settings = definition_digest(settings.schedule_defaults, settings.interval_floor)

    def __call__(self, definition: Definition) -> str:
        return definition_digest(self._settings, definition.fields, definition.zone)


class _Decoder:
    """Decodes definitions; those that differ only in name, function and arguments are decoded once."""

    def __init__(self, context: OperationContext, *, now: datetime) -> None:
        self._context = context
        self._now = now
        self._zone = resolve_zone(context.default_zone)
        self._templates: dict[str, Schedule] = {}

    def decode(self, definition: Definition) -> Schedule:
        """Return a new schedule with its own id."""
        schedule_id = self._context.ids.new("schedule", now=self._now)
        call = decode_call(definition.fields)
        if call is None:
            return self._build(definition, schedule_id)
        shape = definition_shape({**definition.fields, "": definition.zone})
        template = self._templates.get(shape)
        if template is None:
            template = self._build(definition, schedule_id)
            if not has_hash_key(template):
                self._templates[shape] = template
            return template
        schedule = replace(template, id=schedule_id, name=check_name(definition.name), target=call)
        check_schedule(self._context, schedule, before=None)
        return schedule

    def _build(self, definition: Definition, schedule_id: str) -> Schedule:
        zone = definition.zone or self._zone
        return build_schedule(
            self._context, definition.draft, schedule_id=schedule_id, now=self._now, zone=zone
        )


def has_hash_key(schedule: Schedule) -> bool:
    """Whether the trigger depends on the id of the schedule."""
    return any(isinstance(part, Cron) and part.key for part in parts_of(schedule.trigger))


def _create(
    context: OperationContext, owner: DefinitionOwner, rows: Sequence[_Comparison], *, now: datetime
) -> dict[str, ScheduleChange]:
    decoder, made = _Decoder(context, now=now), list[Schedule]()
    for row in rows:
        with located(row.definition):
            new = replace(decoder.decode(row.definition), owner=owner.name)
            new = apply_agent_end(context, new, now=now)
            check_agent_creation(context, new, now=now)
            made.append(new)
        if row.head is not None:
            release_archived_name(context, row.definition.name, now=now)
    if not made:
        return {}
    save_new_schedules(context, made, now=now)
    return {
        new.name: _change(row, "created", after=new, schedule_id=new.id)
        for row, new in zip(rows, made, strict=True)
    }


def _update(
    context: OperationContext, owner: DefinitionOwner, rows: Sequence[_Comparison], *, now: datetime
) -> dict[str, ScheduleChange]:
    changes: dict[str, ScheduleChange] = {}
    ids = [row.head.id for row in rows if row.head is not None]
    records = context.store.read(lambda tx: tx.get_schedules(ids)) if ids else {}
    for row in rows:
        assert row.head is not None
        with located(row.definition):
            changes[row.definition.name] = _update_one(context, owner, row, records[row.head.id], now=now)
    return changes


def _update_one(
    context: OperationContext,
    owner: DefinitionOwner,
    row: _Comparison,
    record: ScheduleRecord,
    *,
    now: datetime,
) -> ScheduleChange:
    old = record.schedule
    zoned = replace(context, file_zone=row.definition.zone or context.file_zone)
    wanted = checked_replacement(zoned, record, row.definition.draft, now=now, owner=owner.name)
    if wanted == old:
        return _change(row, "unchanged", before=old, after=old)
    if not owner.name:
        check_edit_by_hand(context, old)
    after = save_revision(context, wanted, replaces=old.revision, now=now)
    is_adopted = replace(old, owner=wanted.owner) == wanted
    return _change(row, "adopted" if is_adopted else "updated", before=old, after=after)


def _save_ownership(
    context: OperationContext,
    owner: DefinitionOwner,
    rows: Sequence[_Comparison],
    changes: Mapping[str, ScheduleChange],
    *,
    now: datetime,
) -> None:
    saved: dict[str, Ownership] = {}
    for row in rows:
        change = changes[row.definition.name]
        if change.change == "stays_archived":
            continue
        revision = change.after.revision if change.after is not None else row.head.revision if row.head else 1
        made = Ownership(
            owner=owner.name, digest=row.digest, id=change.id, revision=revision, edits=owner.edits
        )
        if made != row.owned:
            saved[row.definition.name] = made
    if saved:
        context.store.write(lambda tx: save_owned(tx, SCHEDULE, context.namespace, saved, now=now))


def _is_unchanged(row: _Comparison, owner: DefinitionOwner) -> bool:
    """Whether the same owner declared the same before, and nobody has edited it since."""
    head, owned = row.head, row.owned
    if head is None or owned is None:
        return False
    declared = (owned.owner, owned.digest, owned.id, owned.revision)
    return declared == (owner.name, row.digest, head.id, head.revision)


def _was_archived_by_others(row: _Comparison, owner: DefinitionOwner) -> bool:
    """Whether someone archived a schedule that this owner still declares: pruning forgets the owner."""
    is_own = row.owned is not None and row.owned.owner == owner.name
    return is_own and row.definition.name not in owner.recreates


def _check_owners(rows: Sequence[_Comparison], owner: DefinitionOwner) -> None:
    for row in rows:
        is_live = row.head is not None and row.head.state is not ScheduleState.ARCHIVED
        if is_live and row.owned is not None:
            with located(row.definition):
                check_owner(SCHEDULE, row.definition.name, row.owned, owner)


def check_owner(kind: str, name: str, owned: Ownership, owner: DefinitionOwner) -> None:
    """Reject a definition that belongs to another owner."""
    if owned.owner in (owner.name, UNNAMED_APP) or owned.owner in owner.takes_over:
        return
    takes_over = (
        f", or plan and apply with --take-over {owned.owner}" if owner.name.startswith("file:") else ""
    )
    raise Conflict(
        f"{kind} {name} belongs to {owned.owner}",
        field="owner",
        value=owned.owner,
        rule="every definition has one owner",
        fix=f"remove it from {owned.owner} or from {owner.name}{takes_over}",
    )


def _change(
    row: _Comparison,
    change: ChangeKind,
    *,
    before: Schedule | None = None,
    after: Schedule | None = None,
    schedule_id: str = "",
) -> ScheduleChange:
    head, owned = row.head, row.owned
    drifted = (
        head is not None and owned is not None and (owned.id, owned.revision) != (head.id, head.revision)
    )
    return ScheduleChange(
        name=row.definition.name,
        change=change,
        id=schedule_id or (head.id if head is not None else ""),
        before=before,
        after=after,
        owner_before=owned.owner if owned is not None else "",
        drifted=drifted and change in ("updated", "unchanged"),
    )


@contextmanager
def located(definition: Definition) -> Iterator[None]:
    """Say which schedule an error is about: its place in a file, or its name."""
    try:
        yield
    except TimewrightError as error:
        if definition.where:
            raise locate_error(error, f"{definition.where} ({definition.name})") from None
        error.add_note(f"  in      schedule {definition.name!r}")
        raise
