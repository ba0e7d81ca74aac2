"""Every metric once: name, kind, labels and description."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

MetricKind = Literal["counter", "gauge", "histogram", "info"]

PREFIX = "timewright_"
QUEUE_LABELS = ("namespace", "queue")


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
            "schedules_due", "gauge", ("namespace",), "Schedules that are due and not admitted yet."
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
