"""Every metric once, and facts counted as Prometheus counters and histograms, in a private registry."""

from __future__ import annotations

import platform
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

from timewright.core import facts
from timewright.core.facts import Fact
from timewright.core.run.run import Reason
from timewright.core.schedule.decision import Source
from timewright.ports.store import ScheduleNames

MAX_LABEL_SETS = 200
MAX_OPEN_ATTEMPTS = 100_000
TEXT_CACHE_S = 1.0
OTHER = "other"
DURATION_BUCKETS_S = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
SHORT_BUCKETS_S = (0.0005, 0.002, 0.01, 0.05, 0.25, 1, 5)
_QUICK = frozenset({"store_seconds", "tick_seconds"})

# Manual runs and backfills are not planned ahead, so their delay says nothing about punctuality.
_UNPLANNED_SOURCES = frozenset({Source.MANUAL.value, Source.BACKFILL.value, Source.RETRY.value})

MetricKind = Literal["counter", "gauge", "histogram", "info"]

PREFIX = "timewright_"
QUEUE_LABELS = ("namespace", "queue")


class LabelLimiter:
    """Passes at most `limit` distinct label sets, and replaces further ones by `other`."""

    def __init__(self, limit: int) -> None:
        self._most = limit
        self._seen: set[tuple[str, ...]] = set()

    def __call__(self, *values: str) -> tuple[str, ...]:
        if values not in self._seen:
            if len(self._seen) >= self._most:
                return (OTHER,) * len(values)
            self._seen.add(values)
        return values


