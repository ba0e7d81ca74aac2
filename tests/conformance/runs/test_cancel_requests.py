"""Cancel requests: recorded once, never extend a lease, and are read by the holder."""

from __future__ import annotations

from datetime import datetime

from tests.conformance.support.builders import (
    LEASE,
    NOON,
    add,
    ended,
    get,
    grant,
    leased,
    make_run,
    settle,
)
from timewright.core.moments import HOUR, MINUTE
from timewright.core.run.run import RunState
from timewright.ports import Store
from timewright.ports.rows import LeasedRuns


def request_cancel(
    store: Store, *asked: tuple[str, datetime], at: datetime, reason: str = "by_hand"
) -> set[str]:
    return set(store.write(lambda tx: tx.request_cancel(asked, at=at, reason=reason)))


def test_a_cancel_request_is_recorded_once(store: Store) -> None:
    runs = [make_run(), make_run(), make_run()]
    add(store, *runs)
    one, two = leased(store, *runs[:2])
    asked = [(run.id, NOON + HOUR) for run in runs]
    assert request_cancel(store, *asked, at=NOON + MINUTE, reason="replaced") == {one.id, two.id}
    assert request_cancel(store, *asked, at=NOON + HOUR, reason="again") == set()
    assert request_cancel(store, at=NOON) == set()
    marked = get(store, one.id)
    assert (marked.cancel_at, marked.reason, marked.state) == (NOON + MINUTE, "replaced", RunState.LEASED)
    assert get(store, runs[2].id).cancel_at is None


def test_a_cancel_request_never_extends_the_lease(store: Store) -> None:
    runs = [make_run(), make_run()]
    add(store, *runs)
    leased(store, *runs)
    request_cancel(store, (runs[0].id, NOON + MINUTE), (runs[1].id, NOON + HOUR), at=NOON)
    assert get(store, runs[0].id).lease_until == NOON + MINUTE
    assert get(store, runs[1].id).lease_until == NOON + LEASE
    expired = store.write(lambda tx: tx.expired_leases(now=NOON + MINUTE, limit=100))
    assert [run.id for run in expired] == [runs[0].id]


def test_the_next_lease_has_no_cancel_request(store: Store) -> None:
    run = make_run()
    add(store, run)
    (held,) = leased(store, run)
    request_cancel(store, (run.id, NOON + HOUR), at=NOON)
    settle(store, ended(held, RunState.READY))
    assert get(store, run.id).cancel_at is None
    (again,) = leased(store, get(store, run.id))
    assert get(store, again.id).cancel_at is None


def test_live_leases_are_listed_by_id_for_everyone_or_for_one_holder(store: Store) -> None:
    runs = [make_run() for _ in range(4)]
    add(store, *runs)
    grants = [grant(run, holder=f"w{n % 2}") for n, run in enumerate(runs)]
    held = store.write(lambda tx: tx.lease_runs(grants))
    settle(store, ended(held[3]))
    assert store.read(lambda tx: tx.select(LeasedRuns())) == held[:3]
    assert store.read(lambda tx: tx.select(LeasedRuns(holder="w0"))) == [held[0], held[2]]
    assert store.read(lambda tx: tx.select(LeasedRuns(holder="w9"))) == []


def test_a_holder_reads_its_own_cancel_requests(store: Store) -> None:
    runs = [make_run() for _ in range(4)]
    add(store, *runs)
    grants = [grant(run, holder=f"w{n % 2}") for n, run in enumerate(runs)]
    store.write(lambda tx: tx.lease_runs(grants))
    request_cancel(store, (runs[0].id, NOON + HOUR), (runs[1].id, NOON + HOUR), at=NOON)
    assert [
        run.id for run in store.read(lambda tx: tx.select(LeasedRuns(holder="w0", cancel_requested=True)))
    ] == [runs[0].id]
    assert [
        run.id for run in store.read(lambda tx: tx.select(LeasedRuns(holder="w1", cancel_requested=True)))
    ] == [runs[1].id]
    assert store.read(lambda tx: tx.select(LeasedRuns(holder="w2", cancel_requested=True))) == []
