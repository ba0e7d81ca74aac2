"""Schedules with recurrence rules: created, shown, edited, run to their end, and verified, on both stores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.operations.harness import NOON, OperationsHarness
from timewright.errors import InvalidInput
from timewright.stores.postgres.store import PostgresStore
from timewright.testing.clock import ManualClock
from timewright.testing.postgres import fresh_database


@pytest.fixture(params=["sqlite", "postgres"])
def either(
    request: pytest.FixtureRequest, postgres_url: str, postgres_template: str
) -> Iterator[OperationsHarness]:
    if request.param == "sqlite":
        yield OperationsHarness()
        return
    with fresh_database(postgres_url, template=postgres_template) as place:
        clock = ManualClock(NOON)
        store = PostgresStore(place, clock=clock)
        try:
            yield OperationsHarness(store=store, clock=clock)
        finally:
            store.close()


def times(harness: OperationsHarness, **fields: Any) -> list[str]:
    return [row["local"] for row in harness.ask("schedule next", fields, count=4)["next"]]


def test_a_fortnightly_rule_is_shown_run_explained_and_verified(either: OperationsHarness) -> None:
    made = either.ask(
        "schedule create", name="fortnight", every="2 weeks on tue at 13:30", zone="Europe/Berlin", note="x"
    )
    assert made["trigger"] == "every 2 weeks on Tuesday at 13:30, Europe/Berlin time"
    expected = ["2026-03-10T13:30:00+01:00", "2026-03-24T13:30:00+01:00", "2026-04-07T13:30:00+02:00"]
    assert times(either, schedule="fortnight")[:3] == expected
    either.advance(days=30)
    runs = either.ask("run list", schedule="fortnight")["runs"]
    assert [(run["planned_at"], run["state"]) for run in runs] == [
        ("2026-04-07T11:30:00Z", "succeeded"),
        ("2026-03-24T12:30:00Z", "succeeded"),
        ("2026-03-10T12:30:00Z", "succeeded"),
    ]
    assert (
        "will run"
        in either.ask("schedule explain", schedule="fortnight", at="2026-04-21T11:30:00Z")["summary"]
    )
    proved = either.ask("verify")
    assert proved["holds"]
    promises = {row["promise"]: row for row in proved["promises"]}
    assert promises["I2"]["checked"] >= 3


def test_a_rule_with_count_finishes_after_that_many_runs() -> None:
    harness = OperationsHarness()
    harness.ask("schedule create", name="three", rrule="FREQ=DAILY;COUNT=3", note="x")
    harness.advance(days=5)
    progress = harness.ask("schedule get", schedule="three")["progress"]
    assert (progress["state"], progress["runs"]) == ("finished", 3)
    assert harness.ask("verify")["holds"]


def test_a_schedule_with_a_start_counts_from_there() -> None:
    harness, start = OperationsHarness(), "2026-03-15T22:00Z"
    for every, first in (
        ("other monday at 9", ["2026-03-16T09:00:00Z", "2026-03-30T09:00:00Z"]),
        ("2w", ["2026-03-15T22:00:00Z", "2026-03-29T22:00:00Z"]),
    ):
        fields = {"every": every, "start_at": start}
        made = harness.ask("schedule create", fields, name=every, note="x")
        preview = harness.ask("schedule next", fields, count=2)["next"]
        assert [row["planned_at"] for row in preview] == first
        assert [row["planned_at"] for row in made["next"]][:2] == first
    harness.advance(days=30)
    for name in ("2w", "other monday at 9"):
        assert len(harness.ask("run list", schedule=name)["runs"]) == 2
    assert harness.ask("verify")["holds"]


@pytest.mark.parametrize("every", ["2w", "other monday at 9"])
def test_a_definition_that_was_anchored_at_its_creation_stays_so_until_its_start_changes(every: str) -> None:
    harness = OperationsHarness()
    words = {"name": "x", "every": every, "start_at": "2026-03-16T00:00Z", "note": "x"}
    harness.ask("schedule put", words, anchor="2026-03-10T12:01:00Z")
    assert harness.ask("schedule put", words)["change"] == "unchanged"
    file = f"schedules: [{{name: x, every: {every}, start_at: '2026-03-16T00:00Z', note: x}}]"
    applied = harness.ask("apply", files={"ops.yaml": file})
    assert applied["changes"][0]["change"] == "adopted"
    edited = harness.ask("schedule update", schedule="x", start_at="2026-03-17T00:00Z")
    assert edited["schedule"]["trigger"]["anchor"] == "2026-03-10T12:01:00Z"
    moved = harness.ask("schedule put", words, start_at="2026-03-23T00:00Z")["detail"]["schedule"]
    assert moved["trigger"]["anchor"] == "2026-03-23T00:00:00Z"
    assert harness.ask("schedule put", words, anchor=NOON.isoformat())["change"] == "updated"


def test_an_edit_keeps_the_anchor() -> None:
    harness = OperationsHarness()
    before = harness.ask("schedule create", name="rule", rrule="FREQ=WEEKLY;INTERVAL=2", note="x")["schedule"]
    harness.advance(days=3)
    harness.ask("schedule update", schedule="rule", every="3 weeks on fri at 09:00")
    after = harness.ask("schedule get", schedule="rule")["schedule"]["trigger"]
    assert after["anchor"] == before["trigger"]["anchor"] == "2026-03-10T12:01:00Z"
    assert after["rule"].startswith("FREQ=WEEKLY;INTERVAL=3;BYDAY=FR")


def test_a_rule_that_is_not_stored_can_be_tried() -> None:
    harness = OperationsHarness()
    found = times(
        harness, rrule="FREQ=MONTHLY;BYDAY=2TU;BYHOUR=9;BYMINUTE=0;BYSECOND=0", zone="Europe/Berlin"
    )
    assert found[0] == "2026-04-14T09:00:00+02:00"


def test_calendars_and_rules_go_together() -> None:
    harness = OperationsHarness()
    harness.ask("calendar put", name="weekend", weekly=[{"days": [5, 6]}])
    rule = {"except": ["weekend"], "roll": "previous"}
    harness.ask("schedule create", name="end", every="month on last day at 18:00", note="x", calendar=rule)
    assert times(harness, schedule="end") == [
        "2026-03-31T18:00:00+00:00",
        "2026-04-30T18:00:00+00:00",
        "2026-05-29T18:00:00+00:00",
        "2026-06-30T18:00:00+00:00",
    ]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"rrule": "FREQ=HOURLY"}, "trigger.rule"),
        ({"rrule": "FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=30"}, "trigger.rule"),
        ({"every": "2 weeks on blursday"}, "trigger.every"),
        ({"rrule": "FREQ=DAILY", "cron": "0 9 * * *"}, "trigger"),
        ({"rrule": "FREQ=DAILY", "zone": "Mars/Olympus"}, "trigger.zone"),
        ({"rrule": "FREQ=DAILY", "anchor": "1900-01-01T00:00:00Z"}, "trigger.anchor"),
    ],
)
def test_an_invalid_rule_is_rejected_with_its_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as error:
        OperationsHarness().ask("schedule create", {"name": "x", "note": "x", **fields})
    assert error.value.field == field
    assert error.value.fix
