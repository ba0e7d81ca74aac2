"""Every metric we give, once: its name, its kind, its labels, and what it says."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Kind = Literal["counter", "gauge", "histogram", "info"]

PREFIX = "timewright_"
WHOSE = ("namespace", "queue")


class Metric(Struct, frozen=True):
    """One metric; counters are exposed with `_total` behind their name."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    says: str

    @property
    def exposed(self) -> str:
        """The name as Prometheus sees it."""
        return PREFIX + self.name + {"counter": "_total", "info": "_info"}.get(self.kind, "")


BUILD = Metric("build", "info", ("version", "python", "store"), "What runs here.")

# Counted from facts, by this instance, since it started.
COUNTED: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("runs_emitted", "counter", WHOSE, "Occurrences that became runs, and entries of queues."),
        Metric("runs", "counter", (*WHOSE, "outcome"), "Runs that ended, by how."),
        Metric("runs_skipped_overlap", "counter", ("namespace",), "Occurrences skipped by overlap."),
        Metric("runs_failed_launch", "counter", WHOSE, "Runs that failed or were parked for good."),
        Metric("retries", "counter", WHOSE, "Attempts that failed and are followed by another."),
        Metric(
            "occurrences_skipped",
            "counter",
            ("namespace", "reason"),
            "Occurrences that did not become work, by why; those counted in one dropped row included.",
        ),
        Metric(
            "runs_deferred",
            "counter",
            ("namespace", "reason"),
            "Times that a run had to wait for a budget or a provider.",
        ),
        Metric("leases_lost", "counter", ("namespace",), "Leases that ended without an answer."),
        Metric("answers_stale", "counter", (), "Answers from lost leases; they changed nothing."),
        Metric("schedules_stopped", "counter", ("namespace", "how"), "Schedules that parked or finished."),
        Metric("facts_lost", "counter", (), "Facts that an observer was not told, for it did not keep up."),
        Metric("clock_steps", "counter", ("treated_as",), "Steps of the wall clock against the steady one."),
        Metric(
            "drift_seconds", "histogram", (), "How far from its planned instant an occurrence was admitted."
        ),
        Metric("start_delay_seconds", "histogram", WHOSE, "From the planned instant to the first start."),
        Metric("run_seconds", "histogram", WHOSE, "From the start of an attempt to its settlement."),
        Metric("tick_seconds", "histogram", (), "How long a tick took that had something to do."),
        Metric("store_seconds", "histogram", ("statement",), "How long the verbs of the store took."),
    )
}

# Read from the engine and the store when someone asks.
READ: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("ticks", "counter", (), "Passes of the engine."),
        Metric("tick_errors", "counter", (), "Passes of the engine that failed."),
        Metric("last_tick_timestamp_seconds", "gauge", (), "When the engine last finished a pass."),
        Metric("store_up", "gauge", (), "Whether the store answered this question."),
        Metric("store_log_bytes", "gauge", (), "Size of the write-ahead log, for a store in a file."),
        Metric("schedules_due", "gauge", ("namespace",), "Schedules that are due and not looked at yet."),
        Metric("parked_schedules", "gauge", ("namespace",), "Schedules that wait for a person."),
        Metric("ready_runs", "gauge", WHOSE, "Runs that could start now."),
        Metric("waiting_runs", "gauge", WHOSE, "Runs that wait for their instant: backoff, jitter, spread."),
        Metric("oldest_ready_seconds", "gauge", WHOSE, "How long the longest waiting ready run has waited."),
        Metric("leases", "gauge", WHOSE, "Live leases."),
        Metric("held_runs", "gauge", WHOSE, "Runs that wait for the one before them."),
        Metric("parked_runs", "gauge", WHOSE, "Runs that wait for a person."),
        Metric("ceiling", "gauge", WHOSE, "How many live leases a queue admits."),
    )
}

# Only with `metric_schedules`, and for no more schedules than it says.
BY_SCHEDULE: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("schedule_runs", "counter", ("namespace", "schedule", "outcome"), "Ended runs, by schedule."),
        Metric(
            "schedule_last_success_timestamp_seconds",
            "gauge",
            ("namespace", "schedule"),
            "When a run of the schedule last succeeded.",
        ),
    )
}

METRICS: dict[str, Metric] = {BUILD.name: BUILD, **COUNTED, **READ, **BY_SCHEDULE}
