"""Invariants of limits: live leases never exceed a queue's or a named limit's capacity."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from timewright.verification.checker import Coverage, Violations, invariant
from timewright.verification.oracle.times import format_instant, parse_duration
from timewright.verification.rows import RevisionRow, RunRow
from timewright.verification.view import HistoryView, parse_json_object

DEFAULT_CAPACITY = 1
NO_LIMIT = 100_000


@invariant("I14", "limits hold", unit="grants")
def leases_stay_within_limits(view: HistoryView, coverage: Coverage) -> Violations:
    """At every grant the live leases under a limit, the new one included, fit its capacity at that time."""
    leases: defaultdict[str, list[tuple[int, int, RunRow]]] = defaultdict(list)
    for run in view.history.runs:
        if run.limit_keys and not run.dedupe_scope.startswith("import:"):
            for _, began, ended in view.lease_periods(run):
                for key in set(run.limit_keys):
                    leases[key].append((began, 2**62 if ended is None else ended, run))
    for key, granted in leases.items():
        capacities = _CapacityHistory(view, key)
        live: list[tuple[int, str, RunRow]] = []
        # While the clock is frozen, a lease that has ended may have begun at the same instant as the next.
        for began, end, run in sorted(granted, key=lambda one: (*one[:2], one[2].id)):
            coverage.count += 1
            while live and live[0][0] <= began:
                heappop(live)
            heappush(live, (end, run.id, run))
            capacity = capacities.at(began)
            if len(live) > capacity:
                message = f"{key}: {len(live)} live leases at {format_instant(began)}, capacity {capacity}"
                yield message, tuple(one for _, _, one in live)
    yield from _check_recorded_levels(view, coverage)


@invariant("I15", "limit holds match leases", unit="holds")
def limit_holds_match_live_leases(view: HistoryView, coverage: Coverage) -> Violations:
    """A limit counts a run with a fence exactly while the run is leased with that fence."""
    held = {(hold.limit_key, hold.run_id): hold for hold in view.history.limit_holds}
    for hold in view.history.limit_holds:
        coverage.count += 1
        run = view.runs.get(hold.run_id)
        fits = run is not None and run.state == "leased" and run.fence == hold.fence
        if run is None or not fits or hold.limit_key not in run.limit_keys:
            message = (
                f"{hold.limit_key} holds {hold.run_id} with fence {hold.fence}, which is not a live lease"
            )
            yield message, (hold, *((run,) if run is not None else ()))
    for run in view.history.runs:
        if run.state == "leased":
            for key in run.limit_keys:
                if (key, run.id) not in held:
                    yield f"run {run.id} is leased, but {key} does not hold it", (run,)


@invariant("I28", "ageing prevents starvation", unit="grants")
def ageing_prevents_starvation(view: HistoryView, coverage: Coverage) -> Violations:
    """In a queue with ageing, the longest waiting run is not passed over by a less urgent one."""
    ageing = {
        (row.namespace, row.name): parse_duration(row.body["ageing"])
        for row in view.history.objects
        if row.kind == "queue" and row.body.get("ageing")
    }
    if not ageing:
        coverage.not_checked_because = "not checked here: needs a queue with ageing"
        return
    for pair, step in ageing.items():
        runs = [r for r in view.history.runs if (r.namespace, r.queue) == pair and not view.resets(r)]
        yield from _passed_over(view, coverage, runs, step)


class _CapacityHistory:
    """The capacity of a limit over time, read from the audit entries that changed it."""

    def __init__(self, view: HistoryView, key: str) -> None:
        kind, _, path = key.partition(":")
        namespace, _, name = path.partition("/")
        self._skew = view.skew
        field = "capacity" if kind == "limit" else "max_concurrent"
        self._changes = (
            _own_limit_changes(view.revisions.get(name, ()))
            if kind == "schedule"
            else [
                _CapacityChange(
                    line.at, _parse_capacity(line.before, field), _parse_capacity(line.after, field)
                )
                for line in view.audit.get(name, ())
                if line.action == f"{kind}.put" and line.namespace == namespace
            ]
        )
        self._now = next(
            (row.capacity for row in view.history.limits if row.limit_key == key), DEFAULT_CAPACITY
        )

    def at(self, moment: int) -> int:
        """The capacity at an instant; where it changed within the skew, the larger one."""
        near = [one for one in self._changes if abs(one.at - moment) <= self._skew]
        candidates = [one.after for one in near] + [one.before for one in near]
        return max([self._in_force(moment), *candidates])

    def _in_force(self, moment: int) -> int:
        passed = [one for one in self._changes if one.at <= moment]
        if passed:
            return passed[-1].after
        return self._changes[0].before if self._changes else self._now


class _CapacityChange(NamedTuple):
    """When the capacity of a limit changed, and from what to what."""

    at: int
    before: int
    after: int


def _parse_capacity(text: str, field: str) -> int:
    return int((parse_json_object(text) or {}).get(field, DEFAULT_CAPACITY))


def _own_limit_changes(revisions: Sequence[RevisionRow]) -> list[_CapacityChange]:
    """The capacity of a schedule's own limit, `max_running`, in each of its revisions."""
    sizes = [int(one.body.get("max_running") or NO_LIMIT) for one in revisions]
    return [
        _CapacityChange(one.at, before, after)
        for one, before, after in zip(revisions, [*sizes[:1], *sizes], sizes, strict=False)
    ]


def _check_recorded_levels(view: HistoryView, coverage: Coverage) -> Violations:
    for event in view.events.get("held", ()):
        coverage.count += 1
        # After a limit was lowered, more leases than its capacity may be live; the simulation marks those.
        if event.value > event.limit and not event.detail:
            yield f"{event.subject}: {event.value} live leases, capacity {event.limit}", (event,)


def _passed_over(view: HistoryView, coverage: Coverage, runs: list[RunRow], step: int) -> Violations:
    firsts = {run.id: view.first_lease(run) for run in runs}
    arrivals = sorted(runs, key=lambda run: run.created_at)
    waiting: list[tuple[int, str, RunRow]] = []
    next_arrival = 0
    granted = [(began, run) for run in runs if (began := firsts[run.id]) is not None]
    for began, run in sorted(granted, key=lambda one: (one[0], one[1].id)):
        coverage.count += 1
        while next_arrival < len(arrivals) and arrivals[next_arrival].created_at < began - view.skew:
            heappush(
                waiting,
                (arrivals[next_arrival].planned_at, arrivals[next_arrival].id, arrivals[next_arrival]),
            )
            next_arrival += 1
        while waiting and _is_gone(waiting[0][2], firsts, began + view.skew):
            heappop(waiting)
        if waiting:
            oldest = waiting[0][2]
            same = (
                oldest.limit_keys == run.limit_keys
                and oldest.handoff == run.handoff
                and oldest.fire_at <= began
            )
            if same and _urgency(oldest, began, step) + 1 < _urgency(run, began, step):
                yield f"run {oldest.id} waited longest, and {run.id} was leased before it", (oldest, run)


def _is_gone(run: RunRow, firsts: dict[str, int | None], moment: int) -> bool:
    leased = firsts[run.id]
    return (leased is not None and leased <= moment) or (
        run.state not in ("ready", "leased") and leased is None
    )


def _urgency(run: RunRow, moment: int, step: int) -> int:
    return run.priority - max(moment - run.planned_at, 0) // step
