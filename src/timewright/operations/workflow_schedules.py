"""The schedules that a workflow brings: kept, changed and retired together with it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from timewright.core.schedule import ScheduleState
from timewright.core.spellings import snake
from timewright.core.workflow import WorkflowSpec
from timewright.errors import Conflict, InvalidWorkflow, TimewrightError
from timewright.ledger.replan import archive
from timewright.operations.context import Context
from timewright.operations.drafts import Put, put_schedule
from timewright.ports import Transaction

_OURS = {"workflow", "workflow_id", "version", "user", "user_id", "input", "name", "schedule_id"}


def deploy(
    context: Context, spec: WorkflowSpec, *, owned: Mapping[str, str], reason: str, now: datetime
) -> dict[str, str]:
    """Keep the schedules of a workflow, and retire those it had and has no more; a pause stays a pause."""
    kept: dict[str, str] = {}
    for n, written in enumerate(spec.schedules):
        where = f"schedules[{n}]"
        draft = _draft(spec, written, where, alone=len(spec.schedules) == 1, number=n + 1)
        name = str(draft["name"])
        if name in kept:
            raise _fault(
                where, f"{name!r} is the name of two schedules", rule="names are unique", fix="name: …"
            )
        _refuse_foreign(context, name, owned)
        kept[name] = _put(context, draft, where, reason=reason)
    gone = {name: schedule_id for name, schedule_id in owned.items() if schedule_id not in kept.values()}
    retire(context, gone, reason=reason, now=now)
    return kept


def retire(context: Context, schedules: Mapping[str, str], *, reason: str, now: datetime) -> list[str]:
    """Archive schedules that a workflow had; their history stays."""
    ids = sorted(schedules.values())
    found = context.store.read(lambda tx: tx.get_schedules(ids)) if ids else {}
    living = [i for i, due in found.items() if due.standing.state is not ScheduleState.ARCHIVED]
    for schedule_id in living:
        by = context.because(reason or "its workflow has it no more")
        context.tell(archive(context.store, schedule_id, by=by, now=now).facts)
    return sorted(name for name, schedule_id in schedules.items() if schedule_id in living)


def _draft(
    spec: WorkflowSpec, written: Mapping[str, Any], where: str, *, alone: bool, number: int
) -> dict[str, Any]:
    """A schedule as its workflow means it: it runs this version, for the user it names."""
    words = {snake(str(key)): value for key, value in written.items()}
    if words.get("workflow_id", words.get("workflow", spec.name)) != spec.name:
        raise _fault(
            where, "it runs another workflow", rule="a schedule here runs this workflow", fix=spec.name
        )
    rest = {key: value for key, value in written.items() if snake(str(key)) not in _OURS}
    target = {"kind": "workflow", "workflow": spec.name, "version": spec.version}
    user = words.get("user_id", words.get("user"))
    if user is not None:
        target["user"] = user
    if "input" in words:
        target["input"] = words["input"]
    usual = spec.name if alone else f"{spec.name}-{number}"
    name = words.get("name") or words.get("schedule_id") or usual
    return {"preset": "workflow", **rest, "name": name, "target": target}


def _put(context: Context, draft: dict[str, Any], where: str, *, reason: str) -> str:
    try:
        return put_schedule(context, Put(draft=draft, reason=reason)).kept.schedule.id
    except Conflict:
        raise
    except TimewrightError as error:
        at = f"{where}.{error.field}" if error.field else where
        raise InvalidWorkflow(
            f"{where}: {error.message}", field=at, value=error.value, rule=error.rule, fix=error.fix
        ) from None


def _refuse_foreign(context: Context, name: str, owned: Mapping[str, str]) -> None:
    def work(tx: Transaction) -> bool:
        found = tx.find_schedule(context.namespace, name)
        if found is None or found in owned.values():
            return False
        return tx.get_schedules([found])[found].standing.state is not ScheduleState.ARCHIVED

    if context.store.read(work):
        raise Conflict(
            f"schedule {name} is not one of this workflow",
            field="schedules",
            value=name,
            rule="a workflow changes the schedules it brought, and no others",
            fix="give the schedule of the workflow another name",
        )


def _fault(where: str, message: str, *, rule: str, fix: str) -> InvalidWorkflow:
    return InvalidWorkflow(f"{where}: {message}", field=where, rule=rule, fix=fix)
