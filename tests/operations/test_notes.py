"""A note beside one occurrence: shown before it runs and after, and gone when it is taken away."""

from __future__ import annotations

import pytest

from tests.operations.house import House
from tests.operations.test_feeds import events
from timewright.errors import InvalidInput, NotFound, TimewrightError

NINE = "2026-03-11T09:00:00Z"
TEXT = "<b>the auditors</b> read this; one, two"


@pytest.fixture
def empty() -> House:
    house = House()
    house.ask("schedule create", name="daily", cron="0 9 * * *", note="x", tags=["night"])
    return house


def test_a_note_is_shown_wherever_its_occurrence_is(empty: House) -> None:
    noted = empty.ask("schedule note", schedule="daily", text=f"  {TEXT} ", reason="audit")
    assert (noted["at"], noted["text"], noted["by"], noted["revision"]) == (NINE, TEXT, "ada", 1)
    assert [one["note"] for one in empty.ask("schedule get", schedule="daily")["next"]][:2] == [TEXT, ""]
    assert empty.ask("schedule next", schedule="daily")["next"][0]["note"] == TEXT
    assert empty.ask("schedule explain", schedule="daily")["note"] == TEXT
    first = events(empty.ask("schedule feed", tag="night", days=2)["text"])[0]
    assert str(first["description"]) == f"{TEXT}\nat 09:00 every day"
    empty.advance(days=1)
    run = empty.bench.runs("daily")[0]
    assert empty.ask("run get", run=run.id)["note"] == TEXT
    assert empty.ask("run explain", run=run.id)["note"] == TEXT


def test_a_second_note_takes_the_place_of_the_first_and_the_log_keeps_both(empty: House) -> None:
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
def test_a_note_beside_nothing_or_of_nothing_is_refused(
    empty: House, fields: dict[str, object], field: str
) -> None:
    with pytest.raises(TimewrightError) as refusal:
        empty.ask("schedule note", fields, schedule="daily")
    assert isinstance(refusal.value, InvalidInput | NotFound)
    assert refusal.value.field == field


def test_a_note_goes_with_an_occurrence_that_is_moved(empty: House) -> None:
    empty.ask("schedule note", schedule="daily", at=NINE, text="later today")
    empty.ask("schedule move", schedule="daily", to="2026-03-11T17:00:00Z")
    ahead = empty.ask("schedule next", schedule="daily")["next"]
    assert [(one["planned_at"], one["source"], one["note"]) for one in ahead][:2] == [
        ("2026-03-11T17:00:00Z", "manual", "later today"),
        ("2026-03-12T09:00:00Z", "baseline-cron", ""),
    ]


def test_what_was_added_or_moved_by_hand_is_in_the_feed(empty: House) -> None:
    empty.ask("schedule move", schedule="daily", to="2026-03-11T17:00:00Z")
    empty.ask("schedule run", schedule="daily", at="2026-03-11T20:00:00Z")
    empty.ask("schedule note", schedule="daily", at="2026-03-11T20:00:00Z", text="once more")
    feed = events(empty.ask("schedule feed", days=2)["text"])
    found = [(event["dtstart"].dt.hour, str(event["description"])) for event in feed]
    plain = "at 09:00 every day"
    assert found == [(17, plain), (20, f"once more\n{plain}"), (9, plain)]


def test_a_calendar_says_which_schedules_it_leaves_with_nothing(empty: House) -> None:
    empty.ask("calendar put", name="off", dates=["2026-03-20"])
    empty.ask(
        "schedule create", name="once", at="2026-03-19T09:00:00Z", note="x", calendar={"except": ["off"]}
    )
    kept = empty.ask("calendar put", name="off", dates=["2026-03-19"])
    assert kept["warnings"] == ["once has nothing left to run: off exclude every occurrence to come"]
    assert empty.ask("schedule next", schedule="once")["warnings"] == kept["warnings"]
