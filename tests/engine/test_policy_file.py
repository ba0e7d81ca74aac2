"""The policy of queues in a file: in force from the start, again after an edit; unreadable, they close."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.conformance.together import all_at_once
from timewright.assembly import House, new_registry, open_store
from timewright.errors import InvalidInput, NotAllowed
from timewright.operations import operations
from timewright.settings import Settings
from timewright.testing.clock import ManualClock

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
BROKEN = '{"mail": {"max_concurrent": 0}}'


class Instance:
    """A house with a policy file, by hand."""

    def __init__(self, place: str, path: Path) -> None:
        self.clock = ManualClock(NOON)
        self.path = path
        store = open_store(place, clock=self.clock)
        settings = Settings(policy_file=str(path))
        self.house = House(store, settings=settings, registry=new_registry(), clock=self.clock)

    def write(self, text: str) -> None:
        """Edit the file, and let a second pass in which the engine looks."""
        self.path.write_text(text, "utf-8")
        self.look()

    def look(self) -> None:
        self.clock.advance(seconds=1)
        self.house.loop.step()

    def ask(self, operation: str, **request: Any) -> dict[str, Any]:
        return operations[operation](self.house.context(), request)

    def ceiling(self, queue: str) -> tuple[int, str]:
        shown = self.ask("queue policy show", queue=queue)
        return shown["policy"]["max_concurrent"], shown["source"]


@pytest.fixture
def instance(place: str, tmp_path: Path) -> Iterator[Instance]:
    instance = Instance(place, tmp_path / "queues.json")
    yield instance
    instance.house.free()
    instance.house.close()


def test_what_the_file_says_is_in_force_a_second_after_it_was_edited(instance: Instance) -> None:
    assert instance.ceiling("mail") == (1, "default"), "no file is the cautious policy"
    instance.write('{"mail": {"max_concurrent": 3}, "reports": {"max_concurrent": 2}}')
    assert instance.ceiling("mail") == (3, "file")
    instance.ask("queue add", queue="mail", payloads=list(range(9)))
    assert len(instance.ask("queue lease", queue="mail", limit=9)["leases"]) == 3

    instance.write('{"mail": {"max_concurrent": 5}}')
    assert len(instance.ask("queue lease", queue="mail", limit=9)["leases"]) == 2
    assert instance.ceiling("reports") == (1, "default"), "what it no longer names is cautious again"

    instance.path.unlink()
    instance.look()
    assert instance.ceiling("mail") == (1, "default")
    actions = {(one["action"], one["origin"]) for one in instance.ask("audit list")["entries"]}
    assert {("queue.put", "file"), ("queue.delete", "file")} <= actions


def test_whoever_sets_it_without_knowing_the_file_is_overruled_by_it(instance: Instance) -> None:
    instance.write('{"mail": {"max_concurrent": 3}}')
    unaware = replace(instance.house.context(), policy_file=None)
    operations["queue policy set"](unaware, {"queue": "mail", "max_concurrent": 9})
    assert instance.ceiling("mail") == (9, "set")
    instance.clock.advance(seconds=30)
    instance.look()
    assert instance.ceiling("mail") == (3, "file")


def test_a_file_of_one_policy_is_about_the_default_queue(instance: Instance) -> None:
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


def test_a_file_that_cannot_be_read_closes_the_queues_and_nothing_else(instance: Instance) -> None:
    instance.write('{"mail": {"max_concurrent": 3}}')
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
        assert refusal.value.field == "policy_file.mail.max_concurrent"
    why = str(instance.path)
    assert why in instance.ask("health")["policy_file"]
    assert why in " ".join(instance.ask("schedule explain", schedule="queued", last=True)["because"])
    (finding,) = [one for one in instance.ask("doctor")["findings"] if one["check"] == "policy_file"]
    assert finding["status"] == "fail"
    assert why in finding["says"]
    assert instance.ceiling("mail") == (3, "set"), "what held goes on to hold for what is under way"

    instance.write('{"mail": {"max_concurrent": 4}}')
    instance.look()
    states = {run["schedule"]: run["state"] for run in instance.ask("run list")["runs"]}
    assert states["queued"] == "succeeded"
    assert instance.ask("health")["policy_file"] == ""
    assert len(instance.ask("queue lease", queue="mail")["leases"]) == 1


def test_what_the_file_says_is_changed_in_the_file(instance: Instance) -> None:
    instance.write('{"mail": {"max_concurrent": 3}}')
    with pytest.raises(NotAllowed, match="is kept in") as refusal:
        instance.ask("queue policy set", queue="mail", max_concurrent=9)
    assert "read again within a second" in (refusal.value.fix or "")
    assert instance.ask("queue policy set", queue="other", max_concurrent=9)["source"] == "set"
    assert instance.ceiling("mail") == (3, "file")


def test_queues_of_other_namespaces_are_not_the_files_affair(instance: Instance) -> None:
    instance.write(BROKEN)
    other = instance.house.context()
    inside = replace(other, namespace="other")
    operations["queue add"](inside, {"queue": "mail", "payload": 1})
    assert len(operations["queue lease"](inside, {"queue": "mail"})["leases"]) == 1


def test_two_that_read_the_file_at_once_are_not_in_each_others_way(place: str, tmp_path: Path) -> None:
    path = tmp_path / "queues.json"
    path.write_text(json.dumps({f"queue-{n}": {"max_concurrent": n + 1} for n in range(20)}), "utf-8")
    instances = [Instance(place, path) for _ in range(4)]
    refusals = all_at_once([instance.house.keep_policies for instance in instances])
    assert refusals == [""] * 4
    assert instances[0].ceiling("queue-19") == (20, "file")
    for instance in instances:
        instance.house.free()
        instance.house.close()


@pytest.mark.parametrize(
    ("text", "status", "says"),
    [(None, "warn", "is not there"), ('{"mail": {}}', "ok", "1 queues"), ("{", "fail", "is not JSON")],
)
def test_the_doctor_looks_at_the_file(instance: Instance, text: str | None, status: str, says: str) -> None:
    if text is not None:
        instance.write(text)
    (finding,) = [one for one in instance.ask("doctor")["findings"] if one["check"] == "policy_file"]
    assert finding["status"] == status
    assert says in finding["says"]
