"""Tables, wrapping, escaping and times on a terminal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from timewright.core.moments import HOUR, MINUTE, SECOND
from timewright.interfaces.cli.output.table import (
    Column,
    Screen,
    display_width,
    escape_control,
    key_values,
    table,
    truncate,
    wrap,
)
from timewright.interfaces.cli.output.times import (
    clock_time,
    format_duration,
    full_time,
    local_zone,
    localize_times,
    relative_time,
    short_time,
    today_at,
    zone_name,
)

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
COLUMNS = (
    Column("NAME", 8),
    Column("STATE"),
    Column("RUNS", align_right=True, optional=True),
    Column("WHY", 6),
)
ROWS = [["nightly-report", "active", "10", ""], ["poll", "paused", "2", "the disk is full of logs"]]


def screen(width: int | None = None, *, colour: bool = False, plain: bool = False) -> Screen:
    return Screen(now=NOON, zone=BERLIN, width=width, colour=colour, ascii_only=plain)


def test_a_table_without_a_terminal_has_its_natural_width() -> None:
    assert table(screen(), COLUMNS, ROWS) == [
        "NAME            STATE   RUNS  WHY",
        "nightly-report  active    10",
        "poll            paused     2  the disk is full of logs",
    ]


def test_a_shrunk_column_ends_with_an_ellipsis() -> None:
    assert table(screen(40), (Column("NAME", 8), Column("WHY", 6)), [["nightly-report", "x" * 50]]) != []
    lines = table(screen(62), (Column("NAME", 8), Column("WHY", 6)), [["nightly-report", "x" * 80]])
    assert lines[1] == f"nightly-report  {'x' * 45}…"


def test_optional_columns_are_dropped_first() -> None:
    wide = (Column("NAME"), Column("SPARED", optional=True), Column("WHY"))
    lines = table(screen(60), wide, [["n" * 30, "s" * 10, "w" * 25]])
    assert lines == [f"{'NAME':<30}  WHY", f"{'n' * 30}  {'w' * 25}"]


def test_a_narrow_terminal_shows_each_row_as_a_block() -> None:
    lines = table(screen(24), COLUMNS, ROWS)
    assert lines[0] == "nightly-report"
    assert lines[1:3] == ["  state  active", "  runs   10"]
    assert lines[-2:] == ["  why    the disk is", "         full of logs"]


def test_an_empty_column_is_hidden() -> None:
    assert table(screen(), COLUMNS, [["a", "b", "", ""]]) == ["NAME  STATE", "a     b"]


def test_a_long_id_gets_its_own_line() -> None:
    run = "run_01KKBXWX00EXAMPLE0FAILED00"
    assert key_values(screen(36), [("schedule", "poll"), ("run", run)]) == [
        "  schedule  poll",
        "  run",
        f"    {run}",
    ]


def test_a_long_text_is_wrapped_with_a_hanging_indent() -> None:
    assert wrap(screen(20), "one two three four five six") == ["one two three four", "  five six"]


def test_a_wrapped_line_keeps_its_indentation() -> None:
    assert wrap(screen(20), "    one two three four", hang=0) == ["    one two three", "    four"]


def test_wide_characters_take_two_columns_and_marks_none() -> None:
    assert display_width("日報") == 4
    assert display_width("é") == display_width("e\u0301") == 1
    assert truncate("日報日報", 5) == "日報…"
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
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    assert escape_control(text) == shown
    assert table(screen(), (Column("NAME"),), [[text]])[1] == shown
    assert key_values(screen(), [("why", text.replace("\n", " "))])[0].endswith(shown.replace("\\x0a", " "))


def test_colour_is_used_only_on_a_terminal() -> None:
    states = [["✔ succeeded"], ["✘ failed"]]
    assert "\x1b" not in "".join(table(screen(), (Column("STATE"),), states))
    painted = table(screen(colour=True), (Column("STATE"),), states)
    assert painted[1] == "\x1b[32m✔\x1b[0m succeeded"


def test_signs_are_replaced_on_an_ascii_terminal() -> None:
    assert table(screen(plain=True), (Column("STATE"),), [["✔ succeeded"]])[1] == "+ succeeded"


def test_times_of_other_days_show_the_date() -> None:
    now, zone = NOON, BERLIN
    assert clock_time(NOON + 5 * SECOND, now=now, zone=zone) == "13:00:05"
    assert clock_time(NOON + 24 * HOUR, now=now, zone=zone) == "2026-03-11 13:00"
    assert short_time(NOON + 24 * HOUR, now=now, zone=zone) == "Wed 2026-03-11 13:00 +01:00"
    assert full_time(NOON, zone=zone) == "Tue 2026-03-10 13:00 +01:00"
    assert full_time(NOON + SECOND, zone=UTC) == "Tue 2026-03-10 12:00:01 +00:00"


def test_a_time_after_a_clock_change_shows_its_offset() -> None:
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
def test_distances_use_the_largest_unit(far: timedelta, told: str) -> None:
    assert relative_time(NOON + far, now=NOON) == told


def test_measured_durations_are_rounded() -> None:
    lengths = [timedelta(milliseconds=12), 1.44 * SECOND, 200 * SECOND, 2 * HOUR + MINUTE]
    assert [format_duration(length) for length in lengths] == ["12 ms", "1.4 s", "3 min 20 s", "2 h 1 min"]


def test_instants_in_text_are_shown_in_the_local_zone() -> None:
    told = localize_times("due at 2026-03-10T12:00:05Z and 2026-03-11T12:00:00.5Z", now=NOON, zone=BERLIN)
    assert told == "due at 13:00:05 and Wed 2026-03-11 13:00 +01:00"


@pytest.mark.parametrize(
    ("text", "instant", "finer"),
    [
        ("14:02:20", datetime(2026, 3, 10, 13, 2, 20, tzinfo=UTC), SECOND),
        ("9:30", datetime(2026, 3, 10, 8, 30, tzinfo=UTC), MINUTE),
        ("00:00:00.25", datetime(2026, 3, 9, 23, 0, 0, 250000, tzinfo=UTC), timedelta(milliseconds=10)),
    ],
)
def test_a_time_of_day_means_today_in_the_local_zone(text: str, instant: datetime, finer: timedelta) -> None:
    assert today_at(text, now=NOON, zone=BERLIN) == (instant, finer)


@pytest.mark.parametrize("text", ["24:00", "12:60", "noon", "12", "2026-03-10T12:00:00Z", "12:00Z", ""])
def test_other_text_is_not_a_time_of_day(text: str) -> None:
    assert today_at(text, now=NOON, zone=BERLIN) is None


def test_the_local_zone_is_that_of_the_machine_or_its_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    assert zone_name(local_zone(NOON)) == "Europe/Berlin"
    monkeypatch.setenv("TZ", "nowhere-at-all")
    assert isinstance(local_zone(NOON), timezone)
