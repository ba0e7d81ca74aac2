"""Limits by key, by rate and by share: what they let start, for how many clients, and what they read."""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.ledger.ledger_kit import ADA, LedgerHarness
from timewright.core.moments import HOUR, SECOND
from timewright.core.policies.limits import Limit, named_limit_key
from timewright.core.policies.policies import Overlap, QueuePolicy
from timewright.core.recurrence.triggers import Manual
from timewright.core.run.leasing import WaitReason
from timewright.core.run.run import Failed, Run, RunState
from timewright.core.target import Call
from timewright.ledger.lease import plan_queue
from timewright.ledger.queues.limits import remove_limit, set_limit
from timewright.ledger.queues.policies import set_queue_policy
from timewright.ports.overview import LimitHolds
from timewright.ports.rows import LeasedRuns, LimitKeyPrune, QueuedRuns
from timewright.ports.runs import LimitKeys
from timewright.stores.queries.ready_runs import SqlReadyQueries

MILLISECOND = timedelta(milliseconds=1)
FULL = bool(os.environ.get("TIMEWRIGHT_FULL"))


def put(bench: LedgerHarness, **fields: Any) -> None:
    set_limit(bench.store, Limit(**fields), namespace="default", by=ADA, now=bench.now)


def open_queue(bench: LedgerHarness, *limits: str | Limit, most: int = 100_000) -> None:
    policy = QueuePolicy(max_running=most, limits=limits)
    set_queue_policy(bench.store, namespace="default", queue="mail", policy=policy, by=ADA, now=bench.now)


def add(bench: LedgerHarness, **counts: int) -> None:
    for tenant, count in counts.items():
        bench.enqueue(*({"tenant": tenant, "n": n} for n in range(count)))


def take(bench: LedgerHarness, capacity: int = 10) -> list[Run]:
    return bench.lease(capacity, handoff=True, queue=("default", "mail"))


def tenants(runs: list[Run]) -> Counter[str]:
    return Counter(run.payload["tenant"] for run in runs)


def test_each_key_has_its_own_count(bench: LedgerHarness) -> None:
    open_queue(bench, Limit(name="crm", key="payload.tenant", max_running=2))
    add(bench, acme=5, beta=1, gamma=3)
    held = take(bench)
    assert tenants(held) == {"acme": 2, "beta": 1, "gamma": 2}
    assert take(bench) == []
    bench.settle(*(run for run in held if run.payload["tenant"] == "acme"))
    assert tenants(take(bench)) == {"acme": 2}


def test_an_end_by_any_way_lets_the_next_run_of_the_key_start(bench: LedgerHarness) -> None:
    open_queue(bench, Limit(name="crm", key="payload.tenant", max_running=1))
    add(bench, acme=3)
    (first,) = take(bench)
    bench.settle(first, outcome=Failed(error="no"))
    (second,) = take(bench)
    assert second.id != first.id
    bench.advance(301)
    bench.reclaim()
    assert len(take(bench)) == 1


def test_a_run_without_the_value_shares_one_count_with_its_like(bench: LedgerHarness) -> None:
    open_queue(bench, Limit(name="crm", key="payload.tenant", max_running=1))
    bench.enqueue({}, {}, "text", None, {"tenant": "acme"})
    assert len(take(bench)) == 2


def test_the_key_is_kept_as_it_was_when_the_run_was_made(bench: LedgerHarness) -> None:
    open_queue(bench, "crm")
    put(bench, name="crm", key="payload.tenant", max_running=1)
    add(bench, acme=2)
    put(bench, name="crm", key="payload.n", max_running=1)
    add(bench, acme=2)
    assert {run.limit_keys[-1] for run in take(bench)} == {
        f"{named_limit_key('default', 'crm')}#{value}" for value in ("acme", "0", "1")
    }


def test_a_schedule_and_its_manual_runs_use_their_own_payload(bench: LedgerHarness) -> None:
    put(bench, name="crm", key="payload.tenant", max_running=1)
    job = bench.schedule(
        trigger=Manual(),
        target=Call(name="sync", args={"tenant": "acme"}),
        overlap=Overlap.ALLOW,
        limits=("crm",),
    )
    for payload in (None, None, {"tenant": "beta"}, {"tenant": "beta"}):
        bench.run_now(job, payload=payload)
    assert len(bench.lease()) == 2


def test_a_limit_defined_on_a_schedule_is_stored_with_it(bench: LedgerHarness) -> None:
    limit = Limit(name="crm", key="schedule.name", max_running=1)
    jobs = [
        bench.schedule(f"job{n}", trigger=Manual(), overlap=Overlap.ALLOW, limits=(limit,)) for n in range(2)
    ]
    for job in jobs * 2:
        bench.run_now(job)
    assert len(bench.lease()) == 2
    assert [row.name for row in bench.store.read(lambda tx: tx.get_objects("limit"))] == ["crm"]


