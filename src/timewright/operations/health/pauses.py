"""Pause and resume everything in a scope: the installation, a namespace, group, owner, queue or provider."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.alerts.channels import QUEUE_PREFIX
from timewright.core.finding import Finding
from timewright.core.moments import check_storable, format_instant
from timewright.core.schedule.pauses import Pause, PauseScope
from timewright.core.schedule.schedule import ScheduleState
from timewright.errors import Forbidden, InvalidInput
from timewright.ledger.alerts.findings import CheckScope, checks
from timewright.ledger.lookups import load_terms
from timewright.ledger.pauses import (
    ACCEPT_CLOCK,
    CLOCK,
    PauseLookup,
    clock_pauses,
    end_clock_pauses,
    find_paused,
)
from timewright.ledger.replan import Actor
from timewright.ledger.settle import cancel
from timewright.ledger.snapshot import all_schedules
from timewright.operations.access.callers import AGENT_ORIGIN, require_all_namespaces, require_scope
from timewright.operations.context import OperationContext
from timewright.operations.lookup import not_found
from timewright.operations.queues.policies import list_queue_names
from timewright.operations.registry import WriteRequest, operations
from timewright.ports import AuditEntry, Ids, ScheduleRecord, Transaction
from timewright.ports.objects import GLOBAL_NAMESPACE, LastPauses, OpenPauses
from timewright.ports.overview import ScheduleGroups
from timewright.ports.rows import LeasedRuns
from timewright.ports.store import ClockSource

MAX_SCHEDULES_READ, MAX_GROUPS_READ = 100_000, 1000
_LISTED_BY = {"group": "group list", "queue": "queue list", "provider": "provider list", "owner": "export"}


class PauseRequest(WriteRequest, frozen=True, kw_only=True):
    """What is paused, until when, and what happens to what comes due; without `until`, until `resume`."""

    scope: PauseScope = "installation"
    name: str = ""
    until: datetime | None = None
    due: Literal["skip", "wait"] | None = None
    cancel_running: bool = False


class ResumeRequest(WriteRequest, frozen=True, kw_only=True):
    """What is resumed."""

    scope: PauseScope = "installation"
    name: str = ""


class PauseState(Struct, frozen=True, kw_only=True):
    """Whether anything is paused, by which pauses, and how many runs `cancel_running` asked to stop."""

    paused: bool
    pauses: tuple[Pause, ...]
    cancelled: int | None = None


@operations.write(
    "pause",
    scope="write",
    examples=({"reason": "the database is moved"}, {"scope": "group", "name": "reports", "due": "skip"}),
)
def pause_scope(context: OperationContext, tx: Transaction, request: PauseRequest) -> PauseState:
    """Pause everything, or a namespace, group, owner, queue or provider: nothing of it starts.

    Runs under way continue, unless `cancel_running` asks them to stop. Ready runs wait. Occurrences that come
    due are skipped or wait, as `due` says; those that wait are decided by `catch_up` after `resume`. Without
    `due`, those of a group are skipped, as those of a paused schedule, and all others wait.
    """
    _check_may_bind(context, request.scope, "pause")
    now = context.now()
    if request.until is not None and check_storable(request.until, field="until") <= now:
        raise InvalidInput(
            f"until {format_instant(request.until)} is not in the future",
            field="until",
            value=format_instant(request.until),
            rule="a pause ends after now",
            fix="use a later instant, or leave it out to pause until resumed",
        )
    namespace, name = _check_subject(tx, context.namespace, request.scope, request.name)
    by = context.by
    pause = Pause(
        id=context.ids.new("pause", now=now),
        scope=request.scope,
        namespace=namespace,
        name=name,
        due=request.due or ("skip" if request.scope == "group" else "wait"),
        actor=by.name,
        origin=by.origin,
        reason=by.reason,
        at=max(now, tx.now()),
        until=request.until,
    )
    tx.add_pause(pause)
    audit_pause(tx, pause, by=by, now=now)
    cancelled = _cancel_running(context, tx, pause, by=by, now=now) if request.cancel_running else None
    return replace(read_pauses(context, tx, now=now), cancelled=cancelled)


@operations.write(
    "resume", scope="write", examples=({"reason": "the move is done"}, {"scope": "group", "name": "exports"})
)
def resume_scope(context: OperationContext, tx: Transaction, request: ResumeRequest) -> PauseState:
    """End the pauses of everything, or of a namespace, group, owner, queue or provider.

    Pauses of other scopes, of single schedules and by the clock stay. An agent ends only pauses by agents.
    """
    _check_may_bind(context, request.scope, "resume")
    now = context.now()
    wanted = (request.scope, *_subject(context.namespace, request.scope, request.name))
    found = [one for one in tx.select(OpenPauses()) if (one.scope, one.namespace, one.name) == wanted]
    if not found:
        _check_subject(tx, context.namespace, request.scope, request.name)
    for pause in (one for one in found if one.origin != CLOCK and not one.is_over(now=now)):
        check_may_lift(context, pause.origin, what=f"{pause.describe()} was paused by {pause.actor}")
        tx.end_pause(pause.id, by=context.by.name, now=max(now, tx.now(), pause.at))
        tx.add_audit([_audit_entry(pause, "resume", by=context.by, now=now)])
    return read_pauses(context, tx, now=now)


def check_may_lift(context: OperationContext, origin: str, *, what: str) -> None:
    """Raise Forbidden if an agent would end a pause that a person or a program set."""
    if context.by.origin == AGENT_ORIGIN and origin != AGENT_ORIGIN:
        raise Forbidden(
            f"an agent may not end this pause: {what}",
            field="origin",
            value=context.by.origin,
            rule="an agent may pause, and ends only pauses that an agent set",
            fix="ask a person to resume it",
        )


def check_may_end_pause(
    context: OperationContext, tx: Transaction, record: ScheduleRecord, *, now: datetime
) -> None:
    """Raise Forbidden if an agent would end the pause of a schedule that a person or a program set."""
    progress = record.progress
    is_over = progress.paused_until is not None and progress.paused_until <= now
    if context.by.origin != AGENT_ORIGIN or progress.state is not ScheduleState.PAUSED or is_over:
        return
    schedule = record.schedule
    for last in tx.select(LastPauses([schedule.id])):
        check_may_lift(context, last.origin, what=f"{schedule.name} was paused by {last.actor}")


class AcceptClock(WriteRequest, frozen=True, kw_only=True):
    """Why."""


class ClockAnswer(Struct, frozen=True, kw_only=True):
    """Whether a reading was accepted, and the time that is used from now on."""

    accepted: bool
    now: datetime


@operations.add("clock accept", scope="admin", examples=({"reason": "the clock was wrong before"},))
def accept_clock(context: OperationContext, _request: AcceptClock) -> ClockAnswer:
    """Accept the time that the store's clock shows now, after it stepped by more than a day.

    The step is then treated as an outage: the catch-up policy of each schedule decides.
    """
    require_all_namespaces(context.caller, operation="clock accept")
    store, now = context.store, context.now()
    # The doubt of another process is known by its pause.
    if not isinstance(store, ClockSource) or not (store.clock_doubt or store.read(clock_pauses)):
        return ClockAnswer(accepted=False, now=now)
    store.accept_clock()
    end_clock_pauses(store, by=context.by.name, now=context.now())
    entry = context.by.audit_entry(
        "installation.clock", namespace=GLOBAL_NAMESPACE, subject="installation", now=now
    )
    store.write(lambda tx: tx.add_audit([entry]))
    return ClockAnswer(accepted=True, now=context.now())


def add_installation_pause(tx: Transaction, *, ids: Ids, by: Actor, now: datetime) -> Pause:
    """Pause the installation from this commit on."""
    pause = new_pause(ids=ids, by=by, now=now)
    tx.add_pause(pause)
    audit_pause(tx, pause, by=by, now=now)
    return pause


def new_pause(*, ids: Ids, by: Actor, now: datetime) -> Pause:
    """Return a pause of the installation."""
    return Pause(id=ids.new("pause", now=now), actor=by.name, origin=by.origin, reason=by.reason, at=now)


def audit_pause(tx: Transaction, pause: Pause, *, by: Actor, now: datetime) -> None:
    """Add the entry of a new pause to the audit log."""
    tx.add_audit([_audit_entry(pause, "pause", by=by, now=now)])


def read_pauses(context: OperationContext, tx: Transaction, *, now: datetime) -> PauseState:
    """Return the pauses that hold now and that the caller may see."""
    pauses = tuple(
        pause
        for pause in tx.select(OpenPauses())
        if not pause.is_over(now=now) and (not pause.namespace or context.caller.can_access(pause.namespace))
    )
    return PauseState(paused=bool(pauses), pauses=pauses)


def open_pauses(tx: Transaction, namespace: str, *, now: datetime) -> list[Pause]:
    """Return the pauses that hold now in a namespace."""
    found = (pause for pause in tx.select(OpenPauses()) if not pause.is_over(now=now))
    return [pause for pause in found if pause.namespace in ("", namespace)]


def _cancel_running(
    context: OperationContext, tx: Transaction, pause: Pause, *, by: Actor, now: datetime
) -> int:
    """Ask the leased runs under a pause to stop; the steps of a workflow stop with it."""
    runs = [run for run in tx.select(LeasedRuns()) if run.cancel_at is None]
    found = find_paused(tx, runs, load_terms(tx, runs), PauseLookup([pause], now=now))
    ids = {one.run.id for one in found}
    reason = by.reason or f"{pause.describe()} is paused"
    stopped = [one.run for one in found if one.run.parent not in ids]
    for run in stopped:
        facts = cancel(context.store, run.id, actor=by.name, origin=by.origin, reason=reason, now=now)
        context.notify(facts)
    return len(stopped)


@checks.add()
def check_pauses(tx: Transaction, scope: CheckScope) -> Iterator[Finding]:
    """Report what is paused."""
    yield from _findings(open_pauses(tx, scope.namespace, now=scope.now))


def clock_findings(tx: Transaction, *, now: datetime) -> tuple[Finding, ...]:
    """Report that the clock cannot be right."""
    return tuple(_findings(one for one in clock_pauses(tx) if not one.is_over(now=now)))


def _findings(pauses: Iterable[Pause]) -> Iterator[Finding]:
    for pause in pauses:
        until = f" until {format_instant(pause.until)}" if pause.until is not None else ""
        why = pause.reason or "no reason given"
        yield Finding(
            kind="clock" if pause.origin == CLOCK else "paused",
            since=pause.at,
            severity="fail" if pause.origin == CLOCK else "warn",
            sentence=f"{pause.describe()} is paused{until} by {_name_of(pause)}: {why}",
            remedy=ACCEPT_CLOCK if pause.origin == CLOCK else resume_command(pause),
        )


def resume_command(pause: Pause) -> str:
    """The command that ends a pause."""
    return f"timewright {resume_words(pause)}"


def resume_words(pause: Pause) -> str:
    """The command that ends a pause, without the name of the program."""
    if pause.scope == "installation":
        return "resume"
    return f"resume --scope {pause.scope}" + (f" --name {shlex.quote(pause.name)}" if pause.name else "")


def _subject(namespace: str, scope: PauseScope, name: str) -> tuple[str, str]:
    """The namespace and name of a pause of this scope."""
    if scope in ("installation", "namespace"):
        if name and name != namespace:
            raise InvalidInput(
                f"a pause of the {scope} takes no name",
                field="name",
                value=name,
                rule="only a group, owner, queue or provider is named",
                fix="choose the namespace with --namespace",
            )
        return "" if scope == "installation" else namespace, ""
    if not name:
        rule = f"a pause of {'an' if scope == 'owner' else 'a'} {scope} names the {scope}"
        raise InvalidInput("name is missing", field="name", value=name, rule=rule, fix="name: reports")
    return namespace, name


def _check_subject(tx: Transaction, namespace: str, scope: PauseScope, name: str) -> tuple[str, str]:
    """The same, if there is such a group, owner, queue or provider: a pause of a wrong name stops nothing."""
    subject = _subject(namespace, scope, name)
    if not subject[1]:
        return subject
    known: set[str] = set()
    if scope == "queue":
        channels = (one.name for one in tx.read_channels() if one.namespace == namespace)
        known = {*list_queue_names(tx, namespace), *(f"{QUEUE_PREFIX}{one}" for one in channels)}
    schedules = all_schedules(tx, namespace, group=name if scope == "group" else None)
    for count, record in enumerate(schedules, start=1):
        known |= {getattr(record.schedule, scope) or ""}
        if name in known or count == MAX_SCHEDULES_READ:
            return subject
    if name in known:
        return subject
    if scope == "group":
        known = {one.name for one in tx.select(ScheduleGroups(namespace=namespace, limit=MAX_GROUPS_READ))}
    raise not_found(scope, name, sorted(known - {""}), list_command=_LISTED_BY[scope])


def _check_may_bind(context: OperationContext, scope: PauseScope, operation: str) -> None:
    """Raise Forbidden if the caller may not bind the whole installation."""
    if scope == "installation":
        require_scope(context.caller, "admin", operation=f"{operation} of the installation")
        require_all_namespaces(context.caller, operation=operation)


def _name_of(pause: Pause) -> str:
    return "its clock" if pause.origin == CLOCK else pause.actor


def _audit_entry(pause: Pause, action: str, *, by: Actor, now: datetime) -> AuditEntry:
    return by.audit_entry(
        f"{pause.scope}.{action}",
        namespace=pause.namespace or GLOBAL_NAMESPACE,
        subject=pause.name or pause.namespace or "installation",
        now=now,
    )
