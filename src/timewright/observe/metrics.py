"""Facts become numbers: counters and histograms for Prometheus, in a registry of their own."""

from __future__ import annotations

import platform
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

from timewright.core import facts as told
from timewright.core.decision import Source
from timewright.core.facts import Fact
from timewright.core.run import Reason
from timewright.observe.names import BUILD, BY_SCHEDULE, COUNTED, PREFIX, Metric

MOST_PAIRS = 200
MOST_UNDER_WAY = 100_000
KEPT_SECONDS = 1.0
OTHER = "other"
SECONDS = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
QUICK = (0.0005, 0.002, 0.01, 0.05, 0.25, 1, 5)
_QUICK = frozenset({"store_seconds", "tick_seconds"})

# Planned at the instant someone asked, or long ago: neither says how punctual we are.
_NOT_ON_TIME = frozenset({Source.MANUAL.value, Source.BACKFILL.value, Source.RETRY.value})


class Few:
    """Lets the first so many values through, and calls every further one `other`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._seen: set[tuple[str, ...]] = set()

    def __call__(self, *values: str) -> tuple[str, ...]:
        if values not in self._seen:
            if len(self._seen) >= self._most:
                return (OTHER,) * len(values)
            self._seen.add(values)
        return values


class Metrics:
    """An observer that counts; what it gives is text for a scraper."""

    def __init__(self, *, version: str, store: str, schedules: int = 0) -> None:
        self.registry = CollectorRegistry()
        self._pairs = Few(MOST_PAIRS)
        self._spaces = Few(MOST_PAIRS)
        self._schedules = Few(schedules) if schedules else None
        self._begun: OrderedDict[tuple[str, int], datetime] = OrderedDict()
        self._statements: dict[str, Callable[[float], None]] = {}
        self._rendering = threading.Lock()
        self._text: tuple[float, str] | None = None
        self._noting: dict[type[Fact], Callable[[Any], None]] = _noting(self)
        Info(PREFIX + BUILD.name, BUILD.says, registry=self.registry).info(
            {"version": version, "python": platform.python_version(), "store": store}
        )
        wanted = {**COUNTED, **BY_SCHEDULE} if schedules else COUNTED
        self._made = {name: _made(metric, self.registry) for name, metric in wanted.items()}

    def note(self, fact: Fact) -> None:
        """Count one fact."""
        noting = self._noting.get(type(fact))
        if noting is not None:
            noting(fact)

    def observe_statement(self, statement: str, seconds: float) -> None:
        """Measure one verb of the store."""
        measure = self._statements.get(statement)
        if measure is None:
            measure = self._statements[statement] = self.of("store_seconds").labels(statement).observe
        measure(seconds)

    def text(self, *, moment: float) -> str:
        """Everything, as Prometheus reads it; asked again within a second of the steady clock, the same."""
        with self._rendering:
            if self._text is None or not 0 <= moment - self._text[0] < KEPT_SECONDS:
                self._text = (moment, _without_births(generate_latest(self.registry).decode()))
            return self._text[1]

    def of(self, name: str) -> Any:
        """The metric of that name."""
        return self._made[name]

    def admitted(self, fact: told.RunAdmitted) -> None:
        """An occurrence became a run, so many seconds from its instant."""
        self.of("runs_emitted").labels(*self._pairs(fact.namespace, fact.queue)).inc()
        if fact.source not in _NOT_ON_TIME:
            self.of("drift_seconds").observe(abs((fact.at - fact.planned_at).total_seconds()))

    def skipped(self, fact: told.RunSkipped | told.OccurrencesDropped) -> None:
        """One occurrence, or many, did not become work."""
        count = fact.count if isinstance(fact, told.OccurrencesDropped) else 1
        (namespace,) = self._spaces(fact.namespace)
        self.of("occurrences_skipped").labels(namespace, _first_word(fact.reason)).inc(count)
        if fact.reason == Reason.OVERLAP:
            self.of("runs_skipped_overlap").labels(namespace).inc(count)

    def deferred(self, fact: told.RunDeferred) -> None:
        """A run waits for a budget or a provider."""
        (namespace,) = self._spaces(fact.namespace)
        self.of("runs_deferred").labels(namespace, _first_word(fact.reason)).inc()

    def started(self, fact: told.AttemptStarted) -> None:
        """The work of a run began; only a first attempt tells of a delay."""
        self._begun[fact.run_id, fact.fence] = fact.at
        if len(self._begun) > MOST_UNDER_WAY:
            self._begun.popitem(last=False)
        if fact.fence == 1 and fact.source not in _NOT_ON_TIME:
            delay = max((fact.at - fact.planned_at).total_seconds(), 0.0)
            self.of("start_delay_seconds").labels(*self._pairs(fact.namespace, fact.queue)).observe(delay)

    def succeeded(self, fact: told.RunSucceeded) -> None:
        """A run did its work."""
        self._ended(fact, "succeeded")
        if self._schedules is not None and fact.schedule_id:
            labels = self._schedules(fact.namespace, fact.schedule_id)
            self.of("schedule_last_success_timestamp_seconds").labels(*labels).set(fact.at.timestamp())

    def failed(self, fact: told.RunFailed | told.RunParked) -> None:
        """A run used its attempts up, or waits for a person."""
        self._ended(fact, "failed" if isinstance(fact, told.RunFailed) else "parked")
        self.of("runs_failed_launch").labels(*self._pairs(fact.namespace, fact.queue)).inc()

    def cancelled(self, fact: told.RunCancelled) -> None:
        """A run was stopped."""
        self._count(fact, "cancelled")

    def will_retry(self, fact: told.RunWillRetry) -> None:
        """An attempt failed and another follows."""
        self._took(fact)
        self.of("retries").labels(*self._pairs(fact.namespace, fact.queue)).inc()

    def released(self, fact: told.RunReleased) -> None:
        """A holder gave a run back."""
        self._took(fact)

    def lost(self, fact: told.LeaseLost) -> None:
        """A lease ended without an answer."""
        self._begun.pop((fact.run_id, fact.fence), None)
        self.of("leases_lost").labels(*self._spaces(fact.namespace)).inc()

    def stopped(self, fact: told.ScheduleParked | told.ScheduleFinished) -> None:
        """A schedule stopped by itself."""
        how = "parked" if isinstance(fact, told.ScheduleParked) else "finished"
        self.of("schedules_stopped").labels(*self._spaces(fact.namespace), how).inc()

    def _ended(self, fact: told.RunSucceeded | told.RunFailed | told.RunParked, outcome: str) -> None:
        self._took(fact)
        self._count(fact, outcome)

    def _count(self, fact: Any, outcome: str) -> None:
        self.of("runs").labels(*self._pairs(fact.namespace, fact.queue), outcome).inc()
        if self._schedules is not None and fact.schedule_id:
            labels = self._schedules(fact.namespace, fact.schedule_id)
            self.of("schedule_runs").labels(*labels, outcome).inc()

    def _took(self, fact: Any) -> None:
        began = self._begun.pop((fact.run_id, fact.fence), None)
        if began is not None:
            seconds = max((fact.at - began).total_seconds(), 0.0)
            self.of("run_seconds").labels(*self._pairs(fact.namespace, fact.queue)).observe(seconds)


def _made(metric: Metric, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    common: dict[str, Any] = {
        "name": PREFIX + metric.name,
        "documentation": metric.says,
        "labelnames": metric.labels,
        "registry": registry,
    }
    if metric.kind == "histogram":
        return Histogram(**common, buckets=QUICK if metric.name in _QUICK else SECONDS)
    return (Counter if metric.kind == "counter" else Gauge)(**common)


def _noting(metrics: Metrics) -> dict[type[Fact], Callable[[Any], None]]:
    return {
        told.RunAdmitted: metrics.admitted,
        told.RunSkipped: metrics.skipped,
        told.OccurrencesDropped: metrics.skipped,
        told.RunDeferred: metrics.deferred,
        told.AttemptStarted: metrics.started,
        told.RunSucceeded: metrics.succeeded,
        told.RunFailed: metrics.failed,
        told.RunParked: metrics.failed,
        told.RunCancelled: metrics.cancelled,
        told.RunWillRetry: metrics.will_retry,
        told.RunReleased: metrics.released,
        told.LeaseLost: metrics.lost,
        told.AnswerStale: lambda _: metrics.of("answers_stale").inc(),
        told.ScheduleParked: metrics.stopped,
        told.ScheduleFinished: metrics.stopped,
        told.FactsLost: lambda fact: metrics.of("facts_lost").inc(fact.count),
        told.ClockStepped: lambda fact: metrics.of("clock_steps").labels(fact.treated_as).inc(),
        told.TickFinished: lambda fact: metrics.of("tick_seconds").observe(fact.seconds),
    }


def _without_births(text: str) -> str:
    """The text without when each series began: nobody here asks, and it would be a third of all lines."""
    return "".join(line for line in text.splitlines(keepends=True) if not _BORN.match(line))


def _first_word(reason: str) -> str:
    """A reason as a label: one of those we know, whatever a person wrote behind it."""
    word = reason.partition(":")[0]
    return word if word in _REASONS else OTHER


_BORN = re.compile(r"(# (HELP|TYPE) )?timewright_[a-z_]+_created\b")
_REASONS: Iterable[str] = frozenset(str(reason) for reason in Reason)