def test_changing_a_limit_is_effective_for_every_key_at_once(bench: LedgerHarness) -> None:
    open_queue(bench, "crm")
    put(bench, name="crm", key="payload.tenant", max_running=1)
    add(bench, acme=5, beta=5)
    held = take(bench)
    put(bench, name="crm", key="payload.tenant", max_running=3)
    held += take(bench)
    assert tenants(held) == {"acme": 3, "beta": 3}
    put(bench, name="crm", key="payload.tenant", max_running=2)
    bench.settle(*held[:2])
    assert take(bench) == []
    bench.store.write(lambda tx: remove_limit(tx, "crm", namespace="default", by=ADA, now=bench.now))
    bench.settle(*held[2:])
    assert len(take(bench)) == 2


def test_a_full_queue_holds_beside_a_key(bench: LedgerHarness) -> None:
    open_queue(bench, Limit(name="crm", key="payload.tenant", max_running=2), most=3)
    add(bench, acme=5, beta=5)
    held = take(bench)
    assert len(held) == 3
    assert max(tenants(held).values()) <= 2


def test_a_retried_and_a_later_run_stay_under_their_key(bench: LedgerHarness) -> None:
    open_queue(bench, Limit(name="crm", key="payload.tenant", max_running=1))
    add(bench, acme=1)
    bench.enqueue({"tenant": "acme"}, not_before=bench.now + HOUR)
    (first,) = take(bench)
    bench.settle(first, outcome=Failed(error="no"))
    bench.move_to(61)
    assert len(take(bench)) == 1


