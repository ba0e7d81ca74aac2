"""The policy file: in force at start and after an edit; while it is unreadable, queues lease nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.conformance.support.concurrency import all_at_once
from timewright.errors import InvalidInput, NotAllowed
from timewright.operations import operations
from timewright.settings import Settings
from timewright.testing.clock import ManualClock
from timewright.wiring import Instance, new_registry, open_store

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
BROKEN = '{"mail": {"max_running": 0}}'


class PolicyFileInstance:
    """An instance with a policy file and a manual clock."""

    def __init__(self, place: str, path: Path) -> None:
        self.clock = ManualClock(NOON)
        self.path = path
        store = open_store(place, clock=self.clock)
        settings = Settings(policy_file=str(path))
        self.inner = Instance(store, settings=settings, registry=new_registry(), clock=self.clock)

    def write(self, text: str) -> None:
        """Edit the file, and advance by a second so that the engine reads it."""
        self.path.write_text(text, "utf-8")
        self.look()

    def look(self) -> None:
        self.clock.advance(seconds=1)
        self.inner.loop.step()

    def ask(self, operation: str, **request: Any) -> dict[str, Any]:
        return operations[operation](self.inner.context(), request)

    def ceiling(self, queue: str) -> tuple[int, str]:
        shown = self.ask("queue policy show", queue=queue)
        return shown["policy"]["max_running"], shown["source"]


@pytest.fixture
def instance(place: str, tmp_path: Path) -> Iterator[PolicyFileInstance]:
    instance = PolicyFileInstance(place, tmp_path / "queues.json")
    yield instance
    instance.inner.free()
    instance.inner.close()


def test_an_edited_policy_file_is_in_force_within_a_second(instance: PolicyFileInstance) -> None:
    assert instance.ceiling("mail") == (1, "default"), "no file is the cautious policy"
    instance.write('{"mail": {"max_running": 3}, "reports": {"max_running": 2}}')
    assert instance.ceiling("mail") == (3, "file")
    instance.ask("queue add", queue="mail", payloads=list(range(9)))
    assert len(instance.ask("queue lease", queue="mail", limit=9)["leases"]) == 3

    instance.write('{"mail": {"max_running": 5}}')
    assert len(instance.ask("queue lease", queue="mail", limit=9)["leases"]) == 2
    assert instance.ceiling("reports") == (1, "default"), "what it no longer names is cautious again"

    instance.path.unlink()
    instance.look()
    assert instance.ceiling("mail") == (1, "default")
    actions = {(one["action"], one["origin"]) for one in instance.ask("audit list")["entries"]}
    assert {("queue.put", "file"), ("queue.delete", "file")} <= actions


def test_the_policy_file_overrides_a_policy_set_elsewhere(instance: PolicyFileInstance) -> None:
    instance.write('{"mail": {"max_running": 3}}')
    unaware = replace(instance.inner.context(), policy_file=None)
    operations["queue policy set"](unaware, {"queue": "mail", "max_running": 9})
    assert instance.ceiling("mail") == (9, "set")
    instance.clock.advance(seconds=30)
    instance.look()
    assert instance.ceiling("mail") == (3, "file")


def test_a_file_with_one_policy_sets_the_default_queue(instance: PolicyFileInstance) -> None:
    policy = {
        "schemaVersion": 1,
        "maxConcurrent": 2,
        "maxAttempts": 5,
        "leaseTtlMs": 300000,
        "backoffBaseMs": 1000,
        "backoffFactor": 2,
        "backoffCapMs": 60000,
    }
    instance.write(json.dumps(policy))
    assert instance.ceiling("default") == (2, "file")
    assert instance.ask("queue policy show", queue="default")["policy"]["max_attempts"] == 5


def test_a_file_that_cannot_be_read_closes_the_queues_and_nothing_else(instance: PolicyFileInstance) -> None:
    instance.write('{"mail": {"max_running": 3}}')
    instance.ask("queue add", queue="mail", payload=1)
    instance.ask("schedule create", name="queued", every="1h", note="a", queue="mail")
    instance.ask("schedule create", name="free", every="1h", note="b")
    instance.write(BROKEN)
    instance.clock.advance(hours=1)
    instance.look()
    instance.look()

    states = {run["schedule"]: run["state"] for run in instance.ask("run list")["runs"]}
    assert states == {"": "ready", "queued": "ready", "free": "succeeded"}
    for operation in ("queue lease", "queue drain", "queue plan"):
        with pytest.raises(InvalidInput, match="line 1: ") as refusal:
            instance.ask(operation, queue="mail")
        assert refusal.value.field == "policy_file.mail.max_running"
    why = str(instance.path)
    assert why in instance.ask("health")["policy_file"]
    assert why in " ".join(instance.ask("schedule explain", schedule="queued", last=True)["because"])
    (finding,) = [one for one in instance.ask("doctor")["findings"] if one["kind"] == "policy_file"]
    assert finding["severity"] == "fail"
    assert why in finding["sentence"]
    assert instance.ceiling("mail") == (3, "set"), "what held goes on to hold for what is under way"

    instance.write('{"mail": {"max_running": 4}}')
    instance.look()
    states = {run["schedule"]: run["state"] for run in instance.ask("run list")["runs"]}
    assert states["queued"] == "succeeded"
    assert instance.ask("health")["policy_file"] == ""
    assert len(instance.ask("queue lease", queue="mail")["leases"]) == 1


def test_a_policy_from_the_file_can_only_be_changed_in_the_file(instance: PolicyFileInstance) -> None:
    instance.write('{"mail": {"max_running": 3}}')
    with pytest.raises(NotAllowed, match="is defined in") as refusal:
        instance.ask("queue policy set", queue="mail", max_running=9)
    assert "reloaded within a second" in (refusal.value.fix or "")
    assert instance.ask("queue policy set", queue="other", max_running=9)["source"] == "set"
    assert instance.ceiling("mail") == (3, "file")


def test_the_policy_file_does_not_affect_other_namespaces(instance: PolicyFileInstance) -> None:
    instance.write(BROKEN)
    other = instance.inner.context()
    inside = replace(other, namespace="other")
    operations["queue add"](inside, {"queue": "mail", "payload": 1})
    assert len(operations["queue lease"](inside, {"queue": "mail"})["leases"]) == 1


def test_two_instances_can_apply_the_same_file_at_once(place: str, tmp_path: Path) -> None:
    path = tmp_path / "queues.json"
    path.write_text(json.dumps({f"queue-{n}": {"max_running": n + 1} for n in range(20)}), "utf-8")
    instances = [PolicyFileInstance(place, path) for _ in range(4)]
    refusals = all_at_once([instance.inner.apply_policy_file for instance in instances])
    assert refusals == [""] * 4
    assert instances[0].ceiling("queue-19") == (20, "file")
    for instance in instances:
        instance.inner.free()
        instance.inner.close()


@pytest.mark.parametrize(
    ("text", "status", "says"),
    [(None, "warn", "does not exist"), ('{"mail": {}}', "ok", "1 queues"), ("{", "fail", "is not JSON")],
)
def test_the_doctor_checks_the_policy_file(
    instance: PolicyFileInstance, text: str | None, status: str, says: str
) -> None:
    if text is not None:
        instance.write(text)
    (finding,) = [one for one in instance.ask("doctor")["findings"] if one["kind"] == "policy_file"]
    assert finding["severity"] == status
    assert says in finding["sentence"]
