"""Declared schedules belong to their program: one batch, drift, pruning, and what a person archived."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.operations.harness import OperationsHarness
from timewright.errors import Conflict, InvalidInput, NotAllowed, TimewrightError
from timewright.interfaces.python.checks import checked_program
from timewright.ledger.records.instances import InstanceRecord, record_heartbeat
from timewright.operations.definitions.programs import Program, save_declarations
from timewright.operations.definitions.schedules import ScheduleChange

PAYMENTS = Program(name="payments")
WHOLE = Program(name="payments", declares_all=True)


def declare(
    harness: OperationsHarness,
    *names: str,
    program: Program = PAYMENTS,
    instance: str = "ins_1",
    **fields: Any,
) -> dict[str, str]:
    """Declare schedules, and return what changed by name."""
    requests = {name: {"name": name, "every": "1h", "note": "hello", **fields} for name in names}
    changes = save_declarations(harness.context, program, requests, instance=instance)
    return {change.name: change.change for change in changes}


def state(harness: OperationsHarness, name: str) -> str:
    return str(harness.bench.call("schedule get", schedule=name)["progress"]["state"])


def owner(harness: OperationsHarness, name: str) -> str:
    return str(harness.bench.call("schedule get", schedule=name)["schedule"]["owner"])


def beat(harness: OperationsHarness, instance: str, **fields: Any) -> None:
    now = harness.context.now()
    made = InstanceRecord(id=instance, host="h", version="1", started_at=now, capacity=1, **fields)
    harness.context.store.write(lambda tx: record_heartbeat(tx, made, now=now))


def later(harness: OperationsHarness) -> None:
    """Let the time pass in which an instance may still be starting."""
    harness.bench.clock.advance(timedelta(minutes=2))


@pytest.fixture
def harness() -> OperationsHarness:
    return OperationsHarness()


def test_a_declared_schedule_belongs_to_its_program(harness: OperationsHarness) -> None:
    assert declare(harness, "a", "b") == {"a": "created", "b": "created"}
    assert owner(harness, "a") == "app:payments"


def test_an_unchanged_declaration_writes_no_revision(harness: OperationsHarness) -> None:
    declare(harness, "a")
    assert declare(harness, "a") == {"a": "unchanged"}
    assert declare(harness, "a", every="60m") == {"a": "unchanged"}
    assert harness.bench.call("schedule get", schedule="a")["schedule"]["revision"] == 1


def test_a_changed_declaration_is_a_new_revision(harness: OperationsHarness) -> None:
    declare(harness, "a", "b")
    assert declare(harness, "a", "b", every="2h") == {"a": "updated", "b": "updated"}
    assert harness.bench.call("schedule get", schedule="a")["schedule"]["revision"] == 2


def test_pauses_and_hints_survive_a_changed_declaration(harness: OperationsHarness) -> None:
    declare(harness, "a", adaptive=True)
    harness.bench.call("hint interval", schedule="a", interval="10m", ttl="5h")
    harness.bench.call("schedule pause", schedule="a", reason="maintenance")
    declare(harness, "a", adaptive=True, every="2h")
    progress = harness.bench.call("schedule get", schedule="a")["progress"]
    assert progress["state"] == "paused"
    assert progress["hints"]["interval"]["interval"] == "10m"


def test_a_program_adopts_a_schedule_that_was_made_by_hand(harness: OperationsHarness) -> None:
    harness.bench.call("schedule create", name="a", every="1h", note="hello")
    assert declare(harness, "a") == {"a": "adopted"}
    assert owner(harness, "a") == "app:payments"
    assert declare(harness, "a") == {"a": "unchanged"}


def test_a_schedule_of_another_owner_is_refused_and_nothing_is_written(harness: OperationsHarness) -> None:
    declare(harness, "a", program=Program(name="billing"))
    with pytest.raises(Conflict, match="schedule a belongs to app:billing"):
        declare(harness, "b", "a")
    assert [row["name"] for row in harness.bench.call("schedule list")["schedules"]] == ["a"]


def test_a_program_takes_over_from_one_without_a_name(harness: OperationsHarness) -> None:
    declare(harness, "a", program=Program())
    assert owner(harness, "a") == "app"
    declare(harness, "a")
    assert owner(harness, "a") == "app:payments"


def test_an_edit_by_hand_is_drift_and_is_replaced_with_a_warning(
    harness: OperationsHarness, caplog: pytest.LogCaptureFixture
) -> None:
    declare(harness, "a")
    edited = harness.bench.call("schedule update", schedule="a", every="3h")
    assert "a belongs to app:payments: its next start restores the declaration" in edited["warnings"]
    assert declare(harness, "a") == {"a": "updated"}
    assert "schedule a was edited by hand" in caplog.text
    assert harness.bench.call("schedule get", schedule="a")["schedule"]["trigger"]["interval"] == "1h"


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        ("schedule update", {"schedule": "a", "every": "3h"}),
        ("schedule put", {"name": "a", "every": "3h", "note": "x"}),
        ("schedule archive", {"schedule": "a"}),
        ("schedule delete", {"schedule": "a"}),
    ],
)
def test_a_program_may_refuse_edits_by_hand(
    harness: OperationsHarness, operation: str, fields: dict[str, Any]
) -> None:
    declare(harness, "a", program=replace(PAYMENTS, edits="refuse"))
    with pytest.raises(NotAllowed, match="refuses edits by hand"):
        harness.bench.call(operation, **fields)
    harness.bench.call("schedule pause", schedule="a")


def test_a_schedule_that_a_person_archived_stays_archived(
    harness: OperationsHarness, caplog: pytest.LogCaptureFixture
) -> None:
    declare(harness, "a")
    harness.bench.call("schedule archive", schedule="a")
    assert declare(harness, "a") == {"a": "stays_archived"}
    assert declare(harness, "a", every="2h") == {"a": "stays_archived"}
    assert "someone archived it" in caplog.text
    harness.bench.call("schedule create", name="a", every="1h", note="by hand")
    assert declare(harness, "a") == {"a": "updated"}


def test_without_declares_all_nothing_is_archived_and_doctor_lists_it(harness: OperationsHarness) -> None:
    declare(harness, "a", "b")
    declare(harness, "a")
    assert state(harness, "b") == "active"
    (found,) = [one for one in harness.bench.call("doctor")["findings"] if one["kind"] == "undeclared"]
    assert found["sentence"] == "app:payments no longer declares b"


def test_with_declares_all_what_is_no_longer_declared_is_archived(harness: OperationsHarness) -> None:
    declare(harness, "a", "b", "c", program=WHOLE)
    harness.bench.call("schedule create", name="by-hand", every="1h", note="x")
    declare(harness, "other", program=Program(name="billing"))
    assert declare(harness, "a", program=WHOLE) == {"a": "unchanged", "b": "archived", "c": "archived"}
    assert [state(harness, name) for name in ("a", "by-hand", "other")] == ["active"] * 3
    assert declare(harness, "a", "b", program=WHOLE) == {"a": "unchanged", "b": "created"}


def test_a_dependent_schedule_is_archived_before_its_upstream(harness: OperationsHarness) -> None:
    requests = {
        "load": {"name": "load", "every": "1h", "note": "x"},
        "a-report": {"name": "a-report", "after": "load", "note": "x"},
        "mail": {"name": "mail", "after": "a-report", "note": "x"},
    }
    save_declarations(harness.context, WHOLE, requests, instance="ins_1")
    assert set(declare(harness, program=WHOLE).values()) == {"archived"}


def test_nothing_is_archived_while_another_live_instance_declares_it(harness: OperationsHarness) -> None:
    declare(harness, "a", "b", program=WHOLE, instance="ins_old")
    later(harness)
    beat(harness, "ins_old")
    assert declare(harness, "a", program=WHOLE, instance="ins_new") == {"a": "unchanged"}
    assert "undeclared" not in {one["kind"] for one in harness.bench.call("doctor")["findings"]}
    beat(harness, "ins_old", stopped=True)
    assert declare(harness, "a", program=WHOLE, instance="ins_3") == {"a": "unchanged", "b": "archived"}


def test_an_instance_that_is_starting_counts_as_live(harness: OperationsHarness) -> None:
    declare(harness, "a", "b", program=WHOLE, instance="ins_old")
    assert declare(harness, "a", program=WHOLE, instance="ins_new") == {"a": "unchanged"}
    later(harness)
    assert declare(harness, "a", program=WHOLE, instance="ins_3") == {"a": "unchanged", "b": "archived"}


def test_an_invalid_declaration_leaves_the_store_unchanged_and_is_named(harness: OperationsHarness) -> None:
    requests = {
        "a": {"name": "a", "every": "1h", "note": "x"},
        "b": {"name": "b", "every": "1h", "call": "f", "limits": "x"},
    }
    with pytest.raises(TimewrightError) as caught:
        save_declarations(harness.context, PAYMENTS, requests, instance="ins_1")
    assert "schedule 'b'" in "".join(caught.value.__notes__)
    assert harness.bench.call("schedule list")["schedules"] == []


def test_declarations_that_differ_only_in_name_and_function_are_decoded_alike(
    harness: OperationsHarness,
) -> None:
    requests = {
        name: {"name": name, "cron": "H 3 * * *", "target": {"kind": "call", "name": "f", "args": {"n": n}}}
        for n, name in enumerate(("a", "b"))
    }
    changes = {one.name: one for one in save_declarations(harness.context, PAYMENTS, requests, instance="i")}
    assert all(isinstance(one, ScheduleChange) and one.after is not None for one in changes.values())
    details = {name: harness.bench.call("schedule get", schedule=name)["schedule"] for name in requests}
    assert [details[name]["target"]["args"]["n"] for name in ("a", "b")] == [0, 1]
    assert details["a"]["trigger"]["key"] == details["a"]["id"] != details["b"]["trigger"]["key"]


def test_a_program_that_declares_all_needs_a_name() -> None:
    with pytest.raises(InvalidInput, match="name"):
        checked_program("", declares_all=True, edits="warn")
    assert checked_program("x", declares_all=True, edits="warn").owner == "app:x"