@pytest.mark.parametrize("others", [0, 300])
def test_a_long_backlog_of_a_full_key_is_not_read_again(
    bench: LedgerHarness, others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_queue(bench, Limit(name="crm", key="payload.tenant", max_running=1))
    add(bench, acme=2000)
    add(bench, **{f"t{n}": 1 for n in range(others)})
    add(bench, beta=3)
    held: list[Run] = []
    while found := take(bench, 500):
        held += found
    assert tenants(held)["acme"] == tenants(held)["beta"] == 1
    read: list[int] = []
    original = SqlReadyQueries._decode_ready

    def counting(self: SqlReadyQueries, rows: Any, bucket: str) -> list[Run]:
        read.append(len(rows))
        return original(self, rows, bucket)

    monkeypatch.setattr(SqlReadyQueries, "_decode_ready", counting)
    assert take(bench, 10) == []
    assert sum(read) == 0


def test_a_better_priority_starts_before_other_keys(bench: LedgerHarness) -> None:
    open_queue(bench, Limit(name="crm", key="payload.tenant"), most=1)
    add(bench, **{f"t{n:03}": 1 for n in range(40)})
    bench.enqueue({"tenant": "late"}, priority=50)
    (first,) = take(bench, 1)
    assert first.payload["tenant"] == "late"


def starts(bench: LedgerHarness, *, seconds: float, step: timedelta) -> list[datetime]:
    """When runs of the queue were leased, while each ends at once."""
    found, until = [], bench.now + timedelta(seconds=seconds)
    while bench.now < until:
        held = take(bench)
        found += [bench.now] * len(held)
        bench.settle(*held)
        bench.clock.advance(step)
    return found


@pytest.mark.parametrize(
    ("rate", "count", "period", "burst"),
    [("10/s", 10, SECOND, 1), ("7/s burst 20", 7, SECOND, 20), ("90/m", 90, 60 * SECOND, 1)],
)
def test_a_rate_holds_over_every_window(
    bench: LedgerHarness, rate: str, count: int, period: timedelta, burst: int
) -> None:
    open_queue(bench, Limit(name="crm", rate=rate))
    add(bench, acme=120)
    found = starts(bench, seconds=12, step=37 * MILLISECOND)
    for first in found:
        assert sum(first <= at < first + period for at in found) <= count + burst - 1
    # No start is lost either: at least as many as the rate allows, less one for each step of the test.
    assert len(found) >= min(12 * SECOND // (period / count), 120) * 0.75
    assert sum(at == found[0] for at in found) == min(burst, 10)


def test_over_a_rate_a_run_waits_until_an_instant_and_costs_no_attempt(bench: LedgerHarness) -> None:
    open_queue(bench, Limit(name="crm", key="payload.tenant", rate="2/m"))
    add(bench, acme=2, beta=1)
    assert tenants(take(bench)) == {"acme": 1, "beta": 1}
    plan, _ = plan_queue(bench.store, namespace="default", queue="mail", now=bench.now)
    (waiting,) = [one for one in plan.waiting if one.reason is WaitReason.RATE]
    assert waiting.until == bench.now + 30 * SECOND
    due = bench.store.read(lambda tx: tx.get_runs([waiting.run_id]))[waiting.run_id]
    assert (due.state, due.attempts, due.fence) == (RunState.READY, 0, 0)
    bench.advance(29.999)
    assert take(bench) == []
    bench.advance(0.001)
    assert [run.id for run in take(bench)] == [waiting.run_id]


def test_the_engine_is_told_when_a_rate_allows_the_next_start(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Manual(), overlap=Overlap.ALLOW, limits=(Limit(name="crm", rate="2/m"),))
    bench.run_now(job)
    bench.run_now(job)
    work = bench.store.read(lambda tx: tx.read_pending_work(now=bench.now))
    assert work.has_runs_to_lease(now=bench.now)
    assert len(bench.lease()) == 1
    work = bench.store.read(lambda tx: tx.read_pending_work(now=bench.now))
    assert not work.has_runs_to_lease(now=bench.now)
    assert work.wake_at == bench.now + 30 * SECOND


def test_a_full_key_gives_the_engine_nothing_to_do(bench: LedgerHarness) -> None:
    limit = Limit(name="crm", key="schedule.name", max_running=1)
    job = bench.schedule(trigger=Manual(), overlap=Overlap.ALLOW, limits=(limit,))
    for _ in range(3):
        bench.run_now(job)
    held = bench.lease()
    assert not bench.store.read(lambda tx: tx.read_pending_work(now=bench.now)).has_runs_to_lease(
        now=bench.now
    )
    bench.settle(*held)
    assert bench.store.read(lambda tx: tx.read_pending_work(now=bench.now)).has_runs_to_lease(now=bench.now)


def test_keys_share_the_starts_by_their_weights(bench: LedgerHarness) -> None:
    weights = {"gold": 3, "silver": 2}
    open_queue(bench, Limit(name="crm", key="payload.tenant", weights=weights), most=4)
    wanted = 3000 if FULL else 600
    add(bench, gold=wanted, silver=wanted, bronze=wanted)
    counted: Counter[str] = Counter()
    while counted.total() < wanted:
        held = take(bench, 3)
        counted += tenants(held)
        bench.settle(*held)
    for tenant, weight in (("gold", 3), ("silver", 2), ("bronze", 1)):
        assert counted[tenant] == pytest.approx(counted.total() * weight / 6, rel=0.05)


def test_a_key_that_returns_gets_no_more_than_its_share(bench: LedgerHarness) -> None:
    open_queue(bench, Limit(name="crm", key="payload.tenant"), most=1)
    add(bench, acme=200)
    add(bench, beta=1)
    counted: Counter[str] = Counter()
    for _ in range(100):
        (run,) = take(bench, 1)
        counted += tenants([run])
        bench.settle(run)
        # The other key always has one run: it adds the next when that one has ended.
        add(bench, beta=int(run.payload["tenant"] == "beta"))
    assert abs(counted["acme"] - counted["beta"]) <= 3


def test_idle_keys_are_removed(bench: LedgerHarness) -> None:
    open_queue(bench, Limit(name="crm", key="payload.tenant", max_running=1))
    add(bench, acme=2, beta=1)
    held = take(bench)
    bench.advance(7200)
    bench.settle(*(run for run in held if run.payload["tenant"] == "beta"))
    bench.store.write(lambda tx: tx.prune(LimitKeyPrune(bench.now)))
    crm = named_limit_key("default", "crm")
    assert bench.store.read(lambda tx: tx.count(LimitHolds(crm))) == {"leases": 1}
    keys = bench.store.read(lambda tx: tx.select(LimitKeys(crm, 9)))
    assert [key.partition("#")[2] for key in keys] == ["acme"]
    add(bench, beta=2)
    assert tenants(take(bench)) == {"beta": 1}


def test_racing_clients_never_pass_a_keyed_limit(bench: LedgerHarness) -> None:
    open_queue(bench, Limit(name="crm", key="payload.tenant", max_running=2))
    each = 40 if FULL else 8
    add(bench, **{f"t{n}": each for n in range(6)})
    passed: list[str] = []

    def client(number: int) -> int:
        mine = LedgerHarness(bench.store, bench.clock, name=f"client{number}", seed=1000 * (number + 1))
        done = idle = 0
        while idle < 200 and not passed:
            held = take(mine, 3)
            live = mine.store.read(lambda tx: tx.select(LeasedRuns()))
            counted = Counter(run.limit_keys[-1] for run in live)
            passed.extend(f"{key}: {count}" for key, count in counted.items() if count > 2)
            mine.settle(*held)
            done, idle = done + len(held), 0 if held else idle + 1
            if not held and not mine.store.read(lambda tx: tx.select(QueuedRuns("default", "mail", limit=1))):
                break
        return done

    with ThreadPoolExecutor(24) as pool:
        total = sum(pool.map(client, range(24)))
    assert passed == []
    assert total == 6 * each
