"""Importing a queue file: completely, once, or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.interfaces.terminal import invoke
from tests.operations.harness import OperationsHarness
from timewright.errors import NotAllowed, TimewrightError

# The queue file without and with a scheduling policy.
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
def harness() -> OperationsHarness:
    return OperationsHarness()


def shown(harness: OperationsHarness, **which: Any) -> list[dict[str, Any]]:
    return list(harness.ask("queue show", queue="line", **which)["entries"])


def test_an_existing_file_is_imported_unchanged_and_in_order(harness: OperationsHarness) -> None:
    answer = harness.ask("queue import", queue="line", file=OLD)
    assert answer == {"queue": "line", "imported": 4, "known": 0, "states": {"ready": 3, "succeeded": 1}}
    harness.ask("queue policy set", queue="line", max_running=9)
    leases = harness.ask("queue lease", queue="line", limit=9)["leases"]
    assert [lease["payload"]["id"] for lease in leases] == ["urgent", "a", "b"]
    assert leases[1]["payload"]["appId"] == "crm", "what we do not know is kept as it was"
    assert "line" in [row["queue"] for row in harness.ask("queue list")["queues"]]


def test_leases_attempts_and_parked_entries_are_preserved(harness: OperationsHarness) -> None:
    answer = harness.ask("queue import", queue="line", file=NEW)
    assert answer["states"] == {"leased": 1, "parked": 1, "ready": 1}
    plan = harness.ask("queue plan", queue="line")
    assert (plan["in_flight"], plan["leases"]) == (1, [])
    assert {one["reason"] for one in plan["waiting"]} == {"leased", "parked", "backoff"}
    assert harness.ask("queue complete", lease="lease-out-1")["run"]["state"] == "succeeded"


def test_the_same_file_again_changes_nothing(harness: OperationsHarness) -> None:
    harness.ask("queue import", queue="line", file=OLD)
    before = shown(harness)
    again = harness.ask("queue import", queue="line", file=OLD)
    assert (again["imported"], again["known"]) == (0, 4)
    assert shown(harness) == before


def test_a_dry_run_shows_the_import_and_stores_nothing(harness: OperationsHarness) -> None:
    answer = harness.ask("queue import", queue="line", file=NEW, dry_run=True)
    assert answer["imported"] == 3
    assert "line" not in [row["queue"] for row in harness.ask("queue list")["queues"]]
    assert harness.ask("queue import", queue="line", file=NEW)["imported"] == 3


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
def test_an_invalid_file_is_rejected_with_the_path_of_the_error(
    harness: OperationsHarness, file: Any, field: str
) -> None:
    with pytest.raises(TimewrightError) as error:
        harness.ask("queue import", queue="line", file=file)
    assert error.value.field == field
    assert error.value.fix
    assert "line" not in [row["queue"] for row in harness.ask("queue list")["queues"]]


def test_an_import_respects_the_concurrency_limit(harness: OperationsHarness) -> None:
    leased = [{**NEW["entries"][0], "id": name, "leaseId": f"lease-{name}"} for name in "ab"]
    with pytest.raises(NotAllowed, match="has 1 free slots"):
        harness.ask("queue import", queue="line", file={"entries": leased})


def test_the_command_line_reads_a_file_or_the_standard_input(
    harness: OperationsHarness, tmp_path: Path
) -> None:
    path = tmp_path / "queue.json"
    path.write_text(json.dumps(OLD), "utf-8")
    words = ("queue", "import", "line", "-o", "json", "--file")
    assert invoke(harness, *words, str(path)).data["imported"] == 4
    assert invoke(harness, *words, "-", stdin=json.dumps(NEW)).data["imported"] == 3
    path.write_text("- {id: late, enqueuedAt: 2026-03-09T08:00:00Z}", "utf-8")
    assert invoke(harness, *words, str(path)).data["imported"] == 1, "YAML too, and a list alone"
    missing = invoke(harness, *words, str(tmp_path / "none.json"))
    assert missing.code == 1
    assert "cannot be read" in json.loads(missing.out or missing.err)["message"]
