"""Numbers that are read when a scraper asks: from the engine's pulse, and from what lives in the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from timewright.core.moments import ZERO
from timewright.errors import TimewrightError
from timewright.observe.metrics import MOST_PAIRS, OTHER
from timewright.observe.names import PREFIX, READ, WHOSE
from timewright.ports import Count, Store

MOST_LOOKED_AT = 20_000
QUEUE = "queue:"
RUNS = {
    "ready": "ready_runs",
    "waiting": "waiting_runs",
    "leased": "leases",
    "held": "held_runs",
    "parked": "parked_runs",
}
SCHEDULES = {"due": "schedules_due", "parked_schedule": "parked_schedules"}


class Beating(Protocol):
    """How an engine is doing."""

    ticks: int
    errors: int
    last_tick_at: datetime | None


class Reading(Collector):
    """Asks the store once per scrape, for a bounded number of rows; what is history is never counted."""

    def __init__(self, store: Store, *, pulse: Beating) -> None:
        self._store = store
        self._pulse = pulse

    def describe(self) -> list[Metric]:
        """Nothing yet: a registry must not open the store only to learn our names."""
        return []

    def collect(self) -> Iterator[Metric]:
        """What the engine says of itself, then what lives in the store, if it answers."""
        yield from self._beating()
        try:
            now = self._store.now()
            counts = self._store.read(lambda tx: tx.count_live(now=now, most=MOST_LOOKED_AT))
        except TimewrightError:
            yield _single("store_up", 0)
            return
        yield _single("store_up", 1)
        yield from self._log_size()
        yield from living(counts, now=now)

    def _beating(self) -> Iterator[Metric]:
        for name, value in (("ticks", self._pulse.ticks), ("tick_errors", self._pulse.errors)):
            yield CounterMetricFamily(PREFIX + name, READ[name].says, value=value)
        if self._pulse.last_tick_at is not None:
            yield _single("last_tick_timestamp_seconds", self._pulse.last_tick_at.timestamp())

    def _log_size(self) -> Iterator[Metric]:
        """The log of a file grows while someone reads for a long time; other stores look after theirs."""
        path = str(getattr(self._store, "path", ""))
        if path and path != ":memory:":
            with suppress(FileNotFoundError):
                yield _single("store_log_bytes", Path(f"{path}-wal").stat().st_size)


def living(counts: list[Count], *, now: datetime) -> Iterator[Metric]:
    """What the store has counted, as gauges with few labels."""
    for kind, name in SCHEDULES.items():
        spaces: dict[tuple[str, ...], float] = {}
        for one in counts:
            if one.kind == kind:
                spaces[_few(spaces, (one.namespace,))] = one.count
        yield _labelled(name, spaces)
    for kind, name in RUNS.items():
        yield _labelled(name, _by_queue([one for one in counts if one.kind == kind]))
    yield _labelled("oldest_ready_seconds", _oldest(counts, now=now))
    yield _labelled("ceiling", _ceilings(counts))


def _by_queue(counts: list[Count]) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for one in counts:
        labels = _few(found, (one.namespace, one.queue))
        found[labels] = found.get(labels, 0) + one.count
    return found


def _oldest(counts: list[Count], *, now: datetime) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for one in counts:
        if one.oldest is not None:
            labels = _few(found, (one.namespace, one.queue))
            waited = max(now - one.oldest, ZERO).total_seconds()
            found[labels] = max(found.get(labels, 0), waited)
    return found


def _ceilings(counts: list[Count]) -> dict[tuple[str, ...], float]:
    """The gates of queues; what is past the cap is left out, for ceilings do not add up."""
    found: dict[tuple[str, ...], float] = {}
    for one in counts:
        if one.kind == "ceiling" and one.queue.startswith(QUEUE) and len(found) < MOST_PAIRS:
            namespace, _, queue = one.queue.removeprefix(QUEUE).partition("/")
            found[namespace, queue] = one.count
    return found


def _few(found: dict[tuple[str, ...], float], labels: tuple[str, ...]) -> tuple[str, ...]:
    return labels if labels in found or len(found) < MOST_PAIRS else (OTHER,) * len(labels)


def _single(name: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, READ[name].says, value=value)


def _labelled(name: str, values: dict[tuple[str, ...], float]) -> GaugeMetricFamily:
    labels = WHOSE if READ[name].labels == WHOSE else READ[name].labels
    family = GaugeMetricFamily(PREFIX + name, READ[name].says, labels=labels)
    for key, value in values.items():
        family.add_metric(list(key), value)
    return family
