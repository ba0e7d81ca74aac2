"""Descriptions of cron expressions, and warnings about them."""

from __future__ import annotations

import pytest

from timewright.core.recurrence.cron import Cron

WORDS = [
    ("* * * * *", "every minute"),
    ("*/5 * * * *", "every 5 minutes"),
    ("0-59/15 * * * *", "every 15 minutes"),
    ("*/7 * * * *", "every 7 minutes past the hour"),
    ("0 * * * *", "every hour"),
    ("@hourly", "every hour"),
    ("30 * * * *", "at minute 30 of every hour"),
    ("5,10,40 * * * *", "at minutes 5, 10 and 40 of every hour"),
    ("1-20 * * * *", "at minutes 1 through 20 of every hour"),
    ("0 */2 * * *", "every 2 hours"),
    ("0 */5 * * *", "every 5 hours past the start of the day"),
    ("30 */2 * * *", "at minute 30 of every 2nd hour"),
    ("*/10 */3 * * *", "every 10 minutes of every 3rd hour"),
    ("*/5 9-17 * * MON-FRI", "every 5 minutes from 09:00 through 17:59 on Monday through Friday"),
    ("*/20 9,13 * * *", "every 20 minutes of hours 9 and 13"),
    ("* 12 * * *", "every minute from 12:00 through 12:59"),
    ("0 8-18 * * *", "every hour from 08:00 through 18:00"),
    ("15 8-18 * * *", "at minute 15 of every hour from 08:00 through 18:00"),
    ("0 0,2,4,6,8,10,12,14,15 * * *", "at the start of hours 0, 2, 4, 6, 8, 10, 12, 14 and 15"),
    ("0 9 * * *", "at 09:00 every day"),
    ("@daily", "at 00:00 every day"),
    ("0 9,17 * * *", "at 09:00 and 17:00 every day"),
    ("0,30 6,18 * * *", "at 06:00, 06:30, 18:00 and 18:30 every day"),
    ("0 9 * * 1-5", "at 09:00 on Monday through Friday"),
    ("0 9 * * MON,WED,FRI", "at 09:00 on Monday, Wednesday and Friday"),
    ("0 9 * * 0,6", "at 09:00 on Saturday and Sunday"),
    ("@weekly", "at 00:00 on Sunday"),
    ("0 9 * * 0-6", "at 09:00 on every day of the week"),
    ("@monthly", "at 00:00 on day 1 of the month"),
    ("0 9 1,15 * *", "at 09:00 on days 1 and 15 of the month"),
    ("0 9 1-7 * *", "at 09:00 on days 1 through 7 of the month"),
    ("0 9 */2 * *", "at 09:00 on every 2nd day of the month"),
    ("@yearly", "at 00:00 on day 1 of January"),
    ("0 9 * 6-8 *", "at 09:00 every day in June through August"),
    ("*/15 * * 12 *", "every 15 minutes in December"),
    ("0 9 * 1,7 MON", "at 09:00 on Monday in January and July"),
    ("0 9 L * *", "at 09:00 on the last day of the month"),
    ("0 9 L-3 * *", "at 09:00 on the 3rd day before the last day of the month"),
    ("0 9 L-1 2 *", "at 09:00 on the day before the last day of February"),
    ("0 9 LW * *", "at 09:00 on the last weekday of the month"),
    ("0 9 1W * *", "at 09:00 on the first weekday of the month"),
    ("0 9 15W * *", "at 09:00 on the weekday nearest to day 15 of the month"),
    ("0 9 1,L * *", "at 09:00 on day 1 and the last day of the month"),
    ("0 9 * * MON#1", "at 09:00 on the first Monday of the month"),
    ("0 9 * 11 THU#4", "at 09:00 on the fourth Thursday of November"),
    ("0 9 * * 5L", "at 09:00 on the last Friday of the month"),
    ("0 0 13 * FRI", "at 00:00 on day 13 of the month or on Friday"),
    ("0 0 13 * +FRI", "at 00:00 on day 13 of the month, but only on Friday"),
    ("0 0 29 2 +MON", "at 00:00 on day 29 of February, but only on Monday"),
    ("0 0 0 1 1 * 2030", "at 00:00 on day 1 of January in 2030"),
    ("0 0 0 1 1 * 2030-2032,2040", "at 00:00 on day 1 of January in 2030 through 2032 and 2040"),
    ("* * * * * *", "every second"),
    ("*/10 * * * * *", "every 10 seconds"),
    ("*/7 * * * * *", "every 7 seconds past the minute"),
    ("30 * * * * *", "at second 30 of every minute"),
    ("5,10 * * * * *", "at seconds 5 and 10 of every minute"),
    ("30 0 9 * * *", "at 09:00:30 every day"),
    ("*/20 0 9 * * *", "every 20 seconds of 09:00 every day"),
    ("*/20 */5 * * * *", "every 20 seconds of every 5th minute"),
    ("15 30 * * * *", "at second 15 of minute 30 of every hour"),
]


@pytest.mark.parametrize(("expression", "words"), WORDS)
def test_an_expression_is_described_in_words(expression: str, words: str) -> None:
    assert Cron(expression).describe().removesuffix(", UTC") == words
    assert Cron(expression, "Europe/Berlin").describe() == f"{words}, Europe/Berlin time"


def test_a_zone_other_than_utc_is_included() -> None:
    assert Cron("0 9 * * 1-5", "America/New_York").describe() == (
        "at 09:00 on Monday through Friday, America/New_York time"
    )


def test_a_hashed_time_is_described_as_its_actual_time() -> None:
    assert Cron("H H * * *", key="nightly-report").describe() == "at 20:44 every day, UTC"


EITHER = " with the other day field set means either day, not both; "

WARNINGS = [
    (
        "0 0 */2 * 1",
        "*/2 in day of month" + EITHER + "write +1 as weekday if both must match",
    ),
    (
        "0 0 1 * */2",
        "*/2 in weekday" + EITHER + "write +*/2 as weekday if both must match",
    ),
    ("0 0 1-31 * 1", "1-31 in day of month or 1 in weekday is every day; write * in the one that is full"),
    ("0 0 15 * 0-6", "15 in day of month or 0-6 in weekday is every day; write * in the one that is full"),
    ("0 */24 * * *", "*/24 in hour matches only 0; write 0"),
    ("*/90 * * * *", "*/90 in minute matches only 0; write 0"),
    ("0 0 */31 * *", "*/31 in day of month matches only 1; write 1"),
    ("*/7 * * * *", "*/7 in minute starts again each hour: the last step is shorter"),
    ("0 0 31 * *", "day 31 is missing in 5 of 12 months; write L for the last day"),
    ("0 0 30 * *", "day 30 is missing in 1 of 12 months; write L for the last day"),
    ("0 0 29 2 *", "29 February exists in leap years only; write L for the last day of the month"),
]


@pytest.mark.parametrize(("expression", "warning"), WARNINGS)
def test_a_doubtful_expression_is_accepted_with_a_warning(expression: str, warning: str) -> None:
    assert Cron(expression).warnings() == (warning,)


@pytest.mark.parametrize(
    "expression",
    ["* * * * *", "*/5 * * * *", "0 9 * * 1-5", "0 0 1 * MON", "0 0 */2 * +1", "0 0 31 1,3 *", "0 0 L * *"],
)
def test_a_usual_expression_has_no_warnings(expression: str) -> None:
    assert Cron(expression).warnings() == ()
