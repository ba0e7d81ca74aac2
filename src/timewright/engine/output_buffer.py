"""Collects what running work reports, so that readers of a run see it while the run is in flight.

That is its output, its progress and its checkpoint. They are written together about once a second, and before
the result of an attempt is written.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct
from msgspec.structs import asdict

from timewright.core.run.run import Outcome
from timewright.engine.constants import CHECK_INTERVAL, MAX_BUFFERED_ROWS
from timewright.engine.in_flight import InFlightRun
from timewright.ports import Store, Transaction
from timewright.ports.attempt_output import (
    AttemptOutput,
    OutputExcerpt,
    RunProgress,
    WorkReport,
    read_output,
    read_report,
)

LeaseKey = tuple[str, int]


class OutputDelta(Struct, frozen=True, kw_only=True):
    """What to write: new output and reports, and output to delete because the result contains it."""

    outputs: dict[LeaseKey, AttemptOutput] = {}
    reports: dict[LeaseKey, WorkReport] = {}
    progress: tuple[RunProgress, ...] = ()
    obsolete: tuple[LeaseKey, ...] = ()


class OutputBuffer:
    """The output and the reports of this process's work, and how much of it the store has."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._written_sizes: dict[LeaseKey, int] = {}
        self._final: dict[LeaseKey, tuple[InFlightRun, OutputExcerpt]] = {}
        self._written_reports: dict[LeaseKey, WorkReport] = {}
        self._final_reports: dict[LeaseKey, WorkReport] = {}
        self._newly_obsolete: list[LeaseKey] = []
        self._obsolete: tuple[LeaseKey, ...] = ()
        self._next_write_at = 0.0

    def record_end(self, in_flight: InFlightRun, work: object, outcome: Outcome | None) -> None:
        """Keep the last report of ended work, and its final output unless its result contains it."""
        key, report = _key(in_flight), read_report(work)
        if report is not None:
            with self._lock:
                # Never dropped: the next attempt continues from its checkpoint.
                if self._written_reports.pop(key, None) != report:
                    self._final_reports[key] = report
        result = getattr(outcome, "result", None)
        if isinstance(result, dict) and "output" in result:
            with self._lock:
                if key in self._written_sizes:
                    self._newly_obsolete.append(key)
            return
        excerpt = read_output(work)
        if excerpt is not None:
            with self._lock:
                self._final[key] = (in_flight, excerpt)
                if len(self._final) > MAX_BUFFERED_ROWS:
                    del self._final[next(iter(self._final))]

    def is_write_due(self, monotonic_now: float) -> bool:
        """Whether a second has passed since the last call that returned true."""
        if monotonic_now < self._next_write_at:
            return False
        self._next_write_at = monotonic_now + CHECK_INTERVAL.total_seconds()
        return True

    def write(self, store: Store, in_flight: Iterable[InFlightRun], *, now: datetime) -> None:
        """Write new output and reports; if the store fails, the next call writes it."""
        delta = self._collect(in_flight, now=now)

        def work(tx: Transaction) -> None:
            tx.put_run_rows(list(delta.outputs.values()))
            tx.delete_run_rows(AttemptOutput, delta.obsolete)
            tx.put_run_rows(delta.progress)

        if delta.outputs or delta.obsolete or delta.progress:
            store.write(work)
        self._confirm(delta)

    def write_final(self, store: Store, *, now: datetime) -> None:
        """Write the output and the reports of ended work, if there are any."""
        if self._final or self._final_reports:
            self.write(store, (), now=now)

    def _collect(self, in_flight: Iterable[InFlightRun], *, now: datetime) -> OutputDelta:
        outputs, reports = {}, {}
        for one in in_flight:
            key, excerpt, report = _key(one), read_output(one.work), read_report(one.work)
            if report is not None and report != self._written_reports.get(key):
                reports[key] = report
            if excerpt is not None and excerpt.size != self._written_sizes.get(key):
                outputs[key] = _output_row(one, excerpt, now=now)
        with self._lock:
            for key in outputs:
                self._written_sizes.setdefault(key, -1)
            outputs |= {
                key: _output_row(one, excerpt, now=now) for key, (one, excerpt) in self._final.items()
            }
            reports |= self._final_reports
        progress = tuple(
            RunProgress(run_id=run_id, fence=fence, at=now, **asdict(report))
            for (run_id, fence), report in reports.items()
        )
        return OutputDelta(outputs=outputs, reports=reports, progress=progress, obsolete=self._obsolete)

    def _confirm(self, delta: OutputDelta) -> None:
        with self._lock:
            for key, row in delta.outputs.items():
                if self._final.get(key, (None, None))[1] is row.excerpt:
                    del self._final[key]
                    self._written_sizes.pop(key, None)
                elif key in self._written_sizes:
                    self._written_sizes[key] = row.excerpt.size
            for key, report in delta.reports.items():
                if self._final_reports.get(key) is report:
                    del self._final_reports[key]
                    self._written_reports.pop(key, None)
                else:
                    self._written_reports[key] = report
            # Delete one round later: by then the result is written, and a reader finds one of the two.
            self._obsolete, self._newly_obsolete = tuple(self._newly_obsolete), []
            for key in self._obsolete:
                self._written_sizes.pop(key, None)


def _key(in_flight: InFlightRun) -> LeaseKey:
    return in_flight.lease.run.id, in_flight.lease.run.fence


def _output_row(in_flight: InFlightRun, excerpt: OutputExcerpt, *, now: datetime) -> AttemptOutput:
    run = in_flight.lease.run
    return AttemptOutput(run_id=run.id, fence=run.fence, number=run.attempts + 1, at=now, excerpt=excerpt)
