"""`schedule put-many` and `schedule run-many`: many at once, in one transaction, like one by one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operations.harness import OperationsHarness, dump
from timewright.errors import Conflict, InvalidInput, NotFound


@pytest.fixture
def empty() -> OperationsHarness:
    return OperationsHarness()


def drafts(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"name": f"job-{n}", "every": "1h", "note": "x", **fields} for n in range(count)]


def changes(answer: dict[str, Any]) -> list[str]:
    return [one["change"] for one in answer["schedules"]]


def test_many_schedules_are_put_at_once_and_the_same_ones_again_change_nothing(
    empty: OperationsHarness,
) -> None:
    first = empty.ask("schedule put-many", schedules=drafts(3))
    assert (first["created"], changes(first)) == (3, ["created"] * 3)
    assert empty.ask("schedule put-many", schedules=drafts(3))["unchanged"] == 3
    wanted = [
        *drafts(2),
        {"name": "job-2", "every": "2h", "note": "x"},
        {"name": "new", "every": "1h", "note": "y"},
    ]
    again = empty.ask("schedule put-many", schedules=wanted)
    assert changes(again) == ["unchanged", "unchanged", "updated", "created"]
    assert again["schedules"][2]["id"] == first["schedules"][2]["id"]
    assert empty.ask("schedule get", schedule="job-2")["schedule"]["revision"] == 2


def test_put_many_writes_what_put_writes(empty: OperationsHarness) -> None:
    empty.ask(
        "schedule put", name="one", cron="0 9 * * *", zone="Europe/Berlin", http="GET https://example.com"
    )
    wanted = {"name": "two", "cron": "0 9 * * *", "zone": "Europe/Berlin", "http": "GET https://example.com"}
    empty.ask("schedule put-many", schedules=[wanted])
    one, two = (empty.ask("schedule get", schedule=name)["schedule"] for name in ("one", "two"))
    assert {**one, "id": "", "name": ""} == {**two, "id": "", "name": ""}


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ([*drafts(2), {"name": "bad", "every": "never", "note": "x"}], "every"),
        ([*drafts(2), {"every": "1h", "note": "x"}], r"schedules\[2\]\.name"),
        ([*drafts(2), *drafts(1)], "job-0 is given 2 times"),
        ([*drafts(1), {"name": "odd", "every": "1h", "note": "x", "colour": "red"}], "colour"),
    ],
)
def test_one_bad_schedule_leaves_the_store_unchanged(
    empty: OperationsHarness, wanted: list[dict[str, Any]], message: str
) -> None:
    before = dump(empty.store)
    with pytest.raises(InvalidInput, match=message):
        empty.ask("schedule put-many", schedules=wanted)
    assert dump(empty.store) == before


def run_many(harness: OperationsHarness, *runs: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = harness.ask("schedule run-many", runs=list(runs))["runs"]
    return found


def test_many_runs_are_made_in_the_order_of_the_request_with_their_payloads(empty: OperationsHarness) -> None:
    empty.ask("schedule put-many", schedules=drafts(2, overlap="allow"))
    wanted = [{"schedule": f"job-{n % 2}", "payload": {"n": n}} for n in range(6)]
    made = run_many(empty, *wanted)
    assert [run["schedule"] for run in made] == [one["schedule"] for one in wanted]
    assert [empty.ask("run get", run=run["id"])["payload"] for run in made] == [{"n": n} for n in range(6)]
    assert {run["state"] for run in made} == {"ready"}
    listed = empty.ask("run list", schedule="job-0")["runs"]
    assert [run["id"] for run in listed] == [run["id"] for run in reversed(made[0::2])]


@pytest.mark.parametrize(
    ("overlap", "states"),
    [
        ("skip", ["ready", "skipped", "skipped"]),
        ("queue", ["ready", "held", "held"]),
        ("replace", ["skipped", "skipped", "ready"]),
        ("allow", ["ready", "ready", "ready"]),
    ],
)
def test_many_runs_of_one_schedule_obey_its_overlap_policy(
    empty: OperationsHarness, overlap: str, states: list[str]
) -> None:
    empty.ask("schedule put-many", schedules=drafts(1, overlap=overlap))
    assert [run["state"] for run in run_many(empty, *[{"schedule": "job-0"}] * 3)] == states


def test_the_same_client_key_returns_the_same_run_also_among_many(empty: OperationsHarness) -> None:
    empty.ask("schedule put-many", schedules=drafts(1, overlap="allow"))
    one = {"schedule": "job-0", "client_key": "a", "payload": 1}
    first = run_many(empty, one, {"schedule": "job-0"})
    assert run_many(empty, one)[0]["id"] == first[0]["id"]
    twice = run_many(empty, {**one, "client_key": "b"}, {**one, "client_key": "b"})
    assert twice[0]["id"] == twice[1]["id"]
    with pytest.raises(Conflict, match="client key"):
        run_many(empty, {**one, "payload": 2})


def test_an_unknown_schedule_leaves_no_run_behind(empty: OperationsHarness) -> None:
    empty.ask("schedule put-many", schedules=drafts(1))
    before = dump(empty.store)
    with pytest.raises(NotFound):
        run_many(empty, {"schedule": "job-0"}, {"schedule": "nobody"})
    assert dump(empty.store) == before
