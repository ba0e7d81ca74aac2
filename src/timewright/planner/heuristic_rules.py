"""Advice by rules: slow down on failures, speed up on a rise or a passed threshold, otherwise clear hints."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from timewright.core.moments import DAY, MINUTE, format_duration, format_instant
from timewright.core.schedule.hints import MAX_PAUSE, MIN_INTERVAL
from timewright.planner.response_metrics import (
    CRITICAL_WORDS,
    DEGRADED_WORDS,
    HEALTHY_WORDS,
    MetricTrend,
    ParsedResponse,
    metric_trend,
)

MIN_REVIEW_DELAY = 5 * MINUTE
# Factors by which the interval may shrink, and grow while the schedule fails. Six is above the promised five
# and divides a minute; with eight, a critical phase of 90 minutes more than doubled the runs of eight hours.
MAX_SPEEDUP = 6
MAX_SLOWDOWN = 4
# While it fails it waits for this share of the outage so far, so that its end is seen soon after it.
OUTAGE_SHARE = 4
# The most doublings of a stretch cadence.
MAX_DOUBLINGS = 5
MIN_FAILURES = 2
# Run at least this often before the metric becomes critical.
RUNS_BEFORE_CRITICAL = 4
MIN_DEPENDENCY_PAUSE = 15 * MINUTE
ASSUMED_CRON_INTERVAL = 30 * MINUTE
# A metric that rises by less than this share of its limit within one interval counts as steady.
MIN_RISE_SHARE = 0.02

MAX_BATCH_CHARS = 68

ToolInvocation = tuple[str, dict[str, Any]]


class AdviceInput(Struct, frozen=True, kw_only=True):
    """What is known of a schedule: interval and bounds, failures, hints, and responses."""

    now: datetime
    next_at: datetime | None = None
    interval: timedelta | None = None
    min_interval: timedelta = MIN_INTERVAL
    max_interval: timedelta = DAY
    own_instant: datetime | None = None
    last_start: datetime | None = None
    failures: int = 0
    has_stretch_cadence: bool = False
    hinted_interval: timedelta | None = None
    hint_ends_at: datetime | None = None
    is_paused_by_hint: bool = False
    responses: tuple[ParsedResponse, ...] = ()
    siblings: dict[str, ParsedResponse] = {}

    @property
    def base_interval(self) -> timedelta:
        """The schedule's own interval; a cron schedule counts as half-hourly."""
        return self.interval or ASSUMED_CRON_INTERVAL

    @property
    def outage(self) -> timedelta:
        """How long it has failed at least: since the first of the last failed responses that are known."""
        began = self.now
        for response in reversed(self.responses):
            if response.ok:
                break
            began = response.at
        return self.now - began

    def clamp_interval(self, interval: timedelta) -> timedelta:
        """Limit an interval to the bounds of the schedule and of hints, in whole seconds."""
        inside = min(
            max(interval, self.min_interval, MIN_INTERVAL), max(self.max_interval, self.min_interval)
        )
        return timedelta(seconds=round(inside.total_seconds()))

    def divide_interval(self, interval: timedelta) -> timedelta:
        """The nearest whole part of its own interval, so that it keeps its own instants, if allowed."""
        if self.interval is None or interval >= self.interval:
            return interval
        micros = self.interval // timedelta(microseconds=1)
        lowest, highest = max(self.min_interval, MIN_INTERVAL), max(self.max_interval, self.min_interval)
        parts = range(int(self.interval / interval + 0.5), 0, -1)
        fitting = (self.interval / n for n in parts if micros % n == 0)
        return next((part for part in fitting if lowest <= part <= highest), interval)

    def first_instant(self, interval: timedelta) -> datetime | None:
        """The next instant at whole intervals from its own ones."""
        if self.own_instant is None or self.interval is None:
            return None
        return self.own_instant + ((self.now - self.own_instant) // interval + 1) * interval


class Advice(Struct, frozen=True, kw_only=True):
    """The tool calls to make, with reasoning, confidence, and when to analyse again."""

    tool_calls: tuple[ToolInvocation, ...] = ()
    reasoning: str
    confidence: str = "medium"
    look_again_in: timedelta = MIN_REVIEW_DELAY


def apply_rules(case: AdviceInput) -> Advice:
    """Return the advice of the first rule that applies."""
    for rule in RULES:
        advice = rule(case)
        if advice is not None:
            return advice
    return _clear_hints(case, "nothing in its responses asks for another interval", confidence="low")


def _rule_cooldown(case: AdviceInput) -> Advice | None:
    newest = _newest(case)
    until = newest.cooldown_until if newest is not None else None
    if until is None or until <= case.now + MIN_INTERVAL:
        return None
    end = min(until, case.now + MAX_PAUSE)
    why = f"it asks for a pause until {format_instant(until)}"
    return _pause(case, end, why, confidence="high")


def _rule_failures(case: AdviceInput) -> Advice | None:
    """Relax by the length of the outage, at most four-fold, and never past the end of a hint.

    Failures are not counted: at a pace that a hint made faster there are more of them in the same time.
    """
    if case.failures < MIN_FAILURES:
        if case.failures == 0 or case.hinted_interval is None:
            return None
        return Advice(reasoning="Keep its hint: one failure says little.", look_again_in=_next_review(case))
    why = f"{case.failures} failures in a row, for {format_duration(_whole_seconds(case.outage))}"
    wait = case.outage / OUTAGE_SHARE
    base, hinted = case.base_interval, case.hinted_interval
    if case.interval is None:
        return _pause(case, case.now + min(max(wait, 5 * MINUTE), MAX_PAUSE), why)
    if hinted is not None and hinted < base and case.hint_ends_at is not None:
        # At most half of its own interval: its own next run would not have come earlier.
        relaxed = case.clamp_interval(min(max(hinted, wait), hinted * MAX_SLOWDOWN, base / 2))
        left = max(int((case.hint_ends_at - case.now) / MINUTE), 1)
        return _interval(case, relaxed, why, confidence="high", ttl_minutes=left)
    if case.has_stretch_cadence:
        # How often its cadence would have doubled the interval at its own pace within the outage.
        doublings = min(int(math.log2(case.outage / base + 2)), MAX_DOUBLINGS)
        if min(case.failures, MAX_DOUBLINGS) <= doublings:
            return _clear_hints(case, f"{why}: its cadence slows it down", confidence="high")
        relaxed = case.clamp_interval(base * min(2**doublings, MAX_SLOWDOWN))
        return _interval(case, relaxed, why, confidence="high")
    relaxed = case.clamp_interval(min(max(base, wait), base * MAX_SLOWDOWN))
    return _interval(case, relaxed, why, confidence="high")


def _rule_dependency(case: AdviceInput) -> Advice | None:
    newest = _newest(case)
    if newest is None or newest.get_word("dependency_status", "dependency") not in CRITICAL_WORDS:
        return None
    rest = min(max(case.base_interval, MIN_DEPENDENCY_PAUSE), MAX_PAUSE)
    return _pause(case, case.now + rest, "its dependency is down")


def _rule_sibling_ready(case: AdviceInput) -> Advice | None:
    """If a sibling became ready after this schedule's last response, run once now.

    A batch that the last response names too is handled already.
    """
    newest = _newest(case)
    for name, response in sorted(case.siblings.items()):
        is_news = newest is None or response.at > newest.at
        batch = response.fields.get("batch_id")
        is_handled = newest is not None and batch is not None and newest.fields.get("batch_id") == batch
        if response.is_ready and is_news and not is_handled:
            # The name is short; the id comes from a response and may be any text.
            with_batch = f" with batch {str(batch)[:MAX_BATCH_CHARS]}" if batch is not None else ""
            what = f"{name} is ready{with_batch}"
            invocation: ToolInvocation = (
                "propose_next_time",
                {"at": format_instant(case.now), "reason": what},
            )
            return Advice(tool_calls=(invocation,), reasoning=f"Run once now: {what}.", confidence="high")
    return None


def _rule_metric(case: AdviceInput) -> Advice | None:
    metric = metric_trend(case.responses)
    if metric is None:
        return None
    seen = f"{metric.name} is {_short(metric.value)}"
    limit = metric.critical
    if limit is not None and metric.value >= limit:
        seen = f"{seen}, past {_short(limit)}"
        share = 4 if metric.per_minute < 0 else MAX_SPEEDUP
        return _interval(case, case.clamp_interval(case.base_interval / share), seen, confidence="high")
    if _is_rising(case, metric):
        seen = f"{seen} and rises by {_short(metric.per_minute)} a minute"
        return _interval(
            case, _interval_before_critical(case, metric), seen, confidence="high" if limit else "medium"
        )
    if metric.warning is not None and metric.value >= metric.warning and metric.per_minute >= 0:
        return _interval(
            case, case.clamp_interval(case.base_interval / 4), f"{seen}, past {_short(metric.warning)}"
        )
    falls = " and falls" if metric.per_minute < 0 else " and steady"
    return _clear_hints(case, seen + falls, confidence="high" if limit else "medium")


def _rule_stated_health(case: AdviceInput) -> Advice | None:
    newest = _newest(case)
    state = newest.get_word("status", "state", "health") if newest is not None else ""
    if state in CRITICAL_WORDS:
        return _interval(
            case, case.clamp_interval(case.base_interval / MAX_SPEEDUP), f"it reports the state {state}"
        )
    if state in DEGRADED_WORDS:
        return _interval(case, case.clamp_interval(case.base_interval / 4), f"it reports the state {state}")
    return _clear_hints(case, f"it reports the state {state}") if state in HEALTHY_WORDS else None


RULES: tuple[Callable[[AdviceInput], Advice | None], ...] = (
    _rule_cooldown,
    _rule_failures,
    _rule_dependency,
    _rule_sibling_ready,
    _rule_metric,
    _rule_stated_health,
)


def _is_rising(case: AdviceInput, metric: MetricTrend) -> bool:
    """Whether the metric grows so fast that waiting a whole interval matters."""
    if len(case.responses) < 2 or metric.per_minute <= 0:
        return False
    scale = metric.critical or max(abs(metric.value), 1.0)
    ahead = metric.per_minute * (case.base_interval / MINUTE)
    left = metric.minutes_left
    if left is not None and left > RUNS_BEFORE_CRITICAL * (case.base_interval / MINUTE):
        return False
    return ahead >= MIN_RISE_SHARE * scale and (left is not None or ahead >= scale / 5)


def _interval_before_critical(case: AdviceInput, metric: MetricTrend) -> timedelta:
    """An interval that allows several runs before the metric is critical, at most the usual one."""
    left = metric.minutes_left
    wanted = case.base_interval / 4 if left is None else left * MINUTE / RUNS_BEFORE_CRITICAL
    return case.clamp_interval(min(max(wanted, case.base_interval / MAX_SPEEDUP), case.base_interval))


def _interval(
    case: AdviceInput,
    interval: timedelta,
    why: str,
    *,
    confidence: str = "medium",
    ttl_minutes: int | None = None,
) -> Advice:
    interval = case.divide_interval(interval)
    spelled = format_duration(interval)
    ends = case.hint_ends_at is not None and case.hint_ends_at - case.now <= 2 * MIN_REVIEW_DELAY
    is_renewed = ends and ttl_minutes is None
    near = case.hinted_interval is not None and 0.8 <= interval / case.hinted_interval <= 1.25
    if case.hinted_interval is not None and near and not is_renewed:
        # A change below 25 % is not worth one of the twelve hints an hour.
        reasoning = f"A hint for every {format_duration(case.hinted_interval)} exists already: {why}."
        return Advice(reasoning=reasoning, confidence=confidence, look_again_in=_next_review(case))
    if interval == case.interval and case.hinted_interval is None:
        reasoning = f"Keep every {spelled}: {why}."
        return Advice(reasoning=reasoning, confidence=confidence, look_again_in=_next_review(case))
    # A hint counts from now, and a run that is planned earlier stays.
    then = case.now + interval if case.next_at is None else min(case.now + interval, case.next_at)
    arguments: dict[str, Any] = {"interval_seconds": interval.total_seconds(), "reason": why}
    if ttl_minutes is not None:
        arguments["ttl_minutes"] = ttl_minutes
    return Advice(
        tool_calls=(("propose_interval", arguments), *_keep_own_instants(case, interval, then)),
        reasoning=f"Run every {spelled} instead of {format_duration(case.base_interval)}: {why}.",
        confidence=confidence,
        look_again_in=_next_review(case, interval),
    )


def _keep_own_instants(
    case: AdviceInput, interval: timedelta, then: datetime | None
) -> tuple[ToolInvocation, ...]:
    """A run at the next instant of its own rhythm, unless it runs `then` anyway; later ones count from it.

    Without it, the end of an outage could be seen later than without a hint.
    """
    at = case.first_instant(interval)
    if at is None or at == then:
        return ()
    left = math.ceil((at - case.now) / MINUTE) + 1
    arguments = {"at": format_instant(at), "ttl_minutes": min(left, 1440), "reason": "keep its own instants"}
    return (("propose_next_time", arguments),)


def _pause(case: AdviceInput, until: datetime, why: str, *, confidence: str = "medium") -> Advice:
    if case.is_paused_by_hint:
        reasoning = f"It is paused already: {why}."
        return Advice(reasoning=reasoning, confidence=confidence, look_again_in=_next_review(case))
    invocation: ToolInvocation = ("pause_until", {"until": format_instant(until), "reason": why})
    return Advice(
        tool_calls=(invocation,),
        reasoning=f"Pause until {format_instant(until)}: {why}.",
        confidence=confidence,
        look_again_in=_clamp_review_delay(until - case.now),
    )


def _clear_hints(case: AdviceInput, why: str, *, confidence: str = "medium") -> Advice:
    look = _next_review(case)
    if case.hinted_interval is None:
        return Advice(reasoning=f"No change: {why}.", confidence=confidence, look_again_in=look)
    invocation: ToolInvocation = ("clear_hints", {"reason": why})
    reasoning = f"Back to its own interval: {why}."
    then = case.last_start + case.base_interval if case.last_start is not None else None
    calls = (invocation, *_keep_own_instants(case, case.base_interval, then))
    return Advice(tool_calls=calls, reasoning=reasoning, confidence=confidence, look_again_in=look)


def _next_review(case: AdviceInput, interval: timedelta | None = None) -> timedelta:
    """When to analyse again: after the next response, or soon if there are siblings."""
    if case.siblings:
        return MIN_REVIEW_DELAY
    until = case.next_at - case.now if case.next_at is not None else case.base_interval
    return _clamp_review_delay(min(until, interval) if interval is not None else until)


def _clamp_review_delay(until: timedelta) -> timedelta:
    return min(max(until, MIN_REVIEW_DELAY), DAY)


def _whole_seconds(span: timedelta) -> timedelta:
    return timedelta(seconds=round(span.total_seconds()))


def _newest(case: AdviceInput) -> ParsedResponse | None:
    return case.responses[-1] if case.responses else None


def _short(value: float) -> str:
    return f"{value:.4g}"


def sort_by_time(responses: Sequence[ParsedResponse]) -> tuple[ParsedResponse, ...]:
    """Responses in the order of their instants."""
    return tuple(sorted(responses, key=lambda one: one.at))
