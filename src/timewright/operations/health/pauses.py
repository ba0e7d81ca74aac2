"""Pause and resume the whole installation: for maintenance, after a restore, and while a store is moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from msgspec import Struct

from timewright.core.finding import Finding
from timewright.core.moments import check_storable, format_instant
from timewright.core.schedule.pauses import Pause
from timewright.errors import Forbidden, InvalidInput
from timewright.ledger.alerts.findings import CheckScope, checks
from timewright.ledger.clock_pauses import CLOCK, clock_pauses, end_clock_pauses
from timewright.ledger.replan import Actor
from timewright.operations.context import OperationContext
from timewright.operations.registry import WriteRequest, operations
from timewright.ports import AuditEntry, Ids, Transaction
from timewright.ports.objects import GLOBAL_NAMESPACE
from timewright.ports.store import ClockSource

ACCEPT_REMEDY = "set the clock right, or timewright clock accept if it is right now"


class PauseInstallation(WriteRequest, frozen=True, kw_only=True):
    """Until when; without an instant, until `resume`."""

    until: datetime | None = None


class ResumeInstallation(WriteRequest, frozen=True, kw_only=True):
    """Why."""


class InstallationState(Struct, frozen=True, kw_only=True):
    """Whether the installation is paused, and by which pauses."""

    paused: bool
    pauses: tuple[Pause, ...]


@operations.add(
    "", "pause", PauseInstallation, scope="admin", examples=({"reason": "the database is moved"},)
)
def pause_installation(context: OperationContext, request: PauseInstallation) -> InstallationState:
    """Pause the whole installation: nothing is admitted or started in any namespace, runs under way continue.

    What comes due waits; after `resume`, the catch-up policy of each schedule decides.
    """
    _check_all_namespaces(context, "pause")
    now = context.now()
    if request.until is not None and check_storable(request.until, field="until") <= now:
        raise InvalidInput(
            f"until {format_instant(request.until)} is not in the future",
            field="until",
            value=format_instant(request.until),
            rule="a pause ends after now",
            fix="use a later instant, or leave it out to pause until resumed",
        )
    by = context.actor_with_reason(request.reason)

    def work(tx: Transaction) -> InstallationState:
        add_installation_pause(tx, ids=context.ids, by=by, now=now, until=request.until)
        return read_installation_state(tx, now=now)

    return context.store.write(work)


@operations.add("", "resume", ResumeInstallation, scope="admin", examples=({"reason": "the move is done"},))
def resume_installation(context: OperationContext, request: ResumeInstallation) -> InstallationState:
    """End every pause of the whole installation; pauses of single schedules and by the clock stay."""
    _check_all_namespaces(context, "resume")
    now = context.now()
    by = context.actor_with_reason(request.reason)

    def work(tx: Transaction) -> InstallationState:
        for pause in (one for one in tx.open_pauses() if one.origin != CLOCK):
            tx.end_pause(pause.id, by=by.name, now=now)
        tx.add_audit([_audit_entry("resume", by=by, now=now)])
        return read_installation_state(tx, now=now)

    return context.store.write(work)


class AcceptClock(WriteRequest, frozen=True, kw_only=True):
    """Why."""


class ClockAnswer(Struct, frozen=True, kw_only=True):
    """Whether a reading was accepted, and the time that is used from now on."""

    accepted: bool
    now: datetime


@operations.add(
    "clock", "accept", AcceptClock, scope="admin", examples=({"reason": "the clock was wrong before"},)
)
def accept_clock(context: OperationContext, request: AcceptClock) -> ClockAnswer:
    """Accept the time that the store's clock shows now, after it stepped by more than a day.

    The step is then treated as an outage: the catch-up policy of each schedule decides.
    """
    _check_all_namespaces(context, "clock accept")
    store, now = context.store, context.now()
    # The doubt of another process is known by its pause.
    if not isinstance(store, ClockSource) or not (store.clock_doubt or store.read(clock_pauses)):
        return ClockAnswer(accepted=False, now=now)
    by = context.actor_with_reason(request.reason)
    store.accept_clock()
    end_clock_pauses(store, by=by.name, now=context.now())
    store.write(lambda tx: tx.add_audit([_audit_entry("clock", by=by, now=now)]))
    return ClockAnswer(accepted=True, now=context.now())


def add_installation_pause(
    tx: Transaction, *, ids: Ids, by: Actor, now: datetime, until: datetime | None = None
) -> Pause:
    """Pause the installation from this commit on."""
    pause = new_pause(ids=ids, by=by, now=now, until=until)
    tx.add_pause(pause)
    audit_pause(tx, by=by, now=now)
    return pause


def new_pause(*, ids: Ids, by: Actor, now: datetime, until: datetime | None = None) -> Pause:
    """Return a pause of the installation."""
    return Pause(
        id=ids.new("pause", now=now), actor=by.name, origin=by.origin, reason=by.reason, at=now, until=until
    )


def audit_pause(tx: Transaction, *, by: Actor, now: datetime) -> None:
    """Add the entry of a new pause to the audit log."""
    tx.add_audit([_audit_entry("pause", by=by, now=now)])


def read_installation_state(tx: Transaction, *, now: datetime) -> InstallationState:
    """Return the pauses of the installation that hold now."""
    pauses = tuple(pause for pause in tx.open_pauses() if not pause.is_over(now=now))
    return InstallationState(paused=bool(pauses), pauses=pauses)


@checks.add()
def check_installation_pauses(tx: Transaction, scope: CheckScope) -> Iterator[Finding]:
    """Report that the installation is paused."""
    yield from _findings(read_installation_state(tx, now=scope.now).pauses)


def clock_findings(tx: Transaction, *, now: datetime) -> tuple[Finding, ...]:
    """Report that the clock cannot be right."""
    pauses = read_installation_state(tx, now=now).pauses
    return tuple(_findings([pause for pause in pauses if pause.origin == CLOCK]))


def _findings(pauses: Iterable[Pause]) -> Iterator[Finding]:
    for pause in pauses:
        until = f" until {format_instant(pause.until)}" if pause.until is not None else ""
        why = pause.reason or "no reason given"
        yield Finding(
            kind="clock" if pause.origin == CLOCK else "paused",
            since=pause.at,
            severity="fail" if pause.origin == CLOCK else "warn",
            sentence=f"the installation is paused{until} by {_name_of(pause)}: {why}",
            remedy=ACCEPT_REMEDY if pause.origin == CLOCK else "timewright resume",
        )


def _check_all_namespaces(context: OperationContext, operation: str) -> None:
    """Raise Forbidden for a key of some namespaces, because the operation binds all of them."""
    if context.caller.namespaces:
        raise Forbidden(
            f"{operation} needs a key with access to all namespaces",
            field="namespace",
            value=context.namespace,
            rule=f"your key has access to {', '.join(context.caller.namespaces)}",
            fix="a key made with: key create NAME --role admin --within '*'",
        )


def _name_of(pause: Pause) -> str:
    return "its clock" if pause.origin == CLOCK else pause.actor


def _audit_entry(action: str, *, by: Actor, now: datetime) -> AuditEntry:
    return by.audit_entry(
        f"installation.{action}", namespace=GLOBAL_NAMESPACE, subject="installation", now=now
    )
