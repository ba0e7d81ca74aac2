"""Rules that need nobody: failing relaxes, a rise or a passed threshold tightens, calm lets go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from timewright.core.hints import LONGEST_PAUSE, SHORTEST_INTERVAL
from timewright.core.moments import DAY, MINUTE, spell_duration, spell_instant
from timewright.planner.readings import ALARMED, CALM, WORRIED, Pressure, Reading, pressure_of

SOONEST_LOOK = 5 * MINUTE
# How much nearer its next time may come, and how much further while it fails.
TIGHTEST = 8
MOST_DOUBLINGS = 5
FAILURES_THAT_COUNT = 2
# Looked at four times before it is critical, so that whichever look is the last one is near.
LOOKS_AHEAD = 4
DEPENDENCY_REST = 15 * MINUTE
UNSURE_INTERVAL = 30 * MINUTE
# A metric that rises by less than this share of its limit until the next time is steady.
STEADY_SHARE = 0.02

Say = tuple[str, dict[str, Any]]


class Case(Struct, frozen=True, kw_only=True):
    """What is known of a schedule: its pace and bounds, its failures, its wishes, and what it answered."""

    now: datetime
    next_at: datetime | None = None
    interval: timedelta | None = None
    floor: timedelta = SHORTEST_INTERVAL
    ceiling: timedelta = DAY
    failures: int = 0
    stretches: bool = False
    hinted: timedelta | None = None
    resting: bool = False
    readings: tuple[Reading, ...] = ()
    siblings: dict[str, Reading] = {}

    @property
    def pace(self) -> timedelta:
        """How often it runs by itself; what runs by cron is taken as half-hourly."""
        return self.interval or UNSURE_INTERVAL

    def bounded(self, interval: timedelta) -> timedelta:
        """An interval within the bounds of the schedule and of hints, in whole seconds."""
        inside = min(max(interval, self.floor, SHORTEST_INTERVAL), max(self.ceiling, self.floor))
        return timedelta(seconds=round(inside.total_seconds()))


class Advice(Struct, frozen=True, kw_only=True):
    """What the rules say: the tools to use, why in one sentence, how sure, and when to look again."""

    says: tuple[Say, ...] = ()
    reasoning: str
    confidence: str = "medium"
    look_again_in: timedelta = SOONEST_LOOK


def consider(case: Case) -> Advice:
    """The first rule that has something to say about a schedule says it."""
    for rule in RULES:
        advice = rule(case)
        if advice is not None:
            return advice
    return _let_go(case, "nothing in its answers asks for another pace", confidence="low")


def _cooling(case: Case) -> Advice | None:
    newest = _newest(case)
    until = newest.cooling_until if newest is not None else None
    if until is None or until <= case.now + SHORTEST_INTERVAL:
        return None
    end = min(until, case.now + LONGEST_PAUSE)
    why = f"it asks for quiet until {spell_instant(until)}"
    return _pause(case, end, why, confidence="high")


def _failing(case: Case) -> Advice | None:
    if case.failures < FAILURES_THAT_COUNT:
        return None
    why = f"{case.failures} failures in a row"
    if case.stretches:
        # Its own cadence keeps it away already, and only a wish would bring it nearer.
        return _let_go(case, f"{why}: its cadence relaxes it", confidence="high")
    if case.interval is None:
        rest = min(5 * MINUTE * 2 ** min(case.failures, MOST_DOUBLINGS), LONGEST_PAUSE)
        return _pause(case, case.now + rest, why)
    relaxed = case.bounded(case.pace * 2 ** min(case.failures, MOST_DOUBLINGS))
    return _interval(case, relaxed, why, confidence="high")


def _dependency(case: Case) -> Advice | None:
    newest = _newest(case)
    if newest is None or newest.word("dependency_status", "dependency") not in ALARMED:
        return None
    rest = min(max(case.pace, DEPENDENCY_REST), LONGEST_PAUSE)
    return _pause(case, case.now + rest, "what it depends on is down")


def _ready(case: Case) -> Advice | None:
    """A sibling that became ready after our last answer calls for one run now."""
    newest = _newest(case)
    for name, reading in sorted(case.siblings.items()):
        is_news = newest is None or reading.at > newest.at
        batch = reading.fields.get("batch_id")
        is_done = newest is not None and batch is not None and newest.fields.get("batch_id") == batch
        if reading.is_ready and is_news and not is_done:
            what = f"{name} is ready" + (f" with batch {batch}"[:80] if batch is not None else "")
            say: Say = ("propose_next_time", {"at": spell_instant(case.now), "reason": what})
            return Advice(says=(say,), reasoning=f"Run once now: {what}.", confidence="high")
    return None


def _pressed(case: Case) -> Advice | None:
    pressure = pressure_of(case.readings)
    if pressure is None:
        return None
    seen = f"{pressure.name} is {_short(pressure.value)}"
    limit = pressure.critical
    if limit is not None and pressure.value >= limit:
        seen = f"{seen}, past {_short(limit)}"
        share = 4 if pressure.per_minute < 0 else TIGHTEST
        return _interval(case, case.bounded(case.pace / share), seen, confidence="high")
    if _rises(case, pressure):
        seen = f"{seen} and rises by {_short(pressure.per_minute)} a minute"
        return _interval(case, _before(case, pressure), seen, confidence="high" if limit else "medium")
    if pressure.warning is not None and pressure.value >= pressure.warning and pressure.per_minute >= 0:
        return _interval(case, case.bounded(case.pace / 4), f"{seen}, past {_short(pressure.warning)}")
    falls = " and falls" if pressure.per_minute < 0 else " and steady"
    return _let_go(case, seen + falls, confidence="high" if limit else "medium")


def _stated(case: Case) -> Advice | None:
    newest = _newest(case)
    state = newest.word("status", "state", "health") if newest is not None else ""
    if state in ALARMED:
        return _interval(case, case.bounded(case.pace / TIGHTEST), f"it says that it is {state}")
    if state in WORRIED:
        return _interval(case, case.bounded(case.pace / 4), f"it says that it is {state}")
    return _let_go(case, f"it says that it is {state}") if state in CALM else None


RULES: tuple[Callable[[Case], Advice | None], ...] = (
    _cooling,
    _failing,
    _dependency,
    _ready,
    _pressed,
    _stated,
)


def _rises(case: Case, pressure: Pressure) -> bool:
    """Whether it grows so fast that waiting a whole interval would matter."""
    if len(case.readings) < 2 or pressure.per_minute <= 0:
        return False
    scale = pressure.critical or max(abs(pressure.value), 1.0)
    ahead = pressure.per_minute * (case.pace / MINUTE)
    left = pressure.minutes_left
    if left is not None and left > LOOKS_AHEAD * (case.pace / MINUTE):
        return False
    return ahead >= STEADY_SHARE * scale and (left is not None or ahead >= scale / 5)


def _before(case: Case, pressure: Pressure) -> timedelta:
    """An interval that looks several times before the metric is critical, and never slower than usual."""
    left = pressure.minutes_left
    wanted = case.pace / 4 if left is None else left * MINUTE / LOOKS_AHEAD
    return case.bounded(min(max(wanted, case.pace / TIGHTEST), case.pace))


def _interval(case: Case, interval: timedelta, why: str, *, confidence: str = "medium") -> Advice:
    spelled = spell_duration(interval)
    if case.hinted is not None and 0.8 <= interval / case.hinted <= 1.25:
        # A change that nobody would notice is not worth one of the twelve an hour.
        reasoning = f"Every {spell_duration(case.hinted)} is wished already: {why}."
        return Advice(reasoning=reasoning, confidence=confidence, look_again_in=_news_in(case))
    if interval == case.interval and case.hinted is None:
        reasoning = f"Every {spelled} as it is: {why}."
        return Advice(reasoning=reasoning, confidence=confidence, look_again_in=_news_in(case))
    return Advice(
        says=(("propose_interval", {"interval_seconds": interval.total_seconds(), "reason": why}),),
        reasoning=f"Run every {spelled} instead of {spell_duration(case.pace)}: {why}.",
        confidence=confidence,
        look_again_in=_news_in(case, interval),
    )


def _pause(case: Case, until: datetime, why: str, *, confidence: str = "medium") -> Advice:
    if case.resting:
        reasoning = f"It rests already: {why}."
        return Advice(reasoning=reasoning, confidence=confidence, look_again_in=_news_in(case))
    say: Say = ("pause_until", {"until": spell_instant(until), "reason": why})
    return Advice(
        says=(say,),
        reasoning=f"Rest until {spell_instant(until)}: {why}.",
        confidence=confidence,
        look_again_in=_bounded_look(until - case.now),
    )


def _let_go(case: Case, why: str, *, confidence: str = "medium") -> Advice:
    look = _news_in(case)
    if case.hinted is None:
        return Advice(reasoning=f"Leave it as it is: {why}.", confidence=confidence, look_again_in=look)
    say: Say = ("clear_hints", {"reason": why})
    reasoning = f"Back to its own pace: {why}."
    return Advice(says=(say,), reasoning=reasoning, confidence=confidence, look_again_in=look)


def _news_in(case: Case, interval: timedelta | None = None) -> timedelta:
    """When there is something new to read: after the next answer; siblings may have news at any time."""
    if case.siblings:
        return SOONEST_LOOK
    until = case.next_at - case.now if case.next_at is not None else case.pace
    return _bounded_look(min(until, interval) if interval is not None else until)


def _bounded_look(until: timedelta) -> timedelta:
    return min(max(until, SOONEST_LOOK), DAY)


def _newest(case: Case) -> Reading | None:
    return case.readings[-1] if case.readings else None


def _short(value: float) -> str:
    return f"{value:.4g}"


def oldest_first(readings: Sequence[Reading]) -> tuple[Reading, ...]:
    """Readings in the order of their instants."""
    return tuple(sorted(readings, key=lambda one: one.at))
