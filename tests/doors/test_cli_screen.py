"""What stands on the screen: as wide as it is, in the zone of whoever looks, and nothing that deceives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from timewright.core.moments import HOUR, MINUTE, SECOND
from timewright.doors.cli.table import Column, Screen, clean, columns_of, fitted, pairs, paragraph, table
from timewright.doors.cli.times import (
    away,
    brief,
    clock_time,
    full_time,
    local_zone,
    next_time,
    retold,
    today_at,
    zone_name,
)

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
COLUMNS = (Column("NAME", 8), Column("STATE"), Column("RUNS", right=True, spare=True), Column("WHY", 6))
ROWS = [["nightly-report", "active", "10", ""], ["poll", "paused", "2", "the disk is full of logs"]]


def screen(width: int | None = None, *, colour: bool = False, plain: bool = False) -> Screen:
    return Screen(now=NOON, zone=BERLIN, width=width, colour=colour, plain=plain)


def test_a_table_is_as_wide_as_what_it_holds_when_nobody_says_how_wide_the_screen_is() -> None:
    assert table(screen(), COLUMNS, ROWS) == [
        "NAME            STATE   RUNS  WHY",
        "nightly-report  active    10",
        "poll            paused     2  the disk is full of logs",
    ]


def test_a_column_gives_way_and_says_that_it_was_cut() -> None:
    assert table(screen(40), (Column("NAME", 8), Column("WHY", 6)), [["nightly-report", "x" * 50]]) != []
    lines = table(screen(62), (Column("NAME", 8), Column("WHY", 6)), [["nightly-report", "x" * 80]])
    assert lines[1] == f"nightly-report  {'x' * 45}…"


def test_a_column_that_can_be_spared_goes_before_the_table_does() -> None:
    wide = (Column("NAME"), Column("SPARED", spare=True), Column("WHY"))
    lines = table(screen(60), wide, [["n" * 30, "s" * 10, "w" * 25]])
    assert lines == [f"{'NAME':<30}  WHY", f"{'n' * 30}  {'w' * 25}"]


def test_on_a_narrow_screen_each_row_is_a_block_of_lines() -> None:
    lines = table(screen(24), COLUMNS, ROWS)
    assert lines[0] == "nightly-report"
    assert lines[1:3] == ["  state  active", "  runs   10"]
    assert lines[-2:] == ["  why    the disk is", "         full of logs"]


def test_a_column_that_is_empty_in_every_row_is_left_out() -> None:
    assert table(screen(), COLUMNS, [["a", "b", "", ""]]) == ["NAME  STATE", "a     b"]


def test_what_must_be_copied_whole_gets_a_line_of_its_own() -> None:
    run = "run_01KKBXWX00EXAMPLE0FAILED00"
    assert pairs(screen(36), [("schedule", "poll"), ("run", run)]) == [
        "  schedule  poll",
        "  run",
        f"    {run}",
    ]


def test_a_long_sentence_goes_on_under_itself() -> None:
    assert paragraph(screen(20), "one two three four five six") == ["one two three four", "  five six"]


def test_wide_characters_take_two_columns_and_marks_none() -> None:
    assert columns_of("日報") == 4
    assert columns_of("é") == columns_of("e\u0301") == 1
    assert fitted("日報日報", 5) == "日報…"
    lines = table(screen(), (Column("NAME"), Column("X")), [["日報", "1"], ["abcd", "2"]])
    assert lines[1:] == ["日報  1", "abcd  2"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mred", "a\\x1b[31mred"),
        ("two\nlines\ttab", "two\\x0alines\\x09tab"),
        ("\u202eevil", "\\u202eevil"),
        ("\u2066a\u2069", "\\u2066a\\u2069"),
        ("nul\x00 c1\x9b", "nul\\x00 c1\\x9b"),
        ("\U000e0041", "\\U000e0041"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("häßlich 日本 ✔", "häßlich 日本 ✔"),
    ],
)
def test_nothing_on_the_screen_has_power_over_it(text: str, shown: str) -> None:
    assert clean(text) == shown
    assert table(screen(), (Column("NAME"),), [[text]])[1] == shown
    assert pairs(screen(), [("why", text.replace("\n", " "))])[0].endswith(shown.replace("\\x0a", " "))


def test_colour_is_only_where_the_screen_has_it() -> None:
    states = [["✔ succeeded"], ["✘ failed"]]
    assert "\x1b" not in "".join(table(screen(), (Column("STATE"),), states))
    painted = table(screen(colour=True), (Column("STATE"),), states)
    assert painted[1] == "\x1b[32m✔\x1b[0m succeeded"


def test_a_screen_without_these_letters_gets_others() -> None:
    assert table(screen(plain=True), (Column("STATE"),), [["✔ succeeded"]])[1] == "+ succeeded"


def test_times_of_today_are_short_and_others_say_their_day() -> None:
    now, zone = NOON, BERLIN
    assert clock_time(NOON + 5 * SECOND, now=now, zone=zone) == "13:00:05"
    assert clock_time(NOON + 24 * HOUR, now=now, zone=zone) == "2026-03-11 13:00"
    assert next_time(NOON + 24 * HOUR, now=now, zone=zone) == "Wed 2026-03-11 13:00 +01:00"
    assert full_time(NOON, zone=zone) == "Tue 2026-03-10 13:00 +01:00"
    assert full_time(NOON + SECOND, zone=UTC) == "Tue 2026-03-10 12:00:01 +00:00"


def test_a_time_behind_a_clock_change_says_its_offset() -> None:
    summer = datetime(2026, 3, 30, 7, tzinfo=UTC)
    assert clock_time(summer, now=NOON, zone=BERLIN) == "2026-03-30 09:00 +02:00"


@pytest.mark.parametrize(
    ("far", "told"),
    [
        (4 * SECOND, "in 4 s"),
        (-90 * SECOND, "90 s ago"),
        (2 * MINUTE, "in 2 min"),
        (-5 * HOUR, "5 h ago"),
        (72 * HOUR, "in 3 d"),
        (timedelta(milliseconds=20), "now"),
    ],
)
def test_how_far_is_told_in_the_largest_unit(far: timedelta, told: str) -> None:
    assert away(NOON + far, now=NOON) == told


def test_measured_lengths_are_told_to_the_point() -> None:
    lengths = [timedelta(milliseconds=12), 1.44 * SECOND, 200 * SECOND, 2 * HOUR + MINUTE]
    assert [brief(length) for length in lengths] == ["12 ms", "1.4 s", "3 min 20 s", "2 h 1 min"]


def test_the_instants_of_a_sentence_are_told_in_our_zone() -> None:
    told = retold("due at 2026-03-10T12:00:05Z and 2026-03-11T12:00:00.5Z", now=NOON, zone=BERLIN)
    assert told == "due at 13:00:05 and Wed 2026-03-11 13:00 +01:00"


@pytest.mark.parametrize(
    ("text", "instant", "finer"),
    [
        ("14:02:20", datetime(2026, 3, 10, 13, 2, 20, tzinfo=UTC), SECOND),
        ("9:30", datetime(2026, 3, 10, 8, 30, tzinfo=UTC), MINUTE),
        ("00:00:00.25", datetime(2026, 3, 9, 23, 0, 0, 250000, tzinfo=UTC), timedelta(milliseconds=10)),
    ],
)
def test_a_time_of_day_means_today_and_here(text: str, instant: datetime, finer: timedelta) -> None:
    assert today_at(text, now=NOON, zone=BERLIN) == (instant, finer)


@pytest.mark.parametrize("text", ["24:00", "12:60", "noon", "12", "2026-03-10T12:00:00Z", "12:00Z", ""])
def test_what_is_no_time_of_day_is_left_as_it_is(text: str) -> None:
    assert today_at(text, now=NOON, zone=BERLIN) is None


def test_the_zone_is_that_of_the_environment_else_of_the_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    assert zone_name(local_zone(NOON)) == "Europe/Berlin"
    monkeypatch.delenv("TZ")
    link = tmp_path / "localtime"
    link.symlink_to("/usr/share/zoneinfo/Asia/Tokyo")
    assert zone_name(local_zone(NOON, localtime=link)) == "Asia/Tokyo"
    monkeypatch.setenv("TZ", "nowhere-at-all")
    assert isinstance(local_zone(NOON), timezone)
