"""Collects the output of running work, so that readers of a run see it while the run is in flight."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

from timewright.core.run.run import Outcome
from timewright.engine.constants import CHECK_INTERVAL, MAX_BUFFERED_ROWS
from timewright.engine.in_flight import InFlightRun
from timewright.ports import Store, Transaction
from timewright.ports.attempt_output import AttemptOutput, OutputExcerpt, read_output

LeaseKey = tuple[str, int]


class OutputDelta(Struct, frozen=True, kw_only=True):
    """What to write: new output, and rows to delete because the result of the attempt contains the output."""

    outputs: dict[LeaseKey, AttemptOutput] = {}
    obsolete: tuple[LeaseKey, ...] = ()


class OutputBuffer:
    """The output of this process's work, and how much of it the store has."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._written_sizes: dict[LeaseKey, int] = {}
        self._final: dict[LeaseKey, tuple[InFlightRun, OutputExcerpt]] = {}
        self._newly_obsolete: list[LeaseKey] = []
        self._obsolete: tuple[LeaseKey, ...] = ()
        self._next_write_at = 0.0

    def record_end(self, in_flight: InFlightRun, work: object, outcome: Outcome | None) -> None:
        """Keep the final output of ended work, unless its result contains it."""
        key = _key(in_flight)
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
        """Write new output; if the store fails, the next call writes it."""
        delta = self._collect(in_flight, now=now)

        def work(tx: Transaction) -> None:
            tx.put_attempt_output(list(delta.outputs.values()))
            tx.delete_attempt_output(delta.obsolete)

        if delta.outputs or delta.obsolete:
            store.write(work)
        self._confirm(delta)

    def write_final(self, store: Store, *, now: datetime) -> None:
        """Write the output of ended work, if there is any."""
        if self._final:
            self.write(store, (), now=now)

    def _collect(self, in_flight: Iterable[InFlightRun], *, now: datetime) -> OutputDelta:
        outputs = {}
        for one in in_flight:
            key, excerpt = _key(one), read_output(one.work)
            if excerpt is not None and excerpt.size != self._written_sizes.get(key):
                outputs[key] = _output_row(one, excerpt, now=now)
        with self._lock:
            for key in outputs:
                self._written_sizes.setdefault(key, -1)
            outputs |= {
                key: _output_row(one, excerpt, now=now) for key, (one, excerpt) in self._final.items()
            }
        return OutputDelta(outputs=outputs, obsolete=self._obsolete)

    def _confirm(self, delta: OutputDelta) -> None:
        with self._lock:
            for key, row in delta.outputs.items():
                if self._final.get(key, (None, None))[1] is row.excerpt:
                    del self._final[key]
                    self._written_sizes.pop(key, None)
                elif key in self._written_sizes:
                    self._written_sizes[key] = row.excerpt.size
            # Delete one round later: by then the result is written, and a reader finds one of the two.
            self._obsolete, self._newly_obsolete = tuple(self._newly_obsolete), []
            for key in self._obsolete:
                self._written_sizes.pop(key, None)


def _key(in_flight: InFlightRun) -> LeaseKey:
    return in_flight.lease.run.id, in_flight.lease.run.fence


def _output_row(in_flight: InFlightRun, excerpt: OutputExcerpt, *, now: datetime) -> AttemptOutput:
    run = in_flight.lease.run
    return AttemptOutput(run_id=run.id, fence=run.fence, number=run.attempts + 1, at=now, excerpt=excerpt)
