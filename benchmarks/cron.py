"""How long does the next cron occurrence take, compared with cronsim, croniter and APScheduler 3?

Also measured: the slowest `next` of any pattern without caches, the time to parse or refuse an expression,
and the time and memory that hostile texts take.
"""

from __future__ import annotations

import contextlib
import platform
import statistics
import sys
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from time import perf_counter
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger
from croniter import croniter
from cronsim import CronSim

from timewright.core.recurrence import cron as cron_module
from timewright.core.recurrence.cron import Cron
from timewright.core.recurrence.cron import days as cron_days
from timewright.core.recurrence.cron import grammar as cron_grammar
from timewright.core.recurrence.offset_periods import OffsetPeriods
from timewright.errors import InvalidCron

Walker = Callable[[], Callable[[], None]]

START = datetime(2026, 1, 15, 12, 34, 56, tzinfo=UTC)
ZONES = ("UTC", "America/New_York")
ROUNDS = 3
STEPS = 200
RIVALS = ("timewright", "cronsim", "croniter", "apscheduler")

PATTERNS = (
    "* * * * *",
    "*/5 * * * *",
    "*/7 * * * *",
    "0 * * * *",
    "5,35 */2 * * *",
    "*/15 9-17 * * MON-FRI",
    "30 2 * * *",
    "0 9 * * MON-FRI",
    "0 3 * * SAT,SUN",
    "0 0 * * SUN",
    "0 0 1 * *",
    "15 10 15 * *",
    "0 0 1,15 * *",
    "0 0 L * *",
    "0 12 * * MON#1",
    "45 4 * 1-6 TUE",
    "0 0 13 * FRI",
    "0 0 1 1 *",
    "59 23 31 12 *",
    "0 0 29 2 *",
)

SPARSE = (
    "0 0 29 2 +1",
    "0 0 * 2 1#5",
    "0 0 29 2 1#5",
    "0 0 29W 2 *",
    "0 0 L-30 1 +SUN",
    "0 0 31 12 +0#5",
    "0 0 0 31 12 * 9998",
    "0 0 0 29 2 +MON 9988",
    "0 0 0 29 2 * */397",
    "59 59 23 29 2 +SAT 1992,9992",
    "0 0 0 1 1 * 1970",
    "* * * * * *",
    "0-59/59,1-59/58 1-59/57,58 23,0 L,LW,1W,31W,L-30 1-12/11 0#5,6L 1970-9999/13",
)

IMPOSSIBLE = (
    "0 0 31 2 *",
    "0 0 31 4,6,9,11 *",
    "0 0 0 29 2 * 2025",
    "0 0 1 * +MON#2",
    "0 0 0 29 2 +MON 1970-1980",
)

HOSTILE = {
    "20 000 list items": "1," * 20_000 + "1 * * * *",
    "100 kB of spaces": " " * 100_000,
    "100 kB of parentheses": "(" * 100_000 + " * * * *",
    "10 MB of digits": "9" * 10_000_000,
    "256 characters of list": "1," * 123 + "1 * * * *",
    "256 characters of year ranges": "0 0 0 29 2 +1 " + ",".join(["1970-9999/7"] * 20),
    "256 characters of steps": "*/" * 120 + "5 * * * *",
    "256 characters of ranges": "1-" * 120 + "5 * * * *",
    "256 emoji": "\U0001f600" * 256,
    "256 ligatures": "\ufdfa" * 256,
    "a close match for every name": " ".join(["* * * *", "SUNMONTUEWEDTHUFRISAT" * 11]),
    "a large step": "*/9999999999 * * * *",
}


def main(arguments: list[str]) -> int:
    rounds = int(arguments[0]) if arguments else ROUNDS
    print(conditions(rounds))
    for zone in ZONES:
        print(compare_next(zone, rounds))
    print(sparse())
    print(parse_times())
    print(hostile_texts())
    return 0


