"""Two libraries as referees: every disagreement has a rule, and every rule is needed.

The rules are the differences that `docs/cron.md` lists.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

from croniter import CroniterError, croniter
from cronsim import CronSim, CronSimError

from tests.core.recurrence.cron_scan import changes
from timewright.core.recurrence.cron import Cron
from timewright.errors import InvalidCron

ZONES = ("UTC", "UTC", "UTC", "Asia/Kolkata", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe")
COUNT = 4000


class Case(NamedTuple):
    """One query, our answer, and the other library's; an error is an empty answer."""

    expression: str
    zone: str
    ours: list[datetime]
    theirs: list[datetime]

    @property
    def fields(self) -> list[str]:
        return ["0", *self.expression.split()][-6:]

    @property
    def items(self) -> list[str]:
        return [item for field in self.fields for item in field.split(",")]

    @property
    def both_days(self) -> bool:
        return self.fields[3] != "*" and self.fields[5] != "*"


# --------------------------------------------------------------------------------------- queries


def random_expression(chance: random.Random) -> str:
    nth = ("MON#1", "5#5", "0#2", "5L", "0L")
    fields = [
        random_field(chance, 0, 59, star=0.2),
        random_field(chance, 0, 23, star=0.3),
        random_field(chance, 1, 31, star=0.5, special=("L",)),
        random_field(chance, 1, 12, star=0.6),
        random_field(chance, 0, 7, star=0.5, special=("MON-FRI", "SAT,SUN", "TUE", *nth)),
    ]
    if chance.random() < 0.25:
        fields.insert(0, random_field(chance, 0, 59, star=0.2))
    return " ".join(fields)


def random_field(
    chance: random.Random, low: int, high: int, *, star: float, special: tuple[str, ...] = ()
) -> str:
    if chance.random() < star:
        return "*"
    if special and chance.random() < 0.25:
        return chance.choice(special)
    return ",".join(random_item(chance, low, high) for _ in range(chance.choice((1, 1, 1, 2, 3))))


