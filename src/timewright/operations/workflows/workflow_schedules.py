"""Stored versions of workflows, and the schedules that a workflow declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from timewright.core.definitions import Definition
from timewright.core.input.aliases import snake_case
from timewright.core.schedule.schedule import ScheduleState
from timewright.core.workflow import WorkflowSpec, each_limits
from timewright.errors import Conflict, InvalidWorkflow, TimewrightError
from timewright.ledger.replan import archive
from timewright.ledger.workflow_runs.records import (
    VERSION,
    WORKFLOW,
    StoredVersion,
    WorkflowHeader,
    find_header,
    read_header,
    read_spec,
    version_name,
)
from timewright.operations.context import OperationContext
from timewright.operations.definitions.schedules import SCHEDULE, DefinitionOwner, apply_schedules
from timewright.operations.lookup import not_found
from timewright.operations.schedules.agent_rules import remember_removal
from timewright.ports import StoredObject, Transaction
from timewright.ports.schedules import SchedulesNamed

_HANDLED_FIELDS = {
    *("workflow", "workflow_id", "version", "user", "user_id", "input", "name", "schedule_id", "type")
}
SCHEDULE_BASED = "schedule_based"


def deploy_schedules(
    context: OperationContext, spec: WorkflowSpec, *, owned: Mapping[str, str], now: datetime
) -> dict[str, str]:
    """Put the schedules of a workflow, and archive those it no longer has; paused schedules stay paused."""
    drafts: dict[str, Definition] = {}
    for n, written in enumerate(spec.schedules):
        where = f"schedules[{n}]"
        draft = _draft(spec, written, where, is_only=len(spec.schedules) == 1, number=n + 1)
        name = str(draft.pop("name"))
        if name in drafts:
            raise _error(
                where, f"two schedules have the name {name!r}", rule="names are unique", fix="name: …"
            )
        _reject_foreign(context, name, owned)
        drafts[name] = Definition(kind=SCHEDULE, name=name, fields=draft, where=where)
    deployed = _apply(context, spec, list(drafts.values()), now=now)
    removed = {
        name: schedule_id for name, schedule_id in owned.items() if schedule_id not in deployed.values()
    }
    archive_schedules(context, removed, now=now)
    return deployed


def archive_schedules(context: OperationContext, schedules: Mapping[str, str], *, now: datetime) -> list[str]:
    """Archive schedules of a workflow; their history stays."""
    ids = sorted(schedules.values())
    found = context.store.read(lambda tx: tx.get_schedules(ids)) if ids else {}
    not_archived = [i for i, record in found.items() if record.progress.state is not ScheduleState.ARCHIVED]
    for schedule_id in not_archived:
        remember_removal(context, found[schedule_id].schedule, now=now)
        by = context.with_reason(context.by.reason or "removed from its workflow").by
        context.notify(archive(context.store, schedule_id, by=by, now=now).facts)
    return sorted(name for name, schedule_id in schedules.items() if schedule_id in not_archived)


def _draft(
    spec: WorkflowSpec, written: Mapping[str, Any], where: str, *, is_only: bool, number: int
) -> dict[str, Any]:
    """Return the definition of a workflow's schedule: it runs this version, for its user."""
    fields = {snake_case(str(key)): value for key, value in written.items()}
    if fields.get("workflow_id", fields.get("workflow", spec.name)) != spec.name:
        raise _error(
            where,
            "the schedule runs another workflow",
            rule="a schedule here runs this workflow",
            fix=spec.name,
        )
    if fields.get("type", SCHEDULE_BASED) != SCHEDULE_BASED:
        raise _error(
            where,
            f"{fields['type']!r} is not a schedule",
            rule=f"the type of a trigger here is {SCHEDULE_BASED}",
            fix="for other events, start it with `schedule run`",
        )
    rest = {key: value for key, value in written.items() if snake_case(str(key)) not in _HANDLED_FIELDS}
    target = {"kind": "workflow", "workflow": spec.name, "version": spec.version}
    user = fields.get("user_id", fields.get("user"))
    if user is not None:
        target["user"] = user
    if "input" in fields:
        target["input"] = fields["input"]
        spec.check_input_types(fields["input"] if isinstance(fields["input"], dict) else {})
    default_name = spec.name if is_only else f"{spec.name}-{number}"
    name = fields.get("name") or fields.get("schedule_id") or default_name
    return {"preset": "workflow", **rest, "name": name, "target": target}