def conditions(rounds: int) -> str:
    names = ("cronsim", "croniter", "apscheduler", "tzdata")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    machine = f"{platform.system()} {platform.machine()}"
    return "\n".join(
        [
            f"Python {platform.python_version()}, {machine}, one thread; {versions}",
            f"{len(PATTERNS)} patterns, {STEPS} steps each from {START:%Y-%m-%d %H:%M:%S} UTC",
            "parsed before the clock starts, warmed by one walk",
            f"{rounds} rounds, the libraries by turns; median (lowest-highest) of the rounds",
            "",
        ]
    )


# ---------------------------------------------------------------------------------------- against the others


def compare_next(zone: str, rounds: int) -> str:
    lines = [f"us per next, {zone}", f"{'pattern':<24}" + "".join(f"{rival:>26}" for rival in RIVALS)]
    medians: dict[str, dict[str, float]] = {rival: {} for rival in RIVALS}
    for pattern in PATTERNS:
        walkers = {rival: walker for rival in RIVALS if (walker := WALKERS[rival](pattern, zone)) is not None}
        taken: dict[str, list[float]] = {rival: [] for rival in walkers}
        for prepare in walkers.values():
            per_step(prepare)
        for _ in range(rounds):
            for rival, prepare in walkers.items():
                taken[rival].append(per_step(prepare))
        cells = [f"{spread(taken[rival]):>26}" if rival in taken else f"{'-':>26}" for rival in RIVALS]
        lines.append(f"{pattern:<24}" + "".join(cells))
        for rival, times in taken.items():
            medians[rival][pattern] = statistics.median(times)
    return "\n".join([*lines, *summary(medians), ""])


def summary(medians: dict[str, dict[str, float]]) -> list[str]:
    """Geometric means, and how many times as long each library takes on the patterns it supports."""
    lines: list[str] = []
    for rival in RIVALS:
        theirs = medians[rival]
        ours = [medians["timewright"][pattern] for pattern in theirs]
        ratio = mean(theirs.values()) / mean(ours)
        note = (
            f"{ratio:5.1f} times timewright on the same {len(theirs)} patterns"
            if rival != "timewright"
            else ""
        )
        lines.append(f"geometric mean, {rival:<12}{mean(theirs.values()):8.2f} us  {note}")
    return lines


def per_step(prepare: Walker) -> float:
    walk = prepare()
    began = perf_counter()
    walk()
    return (perf_counter() - began) / STEPS * 1e6


def spread(times: list[float]) -> str:
    return f"{statistics.median(times):.2f} ({min(times):.2f}-{max(times):.2f})"


def mean(times: object) -> float:
    return statistics.geometric_mean(times)  # type: ignore[arg-type]


def timewright_walker(pattern: str, zone: str) -> Walker:
    cron = Cron(pattern, zone)
    return lambda: lambda: follow(cron.next_after)


def follow(ask: Callable[[datetime], datetime]) -> None:
    moment = START
    for _ in range(STEPS):
        moment = ask(moment)


def cronsim_walker(pattern: str, zone: str) -> Walker:
    def prepare() -> Callable[[], None]:
        steps = CronSim(pattern, START.astimezone(ZoneInfo(zone)))
        return lambda: repeat(steps.__next__)

    return prepare


def croniter_walker(pattern: str, zone: str) -> Walker:
    def prepare() -> Callable[[], None]:
        steps = croniter(pattern, START.astimezone(ZoneInfo(zone)), ret_type=datetime)
        return lambda: repeat(steps.get_next)

    return prepare


def repeat(step: Callable[[], object]) -> None:
    for _ in range(STEPS):
        step()


def apscheduler_walker(pattern: str, zone: str) -> Walker | None:
    _, _, day, _, weekday = pattern.split()
    if "#" in weekday or (day != "*" and weekday != "*"):
        return None  # it has no nth weekday in this syntax, and joins the day fields by AND
    trigger = CronTrigger.from_crontab(pattern.replace("L", "last"), timezone=ZoneInfo(zone))
    return lambda: lambda: follow(lambda moment: trigger.get_next_fire_time(moment, moment))


