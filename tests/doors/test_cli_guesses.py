"""The command line as a newcomer types it: what is guessed is understood, or answered with what is meant."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from tests.doors.terminal import ask
from tests.operations.house import House
from timewright.core.moments import parse_duration
from timewright.doors.cli.moments import instant_said
from timewright.doors.cli.times import measured, retold
from timewright.errors import InvalidDuration

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)  # a Tuesday
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("now", "2026-03-10T12:00:00+00:00"),
        ("in 2h", "2026-03-10T14:00:00+00:00"),
        ("in 90 minutes", "2026-03-10T13:30:00+00:00"),
        ("in 2 days", "2026-03-12T12:00:00+00:00"),
        ("1 week ago", "2026-03-03T12:00:00+00:00"),
        ("yesterday", "2026-03-08T23:00:00+00:00"),
        ("Tomorrow 9:00", "2026-03-11T08:00:00+00:00"),
        ("tomorrow at 09:00:30", "2026-03-11T08:00:30+00:00"),
        ("17:30", "2026-03-10T16:30:00+00:00"),
        ("fri 17:30", "2026-03-13T16:30:00+00:00"),
        ("tuesday", "2026-03-16T23:00:00+00:00"),
    ],
)
def test_an_instant_may_be_said_in_words_of_the_own_zone(text: str, meant: str) -> None:
    said = instant_said(text, now=NOON, zone=BERLIN)
    assert said is not None
    assert said.isoformat() == meant


@pytest.mark.parametrize(
    "text",
    [
        "whenever",
        "",
        "25:00",
        "tomorrow 9",
        "in",
        "in 2h ago",
        "mo",
        "2026-03-12T09:00:00Z",
        "2026-03-12 09:00",
        "2026-03-12",
    ],
)
def test_what_is_not_said_in_words_is_left_to_the_operation(text: str) -> None:
    assert instant_said(text, now=NOON, zone=BERLIN) is None


def test_instants_of_every_command_are_understood_in_the_own_zone(house: House) -> None:
    words = ["schedule", "create", "party", "--note", "x", "--at", "tomorrow 18:00"]
    said = ask(house, *words, "--json", TZ="Europe/Berlin").data
    assert said["schedule"]["trigger"]["at"] == "2026-03-11T17:00:00Z"
    paused = ask(house, "schedule", "pause", "party", "--until", "in 2h", "--json").data
    assert paused["standing"]["paused_until"] == "2026-03-10T14:00:00Z"
    assert ask(house, "run", "list", "--since", "yesterday", "--until", "now", "-q").code == 0
    ending = ask(house, "schedule", "update", "party", "--end-at", "null", "--json").data
    assert ending["schedule"]["end_at"] is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5 minutes", 300),
        ("5 min", 300),
        ("1 hour 30 min", 5400),
        ("90 SECONDS", 90),
        ("2hrs", 7200),
    ],
)
def test_lengths_of_time_may_be_written_out(text: str, seconds: int) -> None:
    assert parse_duration(text).total_seconds() == seconds


@pytest.mark.parametrize(("text", "fix"), [("5 m", "5m"), ("2 days", "2d"), ("1 week", "1w")])
def test_a_length_that_is_nearly_one_is_refused_with_the_one_it_is(text: str, fix: str) -> None:
    with pytest.raises(InvalidDuration) as refusal:
        parse_duration(text)
    assert refusal.value.fix == fix


def test_json_is_asked_for_by_its_name_also_when_the_answer_is_no(house: House) -> None:
    assert ask(house, "schedule", "list", "--json").data["schedules"]
    assert '"code": "not_found"' in ask(house, "schedule", "get", "nobody", "--json").err


def test_a_text_may_stand_as_an_argument(house: House) -> None:
    said = ask(house, "reminder", "set", "call the bank", "--at", "tomorrow 09:00", "--json").data
    assert (said["text"], said["next_at"]) == ("call the bank", "2026-03-11T09:00:00Z")
    assert ask(house, "reminder", "set", "--text", "stretch", "--every", "2h", "-q").code == 0
    assert ask(house, "schedule", "note", "nightly-report", "month end").code == 0
    twice = ask(house, "reminder", "set", "a", "--text", "b", "--every", "2h")
    assert "the text is said twice" in twice.err
    assert "text is missing" in ask(house, "reminder", "set", "--every", "2h").err


def test_a_request_without_its_method_only_looks(house: House) -> None:
    words = ["schedule", "create", "look", "--every", "5m", "--http", "https://example.com/up"]
    target = ask(house, *words, "--overlap", "queue", "--dry-run", "--json").data["schedule"]["target"]
    assert (target["method"], target["url"]) == ("GET", "https://example.com/up")
    behind = ask(
        house, "schedule", "create", "cmd", "--every", "5m", "--shell", "--json", "--", "curl", "--http"
    )
    assert behind.data["schedule"]["target"]["command"] == ["curl", "--http"]


@pytest.mark.parametrize(
    ("words", "tries"),
    [
        (["start"], "timewright up"),
        (["status"], "timewright now"),
        (["logs", "run_1"], "timewright run logs"),
        (["schedule", "remove", "a"], "timewright schedule delete"),
        (["schedule", "add", "a"], "timewright schedule create"),
        (["schedule", "trigger", "a"], "timewright schedule run"),
        (["queue", "ls"], "timewright queue list"),
        (["disable", "a"], "timewright schedule pause or timewright group pause or timewright hint pause"),
    ],
)
def test_the_words_of_others_lead_to_ours(house: House, words: list[str], tries: str) -> None:
    said = ask(house, *words)
    assert (said.code, said.err.splitlines()[-1]) == (2, f"  try     {tries}")


@pytest.mark.parametrize(
    ("field", "fix"),
    [
        ("misfire_grace_time", "grace: 30s"),
        ("coalesce", "catch_up: last"),
        ("startingDeadlineSeconds", "deadline: 10m"),
        ("depends_on", "after: nightly-load, or needs: ['nightly-load:2h']"),
        ("overlapp", "did you mean overlap?"),
        ("wibble", "leave it out"),
    ],
)
def test_fields_of_others_are_answered_with_what_says_the_same_here(
    house: House, field: str, fix: str
) -> None:
    said = ask(
        house, "schedule", "create", "--file", "-", typed=f"{{name: a, every: 1h, note: x, {field}: 1}}"
    )
    assert said.err.splitlines()[-1] == f"  try     {fix}"


def test_what_was_measured_is_told_short_and_what_was_set_as_it_was_set() -> None:
    assert [measured(text) for text in ("4.433841s", "2h3m0.5s", "-0.00195s", "1m", "1.5h", "v1.0s")] == [
        "4.4 s",
        "2 h 3 min",
        "-2 ms",
        "1m",
        "1.5h",
        "v1.0s",
    ]
    said = "it came due 18.925156s ago; version 1.2.3s stays"
    assert retold(said, now=NOON, zone=UTC) == "it came due 18.9 s ago; version 1.2.3s stays"


def test_a_file_that_is_not_there_is_answered_with_what_would_be(house: House) -> None:
    said = ask(house, "schedule", "create", "--file", "nowhere.yaml")
    assert said.err.splitlines()[-1] == "  try     a file that is there and may be read, or - for the input"
    config = ask(None, "--config", "nowhere.toml", "schedule", "list")
    assert config.err.splitlines()[-1] == "  try     --config with a file that is there and may be read"


def test_nothing_found_is_said_and_a_glance_fits_on_a_screen(house: House) -> None:
    said = ask(house, "overdue", "--tolerance", "366d")
    assert said.lines[-1] == "nothing is overdue"
    assert "behind" not in ask(house, "now").lines
    house.ask("reminder set", text="stretch", every="2h")
    assert ask(house, "reminder", "list", width=80).lines[0].split() == ["NAME", "TEXT", "WHEN", "NEXT"]
    assert ask(house, "reminder", "cancel", "stretch").lines[1].split()[-1] == "archived"
