"""An imported queue keeps its order, attempts, leases and parked entries."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.ledger_kit import ADA, LedgerHarness, at
from timewright.core.input.queue_file import decode_queue_file
from timewright.core.moments import format_instant
from timewright.core.policies.policies import QueuePolicy
from timewright.core.run.run import Failed, Run, RunState
from timewright.errors import NotAllowed
from timewright.ledger.queues.policies import set_queue_policy
from timewright.ledger.queues.queue_import import import_queue
from timewright.ledger.settle import reset
from timewright.ports.rows import QueuedRuns


def entry(name: str, minutes: float = 0, **fields: Any) -> dict[str, Any]:
    return {"id": name, "enqueuedAt": format_instant(at(minutes)), "status": "pending", **fields}


def imported(bench: LedgerHarness, *entries: dict[str, Any]) -> list[Run]:
    read = decode_queue_file({"schemaVersion": 1, "entries": list(entries)})
    made = import_queue(
        bench.store, read, namespace="default", queue="mail", ids=bench.ids, by=ADA, now=bench.now
    )
    return list(made.runs)


def ceiling(bench: LedgerHarness, most: int) -> None:
    policy = QueuePolicy(max_running=most)
    set_queue_policy(bench.store, namespace="default", queue="mail", policy=policy, by=ADA, now=bench.now)


def named(runs: list[Run]) -> list[str]:
    return [run.payload["id"] for run in runs]


def test_an_old_file_loads_with_its_order_unchanged(bench: LedgerHarness) -> None:
    bench.move_to(10)
    imported(
        bench,
        entry("b", 1, note="kept as it was"),
        entry("a", 1),
        entry("late", 2),
        entry("urgent", 5, priority=10),
    )
    ceiling(bench, 9)
    runs = bench.lease(handoff=True)
    assert named(runs) == ["urgent", "a", "b", "late"]
    assert runs[2].payload == {"id": "b", "note": "kept as it was"}


def test_attempts_and_backoff_go_on_where_they_were(bench: LedgerHarness) -> None:
    bench.move_to(10)
    imported(bench, entry("tired", 1, attempts=2, nextEligibleAt=format_instant(at(12))))
    assert bench.lease(handoff=True) == []
    bench.move_to(12)
    (run,) = bench.lease(handoff=True)
    assert run.attempts == 2
    bench.settle(run, outcome=Failed(error="no"))
    assert (bench.run(run).state, bench.run(run).attempts) == (RunState.PARKED, 3)


def test_an_imported_parked_entry_is_not_leased_until_it_is_reset(bench: LedgerHarness) -> None:
    bench.move_to(10)
    fields = {"status": "parked", "attempts": 3, "parkedReason": "3/3 attempts"}
    (run,) = imported(bench, entry("stuck", 1, **fields))
    assert (run.state, run.reason, run.attempts) == (RunState.PARKED, "3/3 attempts", 3)
    assert bench.run(run) == run
    assert bench.lease(handoff=True) == []
    reset(bench.store, run.id, actor="ada", now=bench.now)
    (again,) = bench.lease(handoff=True)
    assert (again.id, again.attempts) == (run.id, 0)


def test_an_imported_lease_is_kept_and_counts_against_the_limit(bench: LedgerHarness) -> None:
    bench.move_to(10)
    fields = {
        "status": "leased",
        "leaseId": "lease-x-1",
        "leaseExpiresAt": format_instant(at(15)),
        "attempts": 1,
    }
    out, waiting = imported(bench, entry("out", 1, **fields), entry("waiting", 2))
    assert (out.state, out.lease_id, out.lease_until, out.attempts) == (
        RunState.LEASED,
        "lease-x-1",
        at(15),
        1,
    )
    assert bench.run(out) == out
    assert bench.lease(handoff=True) == []
    bench.settle(out)
    assert bench.lease(handoff=True) == [bench.run(waiting)]
    assert bench.run(out).state is RunState.SUCCEEDED


def test_an_imported_expired_lease_is_reclaimed(bench: LedgerHarness) -> None:
    bench.move_to(20)
    fields = {"status": "leased", "leaseId": "lease-x-1", "leaseExpiresAt": format_instant(at(15))}
    (run,) = imported(bench, entry("out", 1, **fields))
    bench.reclaim()
    assert (bench.run(run).state, bench.run(run).attempts) == (RunState.READY, 1)


def test_an_import_with_more_leases_than_the_limit_is_rejected(bench: LedgerHarness) -> None:
    fields = {"status": "leased", "leaseId": "x", "leaseExpiresAt": format_instant(at(15))}
    two = [entry("a", 1, **fields), entry("b", 1, **fields)]
    with pytest.raises(NotAllowed, match="1 free slots"):
        imported(bench, *two)
    assert bench.store.read(lambda tx: tx.select(QueuedRuns("default", "mail", limit=9))) == []
    ceiling(bench, 2)
    assert len(imported(bench, *two)) == 2


def test_finished_entries_are_imported_as_history(bench: LedgerHarness) -> None:
    done, gone = imported(bench, entry("done", 1, status="drained"), entry("gone", 2, status="cancelled"))
    assert (done.state, gone.state) == (RunState.SUCCEEDED, RunState.CANCELLED)
    assert bench.lease(handoff=True) == []


def test_the_same_file_twice_is_imported_once(bench: LedgerHarness) -> None:
    bench.move_to(10)
    rows = [entry("a", 1), entry("b", 2, attempts=1)]
    assert len(imported(bench, *rows)) == 2
    (run,) = bench.lease(handoff=True)
    bench.settle(run)
    assert imported(bench, *rows, entry("c", 3)) != []
    ceiling(bench, 9)
    assert named(bench.lease(handoff=True)) == ["b", "c"]
    assert [(e.action, e.after) for e in bench.audit()][:2] == [
        ("queue.import", "2 entries"),
        ("queue.import", "1 entries"),
    ]