WALKERS = {
    "timewright": timewright_walker,
    "cronsim": cronsim_walker,
    "croniter": croniter_walker,
    "apscheduler": apscheduler_walker,
}


# ------------------------------------------------------------------------------------------- the slowest


def sparse() -> str:
    """The slowest of 60 starts between 1970 and 2199, with cold and with warm caches of the zone."""
    lines = ["slowest next and previous, us (the best of 3 for each of 60 starts, then the slowest start)"]
    lines.append(f"{'pattern':<82}{'zone':<22}{'pages forgotten':>16}{'kept':>10}")
    worst = 0.0
    for pattern in (*PATTERNS, *SPARSE):
        for zone in (*ZONES, "Africa/Casablanca"):
            cron = Cron(pattern, zone)
            forgotten = max(slowest(cron, forget=True))
            kept = max(slowest(cron, forget=False))
            worst = max(worst, forgotten)
            if pattern in SPARSE or forgotten == worst:
                lines.append(f"{pattern:<82}{zone:<22}{forgotten:>16.0f}{kept:>10.1f}")
    return "\n".join([*lines, f"slowest of all: {worst:.0f} us", ""])


def slowest(cron: Cron, *, forget: bool) -> list[float]:
    found: list[float] = []
    for number in range(60):
        moment = datetime(1970, 1, 2, tzinfo=UTC) + timedelta(days=number * 1400, seconds=number * 7919)
        asks = (cron.next_after, cron.previous_before)
        found += [min(one_call(ask, moment, forget=forget) for _ in range(3)) for ask in asks]
    return found


def one_call(ask: Callable[[datetime], object], moment: datetime, *, forget: bool) -> float:
    if forget:
        OffsetPeriods._pages.clear()
    began = perf_counter()
    ask(moment)
    return (perf_counter() - began) * 1e6


# -------------------------------------------------------------------------------------- reading and refusing


def parse_times() -> str:
    """How long it takes to parse an expression without caches."""
    taken = [best_parse_time(pattern) for pattern in PATTERNS]
    again = mean([best_parse_time(pattern, forget=False) for pattern in PATTERNS])
    lines = [
        f"parsing, us: geometric mean {mean(taken):.1f}, slowest {max(taken):.1f}, again {again:.1f}",
        f"parsing a sparse pattern, us: slowest {max(best_parse_time(pattern) for pattern in SPARSE):.0f}",
    ]
    lines += [f"refusing {pattern!r:<32}{best_parse_time(pattern):8.0f} us" for pattern in IMPOSSIBLE]
    return "\n".join([*lines, ""])


def best_parse_time(text: str, *, forget: bool = True) -> float:
    return min(parse_once(text, forget=forget) for _ in range(5)) * 1e6


def parse_once(text: str, *, forget: bool) -> float:
    if forget:
        cron_module._compiled.cache_clear()
        cron_grammar._read.cache_clear()
        cron_days.matching_days.cache_clear()
        text = (text + " ")[:-1]  # a new object, whose hash nobody has computed yet
    began = perf_counter()
    with contextlib.suppress(InvalidCron):
        Cron(text, "America/New_York")
    return perf_counter() - began


def hostile_texts() -> str:
    lines = [
        "hostile texts (memory includes the text and a copy of it)",
        f"{'text':<34}{'answer':<10}{'ms':>9}{'peak kB':>10}",
    ]
    for name, text in HOSTILE.items():
        parse_once(text, forget=True)
        taken = max(parse_once(text, forget=True) for _ in range(ROUNDS)) * 1e3
        tracemalloc.start()
        parse_once(text, forget=True)
        peak = tracemalloc.get_traced_memory()[1] / 1024
        tracemalloc.stop()
        lines.append(f"{name:<34}{answer(text):<10}{taken:>9.3f}{peak:>10.0f}")
    return "\n".join(lines)


def answer(text: str) -> str:
    try:
        Cron(text)
    except InvalidCron:
        return "refused"
    return "accepted"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
