"""Shards and a leader avoid duplicate work; admission stays exactly once without them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.conformance.support.concurrency import all_at_once
from tests.ledger.ledger_kit import LedgerHarness, at, kinds
from timewright.core.moments import SECOND
from timewright.errors import InvalidDuration, InvalidInput
from timewright.ledger.leader import LeaderTerm, last_term, take_leadership

TTL = 30 * SECOND


def lead(bench: LedgerHarness, holder: str) -> LeaderTerm | None:
    return take_leadership(bench.store, holder=holder, now=bench.now, ttl=TTL)


def test_shards_divide_the_schedules_between_them(bench: LedgerHarness) -> None:
    jobs = [bench.schedule(f"job-{i}") for i in range(60)]
    bench.move_to(1)
    looked = [bench.admit(shard=(k, 4)).schedules_read for k in (1, 2, 3, 4)]
    assert sum(looked) == 60
    assert min(looked) > 0
    assert bench.admit().schedules_read == 0
    assert all(bench.outcomes_of(job) == [(1, "ready")] for job in jobs)


def test_a_shard_is_not_delayed_by_schedules_of_other_shards(bench: LedgerHarness) -> None:
    for i in range(60):
        bench.schedule(f"job-{i}")
    bench.move_to(1)
    mine = 0
    while (admitted := bench.admit(shard=(2, 4), limit=3)).schedules_read:
        mine += admitted.schedules_read
    assert mine > 3
    assert bench.admit().schedules_read == 60 - mine


def test_a_shard_stays_the_same_after_an_edit(bench: LedgerHarness) -> None:
    job = bench.schedule()
    bench.move_to(1)
    (mine,) = [k for k in (1, 2, 3, 4) if bench.admit(shard=(k, 4)).schedules_read]
    bench.revise(job)
    bench.move_to(2)
    assert [k for k in (1, 2, 3, 4) if bench.admit(shard=(k, 4)).schedules_read] == [mine]


@pytest.mark.parametrize("shard", [(0, 2), (3, 2), (1, 0), (-1, -1), (1, 1025)])
def test_a_shard_that_does_not_exist_is_refused(bench: LedgerHarness, shard: tuple[int, int]) -> None:
    with pytest.raises(InvalidInput, match="does not exist"):
        bench.admit(shard=shard)


def test_there_is_one_leader_until_its_term_is_over(bench: LedgerHarness) -> None:
    assert lead(bench, "left") == LeaderTerm(holder="left", number=1, until=at(0.5))
    assert lead(bench, "right") is None
    bench.advance(20)
    assert lead(bench, "left") == LeaderTerm(holder="left", number=1, until=at(50 / 60)), (
        "a renewal is the same term"
    )
    bench.advance(29)
    assert lead(bench, "right") is None
    bench.advance(1)
    assert lead(bench, "right") == LeaderTerm(holder="right", number=2, until=bench.now + TTL)
    assert lead(bench, "left") is None
    assert bench.store.read(last_term) == LeaderTerm(holder="right", number=2, until=bench.now + TTL)


def test_of_many_candidates_one_leads(bench: LedgerHarness, another: Callable[[str], LedgerHarness]) -> None:
    benches = [another(f"worker-{i}") for i in range(4)]
    terms = all_at_once([partial(lead, one, one.name) for one in benches])
    assert len([term for term in terms if term is not None]) == 1


def test_an_unreadable_leader_row_is_replaced(bench: LedgerHarness) -> None:
    bench.store.write(lambda tx: tx.put_meta("leader", "{"))
    assert bench.store.read(last_term) is None
    assert lead(bench, "left") is not None


def test_a_term_must_be_positive(bench: LedgerHarness) -> None:
    with pytest.raises(InvalidDuration):
        take_leadership(bench.store, holder="left", now=bench.now, ttl=0 * SECOND)


def test_two_instances_that_believe_to_lead_duplicate_nothing(
    bench: LedgerHarness, another: Callable[[str], LedgerHarness]
) -> None:
    """A leader that was suspended past the end of its term continues to admit."""
    jobs = [bench.schedule(f"job-{i}") for i in range(10)]
    old, new = another("old"), another("new")
    assert lead(old, "old") is not None
    bench.move_to(1)
    assert lead(new, "new") is not None
    answers = all_at_once([old.admit, new.admit])
    assert sum(kinds(answer.facts).count("RunAdmitted") for answer in answers) == 10
    assert all(bench.outcomes_of(job) == [(1, "ready")] for job in jobs)
