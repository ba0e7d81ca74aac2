"""What a command says: the answer on one stream, words about it on the other, and no more than asked."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.doors.terminal import ask
from tests.operations.house import House
from timewright.core.moments import SECOND
from timewright.testing.targets import succeed


def test_a_new_schedule_is_told_on_one_line_with_its_rhythm(house: House) -> None:
    said = ask(house, "schedule", "create", "hello", "--every", "5s", "--note", "hello", TZ="Europe/Berlin")
    schedule_id = house.bench.find("hello")
    assert said.out == f"{schedule_id}   hello   every 5s   next 13:00:05 (in 5 s), 13:00:10, 13:00:15\n"
    assert said.err == ""


def test_on_a_usual_screen_the_line_tells_only_the_next_time_and_on_a_narrow_one_it_is_a_block(
    house: House,
) -> None:
    words = ["schedule", "create", "hello", "--every", "5s", "--note", "hello", "--dry-run"]
    usual, narrow = ask(house, *words, width=80), ask(house, *words, width=40)
    assert [line[30:] for line in usual.lines] == ["   hello   every 5s   next 12:00:05 (in 5 s)"]
    assert narrow.lines[1:] == [
        "  when  every 5s",
        "  next  12:00:05 (in 5 s), 12:00:10,",
        "        12:00:15",
    ]


def test_a_time_of_another_day_says_its_day_and_offset(house: House) -> None:
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
    said = ask(house, *words, TZ="Europe/Berlin")
    assert said.out.endswith("   next Wed 2026-03-11 09:00 +01:00 (in 20 h)\n")
    assert "report   at 09:00 on Monday through Friday" in said.out


def test_a_schedule_can_be_looked_at_in_another_zone_than_its_own(house: House) -> None:
    said = ask(house, "schedule", "next", "nightly-report", "--count", "1", TZ="Europe/Berlin")
    assert said.lines[-1].split("  ") == ["Wed 2026-03-11 04:00 +01:00", "in 15 h", "Wed 03:00:00 UTC"]


def test_what_is_good_to_know_is_a_note_beside_the_answer(house: House) -> None:
    words = ["schedule", "create", "--every", "5s", "--dry-run"]
    shell = ask(house, *words, "a", "--shell", "--", "date")
    local = ask(house, *words, "b", "--http", "GET", "http://127.0.0.1:8000/x")
    assert shell.err.startswith("note: shell targets are off")
    assert local.err.startswith("note: this machine may be called")
    assert "note" not in shell.out + local.out
    assert ask(house, *words, "a", "-q", "--shell", "--", "date").err == ""
    assert ask(house, *words, "a", "-o", "json", "--shell", "--", "date").err == ""


def test_a_list_that_goes_on_says_how(house: House) -> None:
    said = ask(house, "run", "list", "--limit", "2")
    cursor = said.err.removeprefix("note: there is more: --cursor ").strip()
    following = ask(house, "run", "list", "--limit", "2", "--cursor", cursor, "-o", "json").data["runs"]
    assert [row["id"] for row in following] == [
        row["id"] for row in house.ask("run list", limit=4)["runs"][2:]
    ]


def test_quiet_gives_names_and_ids_alone(house: House) -> None:
    names = [row["name"] for row in house.ask("schedule list")["schedules"]]
    assert ask(house, "schedule", "list", "-q").lines == names
    assert {"nightly-report", "orders-poll", "paused-export"} <= set(names)
    runs = [row["id"] for row in house.ask("run list", limit=2)["runs"]]
    assert ask(house, "run", "list", "--limit", "2", "-q").lines == runs
    assert ask(house, "schedule", "run", "nightly-report", "-q").out.startswith("run_")
    assert ask(house, "schedule", "pause", "orders-poll", "-q").lines == ["orders-poll"]
    assert ask(house, "schedule", "put", "orders-poll", "--every", "1m", "--note", "x", "-q").lines == [
        "orders-poll"
    ]
    assert ask(house, "calendar", "get", "holidays", "-q").lines == ["holidays"]


def test_an_empty_list_says_so(house: House) -> None:
    assert ask(house.elsewhere(), "schedule", "list").lines == ["no schedules"]
    assert ask(house.elsewhere(), "run", "list").lines == ["no runs"]


EVIL = "\x1b[2Jgone \u202eback\u2066"


def test_what_someone_wrote_has_no_power_over_the_terminal(house: House) -> None:
    house.ask("schedule create", name="evil", every="5s", note=EVIL, description=EVIL, metadata={"a": EVIL})
    house.ask("schedule pause", schedule="evil", reason=EVIL)
    for words in (["schedule", "list"], ["schedule", "get", "evil"], ["audit", "list"], ["explain", "evil"]):
        for width in (40, 80, None):
            said = ask(house, *words, width=width)
            assert said.code == 0
            assert not set(said.out) & set("\x1b\u202e\u2066")
    assert "\\x1b[2Jgone \\u202eback\\u2066" in ask(house, "schedule", "get", "evil").out
    assert "\x1b" not in ask(house, "schedule", "get", EVIL).err


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_data_for_programs_is_exact_and_still_shows_what_hides(house: House, output: str) -> None:
    house.ask("schedule create", name="evil", every="5s", note=f"häßlich {EVIL}")
    said = ask(house, "schedule", "get", "evil", "-o", output)
    read = json.loads if output == "json" else yaml.safe_load
    assert read(said.out) == house.ask("schedule get", schedule="evil")
    assert not set(said.out) & set("\x1b\u202e\u2066")


def skipping(house: House) -> None:
    """A schedule whose first run takes eight seconds, so that the one after five is left out."""
    house.sleep(seconds=0.25)
    house.ask("schedule create", name="slow", every="5s", call="slow", overlap="skip")
    house.bench.target.script("slow", succeed(after=8 * SECOND))
    house.advance(seconds=16)


def test_a_skipped_occurrence_is_explained_with_its_policy_and_what_would_change_it(house: House) -> None:
    skipping(house)
    said = ask(house, "explain", "slow", "--at", "13:00:10", TZ="Europe/Berlin")
    assert said.lines[0] == "slow: the run planned for 13:00:10 did not run: overlap"
    told = " ".join(said.out.split())
    assert "planned 13:00:10.250 Tue 2026-03-10 +01:00 (6 s ago)" in told
    assert "decision skipped (overlap)" in told
    assert "was under way until 13:00:13" in told
    assert "policy overlap: skip" in told
    assert "change it timewright schedule update slow --overlap queue" in told


def test_an_instant_of_the_clock_finds_what_a_clock_shows_so_and_an_exact_one_only_itself(
    house: House,
) -> None:
    skipping(house)
    by_clock = ask(house, "schedule", "explain", "slow", "--at", "12:00:10", "-o", "json").data
    exactly = ask(house, "schedule", "explain", "slow", "--at", "2026-03-10T12:00:10Z", "-o", "json").data
    to_the_minute = ask(house, "schedule", "explain", "slow", "--at", "12:00", "-o", "json").data
    assert (by_clock["at"], by_clock["fate"]) == ("2026-03-10T12:00:10.250000Z", "skipped")
    assert (exactly["at"], exactly["fate"]) == ("2026-03-10T12:00:10Z", "not_planned")
    assert to_the_minute["at"] == "2026-03-10T12:00:05.250000Z"


def test_an_instant_that_nobody_planned_stays_one(house: House) -> None:
    said = ask(house, "explain", "nightly-report", "--at", "11:11")
    assert "was before its time" not in said.out
    assert "never planned" in said.lines[0]
    assert "before" in said.out
    assert "after" in said.out


def test_elsewhere_a_time_of_day_is_todays_and_a_date_without_an_offset_is_refused(house: House) -> None:
    words = ["schedule", "pause", "nightly-report", "--dry-run", "--until"]
    said = ask(house, *words, "18:00", TZ="Europe/Berlin")
    assert "until Tue 2026-03-10 18:00 +01:00" in said.out
    refused = ask(house, *words, "2026-03-11 18:00", TZ="Europe/Berlin")
    assert refused.code == 1
    assert "try     2026-03-11 18:00Z, or with an offset: 2026-03-11 18:00+01:00" in refused.err


def test_a_row_that_cannot_be_read_is_told_beside_the_list(house: House) -> None:
    bad = house.bench.find("orders-poll")
    store: Any = house.store
    store._writer.connection.execute("UPDATE schedules SET state = 'dreaming' WHERE id = ?", (bad,))
    said = ask(house, "schedule", "list")
    assert said.code == 0
    assert "orders-poll" not in said.out
    assert "nightly-report" in said.out
    assert f"note: orders-poll cannot be read ({bad})" in said.err
