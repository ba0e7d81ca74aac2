"""Relative times, shorthand forms and suggestions."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from tests.interfaces.terminal import invoke
from tests.operations.harness import OperationsHarness
from timewright.core.moments import parse_duration
from timewright.errors import InvalidDuration, InvalidInstant
from timewright.interfaces.cli.data_input import resolve_instants
from timewright.interfaces.cli.output.times import localize_times, shorten_duration
from timewright.operations import operations

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)  # a Tuesday
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("in 2h", "2026-03-10T14:00:00Z"),
        ("in 90 minutes", "2026-03-10T13:30:00Z"),
        ("in 2 days", "2026-03-12T12:00:00Z"),
        ("Tomorrow 9:00", "2026-03-11T08:00:00Z"),
        ("tomorrow at 09:00:30", "2026-03-11T08:00:30Z"),
        ("17:30", "2026-03-10T16:30:00Z"),
        ("fri 17:30", "2026-03-13T16:30:00Z"),
        ("tuesday", "2026-03-16T23:00:00Z"),
        ("2026-03-12 09:00", "2026-03-12T08:00:00Z"),
        ("2026-03-12", "2026-03-11T23:00:00Z"),
        ("2026-03-12T09:00:00Z", "2026-03-12T09:00:00Z"),
    ],
)
def test_times_are_in_the_zone_of_the_machine(harness: OperationsHarness, text: str, meant: str) -> None:
    harness.ask("schedule create", name="party", every="1h", note="x")
    words = ["schedule", "pause", "party", "--until", text, "--json"]
    paused = invoke(harness, *words, TZ="Europe/Berlin").data
    assert paused["progress"]["paused_until"] == meant


@pytest.mark.parametrize("text", ["whenever", "25:00", "tomorrow 9", "in", "in 2h ago", "mo", "01/02/2027"])
def test_other_text_is_refused(harness: OperationsHarness, text: str) -> None:
    harness.ask("schedule create", name="party", every="1h", note="x")
    refusal = json.loads(invoke(harness, "schedule", "pause", "party", "--until", text, "--json").err)
    assert (refusal["code"], refusal["field"]) == (InvalidInstant.code, "until")
    assert refusal["fix"]


def test_a_question_about_the_past_takes_the_last_such_time(
    harness: OperationsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    asked = {"since": "friday 9am", "until": "18:00"}
    request = resolve_instants(operations["run list"], asked, harness.context)
    assert request == {"since": "2026-03-06T08:00:00Z", "until": "2026-03-09T17:00:00Z"}


def test_every_instant_option_accepts_relative_times(harness: OperationsHarness) -> None:
    words = ["schedule", "create", "party", "--note", "x", "--at", "tomorrow 18:00"]
    said = invoke(harness, *words, "--json", TZ="Europe/Berlin").data
    assert said["schedule"]["trigger"]["at"] == "2026-03-11T17:00:00Z"
    words = ["schedule", "create", "soon", "--every", "1h", "--note", "x", "--start-at", "now", "--json"]
    assert invoke(harness, *words).data["schedule"]["start_at"] == "2026-03-10T12:00:00Z"
    paused = invoke(harness, "schedule", "pause", "party", "--until", "in 2h", "--json").data
    assert paused["progress"]["paused_until"] == "2026-03-10T14:00:00Z"
    assert invoke(harness, "run", "list", "--since", "yesterday", "--until", "now", "-q").code == 0
    ending = invoke(harness, "schedule", "update", "party", "--end-at", "null", "--json").data
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
def test_durations_may_be_written_out(text: str, seconds: int) -> None:
    assert parse_duration(text).total_seconds() == seconds


@pytest.mark.parametrize(("text", "fix"), [("5 m", "5m"), ("2 days", "2d"), ("1 week", "1w")])
def test_an_almost_valid_duration_gets_a_suggestion(text: str, fix: str) -> None:
    with pytest.raises(InvalidDuration) as refusal:
        parse_duration(text)
    assert refusal.value.fix == fix


def test_the_json_flag_also_applies_to_errors(harness: OperationsHarness) -> None:
    assert invoke(harness, "schedule", "list", "--json").data["schedules"]
    assert '"code": "not_found"' in invoke(harness, "schedule", "get", "nobody", "--json").err


def test_the_text_can_be_an_argument(harness: OperationsHarness) -> None:
    said = invoke(harness, "reminder", "set", "call the bank", "--at", "tomorrow 09:00", "--json").data
    assert (said["text"], said["next_at"]) == ("call the bank", "2026-03-11T09:00:00Z")
    assert invoke(harness, "reminder", "set", "--text", "stretch", "--every", "2h", "-q").code == 0
    assert invoke(harness, "schedule", "note", "nightly-report", "month end").code == 0
    twice = invoke(harness, "reminder", "set", "a", "--text", "b", "--every", "2h")
    assert "the text is given twice" in twice.err
    assert "text is missing" in invoke(harness, "reminder", "set", "--every", "2h").err


def test_http_without_a_method_means_get(harness: OperationsHarness) -> None:
    words = ["schedule", "create", "look", "--every", "5m", "--http", "https://example.com/up"]
    target = invoke(harness, *words, "--overlap", "queue", "--dry-run", "--json").data["schedule"]["target"]
    assert (target["method"], target["url"]) == ("GET", "https://example.com/up")
    behind = invoke(
        harness, "schedule", "create", "cmd", "--every", "5m", "--shell", "--json", "--", "curl", "--http"
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
        (
            ["disable", "a"],
            "timewright schedule pause or timewright backfill pause or timewright group pause",
        ),
    ],
)
def test_commands_of_other_programs_get_suggestions(
    harness: OperationsHarness, words: list[str], tries: str
) -> None:
    said = invoke(harness, *words)
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
def test_options_of_other_schedulers_get_suggestions(
    harness: OperationsHarness, field: str, fix: str
) -> None:
    said = invoke(
        harness, "schedule", "create", "--file", "-", stdin=f"{{name: a, every: 1h, note: x, {field}: 1}}"
    )
    assert said.err.splitlines()[-1] == f"  try     {fix}"


def test_measured_durations_are_shortened_and_configured_ones_are_not() -> None:
    assert [
        shorten_duration(text) for text in ("4.433841s", "2h3m0.5s", "-0.00195s", "1m", "1.5h", "v1.0s")
    ] == [
        "4.4 s",
        "2 h 3 min",
        "-2 ms",
        "1m",
        "1.5h",
        "v1.0s",
    ]
    said = "it came due 18.925156s ago; version 1.2.3s stays"
    assert localize_times(said, now=NOON, zone=UTC) == "it came due 18.9 s ago; version 1.2.3s stays"


def test_a_missing_file_gets_an_example(harness: OperationsHarness) -> None:
    said = invoke(harness, "schedule", "create", "--file", "nowhere.yaml")
    assert said.err.splitlines()[-1] == "  try     its path, or - for standard input"
    config = invoke(None, "--config", "nowhere.toml", "schedule", "list")
    assert config.err.splitlines()[-1] == "  try     --config with a readable file"


def test_empty_results_are_reported_and_now_fits_on_one_screen(harness: OperationsHarness) -> None:
    said = invoke(harness, "overdue", "--tolerance", "366d")
    assert said.lines[-1] == "nothing is overdue"
    harness.ask("schedule create", name="a-schedule-with-a-rather-long-name", every="1m", note="x")
    harness.sleep(minutes=5)
    late = invoke(harness, "overdue", width=80)
    assert "a-schedule-with-a-rather-long-name has been due for 4m" in late.out
    assert max(map(len, late.lines)) <= 80
    assert "behind" not in invoke(harness, "now").lines
    harness.ask("reminder set", text="stretch", every="2h")
    assert invoke(harness, "reminder", "list", width=80).lines[0].split() == [
        "NAME",
        "TEXT",
        "TRIGGER",
        "NEXT",
    ]
    assert invoke(harness, "reminder", "cancel", "stretch").lines[1].split()[-1] == "archived"
