"""Metrics: every fact is counted, labels are bounded, and no scrape reads finished runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.conformance.conftest import postgres_template, postgres_url
from timewright import every
from timewright.core.facts import (
    ClockStepped,
    LeaseLost,
    OccurrencesDropped,
    RunAdmitted,
    RunFailed,
    RunSkipped,
)
from timewright.core.moments import MINUTE, SECOND
from timewright.core.policies.policies import Retry
from timewright.errors import NotAllowed, StoreUnavailable
from timewright.ports import Store
from timewright.ports.store import names_in
from timewright.stores.postgres.store import PostgresStore
from timewright.stores.sqlite.store import SqliteStore
from timewright.telemetry.live_metrics import LiveMetricsCollector
from timewright.telemetry.metrics import (
    ALL_METRICS,
    BUILD_INFO,
    EVENT_METRICS,
    LIVE_METRICS,
    MAX_LABEL_SETS,
    SCHEDULE_METRICS,
    Metrics,
)
from timewright.telemetry.telemetry import TimedStore
from timewright.testing.bench import DEFAULT_START, Bench
from timewright.testing.clock import ManualClock
from timewright.testing.postgres import fresh_database
from timewright.testing.targets import fail, succeed

__all__ = ["postgres_template", "postgres_url"]

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Watched:
    """A bench with metrics."""

    def __init__(
        self, *, schedules: int = 0, store: Store | None = None, clock: ManualClock | None = None
    ) -> None:
        self.clock = clock or ManualClock(DEFAULT_START)
        inner = store or SqliteStore(":memory:", clock=self.clock)
        self.metrics = Metrics(version="0", store="sqlite", schedules=schedules, names=names_in(inner))
        timed = TimedStore(inner, measure=self.metrics.observe_statement, monotonic=self.clock.monotonic)
        self.bench = Bench(store=timed, clock=self.clock)
        self.bench.loop.observers.append(self.metrics)
        self.metrics.registry.register(LiveMetricsCollector(timed, health=self.bench.loop.health))
        self._asked = 0.0

    def values(self) -> Values:
        self._asked += 60
        return parsed(self.metrics.text(monotonic_now=self._asked))

    def value(self, name: str, **labels: str) -> float:
        return self.values().get((name, frozenset(labels.items())), 0.0)


def parsed(text: str) -> Values:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def watched() -> Watched:
    return Watched()


MINE = {"namespace": "default", "queue": ""}


def test_a_run_is_counted_when_it_is_emitted_and_when_it_ends(watched: Watched) -> None:
    watched.bench.schedule("hello", every("1m"))
    watched.bench.advance(minutes=3)
    assert watched.value("timewright_runs_emitted_total", **MINE) == 3
    assert watched.value("timewright_runs_total", **MINE, outcome="succeeded") == 3
    assert watched.value("timewright_drift_seconds_count") == 3
    assert watched.value("timewright_start_delay_seconds_count", **MINE) == 3
    assert watched.value("timewright_start_delay_seconds_bucket", **MINE, le="0.001") == 3


def test_how_long_an_attempt_took_is_measured_from_its_start(watched: Watched) -> None:
    watched.bench.schedule("slow", every("5m"))
    watched.bench.target.script("slow", succeed(after=20 * SECOND))
    watched.bench.advance(minutes=6)
    assert watched.value("timewright_run_seconds_sum", **MINE) == pytest.approx(20)
    assert watched.value("timewright_run_seconds_count", **MINE) == 1


def test_overlap_skips_are_counted_by_reason_and_separately(watched: Watched) -> None:
    watched.bench.schedule("long", every("1m"))
    watched.bench.target.script("long", succeed(after=150 * SECOND))
    watched.bench.advance(minutes=4)
    skipped = watched.value("timewright_occurrences_skipped_total", namespace="default", reason="overlap")
    assert skipped == 2
    assert watched.value("timewright_runs_skipped_overlap_total", namespace="default") == 2


def test_failures_retries_and_lost_leases_are_counted(watched: Watched) -> None:
    watched.bench.schedule("bad", every("1h"), retry=Retry(max_attempts=2))
    watched.bench.target.script("bad", fail())
    watched.bench.advance(hours=1, minutes=5)
    assert watched.value("timewright_retries_total", **MINE) == 1
    assert watched.value("timewright_runs_total", **MINE, outcome="failed") == 1
    assert watched.value("timewright_runs_failed_launch_total", **MINE) == 1
    assert watched.value("timewright_start_delay_seconds_count", **MINE) == 1, "a second attempt is not late"
    watched.metrics.notify(LeaseLost(at=DEFAULT_START, run_id="r", schedule_id="s", fence=1, holder="w"))
    assert watched.value("timewright_leases_lost_total", namespace="default") == 1


def test_occurrences_in_one_dropped_row_are_counted_one_by_one(watched: Watched) -> None:
    base: dict[str, Any] = {
        "at": DEFAULT_START,
        "run_id": "run_1",
        "schedule_id": "sch_1",
        "planned_at": DEFAULT_START,
    }
    watched.metrics.notify(
        OccurrencesDropped(**base, last_of=DEFAULT_START + MINUTE, count=5000, reason="missed")
    )
    assert watched.value("timewright_occurrences_skipped_total", namespace="default", reason="missed") == 5000


def test_a_reason_that_a_person_wrote_is_no_label(watched: Watched) -> None:
    for n in range(50):
        fact = RunSkipped(
            at=DEFAULT_START,
            run_id="r",
            schedule_id="s",
            planned_at=DEFAULT_START,
            reason=f"the disk is full {n}",
        )
        watched.metrics.notify(fact)
    assert watched.value("timewright_occurrences_skipped_total", namespace="default", reason="other") == 50


def test_label_sets_are_bounded_and_the_rest_is_counted_as_other(watched: Watched) -> None:
    for n in range(MAX_LABEL_SETS + 50):
        fact = RunAdmitted(
            at=DEFAULT_START,
            namespace=f"tenant-{n}",
            run_id="r",
            schedule_id="s",
            planned_at=DEFAULT_START,
            fire_at=DEFAULT_START,
            source="manual",
        )
        watched.metrics.notify(fact)
    values = watched.values()
    series = [key for key in values if key[0] == "timewright_runs_emitted_total"]
    assert len(series) == MAX_LABEL_SETS + 1
    other = frozenset({("namespace", "other"), ("queue", "other")})
    assert values["timewright_runs_emitted_total", other] == 50


def test_no_schedule_is_a_label_unless_that_is_asked_for_and_then_only_so_many() -> None:
    for most, expected in ((0, 0), (2, 3)):
        watched = Watched(schedules=most)
        for n in range(5):
            fact = RunFailed(
                at=DEFAULT_START, run_id="r", schedule_id=f"sch_{n}", fence=1, attempts=1, error="x"
            )
            watched.metrics.notify(fact)
        named = [key for key in watched.values() if key[0] == "timewright_schedule_runs_total"]
        assert len(named) == expected
        assert all("sch_" not in str(key) or most for key in watched.values())


def test_the_last_success_of_a_schedule_is_a_metric_by_its_name_if_enabled() -> None:
    watched = Watched(schedules=10)
    watched.bench.schedule("hello", every("1m"))
    watched.bench.advance(minutes=2)
    last = watched.value(
        "timewright_schedule_last_success_timestamp_seconds", namespace="default", schedule="hello"
    )
    assert last == (DEFAULT_START + 2 * MINUTE).timestamp()


def test_waiting_and_running_counts_are_read_from_the_store(watched: Watched) -> None:
    bench = watched.bench
    bench.schedule("long", every("1h"))
    bench.target.script("long", succeed(after=timedelta(minutes=4)))
    bench.advance(hours=1, minutes=1)
    assert watched.value("timewright_leases", **MINE) == 1
    bench.clock.advance(hours=2)
    assert watched.value("timewright_schedules_due", namespace="default") == 1
    assert watched.value("timewright_store_up") == 1
    assert (
        watched.value("timewright_last_tick_timestamp_seconds") == (DEFAULT_START + 61 * MINUTE).timestamp()
    )


def test_the_verbs_of_the_store_are_measured_by_their_names(watched: Watched) -> None:
    watched.bench.schedule("hello", every("1m"))
    watched.bench.advance(minutes=2)
    measured = [labels for name, labels in watched.values() if name == "timewright_store_seconds_count"]
    names = {dict(labels)["statement"] for labels in measured}
    assert {
        "due_schedules",
        "add_runs",
        "settle_runs",
        "read_pending_work",
        "write (whole)",
        "read (whole)",
    } <= names


def test_the_log_of_a_store_in_a_file_is_measured(tmp_path: Path) -> None:
    clock = ManualClock(DEFAULT_START)
    watched = Watched(store=SqliteStore(tmp_path / "store.db", clock=clock), clock=clock)
    watched.bench.schedule("hello", every("1m"))
    size = (tmp_path / "store.db-wal").stat().st_size
    assert watched.value("timewright_store_log_bytes") == size > 0
    watched.bench.store.close()


def test_a_store_that_is_away_is_a_number_and_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()

    def away(_: Any) -> None:
        raise StoreUnavailable("gone fishing")

    monkeypatch.setattr(watched.bench.store, "read", away)
    values = watched.values()
    assert values["timewright_store_up", frozenset()] == 0
    assert ("timewright_ticks_total", frozenset()) in values


def test_a_hundred_scrapers_cost_one_question(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    read = watched.bench.store.read

    def counted(work: Any) -> Any:
        asked.append(work)
        return read(work)

    monkeypatch.setattr(watched.bench.store, "read", counted)
    texts = {watched.metrics.text(monotonic_now=5.0 + n / 1000) for n in range(100)}
    assert (len(texts), len(asked)) == (1, 1)
    watched.metrics.text(monotonic_now=7.0)
    assert len(asked) == 2


def test_counting_from_many_threads_loses_nothing(watched: Watched) -> None:
    fact = RunFailed(at=DEFAULT_START, run_id="r", schedule_id="s", fence=1, attempts=1, error="x")

    def count() -> None:
        for _ in range(200):
            watched.metrics.notify(fact)

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert watched.value("timewright_runs_total", **MINE, outcome="failed") == 1600


def test_every_name_on_the_list_is_given_with_its_labels_and_nothing_else_is() -> None:
    watched = Watched(schedules=1)
    watched.bench.schedule("hello", every("1m"))
    watched.bench.advance(minutes=1)
    families = {
        family.name for family in text_string_to_metric_families(watched.metrics.text(monotonic_now=1.0))
    }
    in_files = {"timewright_store_log_bytes"}
    listed = {f"timewright_{name}" for name in ALL_METRICS if name != "build"} | {"timewright_build_info"}
    assert families == listed - in_files


def test_the_names_others_rely_on_are_these() -> None:
    promised = {
        "timewright_runs_total",
        "timewright_start_delay_seconds",
        "timewright_ready_runs",
        "timewright_oldest_ready_seconds",
        "timewright_leases",
        "timewright_queue_limit",
        "timewright_occurrences_skipped_total",
        "timewright_tick_seconds",
        "timewright_store_seconds",
        "timewright_build_info",
        "timewright_schedules_due",
        "timewright_runs_emitted_total",
        "timewright_runs_skipped_overlap_total",
        "timewright_runs_failed_launch_total",
        "timewright_drift_seconds",
    }
    assert promised <= {metric.exposed_name for metric in ALL_METRICS.values()}
    assert set(ALL_METRICS) == {BUILD_INFO.name, *EVENT_METRICS, *LIVE_METRICS, *SCHEDULE_METRICS}


@pytest.fixture(scope="module")
def postgres_store(postgres_url: str, postgres_template: str) -> Iterator[Store]:
    with fresh_database(postgres_url, template=postgres_template) as place:
        store = PostgresStore(place, clock=ManualClock(DEFAULT_START))
        yield store
        store.close()


def test_the_numbers_are_the_same_on_postgresql(postgres_store: Any) -> None:
    watched = Watched(store=postgres_store, clock=postgres_store._clock)
    watched.bench.schedule("hello", every("1m"))
    watched.bench.advance(minutes=2)
    assert watched.value("timewright_runs_total", **MINE, outcome="succeeded") == 2
    assert watched.value("timewright_store_up") == 1


def test_an_instance_without_metrics_says_how_to_enable_them() -> None:
    from timewright.settings import Settings
    from timewright.wiring import Instance, new_registry

    clock = ManualClock(DEFAULT_START)
    for settings in (Settings(), Settings(metrics=True)):
        harness = Instance(
            SqliteStore(":memory:", clock=clock), settings=settings, registry=new_registry(), clock=clock
        )
        try:
            if settings.metrics:
                assert "timewright_build_info" in harness.metrics_text()
            else:
                with pytest.raises(NotAllowed) as refusal:
                    harness.metrics_text()
                assert refusal.value.fix == "metrics: true"
        finally:
            harness.close()


def test_a_step_of_the_clock_beyond_what_python_can_read_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics(version="0", store="sqlite", schedules=0)

    def unreadable() -> float:
        raise OverflowError("timestamp too large to convert to C _PyTime_t")

    # A clock set to the year 2999 makes `time.time()` raise; a counter's first use with a label calls it.
    monkeypatch.setattr(time, "time", unreadable)
    metrics.notify(ClockStepped(at=DEFAULT_START, by_seconds=3e10, treated_as="pause"))
    metrics.observe_statement("add_pause", 0.001)

    assert 'timewright_clock_steps_total{treated_as="pause"} 1.0' in metrics.text(monotonic_now=0.0)