def random_item(chance: random.Random, low: int, high: int) -> str:
    first, last = sorted((chance.randint(low, high), chance.randint(low, high)))
    step = chance.randint(1, max(1, high // 2))
    return chance.choice((str(first), str(first), f"{first}-{last}", f"{first}-{last}/{step}", f"*/{step}"))


def random_start(chance: random.Random) -> datetime:
    return datetime(2000, 1, 1, tzinfo=UTC) + timedelta(seconds=chance.randint(0, 35 * 365 * 86_400))


# ----------------------------------------------------------------------------------------- answers


def ours(expression: str, zone: str, start: datetime) -> list[datetime] | None:
    try:
        cron = Cron(expression, zone)
    except InvalidCron as refused:
        if "never fires" in refused.message:
            return None
        raise
    found = [start]
    while len(found) < 6 and (following := cron.next_after(found[-1])) is not None:
        found.append(following)
    return found[1:]


def of_cronsim(expression: str, zone: str, start: datetime) -> list[datetime]:
    try:
        iterator = CronSim(expression, start.astimezone(ZoneInfo(zone)))
        return [next(iterator).astimezone(UTC) for _ in range(5)]
    except (CronSimError, StopIteration):
        return []


def of_croniter(expression: str, zone: str, start: datetime) -> list[datetime]:
    spelled = expression.replace("5L", "L5").replace("0L", "L0")
    try:
        iterator = croniter(spelled, start.astimezone(ZoneInfo(zone)), second_at_beginning=True)
        return [iterator.get_next(datetime).astimezone(UTC) for _ in range(5)]
    except CroniterError:
        return []


@cache
def questions() -> tuple[tuple[str, str, datetime, tuple[datetime, ...]], ...]:
    chance = random.Random(20_260_310)
    found: list[tuple[str, str, datetime, tuple[datetime, ...]]] = []
    while len(found) < COUNT:
        expression, zone, start = random_expression(chance), chance.choice(ZONES), random_start(chance)
        answer = ours(expression, zone, start)
        if answer is not None:
            found.append((expression, zone, start, tuple(answer)))
    return tuple(found)


# ---------------------------------------------------------------------------------- known differences


def star_step_in_a_day_field_means_and(case: Case) -> bool:
    return case.both_days and (case.fields[3].startswith("*") or case.fields[5].startswith("*"))


def equal_range_with_a_step_runs_to_the_end(case: Case) -> bool:
    return any(is_equal_range(item) and "/" in item for item in case.items)


def equal_range_is_the_whole_field(case: Case) -> bool:
    return any(is_equal_range(item) for item in case.items)


def is_equal_range(item: str) -> bool:
    first, dash, last = item.partition("/")[0].partition("-")
    return bool(dash) and first == last


def nth_weekday_leaves_the_day_of_month_no_say(case: Case) -> bool:
    return case.both_days and ("#" in case.fields[5] or "L" in case.fields[5])


def weekday_field_that_names_every_day_counts_as_a_star(case: Case) -> bool:
    named = {weekday for item in case.fields[5].split(",") for weekday in weekdays(item)}
    return case.both_days and len(named) == 7


def weekdays(item: str) -> Iterable[int]:
    head, _, step = item.partition("/")
    first, _, last = head.partition("-")
    if head == "*":
        return range(0, 7, int(step or 1))
    if not item[:1].isdigit() or "#" in item or "L" in item:
        return ()
    return (weekday % 7 for weekday in range(int(first), int(last or first) + 1, int(step or 1)))


def weekday_seven_is_unknown_with_six_fields(case: Case) -> bool:
    return "7" in case.fields[5] and len(case.expression.split()) == 6


def clock_changes_follow_another_rule(case: Case) -> bool:
    first = next((pair for pair in zip(case.ours, case.theirs, strict=False) if pair[0] != pair[1]), None)
    if first is None:
        return False
    return any(
        abs(change.at - moment) < timedelta(hours=4) for change in changes(case.zone) for moment in first
    )


CRONSIM_RULES = (
    star_step_in_a_day_field_means_and,
    equal_range_with_a_step_runs_to_the_end,
    clock_changes_follow_another_rule,
)
CRONITER_RULES = (
    equal_range_is_the_whole_field,
    nth_weekday_leaves_the_day_of_month_no_say,
    weekday_field_that_names_every_day_counts_as_a_star,
    weekday_seven_is_unknown_with_six_fields,
    clock_changes_follow_another_rule,
)


def admitted_verdicts(
    answer: Callable[[str, str, datetime], list[datetime]], rules: tuple[Callable[[Case], bool], ...]
) -> Counter:
    """Count how often each rule explains a disagreement; an unexplained one fails."""
    tally: Counter = Counter()
    for expression, zone, start, mine in questions():
        case = Case(expression, zone, list(mine), answer(expression, zone, start))
        if case.ours == case.theirs:
            tally["same"] += 1
            continue
        explained = [rule.__name__ for rule in rules if rule(case)]
        assert explained, case
        tally.update(explained)
    return tally


def test_cronsim_agrees_except_for_known_differences() -> None:
    tally = admitted_verdicts(of_cronsim, CRONSIM_RULES)
    assert tally["same"] > 0.85 * COUNT
    assert all(tally[rule.__name__] for rule in CRONSIM_RULES), tally


def test_croniter_agrees_except_for_known_differences() -> None:
    tally = admitted_verdicts(of_croniter, CRONITER_RULES)
    assert tally["same"] > 0.85 * COUNT
    assert all(tally[rule.__name__] for rule in CRONITER_RULES), tally


def test_the_queries_cover_every_feature() -> None:
    asked = [expression for expression, *_ in questions()]
    assert sum(len(expression.split()) == 6 for expression in asked) > COUNT // 8
    assert sum("#" in expression for expression in asked) > COUNT // 50
    assert all(a < b for *_, answers in questions() for a, b in pairwise(answers))
