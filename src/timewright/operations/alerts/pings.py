"""Reports of work that runs elsewhere: an address to ping, and the report itself."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from timewright.core.moments import DAY
from timewright.core.run.run import Failed, Outcome, Run, RunState, Succeeded
from timewright.core.schedule.schedule import Schedule
from timewright.core.target import Handoff
from timewright.errors import InvalidInput, NotAllowed, NotFound
from timewright.ledger.manual_runs import run_now
from timewright.ledger.run_ends import AttemptResult
from timewright.ledger.settle import settle_results
from timewright.operations.access.auth_cache import RateLimit, RateLimiter
from timewright.operations.access.callers import Caller
from timewright.operations.context import OperationContext, in_transaction
from timewright.operations.lookup import find_schedule
from timewright.operations.registry import (
    ObjectName,
    OperationRequest,
    ScheduleAction,
    WriteRequest,
    operations,
)
from timewright.operations.views import RunSummary, summarize_run
from timewright.ports import Grant, RunFilter, StoredObject, Transaction
from timewright.ports.objects import GLOBAL_NAMESPACE

INBOUND = "inbound"
MAX_BODY_CHARS = 10_000
MAX_LISTED = 1000
# A job that reports every few seconds is fine; one in a loop is not.
PING_RATE = RateLimit(per_minute=60, burst=30)
UNKNOWN_RATE = RateLimit(per_minute=60, burst=30)
_limiter = RateLimiter()

Report = Literal["start", "ok", "fail"]


class InboundAddress(Struct, frozen=True, kw_only=True):
    """What an address leads to; its slug is stored as a hash only."""

    namespace: str
    schedule_id: str
    schedule: str
    created_at: datetime
    created_by: str = ""


class PingAddress(Struct, frozen=True, kw_only=True):
    """An address to ping; `slug` is shown once. Call it with /start, /fail or /EXIT_CODE behind it."""

    schedule: str
    slug: str
    path: str


class ListPings(OperationRequest, frozen=True, kw_only=True):
    """List the addresses of the namespace, at most 1000."""


class PingList(Struct, frozen=True, kw_only=True):
    """The addresses of the namespace, without their slugs."""

    pings: tuple[InboundAddress, ...]


class DeletedPings(Struct, frozen=True, kw_only=True):
    """How many addresses ended."""

    schedule: str
    deleted: int


class SendPing(WriteRequest, frozen=True, kw_only=True):
    """The schedule, and what its work reports: that it started, is done, or failed, with a text."""

    schedule: ObjectName
    report: Report = "ok"
    text: Annotated[str, Meta(max_length=MAX_BODY_CHARS)] = ""


class PingResult(Struct, frozen=True, kw_only=True):
    """The run that the report is recorded in."""

    run: RunSummary


@operations.write("ping create", scope="write", examples=({"schedule": "foreign-backup"},))
def create_ping(context: OperationContext, tx: Transaction, request: ScheduleAction) -> PingAddress:
    """Make an address that a foreign job calls when it starts and ends."""
    now = context.now()
    random = context.auth_cache.random_bytes if context.auth_cache is not None else secrets.token_bytes
    slug = random(32).hex()
    schedule = find_schedule(tx, context.namespace, request.schedule).schedule
    _check_handoff(schedule)
    address = InboundAddress(
        namespace=schedule.namespace,
        schedule_id=schedule.id,
        schedule=schedule.name,
        created_at=now,
        created_by=context.by.name,
    )
    row = StoredObject(
        kind=INBOUND,
        namespace=GLOBAL_NAMESPACE,
        name=_hash(slug),
        body=msgspec.json.encode(address),
        at=now,
    )
    tx.put_objects([row])
    context.audit(tx, "ping.create", schedule.id)
    return PingAddress(schedule=schedule.name, slug=slug, path=f"/in/{slug}")


@operations.read("ping list", scope="read", examples=({},))
def list_pings(context: OperationContext, tx: Transaction, _request: ListPings) -> PingList:
    """List the addresses that foreign jobs call."""
    rows = _addresses(tx, context.namespace)
    return PingList(pings=tuple(one for _, one in rows[:MAX_LISTED]))


@operations.write("ping delete", scope="write", examples=({"schedule": "foreign-backup"},))
def delete_ping(context: OperationContext, tx: Transaction, request: ScheduleAction) -> DeletedPings:
    """End all addresses of a schedule."""
    schedule = find_schedule(tx, context.namespace, request.schedule).schedule
    own = [name for name, one in _addresses(tx, context.namespace) if one.schedule_id == schedule.id]
    for name in own:
        tx.delete_object(INBOUND, namespace=GLOBAL_NAMESPACE, name=name)
    context.audit(tx, "ping.delete", schedule.id)
    return DeletedPings(schedule=schedule.name, deleted=len(own))


@operations.write(
    "ping send",
    scope="trigger",
    examples=(
        {"schedule": "foreign-backup"},
        {"schedule": "foreign-backup", "report": "fail", "text": "disk full"},
    ),
)
def send_ping(context: OperationContext, tx: Transaction, request: SendPing) -> PingResult:
    """Report for a schedule whose work runs elsewhere."""
    schedule = find_schedule(tx, context.namespace, request.schedule).schedule
    return record_report(context, schedule, request.report, request.text)


def answer_inbound(context: OperationContext, slug: str, rest: tuple[str, ...], body: str) -> PingResult:
    """Handle a call of `/in/<slug>`: nothing after it means done, else start, fail or an exit code."""
    now, name = context.now(), _hash(slug)
    rows = context.store.read(lambda tx: tx.get_objects(INBOUND, namespace=GLOBAL_NAMESPACE, names=[name]))
    if not rows:
        # All unknown slugs share a bucket, so that guessing is slow.
        _limiter.take("unknown", now, rate=UNKNOWN_RATE, what="unknown addresses")
        raise NotFound(
            "no such address",
            field="slug",
            rule="an address is made once",
            fix="timewright ping create SCHEDULE",
        )
    _limiter.take(name, now, rate=PING_RATE, what="pings")
    address = msgspec.json.decode(rows[0].body, type=InboundAddress)
    report, text = _parse(rest, body)
    if len(text) > MAX_BODY_CHARS:
        raise InvalidInput(
            f"the text has {len(text)} characters",
            field="body",
            rule=f"at most {MAX_BODY_CHARS}",
            fix="send the last lines only",
        )
    caller = Caller(actor=f"ping:{address.schedule}", origin="ping", scopes=frozenset({"trigger"}))
    nested = replace(context, namespace=address.namespace, caller=caller)
    record = nested.store.read(lambda tx: find_schedule(tx, address.namespace, address.schedule_id))
    return record_report(nested, record.schedule, report, text)


def record_report(context: OperationContext, schedule: Schedule, report: Report, text: str) -> PingResult:
    """Record a report in the run of the last occurrence, or in a new one if it has ended already."""
    _check_handoff(schedule)
    now = context.now()

    def work(nested: OperationContext) -> PingResult:
        run = nested.store.read(lambda tx: _unfinished(tx, schedule.id))
        if run is not None and run.state is RunState.LEASED and report == "start":
            _settle(nested, run, Failed(error="started again without reporting its end", final=True), now=now)
            run = None
        if run is None:
            made = run_now(nested.store, schedule.id, ids=nested.ids, by=nested.by, now=now, force=True)
            nested.notify(made.facts)
            run = made.runs[0]
        if run.state is not RunState.LEASED:
            run = _lease(nested, schedule, run, now=now)
        if report != "start":
            error = text.strip()[:2000] or "the job reported a failure"
            outcome = Failed(error=error, final=True) if report == "fail" else Succeeded(result=text or None)
            _settle(nested, run, outcome, now=now)
        run_id = run.id
        after = nested.store.read(lambda tx: tx.get_runs([run_id]))[run_id]
        return PingResult(run=summarize_run(after, schedule=schedule.name))

    return in_transaction(context, work)


def _parse(rest: tuple[str, ...], body: str) -> tuple[Report, str]:
    if not rest:
        return "ok", body
    word = rest[0]
    if len(rest) == 1 and word in ("start", "fail"):
        return ("start" if word == "start" else "fail"), body
    if len(rest) == 1 and word.isascii() and word.isdigit() and len(word) <= 3 and int(word) <= 255:
        return ("ok", body) if int(word) == 0 else ("fail", body or f"exit code {word}")
    raise NotFound(
        f"{'/'.join(rest)[:60]!a} is not a report",
        field="path",
        value="/".join(rest)[:60],
        rule="/in/SLUG alone for success, or with /start, /fail or an exit code from /0 to /255",
        fix="/in/SLUG/fail",
    )


def _unfinished(tx: Transaction, schedule_id: str) -> Run | None:
    """The oldest run of a schedule that has not ended, among its newest ones."""
    rows: tuple[Run, ...] = tx.find(RunFilter(schedule_id=schedule_id, limit=20)).rows
    live = [run for run in rows if run.state in (RunState.READY, RunState.HELD, RunState.LEASED)]
    return live[-1] if live else None


def _lease(context: OperationContext, schedule: Schedule, run: Run, *, now: datetime) -> Run:
    """Lease a run to the foreign job. An expectation says when it is late, not its lease."""
    within = schedule.expect.within if schedule.expect is not None else None
    until = now + max(DAY, 2 * (within or DAY))
    if run.state is RunState.HELD or run.fire_at > now:
        run = replace(run, state=RunState.READY)
    lease_id = context.ids.new("lease", now=now)
    grant = Grant(
        run=run, lease_id=lease_id, holder=f"ping:{schedule.name}", leased_at=now, lease_until=until
    )
    granted = context.store.write(lambda tx: tx.lease_runs([grant]))
    if not granted:
        raise NotAllowed(
            f"the run {run.id} of {schedule.name} cannot be reported now",
            field="run",
            value=run.id,
            rule="it waits for another run, or for a later time",
            fix=f"timewright run explain {run.id}",
        )
    return granted[0]


def _settle(context: OperationContext, run: Run, outcome: Outcome, *, now: datetime) -> None:
    result = AttemptResult(run=run, outcome=outcome, started_at=run.started_at or run.leased_at or now)
    context.notify(settle_results(context.store, [result], now=now).facts)


def _check_handoff(schedule: Schedule) -> None:
    if not isinstance(schedule.target, Handoff):
        raise NotAllowed(
            f"the work of {schedule.name} runs here",
            field="schedule",
            value=schedule.name,
            rule="only a schedule with the target handoff is reported from outside",
            fix="schedule create NAME --handoff --every 1d --expect 1h",
        )


def _addresses(tx: Transaction, namespace: str) -> list[tuple[str, InboundAddress]]:
    rows = tx.get_objects(INBOUND, namespace=GLOBAL_NAMESPACE)
    found = [(row.name, msgspec.json.decode(row.body, type=InboundAddress)) for row in rows]
    return [(name, one) for name, one in found if one.namespace == namespace]


def _hash(slug: str) -> str:
    return hashlib.sha256(slug.encode("utf-8", "replace")).hexdigest()
