"""A queue that another program kept in a file is taken over whole, once, or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.doors.terminal import ask
from tests.operations.house import House
from timewright.errors import NotAllowed, TimewrightError

# As the queue file looked before it had a scheduling policy, and after.
OLD: dict[str, Any] = {
    "schemaVersion": 1,
    "entries": [
        {
            "id": "b",
            "appId": "crm",
            "priority": 100,
            "enqueuedAt": "2026-03-09T08:00:00.000Z",
            "status": "pending",
        },
        {
            "id": "a",
            "appId": "crm",
            "priority": 100,
            "enqueuedAt": "2026-03-09T08:00:00.000Z",
            "status": "pending",
        },
        {"id": "urgent", "priority": 1, "enqueuedAt": "2026-03-09T09:00:00.000Z", "status": "pending"},
        {"id": "done", "enqueuedAt": "2026-03-09T07:00:00.000Z", "status": "drained"},
    ],
}
NEW: dict[str, Any] = {
    "schemaVersion": 1,
    "entries": [
        {
            "id": "out",
            "enqueuedAt": "2026-03-09T08:00:00Z",
            "status": "leased",
            "leaseId": "lease-out-1",
            "leaseExpiresAt": "2026-03-10T12:05:00Z",
        },
        {
            "id": "stuck",
            "enqueuedAt": "2026-03-09T08:01:00Z",
            "status": "parked",
            "attempts": 3,
            "parkedReason": "3/3 attempts",
        },
        {
            "id": "tired",
            "enqueuedAt": "2026-03-09T08:02:00Z",
            "status": "pending",
            "attempts": 1,
            "nextEligibleAt": "2026-03-10T12:01:00Z",
        },
    ],
}


@pytest.fixture
def house() -> House:
    return House()


def shown(house: House, **which: Any) -> list[dict[str, Any]]:
    return list(house.ask("queue show", queue="line", **which)["entries"])


def test_an_old_file_loads_unchanged_and_goes_on_in_its_order(house: House) -> None:
    answer = house.ask("queue import", queue="line", file=OLD)
    assert answer == {"queue": "line", "imported": 4, "known": 0, "states": {"ready": 3, "succeeded": 1}}
    house.ask("queue policy set", queue="line", max_concurrent=9)
    leases = house.ask("queue lease", queue="line", limit=9)["leases"]
    assert [lease["payload"]["id"] for lease in leases] == ["urgent", "a", "b"]
    assert leases[1]["payload"]["appId"] == "crm", "what we do not know is kept as it was"
    assert "line" in [row["queue"] for row in house.ask("queue list")["queues"]]


def test_leases_attempts_and_park_go_on_where_they_were(house: House) -> None:
    answer = house.ask("queue import", queue="line", file=NEW)
    assert answer["states"] == {"leased": 1, "parked": 1, "ready": 1}
    plan = house.ask("queue plan", queue="line")
    assert (plan["in_flight"], plan["leases"]) == (1, [])
    assert {one["reason"] for one in plan["waiting"]} == {"leased", "parked", "backoff"}
    assert house.ask("queue complete", lease="lease-out-1")["run"]["state"] == "succeeded"


def test_the_same_file_again_changes_nothing(house: House) -> None:
    house.ask("queue import", queue="line", file=OLD)
    before = shown(house)
    again = house.ask("queue import", queue="line", file=OLD)
    assert (again["imported"], again["known"]) == (0, 4)
    assert shown(house) == before


def test_a_rehearsal_says_what_would_be_and_keeps_nothing(house: House) -> None:
    answer = house.ask("queue import", queue="line", file=NEW, dry_run=True)
    assert answer["imported"] == 3
    assert "line" not in [row["queue"] for row in house.ask("queue list")["queues"]]
    assert house.ask("queue import", queue="line", file=NEW)["imported"] == 3


@pytest.mark.parametrize(
    ("file", "field"),
    [
        ({"schemaVersion": 99, "entries": []}, "file.schemaVersion"),
        ({"entries": [{"id": "a"}]}, "file.entries[0].enqueued_at"),
        ({"entries": [*OLD["entries"], OLD["entries"][0]]}, "file.entries[4].id"),
        ("queue.json", "file.entries"),
        ({"entries": [{"id": "a", "enqueuedAt": "2026-03-09T08:00:00"}]}, "file.entries[0].enqueued_at"),
    ],
)
def test_a_file_with_a_fault_is_refused_whole_with_the_path_to_it(
    house: House, file: Any, field: str
) -> None:
    with pytest.raises(TimewrightError) as refusal:
        house.ask("queue import", queue="line", file=file)
    assert refusal.value.field == field
    assert refusal.value.fix
    assert "line" not in [row["queue"] for row in house.ask("queue list")["queues"]]


def test_an_import_does_not_pass_the_ceiling(house: House) -> None:
    leased = [{**NEW["entries"][0], "id": name, "leaseId": f"lease-{name}"} for name in "ab"]
    with pytest.raises(NotAllowed, match="room for 1"):
        house.ask("queue import", queue="line", file={"entries": leased})


def test_the_command_line_reads_a_file_or_the_standard_input(house: House, tmp_path: Path) -> None:
    path = tmp_path / "queue.json"
    path.write_text(json.dumps(OLD), "utf-8")
    words = ("queue", "import", "line", "-o", "json", "--file")
    assert ask(house, *words, str(path)).data["imported"] == 4
    assert ask(house, *words, "-", typed=json.dumps(NEW)).data["imported"] == 3
    path.write_text("- {id: late, enqueuedAt: 2026-03-09T08:00:00Z}", "utf-8")
    assert ask(house, *words, str(path)).data["imported"] == 1, "YAML too, and a list alone"
    missing = ask(house, *words, str(tmp_path / "none.json"))
    assert missing.code == 1
    assert "cannot be read" in json.loads(missing.out or missing.err)["message"]
