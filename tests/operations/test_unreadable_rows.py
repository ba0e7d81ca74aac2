"""Unreadable rows, the instant of creation, and schedules that calendars exclude completely."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operations.harness import NOON, OperationsHarness, instant
from timewright.core.facts import ScheduleFinished


def damage(harness: OperationsHarness, sql: str, *parameters: str) -> None:
    store: Any = harness.store
    store._writer.connection.execute(sql, parameters)


@pytest.fixture
def empty() -> OperationsHarness:
    return OperationsHarness()


def test_one_schedule_that_cannot_be_read_is_named_and_the_others_are_listed(
    empty: OperationsHarness,
) -> None:
    for name in ("one", "two", "three"):
        empty.ask("schedule create", name=name, every="1h", note="x")
    bad = empty.bench.find("two")
    damage(empty, "UPDATE schedules SET state = 'dreaming' WHERE id = ?", bad)
    found = empty.ask("schedule list")
    assert [row["name"] for row in found["schedules"]] == ["one", "three"]
    (lost,) = found["unreadable"]
    assert (lost["id"], lost["name"]) == (bad, "two")
    assert "cannot be read" in lost["error"]
    fewer = empty.ask("schedule list", limit=2)
    assert [row["name"] for row in fewer["schedules"]] == ["one", "three"]


def test_one_run_that_cannot_be_read_is_named_and_the_others_are_listed(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="hourly", every="1h", note="x")
    empty.advance(hours=3)
    runs = empty.bench.runs("hourly")
    damage(empty, "UPDATE runs SET extra = 'x' WHERE id = ?", runs[1].id)
    for filters in ({}, {"schedule": "hourly"}):
        found = empty.ask("run list", filters)
        assert [row["id"] for row in found["runs"]] == [runs[2].id, runs[0].id]
        assert [lost["id"] for lost in found["unreadable"]] == [runs[1].id]


def test_a_schedule_that_cannot_be_read_does_not_hide_its_runs_or_those_of_others(
    empty: OperationsHarness,
) -> None:
    for name in ("good", "bad"):
        empty.ask("schedule create", name=name, every="1h", note="x")
    empty.advance(hours=1)
    bad = empty.bench.find("bad")
    damage(empty, "UPDATE schedules SET state = 'dreaming' WHERE id = ?", bad)
    found = empty.ask("run list")["runs"]
    assert sorted(row["schedule"] for row in found) == ["bad", "good"]
    assert bad in {row["schedule_id"] for row in found}


def test_the_instant_of_creation_is_no_occurrence(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="hourly", every="1h", note="x")
    empty.advance(minutes=5)
    answer = empty.ask("schedule explain", schedule="hourly", at=instant(NOON))
    assert answer["status"] == "not_planned"
    assert "is when the schedule was created" in answer["summary"]
    assert "its first occurrence comes after that" in answer["because"][0]
    assert answer["next_at"] == "2026-03-10T13:00:00Z"


def test_a_calendar_that_excludes_everything_finishes_the_schedule(empty: OperationsHarness) -> None:
    empty.ask("calendar put", name="closed", dates=["2026-03-11"])
    empty.ask("schedule create", name="daily", cron="0 9 * * *", note="x", calendar={"except": ["closed"]})
    empty.ask("calendar put", name="closed", ranges=[{"first": "2026-01-01", "last": "9999-12-31"}])
    empty.advance(days=1)
    shown = empty.ask("schedule get", schedule="daily")
    assert shown["progress"]["state"] == "finished"
    assert shown["progress"]["reason"] == "calendars exclude every future occurrence"
    assert shown["next"] == []
    (row,) = empty.bench.runs("daily")
    assert (row.state.value, row.reason) == ("skipped", "excluded")
    assert any(isinstance(fact, ScheduleFinished) for fact in empty.bench.facts)
    empty.advance(days=30)
    assert len(empty.bench.runs("daily")) == 1, "and it is not looked at again"


def test_a_calendar_that_excludes_most_does_not_finish_the_schedule(empty: OperationsHarness) -> None:
    empty.ask("calendar put", name="closed", dates=["2026-03-11"])
    empty.ask("schedule create", name="daily", cron="0 9 * * *", note="x", calendar={"except": ["closed"]})
    empty.ask("calendar put", name="closed", ranges=[{"first": "2026-03-01", "last": "2026-03-20"}])
    empty.advance(days=12)
    rows = [(run.planned_at.day, run.state.value) for run in empty.bench.runs("daily")]
    assert rows[-2:] == [(21, "succeeded"), (22, "succeeded")]
    assert all(state == "skipped" for day, state in rows if day <= 20)


def test_a_removed_calendar_is_in_the_audit_log(empty: OperationsHarness) -> None:
    empty.ask("calendar put", name="holidays", yearly=["12-25"])
    empty.ask("calendar delete", calendar="holidays", reason="moved")
    line = empty.ask("audit list", limit=1)["entries"][0]
    assert (line["action"], line["subject"], line["reason"]) == ("calendar.delete", "holidays", "moved")
    assert "12-25" in line["before"]


def test_health_counts_live_rows_without_reading_history(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="hourly", every="1h", note="x")
    empty.advance(hours=5)
    empty.ask("queue add", queue="mail", payload=1)
    empty.in_namespace().ask("queue add", queue="mail", payload=1)
    found = empty.ask("health")
    assert (found["ready_runs"], found["leased_runs"], found["parked_schedules"]) == (1, 0, 0)
