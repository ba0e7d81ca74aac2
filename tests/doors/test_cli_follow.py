"""Following runs: each is told once it has come to rest, in its turn, and none twice."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.operations.house import House
from timewright.core.moments import SECOND
from timewright.doors.cli.follow import MOST_WATCHED, PAGE, Followed, line_of
from timewright.doors.cli.table import Screen, columns_of
from timewright.doors.cli.times import local_zone
from timewright.testing.targets import fail, succeed


@pytest.fixture
def followed(house: House) -> Followed:
    house.ask("schedule create", name="hello", every="5s", note="hello")
    return Followed(house.context, {"schedule": "hello"})


def states(rows: list[Any]) -> list[tuple[str, int]]:
    return [(row["state"], row["attempts"]) for row in rows]


def test_what_ended_is_told_once_and_oldest_first(house: House, followed: Followed) -> None:
    assert followed.news() == []
    house.advance(seconds=11)
    told = followed.news()
    assert [row["planned_at"] for row in told] == ["2026-03-10T12:00:05Z", "2026-03-10T12:00:10Z"]
    assert followed.news() == []
    house.advance(seconds=5)
    assert len(followed.news()) == 1


def test_at_first_only_the_last_few_are_told(house: House, followed: Followed) -> None:
    house.advance(seconds=100)
    assert len(followed.news()) == 10
    assert len(Followed(house.context, {"schedule": "hello", "limit": 3}).news()) == 3


def test_an_attempt_that_will_be_repeated_is_told_before_the_run_is_over(
    house: House, followed: Followed
) -> None:
    house.bench.target.script("hello", fail("no route"), succeed())
    followed.news()
    house.advance(seconds=5)
    assert states(followed.news()) == [("ready", 1)]
    house.advance(seconds=2)
    assert states(followed.news()) == [("succeeded", 1)]


def test_a_run_that_left_the_page_while_it_was_under_way_is_told_when_it_ends(house: House) -> None:
    house.ask("schedule create", name="long", every="1h", anchor="2026-03-10T12:00:01Z", note="x")
    house.bench.target.script("long", succeed(after=290 * SECOND))
    house.advance(seconds=2)
    everything = Followed(house.context, {})
    everything.news()
    house.ask("queue add", queue="other", payloads=list(range(PAGE + 10)))
    assert all(row["schedule"] != "long" for row in everything.news())
    house.advance(seconds=300)
    assert [row["state"] for row in everything.news() if row["schedule"] == "long"] == ["succeeded"]


def test_no_more_is_watched_than_can_be_looked_at(house: House, followed: Followed) -> None:
    house.ask("queue add", queue="other", payloads=list(range(PAGE)))
    everything = Followed(house.context, {})
    everything.news()
    assert len(everything._watched) == MOST_WATCHED


def test_a_line_shows_when_how_and_how_late(house: House, followed: Followed) -> None:
    house.bench.target.script("hello", succeed(after=1.5 * SECOND))
    house.advance(seconds=7)
    (row,) = followed.news()
    screen = Screen(now=house.now, zone=ZoneInfo("Europe/Berlin"))
    late = {**row, "started_at": "2026-03-10T12:00:05.003Z"}
    line = line_of(late, screen)
    assert line.startswith("13:00:05  ✔ succeeded  attempt 1  ")
    assert " ".join(line.split()).endswith("✔ succeeded attempt 1 1.5 s start delay 3 ms hello")


def test_a_line_fits_the_screen_and_keeps_what_matters(house: House, followed: Followed) -> None:
    house.bench.target.script("hello", fail("x" * 300))
    house.advance(seconds=15)
    for row in followed.news():
        line = line_of(row, Screen(now=house.now, zone=local_zone(house.now), width=80))
        assert columns_of(line) <= 80
        assert line.endswith("…")


def test_a_skipped_run_says_why(house: House, followed: Followed) -> None:
    house.bench.target.script("hello", succeed(after=8 * SECOND))
    house.advance(seconds=11)
    rows = [row for row in followed.news() if row["state"] == "skipped"]
    line = line_of(rows[0], Screen(now=house.now, zone=local_zone(house.now)))
    assert line.endswith("· skipped    hello: overlap")
