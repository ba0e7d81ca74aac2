"""The cron trigger: an expression in a time zone, as a set of instants.

The set depends only on the expression, the zone, the installed zone data and the policy for clock changes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from typing import get_args

from timewright.core.moments import EPOCH, as_instant
from timewright.core.recurrence.cron.days import matching_days
from timewright.core.recurrence.cron.description import describe_cron
from timewright.core.recurrence.cron.grammar import parse
from timewright.core.recurrence.cron.impossible import never_fires_error
from timewright.core.recurrence.cron.lint import lint_cron
from timewright.core.recurrence.offset_periods import DstPolicy, offset_periods
from timewright.core.recurrence.search import OccurrenceSearch
from timewright.core.recurrence.trigger import ZonedTrigger
from timewright.core.zones import DEFAULT_ZONE
from timewright.errors import InvalidCron, InvalidInput

MAX_KEY_LENGTH = 256


class Cron(ZonedTrigger, frozen=True, tag="cron", dict=True):
    """A cron expression in a zone; `dst` is the policy for clock changes, `key` the seed of `H` values."""

    expression: str
    zone: str = DEFAULT_ZONE
    dst: DstPolicy = "vixie"
    key: str | None = None

    def __post_init__(self) -> None:
        _check(self.expression, self.dst, self.key)
        self._set_zone(self.zone)
        self._search  # noqa: B018 - compiling checks the expression; the result is cached

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first occurrence strictly after the instant, up to the year 9999."""
        since = (moment if moment.tzinfo is UTC else as_instant(moment)) - EPOCH
        instant = since.days * 86_400 + since.seconds + 1 if since.days >= 0 else 0
        found = self._search.next_from(instant)
        return None if found is None else EPOCH + timedelta(0, found)

    def previous_before(self, moment: datetime) -> datetime | None:
        """Return the last occurrence strictly before the instant, back to 1970."""
        since = as_instant(moment) - EPOCH
        within = 0 if since.microseconds else 1
        found = self._search.last_to(since.days * 86_400 + since.seconds - within)
        return None if found is None else EPOCH + timedelta(0, found)

    def describe(self) -> str:
        """Return words: `at 09:00 on Monday through Friday, Europe/Berlin time`."""
        parsed = parse(self.expression, self.key)
        words = describe_cron(parsed)
        return words if self.zone == "UTC" and not parsed.is_wall_clock else f"{words}, {self._zone_words}"

    def warnings(self) -> tuple[str, ...]:
        """Return warnings about parts of the expression that are probably not intended."""
        return lint_cron(parse(self.expression, self.key))

    @cached_property
    def _search(self) -> OccurrenceSearch:
        return _compiled(self.expression, self.zone, self.dst, self.key)


@lru_cache(maxsize=1024)
def _compiled(text: str, zone: str, dst: DstPolicy, key: str | None) -> OccurrenceSearch:
    """Compile an expression; cached, so equal triggers share the result."""
    expression = parse(text, key)
    if not expression.can_fire:
        raise never_fires_error(text, expression)
    days = None if expression.every_day else matching_days(expression.rule, expression.years)
    policy = "match" if dst == "vixie" and expression.is_interval else dst
    return OccurrenceSearch(
        seconds=expression.seconds,
        minutes=expression.minutes,
        hours=expression.hours,
        days=days,
        periods=offset_periods(zone, policy),
    )


def _check(expression: object, dst: object, key: object) -> None:
    """Check the types of constructor arguments, which no decoder has checked."""
    if not isinstance(expression, str):
        raise InvalidCron(
            f"cron {ascii(expression)[:60]} is not text",
            field="expression",
            value=expression,
            rule="an expression is text with 5 to 7 fields",
            fix="'0 9 * * 1-5'",
        )
    if dst not in get_args(DstPolicy):
        raise InvalidInput(
            f"dst {ascii(dst)[:60]} is not a policy",
            field="dst",
            value=dst,
            rule=f"one of {', '.join(get_args(DstPolicy))}",
            fix="vixie: once a day for fixed times, every time for the rest",
        )
    if key is not None and not (isinstance(key, str) and 0 < len(key) <= MAX_KEY_LENGTH):
        raise InvalidInput(
            f"key {ascii(key)[:60]} is not a key",
            field="key",
            value=key,
            rule=f"stable text of 1 to {MAX_KEY_LENGTH} characters",
            fix="the id of the schedule",
        )
