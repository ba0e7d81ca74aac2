"""Output of commands: tables, pages, notes and data formats."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.interfaces.terminal import invoke
from tests.operations.harness import OperationsHarness
from timewright.core.moments import SECOND
from timewright.testing.targets import succeed


def test_a_new_schedule_is_printed_on_one_line_with_its_next_times(harness: OperationsHarness) -> None:
    said = invoke(
        harness, "schedule", "create", "hello", "--every", "5s", "--note", "hello", TZ="Europe/Berlin"
    )
    schedule_id = harness.bench.find("hello")
    assert said.out == f"{schedule_id}   hello   every 5s   next 13:00:05 (in 5 s), 13:00:10, 13:00:15\n"
    assert said.err == "note: no instance is running, so nothing starts; start one: timewright up\n"


def test_the_line_is_shortened_or_becomes_a_block_on_narrow_terminals(
    harness: OperationsHarness,
) -> None:
    words = ["schedule", "create", "hello", "--every", "5s", "--note", "hello", "--dry-run"]
    usual, narrow = invoke(harness, *words, width=80), invoke(harness, *words, width=40)
    assert [line[30:] for line in usual.lines] == ["   hello   every 5s   next 12:00:05 (in 5 s)"]
    assert narrow.lines[1:] == [
        "  trigger  every 5s",
        "  next     12:00:05 (in 5 s), 12:00:10,",
        "           12:00:15",
    ]


def test_a_time_of_another_day_shows_date_and_offset(harness: OperationsHarness) -> None:
    words = [
        "schedule",
        "create",
        "report",
        "--cron",
        "0 9 * * mon-fri",
        "--zone",
        "Europe/Berlin",
        "--note",
        "x",
    ]
    said = invoke(harness, *words, TZ="Europe/Berlin")
    assert said.out.endswith("   next Wed 2026-03-11 09:00 +01:00 (in 20 h)\n")
    assert "report   at 09:00 on Monday through Friday" in said.out


def test_times_are_shown_in_the_local_zone_and_that_of_the_schedule(harness: OperationsHarness) -> None:
    said = invoke(harness, "schedule", "next", "nightly-report", "--count", "1", TZ="Europe/Berlin")
    assert said.lines[-1].split("  ") == ["Wed 2026-03-11 04:00 +01:00", "in 15 h", "03:00 UTC"]


def test_notes_are_printed_to_standard_error(harness: OperationsHarness) -> None:
    words = ["schedule", "create", "--every", "5s", "--dry-run"]
    shell = invoke(harness, *words, "a", "--shell", "--", "date")
    local = invoke(harness, *words, "b", "--http", "GET", "http://127.0.0.1:8000/x")
    assert shell.err.startswith(
        "note: running commands is off; allow it where it runs: timewright up --shell"
    )
    assert local.err.startswith("note: HTTP targets may call this machine")
    assert "note" not in shell.out + local.out
    assert invoke(harness, *words, "a", "-q", "--shell", "--", "date").err == ""
    assert invoke(harness, *words, "a", "-o", "json", "--shell", "--", "date").err == ""


def test_a_list_with_more_rows_prints_its_cursor(harness: OperationsHarness) -> None:
    said = invoke(harness, "run", "list", "--limit", "2")
    cursor = said.err.removeprefix("note: more rows: --cursor ").strip()
    following = invoke(harness, "run", "list", "--limit", "2", "--cursor", cursor, "-o", "json").data["runs"]
    assert [row["id"] for row in following] == [
        row["id"] for row in harness.ask("run list", limit=4)["runs"][2:]
    ]


def test_a_run_of_a_workflow_names_it_and_its_step(harness: OperationsHarness) -> None:
    harness.ask("workflow put", name="flow", steps=[{"name": "load", "target": {"note": "x"}}])
    assert "  flow  " in invoke(harness, "workflow", "run", "flow").out
    harness.advance(seconds=1)
    assert "flow › load" in invoke(harness, "run", "list").out


def test_quiet_prints_only_names_and_ids(harness: OperationsHarness) -> None:
    names = [row["name"] for row in harness.ask("schedule list")["schedules"]]
    assert invoke(harness, "schedule", "list", "-q").lines == names
    assert {"nightly-report", "orders-poll", "paused-export"} <= set(names)
    runs = [row["id"] for row in harness.ask("run list", limit=2)["runs"]]
    assert invoke(harness, "run", "list", "--limit", "2", "-q").lines == runs
    assert invoke(harness, "schedule", "run", "nightly-report", "-q").out.startswith("run_")
    assert invoke(harness, "schedule", "pause", "orders-poll", "-q").lines == ["orders-poll"]
    assert invoke(harness, "schedule", "put", "orders-poll", "--every", "1m", "--note", "x", "-q").lines == [
        "orders-poll"
    ]
    assert invoke(harness, "calendar", "get", "holidays", "-q").lines == ["holidays"]


def test_an_empty_list_says_so(harness: OperationsHarness) -> None:
    assert invoke(harness.in_namespace(), "schedule", "list").lines == ["no schedules"]
    assert invoke(harness.in_namespace(), "run", "list").lines == ["no runs"]


EVIL = "\x1b[2Jgone \u202eback\u2066"


def test_user_text_cannot_control_the_terminal(harness: OperationsHarness) -> None:
    harness.ask("schedule create", name="evil", every="5s", note=EVIL, description=EVIL, metadata={"a": EVIL})
    harness.ask("schedule pause", schedule="evil", reason=EVIL)
    for words in (["schedule", "list"], ["schedule", "get", "evil"], ["audit", "list"], ["explain", "evil"]):
        for width in (40, 80, None):
            said = invoke(harness, *words, width=width)
            assert said.code == 0
            assert not set(said.out) & set("\x1b\u202e\u2066")
    assert "\\x1b[2Jgone \\u202eback\\u2066" in invoke(harness, "schedule", "get", "evil").out
    assert "\x1b" not in invoke(harness, "schedule", "get", EVIL).err


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_json_and_yaml_are_exact_with_escaped_invisible_characters(
    harness: OperationsHarness, output: str
) -> None:
    harness.ask("schedule create", name="evil", every="5s", note=f"häßlich {EVIL}")
    harness.ask("schedule run", schedule="evil", reason=f"häßlich {EVIL}")
    said = invoke(harness, "audit", "list", "-o", output)
    read = json.loads if output == "json" else yaml.safe_load
    assert read(said.out) == harness.ask("audit list")
    assert not set(said.out) & set("\x1b\u202e\u2066")


def skipping(harness: OperationsHarness) -> None:
    """Create a schedule whose first run takes 8 s, so that the next occurrence is skipped."""
    harness.sleep(seconds=0.25)
    harness.ask("schedule create", name="slow", every="5s", call="slow", overlap="skip")
    harness.bench.target.script("slow", succeed(after=8 * SECOND))
    harness.advance(seconds=16)


def test_explain_shows_the_policy_and_a_fix_for_a_skipped_occurrence(
    harness: OperationsHarness,
) -> None:
    skipping(harness)
    said = invoke(harness, "explain", "slow", "--at", "13:00:10", TZ="Europe/Berlin")
    assert said.lines[0] == "slow: the run planned for 13:00:10 did not run: overlap"
    told = " ".join(said.out.split())
    assert "planned 13:00:10.250 Tue 2026-03-10 +01:00 (6 s ago)" in told
    assert "decision skipped (overlap)" in told
    assert "until 13:00:13" in told
    assert "policy overlap: skip" in told
    assert "change it timewright schedule update slow --overlap queue" in told


def test_explain_at_a_time_of_day_finds_the_occurrence_within_it(
    harness: OperationsHarness,
) -> None:
    skipping(harness)
    by_clock = invoke(harness, "schedule", "explain", "slow", "--at", "12:00:10", "-o", "json").data
    exactly = invoke(
        harness, "schedule", "explain", "slow", "--at", "2026-03-10T12:00:10Z", "-o", "json"
    ).data
    to_the_minute = invoke(harness, "schedule", "explain", "slow", "--at", "12:00", "-o", "json").data
    assert (by_clock["at"], by_clock["status"]) == ("2026-03-10T12:00:10.250000Z", "skipped")
    assert (exactly["at"], exactly["status"]) == ("2026-03-10T12:00:10Z", "not_planned")
    assert to_the_minute["at"] == "2026-03-10T12:00:05.250000Z"


def test_explain_reports_an_unplanned_instant(harness: OperationsHarness) -> None:
    said = invoke(harness, "explain", "nightly-report", "--at", "11:11")
    assert "was before the schedule existed" not in said.out
    assert "never planned" in said.lines[0]
    assert "previous" in said.out
    assert "next" in said.out


def test_a_time_and_a_date_without_an_offset_are_local(harness: OperationsHarness) -> None:
    words = ["schedule", "pause", "nightly-report", "--dry-run", "--until"]
    said = invoke(harness, *words, "18:00", TZ="Europe/Berlin")
    assert "until Tue 2026-03-10 18:00 +01:00" in said.out
    said = invoke(harness, *words, "2026-03-11 18:00", TZ="Europe/Berlin")
    assert "until Wed 2026-03-11 18:00 +01:00" in said.out


def test_an_unreadable_row_is_reported_as_a_note(harness: OperationsHarness) -> None:
    bad = harness.bench.find("orders-poll")
    store: Any = harness.store
    store._writer.connection.execute("UPDATE schedules SET state = 'dreaming' WHERE id = ?", (bad,))
    said = invoke(harness, "schedule", "list")
    assert said.code == 0
    assert "orders-poll" not in said.out
    assert "nightly-report" in said.out
    assert f"note: orders-poll is unreadable ({bad})" in said.err


RICH: tuple[dict[str, Any], ...] = (
    {"name": "plain", "every": "5m", "note": "hello"},
    {
        "name": "report: weekly",
        "cron": "30 3 * * 1-5",
        "zone": "Europe/Berlin",
        "http": {"url": "https://example.com/hook", "method": "POST", "body": {"on": "yes", "at": "1:30"}},
        "retry": {"max_attempts": 4},
        "catch_up": "all",
        "metadata": {"text": EVIL},
    },
    {"name": "job", "preset": "routine", "every": "1h", "call": {"name": "job", "args": {"n": 1}}},
    {"name": "0123", "every": "1h", "note": "1e3", "description": "one\n two\x85 # three"},
    {"name": "after-job", "after": "job", "on": "success", "delay": "5m", "shell": ["true", "it's"]},
)


def test_a_schedule_as_yaml_put_again_changes_nothing(harness: OperationsHarness) -> None:
    for draft in RICH:
        harness.ask("schedule create", **draft)
        printed = invoke(harness, "schedule", "get", draft["name"], "-o", "yaml")
        put = invoke(harness, "schedule", "put", "--file", "-", "-o", "json", stdin=printed.out)
        assert (put.code, put.data["change"]) == (0, "unchanged"), put.err
    assert not set(printed.out) & set("\x1b\u202e\u2066")


def test_a_list_of_schedules_as_yaml_is_put_into_another_store_as_it_was(harness: OperationsHarness) -> None:
    for draft in RICH:
        harness.ask("schedule create", **draft)
    printed = invoke(harness, "schedule", "list", "-o", "yaml").out
    for draft in reversed(RICH):
        harness.ask("schedule archive", schedule=draft["name"])
    assert invoke(harness, "schedule", "put", "--file", "-", stdin=printed).code == 0
    assert invoke(harness, "schedule", "list", "-o", "yaml").out == printed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schedules: [{name: good, every: 1h, note: x}, {name: bad, every: 1h}]", "target"),
        ("schedules: [{name: good, every: 1h, note: x}]\nqueues: []", "also has 'queues'"),
        ("[{name: good, every: 1h, note: x}, 7]", "something other than a mapping"),
        ("[{name: good, every: 1h, note: x}, {name: good, every: 2h, note: x}]", "'good' twice"),
    ],
)
def test_a_file_of_schedules_with_one_mistake_writes_nothing(
    harness: OperationsHarness, text: str, message: str
) -> None:
    said = invoke(harness, "schedule", "put", "--file", "-", stdin=text)
    assert said.code == 1
    assert message in " ".join(said.err.split())
    assert "good" not in [one["name"] for one in harness.ask("schedule list")["schedules"]]


def test_quiet_prints_the_ids_of_backfills(harness: OperationsHarness) -> None:
    harness.ask("schedule create", name="daily", cron="0 3 * * *", zone="UTC", note="x")
    span = {"since": "2026-03-01T00:00:00Z", "until": "2026-03-03T00:00:00Z"}
    made = harness.ask("schedule backfill", schedule="daily", **span)["backfill"]["backfill"]
    assert made in invoke(harness, "backfill", "list", "-q").lines


def test_upcoming_occurrences_fit_80_columns_and_are_in_the_zone_that_is_asked_for(
    harness: OperationsHarness,
) -> None:
    harness.ask("schedule note", schedule="nightly-report", text="the auditors read this")
    words = ["upcoming", "--until", "tomorrow 9am", "--tag", "daily"]
    here = invoke(harness, *words, width=80, TZ="Europe/Berlin")
    assert here.lines == [
        "until Wed 2026-03-11 09:00 +01:00 (in 20 h)",
        "TIME              IN       SCHEDULE        SCHEDULE TIME  RESULT",
        "2026-03-11 04:00  in 15 h  nightly-report  03:00 UTC      the auditors read this",
    ]
    words[2] = "tomorrow 11pm"
    there = invoke(harness, *words, "--zone", "Asia/Tokyo", width=80, TZ="Europe/Berlin")
    assert there.lines == [
        "until Wed 2026-03-11 23:00 +09:00 (in 26 h)   times in Asia/Tokyo",
        "TIME              IN       SCHEDULE        RESULT",
        "2026-03-11 12:00  in 15 h  nightly-report  the auditors read this",
    ]
    few = invoke(harness, "upcoming", "--limit", "2", width=80)
    assert few.lines[-1] == "more follows: use a larger --limit, --each 1, --tag or --group"
    assert invoke(harness, "upcoming", "--tag", "none").out.startswith("nothing is planned until ")


def test_a_paused_schedule_shows_when_its_pause_ends_and_an_ended_one_no_pause(
    harness: OperationsHarness,
) -> None:
    harness.ask("schedule pause", schedule="nightly-report", until="2026-03-10T14:00:00Z")
    listed = next(row for row in invoke(harness, "schedule", "list").lines if "nightly-report" in row)
    assert "after 14:00:00 (in 2 h)" in listed
    assert "until     " in invoke(harness, "schedule", "get", "nightly-report").out
    harness.ask("schedule archive", schedule="nightly-report")
    archived = invoke(harness, "schedule", "get", "nightly-report").out
    assert "archived" in archived
    assert "until" not in archived


def test_a_phrase_with_an_offset_is_refused_with_a_zone_as_its_fix(harness: OperationsHarness) -> None:
    refused = invoke(harness, "schedule", "next", "--trigger", "every day at 9am +02:00")
    assert "try     the name of a zone instead of the offset, such as Europe/Berlin" in refused.err


def test_a_definition_of_another_file_names_the_option_that_takes_it_over(
    harness: OperationsHarness, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text("schedules: [{name: a, every: 1h, note: x}]")
    invoke(harness, "apply", str(tmp_path / "one.yaml"))
    refused = invoke(harness, "apply", str(tmp_path / "two.yaml"))
    assert (
        "try     remove it from file:one or from file:two, or plan and apply with --take-over file:one"
        in refused.err
    )


def test_a_backfill_is_one_line_and_its_first_runs(harness: OperationsHarness) -> None:
    harness.ask("schedule create", name="daily", cron="0 3 * * *", note="x")
    span = ("--since", "2026-02-01T00:00:00Z", "--until", "2026-03-01T00:00:00Z")
    done = invoke(harness, "schedule", "backfill", "daily", *span)
    first, *rows, last = done.lines
    assert re.fullmatch(r"bf_\w+   daily   28 runs   Sun 2026-02-01 .* to Sun 2026-03-01 .*", first)
    assert len(rows) == 11
    assert last == "… and 18 more; -o json shows up to 1000"
    nothing = invoke(harness, "schedule", "backfill", "daily", "--since", "2026-03-10T11:00:00Z")
    assert nothing.lines == ["daily   nothing to run: no occurrence in this span is selected"]
