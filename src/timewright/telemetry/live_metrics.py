"""Metrics read at each scrape: the engine's loop, and live rows of the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from timewright.core.moments import ZERO
from timewright.errors import TimewrightError
from timewright.ports import LiveCount, Store
from timewright.ports.overview import LiveCounts
from timewright.telemetry.metrics import LIVE_METRICS, MAX_LABEL_SETS, OTHER, PREFIX

MAX_ROWS_COUNTED = 20_000
QUEUE_PREFIX = "queue:"
RUN_METRIC_NAMES = {
    "ready": "ready_runs",
    "waiting": "waiting_runs",
    "leased": "leases",
    "held": "held_runs",
    "parked": "parked_runs",
}
SCHEDULE_METRIC_NAMES = {"due": "schedules_due", "parked_schedule": "parked_schedules"}


class HealthSource(Protocol):
    """Health of an engine's loop."""

    ticks: int
    errors: int
    last_tick_at: datetime | None
    on_outage: Callable[[str], None] | None


class LiveMetricsCollector(Collector):
    """Queries the store once per scrape, for a bounded number of rows; finished runs are never counted."""

    def __init__(self, store: Store, *, health: HealthSource) -> None:
        self._store = store
        self._health = health

    def describe(self) -> list[Metric]:
        """Return nothing: registering must not open the store."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The engine's metrics, then the store's, if it answers."""
        yield from self._engine_metrics()
        try:
            now = self._store.now()
            counts = self._store.read(lambda tx: tx.select(LiveCounts(now=now, max_rows=MAX_ROWS_COUNTED)))
        except TimewrightError:
            yield _single("store_up", 0)
            return
        yield _single("store_up", 1)
        yield from self._log_size()
        yield from count_metrics(counts, now=now)

    def _engine_metrics(self) -> Iterator[Metric]:
        for name, value in (("ticks", self._health.ticks), ("tick_errors", self._health.errors)):
            yield CounterMetricFamily(PREFIX + name, LIVE_METRICS[name].description, value=value)
        if self._health.last_tick_at is not None:
            yield _single("last_tick_timestamp_seconds", self._health.last_tick_at.timestamp())

    def _log_size(self) -> Iterator[Metric]:
        """Size of a file's write-ahead log, which grows during long reads; other stores have none."""
        path = str(getattr(self._store, "path", ""))
        if path and path != ":memory:":
            with suppress(FileNotFoundError):
                yield _single("store_log_bytes", Path(f"{path}-wal").stat().st_size)


def count_metrics(counts: list[LiveCount], *, now: datetime) -> Iterator[Metric]:
    """Convert the store's counts to gauges with a bounded number of label sets."""
    for kind, name in SCHEDULE_METRIC_NAMES.items():
        spaces: dict[tuple[str, ...], float] = {}
        for one in counts:
            if one.kind == kind:
                spaces[_limit_labels(spaces, (one.namespace,))] = one.count
        yield _labelled(name, spaces)
    for kind, name in RUN_METRIC_NAMES.items():
        yield _labelled(name, _by_queue([one for one in counts if one.kind == kind]))
    yield _labelled("oldest_ready_seconds", _oldest(counts, now=now))
    yield _labelled("queue_limit", _queue_limits(counts))


def _by_queue(counts: list[LiveCount]) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for one in counts:
        labels = _limit_labels(found, (one.namespace, one.queue))
        found[labels] = found.get(labels, 0) + one.count
    return found


def _oldest(counts: list[LiveCount], *, now: datetime) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for one in counts:
        if one.oldest is not None:
            labels = _limit_labels(found, (one.namespace, one.queue))
            waited = max(now - one.oldest, ZERO).total_seconds()
            found[labels] = max(found.get(labels, 0), waited)
    return found


def _queue_limits(counts: list[LiveCount]) -> dict[tuple[str, ...], float]:
    """Queue limits, at most as many as label sets; limits do not add up, so there is no `other`."""
    found: dict[tuple[str, ...], float] = {}
    for one in counts:
        if one.kind == "capacity" and one.queue.startswith(QUEUE_PREFIX) and len(found) < MAX_LABEL_SETS:
            namespace, _, queue = one.queue.removeprefix(QUEUE_PREFIX).partition("/")
            found[namespace, queue] = one.count
    return found


def _limit_labels(found: dict[tuple[str, ...], float], labels: tuple[str, ...]) -> tuple[str, ...]:
    return labels if labels in found or len(found) < MAX_LABEL_SETS else (OTHER,) * len(labels)


def _single(name: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, LIVE_METRICS[name].description, value=value)


def _labelled(name: str, values: dict[tuple[str, ...], float]) -> GaugeMetricFamily:
    metric = LIVE_METRICS[name]
    family = GaugeMetricFamily(PREFIX + name, metric.description, labels=metric.labels)
    for key, value in values.items():
        family.add_metric(list(key), value)
    return family
