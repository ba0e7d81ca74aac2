"""Plans and applies definition files: what would change, and what follows; and the JSON Schema of files."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from timewright.core.definitions import MAX_TEXT_LENGTH, SECTIONS, DefinitionFile, Kind, read_definitions
from timewright.core.facts import Fact, OccurrencesDropped, RunAdmitted, RunSkipped
from timewright.core.input.input_errors import input_error
from timewright.core.schedule.schedule import ScheduleState
from timewright.errors import Conflict, Forbidden
from timewright.ledger.admission_batch import AdmissionBatch
from timewright.ledger.lookups import load_calendars
from timewright.ledger.pauses import load_pauses
from timewright.operations.context import OperationContext, check_may_block, dry_run
from timewright.operations.definitions.apply import (
    Compared,
    DefinitionChange,
    FileOptions,
    apply_files,
    changed_fields,
    fields_of,
)
from timewright.operations.health.start_warnings import function_warnings, run_warnings
from timewright.operations.json_schemas import request_schema
from timewright.operations.registry import NoParameters, OperationRequest, WriteRequest, operations
from timewright.operations.views import build_schedule_detail
from timewright.ports import Transaction
from timewright.ports.schedules import ScheduleSnapshot

MAX_FILES = 100
# Changes whose occurrences are shown; the others are only listed.
MAX_CONSEQUENCES = 1000
NEXT_SHOWN = 3
MAX_WARNINGS = 20
# A plan holds the write lock of a SQLite file about as long as `apply` does. So that a caller who may write
# nothing cannot stop the engine: at most this many definitions, and one plan at a time in a process.
MAX_READER_DEFINITIONS = 1000
_ONE_PLAN = threading.Lock()

Files = Annotated[dict[str, Annotated[str, Meta(max_length=MAX_TEXT_LENGTH)]], Meta(max_length=MAX_FILES)]
Names = Annotated[tuple[Annotated[str, Meta(max_length=255)], ...], Meta(max_length=1000)]

_EXAMPLE = {
    "files": {"ops/payments.yaml": "schedules: [{name: settle, cron: '30 3 * * *', note: settle accounts}]"}
}

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PUT: dict[Kind, str] = {
    "calendar": "calendar put",
    "limit": "limit set",
    "queue": "queue policy set",
    "workflow": "workflow put",
    "schedule": "schedule put",
}
# Fields of requests that a definition does not have.
_REQUEST_FIELDS = ("reason", "dry_run", "force", "revision", "queue", "limit", "ical")


class PlanFiles(OperationRequest, frozen=True, kw_only=True):
    """The files by name, with their text; what to prune, to take over and to create again."""

    files: Files
    prune: bool = False
    take_over: Names = ()
    recreate: Names = ()


class ApplyFiles(WriteRequest, frozen=True, kw_only=True):
    """The files by name, with their text; with `plan`, only if the store is as it was planned."""

    files: Files
    prune: bool = False
    take_over: Names = ()
    recreate: Names = ()
    plan: Annotated[str, Meta(max_length=64)] = ""


class PlannedChange(DefinitionChange, frozen=True, kw_only=True):
    """What happens to one definition, and what follows: its next times, and what catch-up would run now."""

    next_before: tuple[datetime, ...] = ()
    next_after: tuple[datetime, ...] = ()
    runs_now: tuple[datetime, ...] = ()
    """The occurrences that would become runs at once."""
    skips_now: int = 0
    """How many occurrences would be recorded as skipped at once."""
    notes: tuple[str, ...] = ()


class FilePlan(Struct, frozen=True, kw_only=True):
    """What the files change. `plan` stands for this plan and the store it was made from."""

    changed: bool
    plan: str
    counts: dict[str, int]
    changes: tuple[PlannedChange, ...]
    warnings: tuple[str, ...] = ()
    """Why runs of changed schedules would wait or fail, as far as it can be known now."""


@operations.add("plan", scope="read", examples=(_EXAMPLE,))
def plan_files(context: OperationContext, request: PlanFiles) -> FilePlan:
    """Show what `apply` would change: fields, next times before and after, and what would run at once."""
    check_may_block(context)
    return make_plan(context, read_files(request.files), _options(request))


@operations.write("apply", scope="write", examples=(_EXAMPLE,))
def apply_definition_files(context: OperationContext, _tx: Transaction, request: ApplyFiles) -> FilePlan:
    """Apply definition files in one transaction; pauses, hints and moved occurrences stay.

    With `prune`, what the files made before and no longer have is archived or removed.
    """
    files, compared = read_files(request.files), Compared()
    done = _with_fields(_apply(context, files, _options(request), decides=False, compared=compared), compared)
    if request.plan and request.plan != done.plan:
        raise Conflict(
            "the store or the files changed since the plan",
            field="plan",
            value=request.plan,
            rule="a plan is applied to the store it was made from",
            fix="make a new plan, read it, and apply that",
        )
    return done


def make_plan(context: OperationContext, files: Sequence[DefinitionFile], options: FileOptions) -> FilePlan:
    """Apply the files in a transaction that is rolled back, and return what happened and what follows."""
    count, compared = sum(len(file.definitions) for file in files), Compared()
    if count > MAX_READER_DEFINITIONS and "write" not in context.caller.scopes:
        raise Forbidden(
            f"{count} definitions are too many for a caller who may only read",
            field="files",
            value=count,
            rule=f"at most {MAX_READER_DEFINITIONS} definitions without the scope write",
            fix="plan fewer files at once, or use a key with the scope write",
        )
    with _ONE_PLAN:
        plan = dry_run(
            context, lambda nested: _apply(nested, files, options, decides=True, compared=compared)
        )
    return _with_fields(plan, compared)


def _with_fields(plan: FilePlan, compared: Compared) -> FilePlan:
    """List the fields in which schedules differ; for a new schedule this takes longer than writing it."""
    return replace(
        plan,
        changes=tuple(
            replace(one, fields=changed_fields(*map(fields_of, compared[one.name])))
            if one.kind == "schedule" and one.name in compared and not one.fields
            else one
            for one in plan.changes
        ),
    )


def _apply(
    context: OperationContext,
    files: Sequence[DefinitionFile],
    options: FileOptions,
    *,
    decides: bool,
    compared: Compared,
) -> FilePlan:
    """Apply the files; with `decides`, also decide what is then due, as the engine would."""
    now, facts = context.now(), list[Fact]()
    before: dict[str, tuple[datetime, ...]] = {}

    def before_change(ids: Sequence[str]) -> None:
        before.update(context.store.read(lambda tx: _next_times(tx, ids[:MAX_CONSEQUENCES], now=now)))

    def notify(some: Sequence[Fact]) -> None:
        facts.extend(some)
        context.notify(some)

    noting = replace(context, notify=notify)
    changes = apply_files(noting, files, options, now=now, before_change=before_change, compared=compared)
    ids = [o.schedule_id for o in changes if o.schedule_id and o.change != "unchanged"][:MAX_CONSEQUENCES]
    after = context.store.read(lambda tx: _next_times(tx, ids, now=now))
    if decides:
        facts.extend(context.store.write(lambda tx: _admit(tx, context, ids, now=now)))
    shown = [one for one in changes if one.change != "unchanged"]
    caused: dict[str, list[Fact]] = {}
    for fact in facts:
        caused.setdefault(getattr(fact, "schedule_id", ""), []).append(fact)
    return FilePlan(
        changed=bool(shown),
        plan=_token(changes),
        counts=dict(sorted(Counter(one.change for one in changes).items())),
        changes=tuple(_with_consequences(one, before, after, caused) for one in shown),
        warnings=_warnings(context, changes, now=now),
    )


def _warnings(
    context: OperationContext, changes: Sequence[DefinitionChange], *, now: datetime
) -> tuple[str, ...]:
    """Return each warning about the changed schedules once; about all of them if a limit is removed."""
    removes_limit = any(one.kind == "limit" and one.change == "removed" for one in changes)
    ids = [o.schedule_id for o in changes if o.schedule_id and (o.change != "unchanged" or removes_limit)]
    records = context.store.read(lambda tx: tx.get_schedules(ids[:MAX_CONSEQUENCES])).values()
    schedules = [one.schedule for one in records if one.progress.state is not ScheduleState.ARCHIVED]
    found = (
        warning
        for one in schedules
        for warning in (
            *function_warnings(context, one.target, now=now),
            *run_warnings(context, one, now=now),
        )
    )
    return tuple(dict.fromkeys(found))[:MAX_WARNINGS]


def read_files(files: dict[str, str]) -> list[DefinitionFile]:
    """Read the files of a request."""
    if not files:
        rule = "at least one file"
        raise input_error("files", files, "is empty", rule=rule, fix="timewright plan schedules.yaml")
    return [read_definitions(text, name=name) for name, text in files.items()]


def _options(request: PlanFiles | ApplyFiles) -> FileOptions:
    return FileOptions(prune=request.prune, take_over=request.take_over, recreate=request.recreate)


def _token(changes: Sequence[DefinitionChange]) -> str:
    """Identify a plan: what it changes, and the revisions it was made from."""
    # New ids and anchors differ in every try, so fields are compared as they were declared.
    parts = [
        (o.kind, o.name, o.change, o.owner, o.owner_before, o.digest, o.revision_before) for o in changes
    ]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:16]


def _next_times(tx: Transaction, ids: Sequence[str], *, now: datetime) -> dict[str, tuple[datetime, ...]]:
    """Return the next occurrences of schedules by id."""
    found: dict[str, tuple[datetime, ...]] = {}
    for schedule_id, record in tx.get_schedules(ids).items():
        detail = build_schedule_detail(tx, ScheduleSnapshot(record), now=now)
        times = [one.fire_at for one in detail.next if one.fire_at is not None]
        found[schedule_id] = tuple(times[:NEXT_SHOWN])
    return found


def _admit(tx: Transaction, context: OperationContext, ids: Sequence[str], *, now: datetime) -> list[Fact]:
    """Decide what is due now for the changed schedules, as the engine would; rolled back by the caller."""
    records = tx.get_schedules(ids, lock=True).values()
    due = [one for one in records if one.progress.wake_at is not None and one.progress.wake_at <= now]
    if not due:
        return []
    batch = AdmissionBatch(tx, ids=context.ids, now=now, pauses=load_pauses(tx, now=now, records=due))
    calendars = load_calendars(tx, [one.schedule for one in due])
    batch.load_follow_ups(due)
    for record in due:
        batch.decide(record, calendars)
    batch.write()
    return batch.facts


def _with_consequences(
    change: DefinitionChange,
    before: dict[str, tuple[datetime, ...]],
    after: dict[str, tuple[datetime, ...]],
    caused: dict[str, list[Fact]],
) -> PlannedChange:
    fields = {name: getattr(change, name) for name in DefinitionChange.__struct_fields__}
    key = change.schedule_id
    if not key:
        return PlannedChange(**fields)
    facts = caused.get(key, ())
    runs = [fact.planned_at for fact in facts if isinstance(fact, RunAdmitted)]
    skipped = sum(isinstance(fact, RunSkipped) for fact in facts)
    skipped += sum(fact.count for fact in facts if isinstance(fact, OccurrencesDropped))
    notes = []
    if change.change == "stays_archived":
        notes.append("someone archived it; apply --recreate creates it again")
    if change.drifted:
        notes.append("someone else changed it since the last apply; apply restores it")
    return PlannedChange(
        **{**fields, "schedule_id": "" if change.change == "created" else key},
        next_before=before.get(key, ()),
        next_after=() if change.change in ("archived", "stays_archived") else after.get(key, ()),
        runs_now=tuple(runs),
        skips_now=skipped,
        notes=tuple(notes),
    )


class FileSchema(Struct, frozen=True, kw_only=True):
    """The JSON Schema of definition files."""

    json_schema: dict[str, Any]


@operations.add("schema", scope="read", examples=({},))
def get_file_schema(_context: OperationContext, _request: NoParameters) -> FileSchema:
    """Show the JSON Schema of definition files; editors complete and check files with it."""
    return FileSchema(json_schema=build_file_schema())


def build_file_schema() -> dict[str, Any]:
    """Build the schema from the requests that write each kind."""
    shared: dict[str, Any] = {}
    sections: dict[str, Any] = {}
    for section, kind in SECTIONS.items():
        shared[kind] = _definition(kind, shared)
        sections[section] = {"type": ["array", "null"], "items": {"$ref": f"#/$defs/{kind}"}}
    header = {
        "owner": {"type": "string", "description": "who the definitions belong to; default: the file name"},
        "zone": {"type": "string", "description": "the zone of schedules that name none; default: UTC"},
    }
    named = [_with_kind(shared[kind], kind) for kind in SECTIONS.values()]
    return {
        "$schema": DIALECT,
        "title": "Timewright definition file",
        "anyOf": [
            {"type": "object", "properties": {**header, **sections}, "additionalProperties": False},
            {"type": "array", "items": {"anyOf": named}},
            *named,
        ],
        "$defs": dict(sorted(shared.items())),
    }


def _definition(kind: Kind, shared: dict[str, Any]) -> dict[str, Any]:
    name = {"name": {"type": "string", "minLength": 1, "maxLength": 255}}
    found = request_schema(operations[_PUT[kind]])
    shared.update(found.get("$defs", {}))
    properties = {key: value for key, value in found["properties"].items() if _is_field(key, kind)}
    # Short forms and the words of other schedulers are accepted too, so other fields are not refused here.
    return {"type": "object", "properties": {**name, **properties}, "required": ["name"]}


def _is_field(name: str, kind: Kind) -> bool:
    return name not in _REQUEST_FIELDS or (kind == "schedule" and name == "queue")


def _with_kind(definition: dict[str, Any], kind: Kind) -> dict[str, Any]:
    required = definition["required"] if kind == "schedule" else [*definition["required"], "kind"]
    properties = {"kind": {"const": kind}, **definition["properties"]}
    return {**definition, "properties": properties, "required": required}
