"""Invariants of limits: live leases never exceed a queue's or a named limit's capacity."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

from timewright.verification.checker import Coverage, Violations, invariant
from timewright.verification.oracle.times import format_instant, parse_duration
from timewright.verification.rows import RevisionRow, RunRow
from timewright.verification.view import HistoryView, parse_json_object

DEFAULT_CAPACITY = 1
NO_LIMIT = 100_000
KEY_MARK = "#"
MAX_PLAIN_KEY = 100
_PLAIN_PATH = re.compile(r"(payload|schedule|queue|namespace)(\.[a-z_]\w*)*", re.ASCII)


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


@invariant("I60", "rates hold", unit="starts")
def starts_stay_within_rates(view: HistoryView, coverage: Coverage) -> Violations:
    """In every span of time a limit with a rate, and each value of its key, has at most as many starts.

    A rate of `count` per `period` with `burst` allows, in any span, one start per `period / count` of it and
    `burst` more. Starts before the rate was last changed are left out.
    """
    rates = _rates_in_force(view)
    if not rates:
        coverage.not_checked_because = "not checked here: needs a limit with a rate"
        return
    starts: defaultdict[str, list[tuple[int, RunRow]]] = defaultdict(list)
    for run in view.history.runs:
        for key in set(run.limit_keys):
            rate = rates.get(key.partition(KEY_MARK)[0])
            if rate is not None and not run.dedupe_scope.startswith("import:"):
                starts[key] += [
                    (began, run) for _, began, _, _ in view.leases(run) if began > rate.since + view.skew
                ]
    for key, found in starts.items():
        rate = rates[key.partition(KEY_MARK)[0]]
        due_at = 0
        for began, run in sorted(found, key=lambda one: (one[0], one[1].id)):
            coverage.count += 1
            if due_at - began > (rate.burst - 1) * rate.interval:
                message = f"{key}: a start at {format_instant(began)} is over the rate {rate.text}"
                yield message, (run,)
            due_at = max(due_at, began) + rate.interval


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
        if kind == "limit":
            name = name.partition(KEY_MARK)[0]
        self._skew = view.skew
        self._changes = (
            _own_limit_changes(view.revisions.get(name, ()))
            if kind == "schedule"
            else [
                _CapacityChange(
                    line.at, _parse_capacity(line.before, kind), _parse_capacity(line.after, kind)
                )
                for line in view.audit.get(name, ())
                if line.action in (f"{kind}.put", f"{kind}.delete") and line.namespace == namespace
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


@invariant("I61", "limit keys are the run's own", unit="keyed runs")
def keys_of_limits_belong_to_their_runs(view: HistoryView, coverage: Coverage) -> Violations:
    """A run under a limit with a key has the value that its own payload, schedule or queue gives.

    Checked for keys that are a plain path, and for limits that were not changed after the run was made.
    """
    paths = _key_paths(view)
    if not paths:
        coverage.not_checked_because = "not checked here: needs a limit with a key"
        return
    for run in view.history.runs:
        for key in run.limit_keys:
            limit, mark, value = key.partition(KEY_MARK)
            since, path = paths.get(limit, (0, ()))
            if not mark or not path or run.created_at <= since + view.skew:
                continue
            found = _value_at(path, _key_scope(view, run))
            if found is None or not isinstance(found, str | int) or len(str(found)) > MAX_PLAIN_KEY:
                continue
            coverage.count += 1
            if value != (str(found).lower() if isinstance(found, bool) else str(found)):
                yield f"run {run.id} waits under {key}, but its {'.'.join(path)} is {found}", (run,)


def _key_paths(view: HistoryView) -> dict[str, tuple[int, tuple[str, ...]]]:
    """The keys of limits that are a plain path, with the instant of the last change of the limit."""
    found = {}
    for row in view.history.objects:
        path = str(row.body.get("key", "")) if row.kind == "limit" else ""
        if _PLAIN_PATH.fullmatch(path):
            changes = _changes_of_limit(view, row.namespace, row.name)
            found[f"limit:{row.namespace}/{row.name}"] = (max(changes, default=0), tuple(path.split(".")))
    return found


def _key_scope(view: HistoryView, run: RunRow) -> dict[str, object]:
    """What a key is taken from, as far as the rows tell; nothing for a step, whose input is resolved."""
    if run.parent:
        return {}
    revisions = (one for one in view.revisions.get(run.schedule_id, ()) if one.revision == run.revision)
    body: Mapping[str, Any] = next((one.body for one in revisions), {})
    target = body.get("target", {})
    given = next((target[name] for name in ("args", "body", "payload", "input") if target.get(name)), None)
    return {
        "payload": given if run.payload is None else run.payload,
        "schedule": {"name": body.get("name")},
        "queue": run.queue or None,
        "namespace": run.namespace,
    }


def _value_at(path: tuple[str, ...], scope: object) -> object:
    for name in path:
        scope = scope.get(name) if isinstance(scope, Mapping) else None
    return scope


def _changes_of_limit(view: HistoryView, namespace: str, name: str) -> list[int]:
    return [
        line.at
        for line in view.audit.get(name, ())
        if line.action in ("limit.put", "limit.delete") and line.namespace == namespace
    ]


class _RateInForce(NamedTuple):
    """A rate: microseconds between starts, how many may come at once, and since when it is in force."""

    interval: int
    burst: int
    since: int
    text: str


_RATE = re.compile(
    r"(\d+)\W*(?:/|per)\W*(\d*)\W*([a-z])[a-z]*(?:\W+burst\W+(\d+))?", re.ASCII | re.IGNORECASE
)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def _rates_in_force(view: HistoryView) -> dict[str, _RateInForce]:
    """The rates of limits by limit key, with the instant of their last change."""
    rates = {}
    for row in view.history.objects:
        if row.kind == "limit" and row.body.get("rate"):
            text = str(row.body["rate"])
            found = _RATE.fullmatch(text.strip().lower())
            if found is None:
                continue
            period = int(found[2] or 1) * _UNITS[found[3]] * 1_000_000
            changes = _changes_of_limit(view, row.namespace, row.name)
            interval = -(-period // int(found[1]))
            key = f"limit:{row.namespace}/{row.name}"
            rates[key] = _RateInForce(interval, int(found[4] or 1), max(changes, default=0), text)
    return rates


class _CapacityChange(NamedTuple):
    """When the capacity of a limit changed, and from what to what."""

    at: int
    before: int
    after: int


def _parse_capacity(text: str, kind: str) -> int:
    body = parse_json_object(text)
    if not body:
        return DEFAULT_CAPACITY
    # A limit may have only a rate or shares.
    return int(body.get("max_running") or NO_LIMIT if kind == "limit" else body["max_running"])


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