class Metrics:
    """An observer that counts facts and renders them for a scraper."""

    def __init__(
        self, *, version: str, store: str, schedules: int = 0, names: ScheduleNames | None = None
    ) -> None:
        self.registry = CollectorRegistry()
        self._pairs = LabelLimiter(MAX_LABEL_SETS)
        self._namespaces = LabelLimiter(MAX_LABEL_SETS)
        self._schedules = LabelLimiter(schedules) if schedules else None
        self._names = names
        self._started_at: OrderedDict[tuple[str, int], datetime] = OrderedDict()
        self._statements: dict[str, Callable[[float], None]] = {}
        self._rendering = threading.Lock()
        self._text: tuple[float, str] | None = None
        self._handlers: dict[type[Fact], Callable[[Any], None]] = _handlers(self)
        Info(PREFIX + BUILD_INFO.name, BUILD_INFO.description, registry=self.registry).info(
            {"version": version, "python": platform.python_version(), "store": store}
        )
        wanted = {**EVENT_METRICS, **SCHEDULE_METRICS} if schedules else EVENT_METRICS
        self._metrics = {name: _build_metric(metric, self.registry) for name, metric in wanted.items()}
        for treated_as in ("outage", "hold", "pause"):
            # Now, because the first use reads the clock, and Python cannot read one that shows the year 2999.
            self.get("clock_steps").labels(treated_as)

    def notify(self, fact: Fact) -> None:
        """Count one fact."""
        handler = self._handlers.get(type(fact))
        if handler is not None:
            handler(fact)

    def observe_statement(self, statement: str, seconds: float) -> None:
        """Record the duration of one store query."""
        measure = self._statements.get(statement)
        if measure is None:
            try:
                measure = self._statements[statement] = self.get("store_seconds").labels(statement).observe
            except OverflowError:
                # The first use reads the clock. One that shows the year 2999 must not fail the query.
                return
        measure(seconds)

    def text(self, *, monotonic_now: float) -> str:
        """Render all metrics; the text is reused for one second of the monotonic clock."""
        with self._rendering:
            if self._text is None or not 0 <= monotonic_now - self._text[0] < TEXT_CACHE_S:
                self._text = (monotonic_now, _without_created_series(generate_latest(self.registry).decode()))
            return self._text[1]

    def get(self, name: str) -> Any:
        """The metric of that name."""
        return self._metrics[name]

    def on_admitted(self, fact: facts.RunAdmitted) -> None:
        """Count an admitted run and its delay."""
        self.get("runs_emitted").labels(*self._pairs(fact.namespace, fact.queue)).inc()
        if fact.source not in _UNPLANNED_SOURCES:
            self.get("drift_seconds").observe(abs((fact.at - fact.planned_at).total_seconds()))

    def on_skipped(self, fact: facts.RunSkipped | facts.OccurrencesDropped) -> None:
        """Count skipped occurrences."""
        count = fact.count if isinstance(fact, facts.OccurrencesDropped) else 1
        (namespace,) = self._namespaces(fact.namespace)
        self.get("occurrences_skipped").labels(namespace, _reason_label(fact.reason)).inc(count)
        if fact.reason == Reason.OVERLAP:
            self.get("runs_skipped_overlap").labels(namespace).inc(count)

    def on_deferred(self, fact: facts.RunDeferred) -> None:
        """Count a run deferred by a budget or a provider."""
        (namespace,) = self._namespaces(fact.namespace)
        self.get("runs_deferred").labels(namespace, _reason_label(fact.reason)).inc()

    def on_started(self, fact: facts.AttemptStarted) -> None:
        """Record the start of an attempt; only first attempts count for the start delay."""
        self._started_at[fact.run_id, fact.fence] = fact.at
        if len(self._started_at) > MAX_OPEN_ATTEMPTS:
            self._started_at.popitem(last=False)
        if fact.fence == 1 and fact.source not in _UNPLANNED_SOURCES:
            delay = max((fact.at - fact.planned_at).total_seconds(), 0.0)
            self.get("start_delay_seconds").labels(*self._pairs(fact.namespace, fact.queue)).observe(delay)

    def on_succeeded(self, fact: facts.RunSucceeded) -> None:
        """Count a success."""
        self._count_end(fact, "succeeded")
        if (labels := self._schedule_labels(fact)) is not None:
            self.get("schedule_last_success_timestamp_seconds").labels(*labels).set(fact.at.timestamp())

    def on_failed(self, fact: facts.RunFailed | facts.RunParked) -> None:
        """Count a run that failed or was parked."""
        self._count_end(fact, "failed" if isinstance(fact, facts.RunFailed) else "parked")
        self.get("runs_failed_launch").labels(*self._pairs(fact.namespace, fact.queue)).inc()

    def on_cancelled(self, fact: facts.RunCancelled) -> None:
        """Count a cancelled run."""
        self._count(fact, "cancelled")

    def on_will_retry(self, fact: facts.RunWillRetry) -> None:
        """Count a failed attempt that is retried."""
        self._record_duration(fact)
        self.get("retries").labels(*self._pairs(fact.namespace, fact.queue)).inc()

    def on_released(self, fact: facts.RunReleased) -> None:
        """Record the duration of a released attempt."""
        self._record_duration(fact)

    def on_lease_lost(self, fact: facts.LeaseLost) -> None:
        """Count a lease that expired."""
        self._started_at.pop((fact.run_id, fact.fence), None)
        self.get("leases_lost").labels(*self._namespaces(fact.namespace)).inc()

    def on_schedule_stopped(self, fact: facts.ScheduleParked | facts.ScheduleFinished) -> None:
        """Count a schedule that parked or finished."""
        how = "parked" if isinstance(fact, facts.ScheduleParked) else "finished"
        self.get("schedules_stopped").labels(*self._namespaces(fact.namespace), how).inc()

    def _count_end(self, fact: facts.RunSucceeded | facts.RunFailed | facts.RunParked, outcome: str) -> None:
        self._record_duration(fact)
        self._count(fact, outcome)

    def _count(self, fact: Any, outcome: str) -> None:
        self.get("runs").labels(*self._pairs(fact.namespace, fact.queue), outcome).inc()
        if (labels := self._schedule_labels(fact)) is not None:
            self.get("schedule_runs").labels(*labels, outcome).inc()

    def _schedule_labels(self, fact: Any) -> tuple[str, ...] | None:
        """Namespace and name of the schedule, if schedules have their own metrics."""
        if self._schedules is None or not fact.schedule_id:
            return None
        name = self._names(fact.schedule_id) if self._names is not None else ""
        return self._schedules(fact.namespace, name or fact.schedule_id)

    def _record_duration(self, fact: Any) -> None:
        began = self._started_at.pop((fact.run_id, fact.fence), None)
        if began is not None:
            seconds = max((fact.at - began).total_seconds(), 0.0)
            self.get("run_seconds").labels(*self._pairs(fact.namespace, fact.queue)).observe(seconds)