def _apply(
    context: OperationContext,
    spec: WorkflowSpec,
    drafts: Sequence[Definition],
    *,
    now: datetime,
) -> dict[str, str]:
    owner = DefinitionOwner(name=f"workflow:{spec.name}")
    try:
        changes = apply_schedules(context, owner, drafts, now=now)
    except Conflict:
        raise
    except TimewrightError as error:
        where = error.message.partition(" ")[0]
        at = f"{where}.{error.field}" if error.field else where
        raise InvalidWorkflow(
            error.message, field=at, value=error.value, rule=error.rule, fix=error.fix
        ) from None
    return {change.name: change.id for change in changes}


def _reject_foreign(context: OperationContext, name: str, owned: Mapping[str, str]) -> None:
    def work(tx: Transaction) -> bool:
        heads = tx.select(SchedulesNamed(context.namespace, [name]))
        return any(one.id not in owned.values() and one.state is not ScheduleState.ARCHIVED for one in heads)

    if context.store.read(work):
        raise Conflict(
            f"schedule {name} exists and does not belong to this workflow",
            field="schedules",
            value=name,
            rule="a workflow changes only its own schedules",
            fix="give the workflow's schedule another name",
        )


def _error(where: str, message: str, *, rule: str, fix: str) -> InvalidWorkflow:
    return InvalidWorkflow(f"{where}: {message}", field=where, rule=rule, fix=fix)


def require_workflow(tx: Transaction, namespace: str, name: str) -> WorkflowHeader:
    """Return the header of a workflow; raises NotFound if it does not exist or was deleted."""
    head = find_header(tx, namespace, name)
    if head is None or head.deleted:
        rows = tx.get_objects(WORKFLOW, namespace=namespace)
        known = [row.name for row in rows if not read_header(row).deleted]
        raise not_found("workflow", name, known, list_command="workflow list")
    return head


def require_version(tx: Transaction, namespace: str, name: str, version: int) -> WorkflowSpec:
    """Return one version of a workflow; raises NotFound if it does not exist."""
    spec = read_spec(tx, namespace, name, version)
    if spec is None:
        raise not_found(
            "version", f"{name} {version}", (), list_command=f"workflow get {name}", field="version"
        )
    return spec


def save_version(
    tx: Transaction,
    context: OperationContext,
    spec: WorkflowSpec,
    head: WorkflowHeader,
    *,
    now: datetime,
) -> None:
    """Write a new version and the header that points to it; a concurrent put raises Conflict."""
    name, namespace = spec.name, context.namespace
    text = StoredObject(
        kind=VERSION,
        namespace=namespace,
        name=version_name(name, head.version),
        body=msgspec.json.encode(StoredVersion(spec=spec, author=context.by.name, origin=context.by.origin)),
        at=now,
    )
    tx.put_objects([text], replaces={text.name: 0})
    tx.set_limits(each_limits(spec, namespace))
    tx.put_objects([header_row(namespace, name, head, now=now)], replaces={name: head.version - 1})
    after = f"version {head.version} {head.digest}"
    context.audit(tx, "workflow.put", name, after=after)


def header_row(namespace: str, name: str, head: WorkflowHeader, *, now: datetime) -> StoredObject:
    """Return the header of a workflow as a stored object."""
    body = msgspec.json.encode(head)
    return StoredObject(
        kind=WORKFLOW, namespace=namespace, name=name, revision=head.version, body=body, at=now
    )
