"""How many runs of a schedule had failed in a row when each of them ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter

from timewright.verification.rows import RunRow
from timewright.verification.view import HistoryView


def count_failures(view: HistoryView, runs: Iterable[RunRow]) -> tuple[list[int], list[int]]:
    """When runs ended, by hand or not, and how many had failed in a row by then, at most.

    The order of runs that ended at one instant is not known: their failures may continue the streak
    before it, or come after their successes and begin one.
    """
    results = [result for run in runs for result in _results(view, run)]
    results.sort(key=lambda result: (result[0], not result[1]))
    counts: list[int] = []
    count = 0
    for _, at_once in groupby(results, key=itemgetter(0)):
        outcomes = [failed for _, failed in at_once]
        failures = sum(outcomes)
        counts += range(count + 1, count + failures + 1)
        counts += [failures] * (len(outcomes) - failures)
        count = counts[-1]
    return [at for at, _ in results], counts


def _results(view: HistoryView, run: RunRow) -> Iterator[tuple[int, bool]]:
    """When a run ended, and whether it had failed; a run that a person started again has ended before."""
    if run.finished_at is not None and run.state not in ("skipped", "cancelled"):
        yield run.finished_at, run.state != "succeeded"
    attempts = view.attempts.get(run.id, ())
    for line in view.resets(run):
        ends = [one.ended_at for one in attempts if one.leased_at < line.at and one.ended_at <= line.at]
        if ends and line.before != "cancelled":
            yield max(ends), True