def _build_metric(metric: MetricDefinition, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    common: dict[str, Any] = {
        "name": PREFIX + metric.name,
        "documentation": metric.description,
        "labelnames": metric.labels,
        "registry": registry,
    }
    if metric.kind == "histogram":
        return Histogram(**common, buckets=SHORT_BUCKETS_S if metric.name in _QUICK else DURATION_BUCKETS_S)
    return (Counter if metric.kind == "counter" else Gauge)(**common)


def _handlers(metrics: Metrics) -> dict[type[Fact], Callable[[Any], None]]:
    return {
        facts.RunAdmitted: metrics.on_admitted,
        facts.RunSkipped: metrics.on_skipped,
        facts.OccurrencesDropped: metrics.on_skipped,
        facts.RunDeferred: metrics.on_deferred,
        facts.AttemptStarted: metrics.on_started,
        facts.RunSucceeded: metrics.on_succeeded,
        facts.RunFailed: metrics.on_failed,
        facts.RunParked: metrics.on_failed,
        facts.RunCancelled: metrics.on_cancelled,
        facts.RunWillRetry: metrics.on_will_retry,
        facts.RunReleased: metrics.on_released,
        facts.LeaseLost: metrics.on_lease_lost,
        facts.AnswerStale: lambda _: metrics.get("answers_stale").inc(),
        facts.ScheduleParked: metrics.on_schedule_stopped,
        facts.ScheduleFinished: metrics.on_schedule_stopped,
        facts.FactsLost: lambda fact: metrics.get("facts_lost").inc(fact.count),
        facts.ClockStepped: lambda fact: metrics.get("clock_steps").labels(fact.treated_as).inc(),
        facts.TickFinished: lambda fact: metrics.get("tick_seconds").observe(fact.seconds),
    }


def _without_created_series(text: str) -> str:
    """Remove the `_created` series: they are a third of all lines, and no dashboard here uses them."""
    return "".join(line for line in text.splitlines(keepends=True) if not _CREATED_SERIES.match(line))


def _reason_label(reason: str) -> str:
    """The reason as a label: its first word if it is a known reason, else `other`."""
    word = reason.partition(":")[0]
    return word if word in _REASONS else OTHER


_CREATED_SERIES = re.compile(r"(# (HELP|TYPE) )?timewright_[a-z_]+_created\b")
_REASONS: Iterable[str] = frozenset(str(reason) for reason in Reason)


class MetricDefinition(Struct, frozen=True):
    """One metric; Prometheus adds `_total` to the names of counters."""

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    description: str

    @property
    def exposed_name(self) -> str:
        """The name as Prometheus shows it."""
        return PREFIX + self.name + {"counter": "_total", "info": "_info"}.get(self.kind, "")


BUILD_INFO = MetricDefinition("build", "info", ("version", "python", "store"), "Versions and store kind.")

# Counted from facts, by this instance, since its start.
EVENT_METRICS: dict[str, MetricDefinition] = {
    metric.name: metric
    for metric in (
        MetricDefinition(
            "runs_emitted", "counter", QUEUE_LABELS, "Occurrences that became runs, and queue entries."
        ),
        MetricDefinition("runs", "counter", (*QUEUE_LABELS, "outcome"), "Finished runs, by outcome."),
        MetricDefinition(
            "runs_skipped_overlap", "counter", ("namespace",), "Occurrences skipped by overlap."
        ),
        MetricDefinition("runs_failed_launch", "counter", QUEUE_LABELS, "Runs that failed or were parked."),
        MetricDefinition("retries", "counter", QUEUE_LABELS, "Failed attempts that are retried."),
        MetricDefinition(
            "occurrences_skipped",
            "counter",
            ("namespace", "reason"),
            "Occurrences that did not run, by reason; those counted in a gap row included.",
        ),
        MetricDefinition(
            "runs_deferred",
            "counter",
            ("namespace", "reason"),
            "Times that a run was deferred by a budget or a closed provider.",
        ),
        MetricDefinition("leases_lost", "counter", ("namespace",), "Leases that expired without a result."),
        MetricDefinition("answers_stale", "counter", (), "Results from lost leases; they were ignored."),
        MetricDefinition(
            "schedules_stopped", "counter", ("namespace", "how"), "Schedules that parked or finished."
        ),
        MetricDefinition("facts_lost", "counter", (), "Facts dropped because an observer was too slow."),
        MetricDefinition(
            "clock_steps", "counter", ("treated_as",), "Steps of the wall clock against the monotonic clock."
        ),
        MetricDefinition(
            "drift_seconds", "histogram", (), "Time between the planned instant and the admission."
        ),
        MetricDefinition(
            "start_delay_seconds",
            "histogram",
            QUEUE_LABELS,
            "Time from the planned instant to the first start.",
        ),
        MetricDefinition(
            "run_seconds", "histogram", QUEUE_LABELS, "Time from the start of an attempt to its settlement."
        ),
        MetricDefinition("tick_seconds", "histogram", (), "Duration of ticks that had work to do."),
        MetricDefinition("store_seconds", "histogram", ("statement",), "Duration of store queries."),
    )
}

# Read from the engine and the store at each scrape.
LIVE_METRICS: dict[str, MetricDefinition] = {
    metric.name: metric
    for metric in (
        MetricDefinition("ticks", "counter", (), "Ticks of the engine."),
        MetricDefinition("tick_errors", "counter", (), "Ticks of the engine that failed."),
        MetricDefinition("last_tick_timestamp_seconds", "gauge", (), "When the engine last finished a tick."),
        MetricDefinition("store_up", "gauge", (), "Whether the store answered this scrape."),
        MetricDefinition("store_log_bytes", "gauge", (), "Size of the write-ahead log of a SQLite file."),
        MetricDefinition(
            "schedules_due", "gauge", ("namespace",), "Schedules that are due and have no run yet."
        ),
        MetricDefinition("parked_schedules", "gauge", ("namespace",), "Parked schedules."),
        MetricDefinition("ready_runs", "gauge", QUEUE_LABELS, "Runs that could start now."),
        MetricDefinition(
            "waiting_runs",
            "gauge",
            QUEUE_LABELS,
            "Runs that wait for their start time: backoff, jitter, spread.",
        ),
        MetricDefinition(
            "oldest_ready_seconds",
            "gauge",
            QUEUE_LABELS,
            "Age of the oldest ready run.",
        ),
        MetricDefinition("leases", "gauge", QUEUE_LABELS, "Live leases."),
        MetricDefinition("held_runs", "gauge", QUEUE_LABELS, "Runs held behind an earlier run."),
        MetricDefinition("parked_runs", "gauge", QUEUE_LABELS, "Parked runs."),
        MetricDefinition("queue_limit", "gauge", QUEUE_LABELS, "How many live leases a queue allows."),
    )
}

# Only with `metric_schedules`, and for at most that many schedules.
SCHEDULE_METRICS: dict[str, MetricDefinition] = {
    metric.name: metric
    for metric in (
        MetricDefinition(
            "schedule_runs", "counter", ("namespace", "schedule", "outcome"), "Finished runs, by schedule."
        ),
        MetricDefinition(
            "schedule_last_success_timestamp_seconds",
            "gauge",
            ("namespace", "schedule"),
            "When a run of the schedule last succeeded.",
        ),
    )
}

ALL_METRICS: dict[str, MetricDefinition] = {
    BUILD_INFO.name: BUILD_INFO,
    **EVENT_METRICS,
    **LIVE_METRICS,
    **SCHEDULE_METRICS,
}
