"""Queue policies, limits and the policy file: stored with an audit entry, in force at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ledger.ledger_kit import ADA, LedgerHarness
from timewright.core.calendars import Calendar
from timewright.core.moments import SECOND
from timewright.core.policies.limits import Limit
from timewright.core.policies.policies import QueuePolicy
from timewright.errors import InvalidInput
from timewright.ledger.lookups import load_queue_policy
from timewright.ledger.queues.limits import set_limit
from timewright.ledger.queues.policies import (
    PolicyFile,
    apply_policy_file,
    load_policy_file,
    put_calendar,
    set_queue_policy,
)


def policy_of(bench: LedgerHarness, queue: str, *, namespace: str = "default") -> QueuePolicy:
    return bench.store.read(lambda tx: load_queue_policy(tx, namespace, queue))


def capacity_of(bench: LedgerHarness, queue: str) -> int:
    key = f"queue:default/{queue}"
    return bench.store.read(lambda tx: tx.get_limits([key]))[key].capacity


def written(path: Path, text: str) -> PolicyFile:
    path.write_text(text, "utf-8")
    return load_policy_file(path)


def test_a_policy_belongs_to_its_queue_and_its_namespace(bench: LedgerHarness) -> None:
    policy = QueuePolicy(max_running=4, lease=60 * SECOND)
    set_queue_policy(bench.store, namespace="other", queue="mail", policy=policy, by=ADA, now=bench.now)
    assert policy_of(bench, "mail", namespace="other") == policy
    assert policy_of(bench, "mail") == QueuePolicy()
    (run,) = bench.enqueue("letter", namespace="other")
    (leased,) = bench.lease(handoff=True)
    assert leased.id == run.id
    assert leased.lease_until == bench.now + 60 * SECOND


def test_each_change_has_a_revision_and_an_audit_entry(bench: LedgerHarness) -> None:
    for capacity in (2, 3):
        set_limit(
            bench.store, Limit(name="api", max_running=capacity), namespace="default", by=ADA, now=bench.now
        )
    put_calendar(bench.store, Calendar(name="days"), by=ADA, now=bench.now)
    (kept,) = bench.store.read(lambda tx: tx.get_objects("limit"))
    assert (kept.revision, kept.body) == (2, b'{"name":"api","max_running":3}')
    lines = [(e.action, e.subject, e.before, e.after) for e in bench.audit()]
    assert lines[:2] == [
        ("limit.put", "api", "", '{"name":"api","max_running":2}'),
        ("limit.put", "api", '{"name":"api","max_running":2}', '{"name":"api","max_running":3}'),
    ]
    assert lines[2][:2] == ("calendar.put", "days")


@pytest.mark.parametrize("capacity", [0, -1, 100_001])
def test_a_limit_below_one_is_rejected(bench: LedgerHarness, capacity: int) -> None:
    with pytest.raises(InvalidInput, match="limit api"):
        set_limit(
            bench.store, Limit(name="api", max_running=capacity), namespace="default", by=ADA, now=bench.now
        )
    assert bench.audit() == []


def test_a_missing_file_means_the_defaults(bench: LedgerHarness, tmp_path: Path) -> None:
    file = load_policy_file(tmp_path / "queues.json")
    assert (file.absent, file.policies) == (True, {})
    assert apply_policy_file(bench.store, file, now=bench.now) == ()
    bench.enqueue(1, 2)
    assert len(bench.lease(handoff=True, policy_file=file)) == 1


def test_a_file_sets_all_its_queues_in_one_transaction(bench: LedgerHarness, tmp_path: Path) -> None:
    text = '{"mail": {"max_running": 3, "lease": "90s"}, "reports": {"maxAttempts": 1}, "plain": null}'
    file = written(tmp_path / "queues.json", text)
    assert apply_policy_file(bench.store, file, now=bench.now) == ("mail", "plain", "reports")
    assert policy_of(bench, "mail") == QueuePolicy(max_running=3, lease=90 * SECOND)
    assert policy_of(bench, "reports").max_attempts == 1
    assert [capacity_of(bench, queue) for queue in ("mail", "reports")] == [3, 1]
    assert {(e.action, e.origin, e.reason) for e in bench.audit()} == {("queue.put", "file", file.path)}


def test_only_changed_policies_are_written(bench: LedgerHarness, tmp_path: Path) -> None:
    path = tmp_path / "queues.yaml"
    file = written(path, "mail:\n  max_running: 3\nreports:\n  max_running: 2\n")
    apply_policy_file(bench.store, file, now=bench.now)
    assert apply_policy_file(bench.store, load_policy_file(path), now=bench.now) == ()
    assert len(bench.audit()) == 2
    file = written(path, "mail:\n  max_running: 5\nreports:\n  max_running: 2\n")
    assert apply_policy_file(bench.store, file, now=bench.now) == ("mail",)
    assert capacity_of(bench, "mail") == 5
    assert len(bench.audit()) == 3


def test_a_file_with_a_single_policy_sets_one_queue(bench: LedgerHarness, tmp_path: Path) -> None:
    text = """{"schemaVersion": 1, "maxConcurrent": 2, "maxAttempts": 5, "leaseTtlMs": 60000,
               "backoffBaseMs": 500, "backoffFactor": 3, "backoffCapMs": 9000}"""
    path = tmp_path / "scheduling-policy.json"
    file = written(path, text)
    assert apply_policy_file(bench.store, file, now=bench.now) == ("default",)
    policy = policy_of(bench, "default")
    assert (policy.max_running, policy.max_attempts, policy.lease) == (2, 5, 60 * SECOND)
    assert policy.backoff.delay(2, seed="any") == 1.5 * SECOND
    assert load_policy_file(path, queue="main").policies == {"main": policy}


def test_a_version_may_stand_beside_the_queues(tmp_path: Path) -> None:
    file = written(
        tmp_path / "queues.json", '{"schemaVersion": 1, "mail": {"backoff": {"kind": "constant"}}}'
    )
    assert list(file.policies) == ["mail"]
    file = written(tmp_path / "queues.json", '{"schemaVersion": 9, "mail": {}}')
    with pytest.raises(InvalidInput, match="9 is not supported"):
        file.check()


@pytest.mark.parametrize(
    ("name", "text", "line", "said"),
    [
        ("q.json", '{\n  "mail": {\n    "max_running": 3,\n  }\n}', 4, "is not JSON"),
        ("q.yaml", "mail:\n  max_running: [1\nreports: {}\n", 3, "is not YAML"),
        ("q.json", '{\n  "mail": {\n    "maxConcurrent": 0\n  }\n}', 3, "max_running"),
        ("q.yaml", "mail:\n  max_running: many\n", 2, "max_running"),
        ("q.json", '{\n"mail": {},\n"reports": {"tries": 3}}', 3, "tries"),
        ("q.json", "[]", 1, "policy"),
        ("q.json", '"words"', 1, "policy"),
        ("q.json", "", 1, "is not JSON"),
        ("q.json", "[" * 100_000, 1, "nested too deeply"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_an_unreadable_file_names_the_line(
    tmp_path: Path, *, name: str, text: str, line: int, said: str
) -> None:
    path = tmp_path / name
    file = written(path, text)
    with pytest.raises(InvalidInput, match=said) as refused:
        file.check()
    assert refused.value.message.startswith(f"policy file {path}, line {line}: ")
    assert refused.value.rule
    assert refused.value.fix


def test_a_file_that_cannot_be_read_leases_nothing_and_changes_nothing(
    bench: LedgerHarness, tmp_path: Path
) -> None:
    file = written(tmp_path / "queues.json", '{"mail": {"max_running": 9}, ')
    bench.enqueue("letter")
    with pytest.raises(InvalidInput, match="is not JSON"):
        bench.lease(handoff=True, policy_file=file)
    with pytest.raises(InvalidInput, match="is not JSON"):
        apply_policy_file(bench.store, file, now=bench.now)
    assert bench.audit() == []
    assert len(bench.lease(handoff=True)) == 1, "without the file nothing is in the way"


def test_a_file_that_is_no_text_or_far_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "q.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="cannot be read"):
        load_policy_file(path).check()
    path.write_bytes(b" " * 1_000_001)
    with pytest.raises(InvalidInput, match="larger than"):
        load_policy_file(path).check()
    with pytest.raises(InvalidInput, match="cannot be read"):
        load_policy_file(tmp_path).check()
