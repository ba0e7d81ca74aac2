"""Verify the stored history: check every promise against the rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from timewright.core.moments import from_micros, to_micros
from timewright.core.run.run import Artifact
from timewright.operations.context import OperationContext
from timewright.operations.registry import OperationRequest, answer_from, operations
from timewright.ports import Transaction
from timewright.verification import History, InvariantResult, Report, check
from timewright.verification.oracle.times import id_created_at
from timewright.verification.rows import (
    AdjustmentRow,
    ArtifactRow,
    AttemptRow,
    AuditRow,
    BudgetAccountRow,
    BudgetChargeRow,
    IncidentRow,
    LimitHoldRow,
    LimitRow,
    MetaRow,
    ObjectRow,
    PauseRow,
    ProgressRow,
    RevisionRow,
    RunRow,
    ScheduleRow,
)

T = TypeVar("T", bound=Struct)

MAX_RUNS = 200_000
MAX_AUDIT_ROWS = 100_000
MAX_OTHER_ROWS = 500_000
PAGE_ROWS = 1_000
MAX_ARTIFACTS = 10_000
# The promise about artifacts, whose check reads files.
ARTIFACTS = "I64"


class VerifyHistory(OperationRequest, frozen=True, kw_only=True):
    """Since when, and which promises; the default is all promises over the whole history."""

    since: datetime | None = None
    only: Annotated[tuple[Annotated[str, Meta(max_length=8)], ...], Meta(max_length=100)] = ()


class PromiseViolation(Struct, frozen=True, kw_only=True):
    """A violation of a promise: what is wrong, and the rows that show it."""

    promise: str
    message: str
    rows: tuple[dict[str, Any], ...] = ()


class PromiseCheck(Struct, frozen=True, kw_only=True):
    """One promise: how much was checked, how many violations, or why it was not checked."""

    promise: str
    name: str
    sentence: str
    checked: int
    unit: str
    broken: int
    not_checked: str = ""


class VerificationResult(Struct, frozen=True, kw_only=True):
    """Whether the promises hold; `cut` means that older history was not checked because there is too much.

    The first twenty violations of each promise are shown.
    """

    holds: bool
    now: datetime
    since: datetime | None
    cut: bool
    schedules: int
    occurrences: int
    runs: int
    attempts: int
    promises: tuple[PromiseCheck, ...]
    violations: tuple[PromiseViolation, ...]


@operations.add(
    "verify", scope="read", examples=({}, {"since": "2026-03-01T00:00:00Z", "only": ["I1", "I14"]})
)
def verify(context: OperationContext, request: VerifyHistory) -> VerificationResult:
    """Check every promise against the stored history; nothing is changed, and engines may run meanwhile."""
    now = to_micros(context.now())
    history = read_history(context, since=request.since)
    if not request.only or ARTIFACTS in request.only:
        history = replace(history, artifacts=_check_artifacts(context, history))
    return _to_result(check(history, now=now, only=request.only))


def _check_artifacts(context: OperationContext, history: History) -> tuple[ArtifactRow, ...]:
    """The artifacts of the runs in the history, newest first; the first 10 000 are read and hashed."""
    files = context.artifacts
    if files is None:
        return ()
    found: list[ArtifactRow] = []
    ids = [run.id for run in history.runs]
    for start in range(0, len(ids), PAGE_ROWS):
        page = partial(_artifacts_of, ids[start : start + PAGE_ROWS])
        for one in context.store.read(page):
            problem = files.check(one, namespace=context.namespace)
            found.append(answer_from(ArtifactRow, one, run_id=one.run, problem=problem))
        if len(found) >= MAX_ARTIFACTS:
            break
    return tuple(found)


def _artifacts_of(run_ids: list[str], tx: Transaction) -> list[Artifact]:
    found = tx.get_run_rows(Artifact, run_ids)
    return [one for run_id in run_ids for one in found.get(run_id, ())]


def read_history(
    context: OperationContext, *, since: datetime | None = None, all_namespaces: bool = False
) -> History:
    """Read the history to check in one consistent snapshot, of one namespace or of all."""
    namespace = None if all_namespaces else context.namespace
    return context.store.read(lambda tx: _HistoryReader(tx, namespace, since).history())


class _HistoryReader:
    """Reads the history page by page in one transaction."""

    def __init__(self, tx: Transaction, namespace: str | None, since: datetime | None) -> None:
        self._tx = tx
        self._namespace = namespace
        self._since = since

    def history(self) -> History:
        """Return all rows; runs and audit entries newest first, up to a limit."""
        runs, attempts, cut = self._runs()
        since = self._since
        if cut:
            since = from_micros(max(id_created_at(runs[-1].id) or 0, to_micros(since) if since else 0))
        if since is not None:
            for older in self._pages(RunRow, most=MAX_RUNS, unfinished_before=since):
                runs += older
                attempts += self._tx.list_rows(AttemptRow, run_ids=[run.id for run in older])
        return History(
            namespace=self._namespace,
            since=to_micros(since) if since is not None else None,
            cut=cut,
            schedules=tuple(self._all(ScheduleRow)),
            revisions=tuple(self._all(RevisionRow)),
            runs=tuple(runs),
            attempts=tuple(attempts),
            progress=tuple(self._progress(runs)),
            limits=tuple(row for row in self._all(LimitRow) if self._is_own_limit(row.limit_key)),
            limit_holds=tuple(row for row in self._all(LimitHoldRow) if self._is_own_limit(row.limit_key)),
            objects=tuple(self._all(ObjectRow)),
            audit=tuple(self._all(AuditRow, most=MAX_AUDIT_ROWS)),
            adjustments=tuple(self._all(AdjustmentRow)),
            accounts=tuple(row for row in self._all(BudgetAccountRow) if self._is_own_name(row.budget)),
            charges=self._charges(),
            incidents=tuple(self._all(IncidentRow)),
            pauses=tuple(self._all(PauseRow)),
            meta={row.name: row.value for row in self._all(MetaRow, most=MAX_AUDIT_ROWS)},
        )

    def _runs(self) -> tuple[list[RunRow], list[AttemptRow], bool]:
        runs: list[RunRow] = []
        attempts: list[AttemptRow] = []
        for page in self._pages(RunRow, most=MAX_RUNS, since=self._since):
            runs += page
            attempts += self._tx.list_rows(AttemptRow, run_ids=[run.id for run in page if run.fence])
        return runs, attempts, len(runs) >= MAX_RUNS

    def _progress(self, runs: Sequence[RunRow]) -> Iterator[ProgressRow]:
        ids = [run.id for run in runs if run.fence]
        for start in range(0, len(ids), PAGE_ROWS):
            yield from self._tx.list_rows(ProgressRow, run_ids=ids[start : start + PAGE_ROWS])

    def _all(self, kind: type[T], *, most: int = MAX_OTHER_ROWS) -> Iterator[T]:
        return chain.from_iterable(self._pages(kind, most=most))

    def _pages(self, kind: type[T], *, most: int, **which: Any) -> Iterator[Sequence[T]]:
        last: T | None = None
        for _ in range(most // PAGE_ROWS):
            page = self._tx.list_rows(kind, namespace=self._namespace, after=last, limit=PAGE_ROWS, **which)
            yield page
            if len(page) < PAGE_ROWS:
                return
            last = page[-1]

    def _charges(self) -> tuple[BudgetChargeRow, ...] | None:
        rows = tuple(self._all(BudgetChargeRow))
        if len(rows) >= MAX_OTHER_ROWS:
            return None
        return tuple(row for row in rows if self._is_own_name(row.budget))

    def _is_own_limit(self, limit_key: str) -> bool:
        return self._is_own_name(limit_key.partition(":")[2])

    def _is_own_name(self, name: str) -> bool:
        return self._namespace is None or name.startswith(f"{self._namespace}/")


def _to_result(report: Report) -> VerificationResult:
    return answer_from(
        VerificationResult,
        report,
        now=from_micros(report.now),
        since=from_micros(report.since) if report.since is not None else None,
        promises=tuple(_checked(finding) for finding in report.findings),
        violations=tuple(
            PromiseViolation(promise=one.invariant, message=one.message, rows=one.rows)
            for one in report.violations
        ),
    )


def _checked(finding: InvariantResult) -> PromiseCheck:
    return answer_from(
        PromiseCheck,
        finding,
        promise=finding.invariant,
        broken=finding.count,
        not_checked=finding.not_checked_because,
    )
