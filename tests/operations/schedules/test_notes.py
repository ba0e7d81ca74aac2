"""Notes on one occurrence: shown before it runs and after, until removed."""

from __future__ import annotations

import pytest

from tests.operations.harness import OperationsHarness, feed_events
from timewright.errors import InvalidInput, NotFound, TimewrightError

NINE = "2026-03-11T09:00:00Z"
TEXT = "<b>the auditors</b> read this; one, two"


@pytest.fixture
def empty() -> OperationsHarness:
    harness = OperationsHarness()
    harness.ask("schedule create", name="daily", cron="0 9 * * *", note="x", tags=["night"])
    return harness


def test_a_note_is_shown_wherever_its_occurrence_is(empty: OperationsHarness) -> None:
    noted = empty.ask("schedule note", schedule="daily", text=f"  {TEXT} ", reason="audit")
    assert (noted["at"], noted["text"], noted["by"], noted["revision"]) == (NINE, TEXT, "ada", 1)
    assert [one["note"] for one in empty.ask("schedule get", schedule="daily")["next"]][:2] == [TEXT, ""]
    assert empty.ask("schedule next", schedule="daily")["next"][0]["note"] == TEXT
    assert empty.ask("schedule explain", schedule="daily")["note"] == TEXT
    first = feed_events(empty.ask("schedule feed", tag="night", days=2)["text"])[0]
    assert str(first["description"]) == f"{TEXT}\nat 09:00 every day, UTC"
    empty.advance(days=1)
    run = empty.bench.runs("daily")[0]
    assert empty.ask("run get", run=run.id)["note"] == TEXT
    assert empty.ask("run explain", run=run.id)["note"] == TEXT


def test_a_second_note_replaces_the_first_and_the_audit_log_has_both(empty: OperationsHarness) -> None:
    empty.ask("schedule note", schedule="daily", at=NINE, text="one")
    assert empty.ask("schedule note", schedule="daily", at=NINE, text="two")["revision"] == 2
    assert empty.ask("schedule note", schedule="daily", at=NINE, remove=True)["text"] == ""
    assert empty.ask("schedule next", schedule="daily")["next"][0]["note"] == ""
    lines = [line for line in empty.ask("audit list")["entries"] if line["action"] == "schedule.note"]
    assert [(line["before"], line["after"]) for line in lines] == [
        ("two", f"{NINE}: removed"),
        ("one", f"{NINE}: two"),
        ("", f"{NINE}: one"),
    ]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"at": "2026-03-11T09:30:00Z", "text": "x"}, "at"),
        ({"text": "   "}, "text"),
        ({"text": "x", "remove": True}, "text"),
        ({"text": "x" * 1001}, "text"),
        ({"at": NINE, "remove": True}, "at"),
    ],
)
def test_a_note_needs_an_occurrence_and_a_text(
    empty: OperationsHarness, fields: dict[str, object], field: str
) -> None:
    with pytest.raises(TimewrightError) as error:
        empty.ask("schedule note", fields, schedule="daily")
    assert isinstance(error.value, InvalidInput | NotFound)
    assert error.value.field == field


def test_a_note_moves_with_its_occurrence(empty: OperationsHarness) -> None:
    empty.ask("schedule note", schedule="daily", at=NINE, text="later today")
    empty.ask("schedule move", schedule="daily", to="2026-03-11T17:00:00Z")
    ahead = empty.ask("schedule next", schedule="daily")["next"]
    assert [(one["planned_at"], one["source"], one["note"]) for one in ahead][:2] == [
        ("2026-03-11T17:00:00Z", "manual", "later today"),
        ("2026-03-12T09:00:00Z", "baseline-cron", ""),
    ]


def test_manual_and_moved_runs_are_in_the_feed(empty: OperationsHarness) -> None:
    empty.ask("schedule move", schedule="daily", to="2026-03-11T17:00:00Z")
    empty.ask("schedule run", schedule="daily", at="2026-03-11T20:00:00Z")
    empty.ask("schedule note", schedule="daily", at="2026-03-11T20:00:00Z", text="once more")
    feed = feed_events(empty.ask("schedule feed", days=2)["text"])
    found = [(event["dtstart"].dt.hour, str(event["description"])) for event in feed]
    plain = "at 09:00 every day, UTC"
    assert found == [(17, plain), (20, f"once more\n{plain}"), (9, plain)]


def test_a_calendar_names_the_schedules_it_excludes_completely(empty: OperationsHarness) -> None:
    empty.ask("calendar put", name="off", dates=["2026-03-20"])
    empty.ask(
        "schedule create", name="once", at="2026-03-19T09:00:00Z", note="x", calendar={"except": ["off"]}
    )
    kept = empty.ask("calendar put", name="off", dates=["2026-03-19"])
    assert kept["warnings"] == ["once will not run again: off exclude every future occurrence"]
    assert empty.ask("schedule next", schedule="once")["warnings"] == kept["warnings"]
