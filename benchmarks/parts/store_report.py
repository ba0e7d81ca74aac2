"""Report the store benchmark: rates compared with raw SQL, growth, and every goal with its verdict."""

from __future__ import annotations

import statistics
from typing import NamedTuple

from benchmarks.parts.measure import Goals

OURS = "timewright"
RAW = "raw SQL"
# Store, schedules, history, batch, stage, side.
Key = tuple[str, int, int, int, str, str]

GROWTH = {"sqlite": 3.0, "postgres": 1.5}


class Rate(NamedTuple):
    """One round: rows a second, and microseconds of CPU a row."""

    rows: float
    cpu: float


Figures = dict[Key, list[Rate]]


def report(figures: Figures) -> None:
    """Print every figure with its spread, beside raw SQL."""
    head = f"{'store':<9}{'schedules':>10}{'history':>12}{'batch':>7}  {'verb':<7}"
    head += f"{OURS:>26}{RAW:>27}  ratio   µs of CPU"
    print("\nmedian (lowest to highest), rows a second; processor time of this process a row, ours and raw")
    print(f"{head}\n{'-' * len(head)}")
    for (kind, schedules, history, many, verb, side), rates in figures.items():
        if side != OURS:
            continue
        raw = figures[kind, schedules, history, many, verb, RAW]
        what = f"{kind:<9}{schedules:>10,}{history:>12,}{many:>7}  {verb:<7}"
        cost = f"{median_rate(rates).cpu:>6.0f} {median_rate(raw).cpu:>5.0f}"
        print(f"{what}{spread(rates):>26}{spread(raw):>27}  {rate_ratio(rates, raw):.2f}  {cost}")


def judge(figures: Figures) -> None:
    """Judge every goal at the largest number of schedules."""
    goals = Goals()
    print("\ngoals, at the most schedules")
    for kind in dict.fromkeys(key[0] for key in figures):
        most = max(key[1] for key in figures if key[0] == kind)
        for many in (100, 1000):
            _judge_ratio(goals, figures, (kind, most, 0, many), ("admit",), least=0.5)
        _judge_ratio(goals, figures, (kind, most, 0, 100), ("lease", "settle"), least=0.5)
        _judge_adding(goals, figures, kind, most)
        _judge_growth(goals, figures, kind)
    met = sum(row[3] for row in goals.rows)
    print(f"\n{met} of {len(goals.rows)} goals are met")


def _judge_ratio(
    goals: Goals, figures: Figures, place: tuple[str, int, int, int], verbs: tuple[str, ...], *, least: float
) -> None:
    """Compare the total time of several stages."""
    ours, raw = (
        sum(1 / median_rate(figures[(*place, verb, side)]).rows for verb in verbs) for side in (OURS, RAW)
    )
    row = f"{place[0]}: {' + '.join(verbs)}, {place[3]} at a time"
    goals.judge(row, f"{row}: at least {least} x raw", found=f"{raw / ours:.2f} x", met=raw / ours >= least)


def _judge_adding(goals: Goals, figures: Figures, kind: str, schedules: int) -> None:
    bulk = max(key[3] for key in figures if key[0] == kind and key[4] == "add")
    rates, raw = (figures[kind, schedules, 0, bulk, "add", side] for side in (OURS, RAW))
    row, ratio, rate = f"{kind}: add {bulk:,} at a time", rate_ratio(rates, raw), median_rate(rates).rows
    goals.judge(row, f"{row}: at least 0.3 x raw", found=f"{ratio:.2f} x", met=ratio >= 0.3)
    goals.judge(row, f"{row}: at least 20,000 a second", found=f"{rate:,.0f}", met=rate >= 20_000)


def _judge_growth(goals: Goals, figures: Figures, kind: str) -> None:
    """How a tick of 100 slows down with many schedules and a long history."""
    ours, raw = (_ticks(figures, kind, side) for side in (OURS, RAW))
    for place in sorted(ours)[1:]:
        grown, rival = (ticks[min(ticks)] / ticks[place] for ticks in (ours, raw))
        row = f"{kind}: tick, {place[0]:,} schedules, {place[1]:,} finished runs"
        found = f"{grown:.2f} x (raw {rival:.2f} x)"
        goals.judge(row, f"{row}: at most {GROWTH[kind]} x", found=found, met=grown <= GROWTH[kind])


def _ticks(figures: Figures, kind: str, side: str) -> dict[tuple[int, int], float]:
    """Ticks of 100 a second, by schedules and history."""
    return {
        (key[1], key[2]): median_rate(rates).rows
        for key, rates in figures.items()
        if key[0] == kind and key[3:] == (100, "tick", side)
    }


def median_rate(rates: list[Rate]) -> Rate:
    """The median of both figures."""
    return Rate(statistics.median(r.rows for r in rates), statistics.median(r.cpu for r in rates))


def rate_ratio(rates: list[Rate], raw: list[Rate]) -> float:
    """Our rate divided by raw SQL's."""
    return median_rate(rates).rows / median_rate(raw).rows


def spread(rates: list[Rate]) -> str:
    """Median, lowest and highest."""
    rows = [rate.rows for rate in rates]
    return f"{statistics.median(rows):,.0f} ({min(rows):,.0f}–{max(rows):,.0f})"
