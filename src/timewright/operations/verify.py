"""Proof on your own data: every promise checked against the rows that are there."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct

from timewright.core.moments import from_micros, micros
from timewright.operations.context import Context
from timewright.operations.registry import Request, operations
from timewright.ports import Transaction
from timewright.proof import Finding, History, Report, check
from timewright.proof.rows import (
    AccountRow,
    AttemptRow,
    AuditRow,
    ChargeRow,
    GateRow,
    HoldRow,
    ObjectRow,
    RevisionRow,
    RunRow,
    ScheduleRow,
)
from timewright.proof.spans import made_at

T = TypeVar("T", bound=Struct)

MOST_RUNS = 200_000
MOST_LINES = 100_000
MOST_OTHERS = 500_000
PAGE = 1_000


class Verify(Request, frozen=True, kw_only=True):
    """From when on, and which promises; all of them over everything if nothing is said."""

    since: datetime | None = None
    only: Annotated[tuple[Annotated[str, Meta(max_length=8)], ...], Meta(max_length=100)] = ()


class Broken(Struct, frozen=True, kw_only=True):
    """Something that breaks a promise: what is wrong, and the rows that show it."""

    promise: str
    message: str
    rows: tuple[dict[str, Any], ...] = ()


class Checked(Struct, frozen=True, kw_only=True):
    """One promise: how much was looked at, how many things break it, or why it was not checked."""

    promise: str
    name: str
    sentence: str
    looked_at: int
    of_what: str
    broken: int
    not_checked: str = ""


class Verified(Struct, frozen=True, kw_only=True):
    """Whether the promises hold over what was looked at; `cut` says there was more than may be looked at.

    Of each promise the first twenty things that break it are shown.
    """

    holds: bool
    now: datetime
    since: datetime | None
    cut: bool
    schedules: int
    occurrences: int
    runs: int
    attempts: int
    promises: tuple[Checked, ...]
    violations: tuple[Broken, ...]


@operations.add(
    "",
    "verify",
    Verify,
    scope="read",
    examples=({}, {"since": "2026-03-01T00:00:00Z", "only": ["I1", "I14"]}),
)
def verify(context: Context, ask: Verify) -> Verified:
    """Check what is promised against every row that is there; nothing is changed, and the engine may run."""
    now = micros(context.now())
    return _told(check(gather(context, since=ask.since), now=now, only=ask.only))


def gather(context: Context, *, since: datetime | None = None, everyone: bool = False) -> History:
    """Everything the checker looks at, in one consistent picture: of one namespace, or of everyone's."""
    namespace = None if everyone else context.namespace
    return context.store.read(lambda tx: _Gathering(tx, namespace, since).history())


class _Gathering:
    """One read of the store, page by page."""

    def __init__(self, tx: Transaction, namespace: str | None, since: datetime | None) -> None:
        self._tx = tx
        self._namespace = namespace
        self._since = since

    def history(self) -> History:
        """The rows, newest first where there may be too many."""
        runs, attempts, cut = self._runs()
        since = self._since
        if cut:
            since = from_micros(max(made_at(runs[-1].id) or 0, micros(since) if since else 0))
        if since is not None:
            for older in self._unfinished(since):
                runs += older
                attempts += self._tx.ended_leases([run.id for run in older])
        return History(
            namespace=self._namespace,
            since=micros(since) if since is not None else None,
            cut=cut,
            schedules=tuple(self._all(ScheduleRow)),
            revisions=tuple(self._all(RevisionRow)),
            runs=tuple(runs),
            attempts=tuple(attempts),
            gates=tuple(row for row in self._all(GateRow) if self._is_ours(row.gate)),
            holds=tuple(row for row in self._all(HoldRow) if self._is_ours(row.gate)),
            objects=tuple(self._all(ObjectRow)),
            audit=tuple(self._all(AuditRow, most=MOST_LINES)),
            accounts=tuple(row for row in self._all(AccountRow) if self._is_of_ours(row.budget)),
            charges=self._charges(),
            meta=dict(self._meta()),
        )

    def _runs(self) -> tuple[list[RunRow], list[AttemptRow], bool]:
        runs: list[RunRow] = []
        attempts: list[AttemptRow] = []
        last: RunRow | None = None
        while True:
            page = self._tx.history(
                RunRow, namespace=self._namespace, since=self._since, after=last, limit=PAGE
            )
            runs += page
            attempts += self._tx.ended_leases([run.id for run in page if run.fence])
            if len(page) < PAGE:
                return runs, attempts, False
            if len(runs) >= MOST_RUNS:
                return runs, attempts, True
            last = page[-1]

    def _unfinished(self, before: datetime) -> Iterator[list[RunRow]]:
        last = ""
        for _ in range(MOST_RUNS // PAGE):
            page = self._tx.unfinished_history(
                before=before, namespace=self._namespace, after=last, limit=PAGE
            )
            yield page
            if len(page) < PAGE:
                return
            last = page[-1].id

    def _all(self, kind: type[T], *, most: int = MOST_OTHERS) -> Iterator[T]:
        last: T | None = None
        for _ in range(most // PAGE):
            page = self._tx.history(kind, namespace=self._namespace, after=last, limit=PAGE)
            yield from page
            if len(page) < PAGE:
                return
            last = page[-1]

    def _meta(self) -> Iterator[tuple[str, str]]:
        yield from self._tx.meta_starting("pruned")
        last = ""
        for _ in range(MOST_LINES // PAGE):
            page = self._tx.meta_starting("client:", after=last, limit=PAGE)
            yield from page
            if len(page) < PAGE:
                return
            last = page[-1][0]

    def _charges(self) -> tuple[ChargeRow, ...] | None:
        rows = tuple(self._all(ChargeRow))
        if len(rows) >= MOST_OTHERS:
            return None
        return tuple(row for row in rows if self._is_of_ours(row.budget))

    def _is_ours(self, gate: str) -> bool:
        return self._is_of_ours(gate.partition(":")[2])

    def _is_of_ours(self, name: str) -> bool:
        return self._namespace is None or name.startswith(f"{self._namespace}/")


def _told(report: Report) -> Verified:
    return Verified(
        holds=report.holds,
        now=from_micros(report.now),
        since=from_micros(report.since) if report.since is not None else None,
        cut=report.cut,
        schedules=report.schedules,
        occurrences=report.occurrences,
        runs=report.runs,
        attempts=report.attempts,
        promises=tuple(_checked(finding) for finding in report.findings),
        violations=tuple(
            Broken(promise=one.invariant, message=one.message, rows=one.rows) for one in report.violations
        ),
    )


def _checked(finding: Finding) -> Checked:
    return Checked(
        promise=finding.invariant,
        name=finding.name,
        sentence=finding.promise,
        looked_at=finding.looked_at,
        of_what=finding.of_what,
        broken=finding.count,
        not_checked=finding.not_checked,
    )
