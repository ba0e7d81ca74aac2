"""What `Transaction.select` and `Transaction.count` read: the statement of each selection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from timewright.core.budgets.budgets import BudgetUsage
from timewright.core.moments import from_micros, to_micros
from timewright.core.run.needs import ANSWER, needs_of_wait
from timewright.core.run.run import Run
from timewright.core.schedule.adjustments import Adjustment
from timewright.core.schedule.pauses import Pause, pause_need
from timewright.core.schedule.schedule import ScheduleState
from timewright.ids import first_id
from timewright.ports.objects import (
    AdjustmentsOf,
    AlertRow,
    AlertRows,
    LastPauses,
    OpenPauses,
    PeriodUsage,
    UsageByPeriod,
)
from timewright.ports.overview import (
    DeferredRuns,
    FinishedRunCounts,
    FinishInstant,
    GroupCounts,
    LimitHolds,
    LiveCounts,
    ManualRuns,
    MinuteCounts,
    QuotaUse,
    RunsByState,
    ScheduleGroups,
    SearchHit,
    StoredRunCounts,
    TextSearch,
)
from timewright.ports.rows import (
    FirstReadyRuns,
    FutureManualRuns,
    FutureManualRunsIn,
    LeasedRuns,
    LiveCount,
    LiveRuns,
    QueuedRuns,
    ReleasableRuns,
    RunsBesideOccurrence,
    RunsOfStep,
    RunsWithArtifacts,
    RunsWithExternalId,
    RunsWithNeeds,
    ScheduleFilter,
    Selection,
    StepRuns,
    WaitingSteps,
)
from timewright.ports.runs import LimitKeys
from timewright.ports.schedules import (
    DueSchedules,
    NextSchedules,
    OrderedSchedules,
    RevisionsOf,
    ScheduleHead,
    SchedulesAtStart,
    SchedulesNamed,
    SchedulesWithIds,
    SetAsideSchedules,
    StoredRevision,
)
from timewright.ports.workflow import (
    DownstreamLinks,
    FollowUp,
    FollowUpsOfRun,
    Link,
    OpenFollowUps,
    UpstreamLinks,
)
from timewright.stores.queries.base import LAST_KEY, escape_like, page_limit
from timewright.stores.queries.leases import key_range
from timewright.stores.queries.overview import COUNTED
from timewright.stores.queries.runs import ID_ROUNDING, SqlRunQueries, since_parameters
from timewright.stores.rows import (
    MICROSECOND,
    Row,
    column_value,
    read_run,
    ready_bucket,
    struct_reader,
    to_instant,
)
from timewright.stores.schedule_rows import read_schedule

R = TypeVar("R")
# Reads the rows of a selection.
Reader = Callable[["SqlSelections", Any], list[Any]]

_STATES = {state.value: state for state in ScheduleState}
# A state that cannot be read counts as parked, because admission parks such a schedule.
_head = struct_reader(ScheduleHead, state=lambda text: _STATES.get(text, ScheduleState.PARKED))
_read_link = struct_reader(Link)
_read_follow_up = struct_reader(FollowUp)
_read_adjustment = struct_reader(Adjustment)
_read_pause = struct_reader(Pause)

FOREVER = 2**62
MAX_TAG_ROWS = 100
_read_delays = msgspec.json.Decoder(dict[int, int]).decode


class SqlSelections(SqlRunQueries):
    """Rows and counts that are described by a value."""

    def select(self, which: Selection[R]) -> list[R]:
        """Return the rows that a selection describes; only `UpstreamLinks` can lock them."""
        return _READERS[type(which)](self, which)

    def count(
        self, which: RunsByState | QuotaUse | ManualRuns | DeferredRuns | LimitHolds | ScheduleFilter
    ) -> dict[str, int]:
        """Count rows in one query; of a filter, the `schedules` of a namespace on all its pages."""
        parameters: dict[str, Any] = {}
        match which:
            case ManualRuns():
                return dict(self.read_selected("count_manual_runs", which, lambda row: (row[0], int(row[1]))))
            case RunsByState():
                parameters = since_parameters(which.failed_since)
            case LimitHolds():
                parameters = key_range(which.limit_key)
            case ScheduleFilter():
                parameters = _order_parameters(which)
        statement, names = _COUNTS[type(which)]
        (row,) = self.read_selected(statement, which, tuple, **parameters)
        return {name: int(count) for name, count in zip(names, row, strict=True)}

    def ordered_schedules(self, which: OrderedSchedules) -> list[ScheduleHead]:
        """A page of schedules in an order."""
        return self.read_selected("ordered_schedules", which.which, _head, **_order_parameters(which.which))

    def next_due_schedules(self, which: DueSchedules) -> list[ScheduleHead]:
        """The schedules that will be due, from the earliest instant on at which one can wait."""
        since = self._executor.cache.probe.since
        return self.read_selected("next_due_schedules", which, _head, since=since)

    def open_follow_ups(self, which: OpenFollowUps) -> list[FollowUp]:
        """The earliest undecided follow-ups of each schedule."""
        wanted = [(downstream, which.limit) for downstream in sorted(set(which.downstreams))]
        rows = self._execute_many("get_open_follow_ups", wanted) if wanted else []
        return [_read_follow_up(row) for row in rows]

    def read_selected(
        self, statement: str, which: Any, decode: Callable[[Row], R], **parameters: Any
    ) -> list[R]:
        """Run the statement of a selection, whose fields are its parameters."""
        return [decode(row) for row in self._query(statement, {**_parameters(which), **parameters})]


def _parameters(which: Any) -> dict[str, Any]:
    """The fields of a selection as parameters; collections are lists."""
    values = {name: getattr(which, name) for name in which.__struct_fields__}
    return {
        name: list(value)
        if isinstance(value, Collection) and not isinstance(value, str)
        else column_value(value)
        for name, value in values.items()
    }


def _order_parameters(which: ScheduleFilter) -> dict[str, str]:
    begins, contains = escape_like(which.name_prefix), escape_like(which.name_contains)
    return {
        "namespace": which.namespace or "",
        "state": which.state.value if which.state else "",
        "group_name": which.group or "",
        "pattern": f"{begins}%{contains}%".lower(),
    }


def _one(statement: str, decode: Callable[[Row], Any]) -> Reader:
    """A selection that is one statement, with the fields as its parameters."""
    return lambda tx, which: tx.read_selected(statement, which, decode)


def _page(statement: str, decode: Callable[[Row], Any]) -> Reader:
    """The same with a checked limit."""
    return lambda tx, which: tx.read_selected(statement, which, decode, limit=page_limit(which.limit))


def _at_start(tx: SqlSelections, which: SchedulesAtStart) -> list[ScheduleHead]:
    return tx.read_selected("find_schedules_at_start", which, _head, pattern='%"run_at_start":true%')


def _set_aside(tx: SqlSelections, which: SetAsideSchedules) -> list[ScheduleHead]:
    # The bucket of a pause is JSON that ends with its id.
    paused = ready_bucket((pause_need(""),), ()).partition(pause_need(""))[0] + pause_need("")
    return tx.read_selected("set_aside_schedules", which, _head, pause=paused)


def _revision(row: Row) -> StoredRevision:
    return StoredRevision(read_schedule(row[0]), from_micros(row[1]), row[2], row[3])


def _releasable(tx: SqlSelections, which: ReleasableRuns) -> list[Run]:
    one = "releasable_runs" if which.schedule_ids is None else "releasable_runs_of_schedules"
    return tx.read_selected(one, which, read_run)


def _leased(tx: SqlSelections, which: LeasedRuns) -> list[Run]:
    if which.lease_id is not None:
        return tx.find_lease(which.lease_id)
    one = "cancel_requested_runs" if which.cancel_requested else "leased_runs"
    return sorted(tx.read_selected(one, which, read_run), key=attrgetter("id"))


def _steps(tx: SqlSelections, which: StepRuns) -> list[Run]:
    return sorted(
        tx.read_selected("child_runs", which, read_run), key=attrgetter("created_at", "dedupe_scope")
    )


def _beside_occurrence(tx: SqlSelections, which: RunsBesideOccurrence) -> list[Run]:
    """Runs by hand may be planned for the instant if their ids are in a range."""
    first = since_parameters(which.planned_at)["from"]
    last = first_id("run", at=which.planned_at + ID_ROUNDING)
    found = tx.read_selected("runs_beside_occurrence", which, read_run, first=first, last=last)
    return sorted(found, key=attrgetter("id"))


def _waiting_steps(tx: SqlSelections, which: WaitingSteps) -> list[Run]:
    """The steps in the buckets of those that wait for an event, or without one for an answer."""
    if which.event is None:
        bucket = ready_bucket((ANSWER,), ())
        ranges = [(bucket, f"{bucket}\n{LAST_KEY}")]
    else:
        needs = (needs_of_wait(answer=also, event=which.event) for also in (False, True))
        ranges = [(bucket, bucket) for bucket in (ready_bucket(one, ()) for one in needs)]
    found = (
        run
        for first, last in ranges
        for run in tx.read_selected("waiting_steps", which, read_run, first=first, last=last)
    )
    return sorted(found, key=attrgetter("id"))


def _upstream_links(tx: SqlSelections, which: UpstreamLinks) -> list[Link]:
    return tx.read_selected("lock_upstream_links" if which.lock else "upstream_links", which, _read_link)


def _pauses(tx: SqlSelections, which: OpenPauses) -> list[Pause]:
    since = to_micros(which.since) if which.since is not None else FOREVER
    return tx.read_selected("open_pauses", which, _read_pause, since=since)


def _alert_row(row: Row) -> AlertRow:
    source, namespace, subject, name, group, number, at, extra = row
    return AlertRow(source, namespace, subject, name, group, int(number), from_micros(int(at)), extra)


def _live_counts(tx: SqlSelections, which: LiveCounts) -> list[LiveCount]:
    oldest = {row[:2]: row[2] for row in tx.read_selected("oldest_ready", which, tuple)}
    return [
        LiveCount(
            namespace=namespace,
            queue=queue,
            kind=kind,
            count=int(count),
            oldest=to_instant(oldest.get((namespace, queue)) if kind == "ready" else None),
        )
        for namespace, queue, kind, count in tx.read_selected("count_live", which, tuple)
    ]


def _search(tx: SqlSelections, which: TextSearch) -> list[SearchHit]:
    escaped = escape_like(which.text.lower())
    hits = tx.read_selected(
        "search_schedules", which, _hit("schedule"), pattern=f"%{escaped}%", begins=f"{escaped}%"
    )
    if len(hits) < which.limit:
        pattern = f'%"tags":[%{escaped}%'
        hits += tx.read_selected("search_tags", which, _hit("tagged"), pattern=pattern, limit=MAX_TAG_ROWS)
    runs = tx.read_selected("search_runs", which, tuple, pattern=f"%{escaped}%", limit=2 * which.limit)
    names = {row[0]: SearchHit("run", row[0], row[2], row[1], row[3]) for row in reversed(runs)}
    return hits + list(reversed(names.values()))[: which.limit]


def _hit(kind: str) -> Callable[[Row], SearchHit]:
    return lambda row: SearchHit(kind, *row)


def _finished_counts(tx: SqlSelections, which: FinishedRunCounts) -> list[MinuteCounts]:
    groups: dict[tuple[str, int, int], list[Row]] = {}
    for row in tx.read_selected("count_finished_runs", which, tuple):
        groups.setdefault(row[:3], []).append(row[3:])
    return [_minute_counts(*key, group) for key, group in groups.items()]


def _minute_counts(namespace: str, planned: int, finished: int, rows: list[Row]) -> MinuteCounts:
    results, delays, longest = Counter[str](), Counter[int](), 0
    for state, bound, count, delay_max in rows:
        results[state] += int(count)
        if bound is not None:
            delays[int(bound)] += int(count)
            longest = max(longest, int(delay_max))
    return MinuteCounts(
        namespace=namespace,
        planned_minute=from_micros(planned),
        finished_minute=from_micros(finished),
        **{name: results[name] for name in COUNTED},
        started=delays.total(),
        delay_max=longest * MICROSECOND,
        delays=dict(sorted(delays.items())),
    )


_READERS: Mapping[Any, Reader] = {
    LiveRuns: _one("live_runs", read_run),
    QueuedRuns: _one("queue_runs", read_run),
    FutureManualRuns: _one("future_manual_runs", read_run),
    FutureManualRunsIn: _one("future_manual_runs_of_namespace", read_run),
    ReleasableRuns: _releasable,
    FirstReadyRuns: lambda tx, _: tx.first_of_each_bucket(),
    LeasedRuns: _leased,
    StepRuns: _steps,
    RunsOfStep: _one("find_runs_by_dedupe_scope", read_run),
    RunsBesideOccurrence: _beside_occurrence,
    WaitingSteps: _waiting_steps,
    RunsWithNeeds: _one("runs_with_needs", read_run),
    RunsWithExternalId: _one("runs_by_external_id", read_run),
    RunsWithArtifacts: _one("runs_with_artifacts", read_run),
    SchedulesNamed: _one("schedules_named", _head),
    SchedulesWithIds: lambda tx, which: (
        tx.read_selected("schedules_with_ids", which, _head) if which.ids else []
    ),
    SchedulesAtStart: _at_start,
    NextSchedules: _one("next_schedules", _head),
    DueSchedules: SqlSelections.next_due_schedules,
    OrderedSchedules: SqlSelections.ordered_schedules,
    SetAsideSchedules: _set_aside,
    RevisionsOf: _page("list_revisions", _revision),
    OpenFollowUps: SqlSelections.open_follow_ups,
    UpstreamLinks: _upstream_links,
    DownstreamLinks: _one("downstream_links", _read_link),
    FollowUpsOfRun: _one("find_follow_ups", _read_follow_up),
    AdjustmentsOf: _page("list_adjustments", _read_adjustment),
    LastPauses: _one("last_pauses", _read_adjustment),
    OpenPauses: _pauses,
    AlertRows: _one("alert_rows", _alert_row),
    UsageByPeriod: _page(
        "list_accounts", lambda row: PeriodUsage(from_micros(row[0]), BudgetUsage(row[1], row[2]))
    ),
    LimitKeys: lambda tx, which: tx.read_selected(
        "limit_keys", which, lambda row: row[0], **key_range(which.limit_key)
    ),
    LiveCounts: _live_counts,
    ScheduleGroups: _one("list_groups", struct_reader(GroupCounts)),
    TextSearch: _search,
    FinishedRunCounts: _finished_counts,
    StoredRunCounts: _one("read_run_counts", struct_reader(MinuteCounts, delays=_read_delays)),
    FinishInstant: _one("nth_finished_run", lambda row: from_micros(row[0])),
}

# The statements that return one row of counts, and the names of its columns.
_COUNTS: Mapping[Any, tuple[str, tuple[str, ...]]] = {
    RunsByState: ("count_runs_by_state", ("leased", "ready", "failed", "parked")),
    QuotaUse: ("count_namespace", ("schedules", "runs")),
    DeferredRuns: ("count_deferred_runs", ("runs",)),
    LimitHolds: ("count_holds_of_limit", ("leases",)),
    ScheduleFilter: ("count_schedules", ("schedules",)),
}
