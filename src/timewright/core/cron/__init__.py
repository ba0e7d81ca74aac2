"""Recurrence by the calendar: a cron expression in a time zone, as a set of instants.

The set depends on the expression, the zone, its data and the policy for clock changes; on nothing
else. `docs/cron.md` says what it holds.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from typing import TypeAlias, get_args

from timewright.core.cron.days import matching_days
from timewright.core.cron.grammar import parse
from timewright.core.cron.impossible import never_fires
from timewright.core.cron.lint import warnings
from timewright.core.cron.search import Search
from timewright.core.cron.stretches import Counting, stretches
from timewright.core.cron.words import describe
from timewright.core.moments import EPOCH, as_instant
from timewright.core.trigger import Trigger
from timewright.core.zones import check_zone
from timewright.errors import InvalidCron, InvalidInput

Dst: TypeAlias = Counting

LONGEST_KEY = 256


class Cron(Trigger, frozen=True, tag="cron", dict=True):
    """A cron expression in a zone; `dst` says what clock changes do, `key` is what `H` is spread by."""

    expression: str
    zone: str = "UTC"
    dst: Dst = "vixie"
    key: str | None = None

    def __post_init__(self) -> None:
        _check(self.expression, self.dst, self.key)
        check_zone(self.zone)
        self._search  # noqa: B018 - compiling is the check, and is kept for the first question

    def next_after(self, moment: datetime) -> datetime | None:
        """The first occurrence strictly after the instant, up to the end of the year 9999."""
        since = (moment if moment.tzinfo is UTC else as_instant(moment)) - EPOCH
        instant = since.days * 86_400 + since.seconds + 1 if since.days >= 0 else 0
        found = self._search.next_from(instant)
        return None if found is None else EPOCH + timedelta(0, found)

    def previous_before(self, moment: datetime) -> datetime | None:
        """The last occurrence strictly before the instant, back to the start of 1970."""
        since = as_instant(moment) - EPOCH
        within = 0 if since.microseconds else 1
        found = self._search.last_to(since.days * 86_400 + since.seconds - within)
        return None if found is None else EPOCH + timedelta(0, found)

    def describe(self) -> str:
        """In words: `at 09:00 on Monday through Friday`."""
        words = describe(parse(self.expression, self.key))
        return words if self.zone == "UTC" else f"{words}, {self.zone} time"

    def warnings(self) -> tuple[str, ...]:
        """What the expression says that may not be what was meant."""
        return warnings(parse(self.expression, self.key))

    @cached_property
    def _search(self) -> Search:
        return _compiled(self.expression, self.zone, self.dst, self.key)


@lru_cache(maxsize=1024)
def _compiled(text: str, zone: str, dst: Dst, key: str | None) -> Search:
    """The search for an expression, shared by equal values."""
    expression = parse(text, key)
    if not expression.can_fire:
        raise never_fires(text, expression)
    days = None if expression.every_day else matching_days(expression.rule, expression.years)
    counting = "match" if dst == "vixie" and expression.cadence else dst
    return Search(
        seconds=expression.seconds,
        minutes=expression.minutes,
        hours=expression.hours,
        days=days,
        stretches=stretches(zone, counting),
    )


def _check(expression: object, dst: object, key: object) -> None:
    """Types are checked by hand where no decoder stands in front."""
    if not isinstance(expression, str):
        raise InvalidCron(
            f"cron {ascii(expression)[:60]} is not text",
            field="expression",
            value=expression,
            rule="an expression is text with five to seven fields",
            fix="'0 9 * * 1-5'",
        )
    if dst not in get_args(Dst):
        raise InvalidInput(
            f"dst {ascii(dst)[:60]} is not a policy",
            field="dst",
            value=dst,
            rule=f"one of {', '.join(get_args(Dst))}",
            fix="vixie: once a day for fixed times, every time for the rest",
        )
    if key is not None and not (isinstance(key, str) and 0 < len(key) <= LONGEST_KEY):
        raise InvalidInput(
            f"key {ascii(key)[:60]} is not a key",
            field="key",
            value=key,
            rule=f"text of 1 to {LONGEST_KEY} characters that never changes",
            fix="the id of the schedule",
        )
