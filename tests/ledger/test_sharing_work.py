"""Shards and a leader save work; exactly-once needs neither."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.conformance.together import all_at_once
from tests.ledger.bench import Bench, at, kinds
from timewright.core.moments import SECOND
from timewright.errors import InvalidDuration, InvalidInput
from timewright.ledger.leader import Term, last_term, take_leadership

TTL = 30 * SECOND


def lead(bench: Bench, holder: str) -> Term | None:
    return take_leadership(bench.store, holder=holder, now=bench.now, ttl=TTL)


def test_shards_divide_the_schedules_between_them(bench: Bench) -> None:
    jobs = [bench.schedule(f"job-{i}") for i in range(60)]
    bench.go(1)
    looked = [bench.admit(shard=(k, 4)).looked_at for k in (1, 2, 3, 4)]
    assert sum(looked) == 60
    assert min(looked) > 0
    assert bench.admit().looked_at == 0
    assert all(bench.fates(job) == [(1, "ready")] for job in jobs)


def test_a_shard_is_not_held_up_by_what_belongs_to_others(bench: Bench) -> None:
    for i in range(60):
        bench.schedule(f"job-{i}")
    bench.go(1)
    mine = 0
    while (admitted := bench.admit(shard=(2, 4), limit=3)).looked_at:
        mine += admitted.looked_at
    assert mine > 3
    assert bench.admit().looked_at == 60 - mine


def test_a_shard_stays_the_same_after_an_edit(bench: Bench) -> None:
    job = bench.schedule()
    bench.go(1)
    (mine,) = [k for k in (1, 2, 3, 4) if bench.admit(shard=(k, 4)).looked_at]
    bench.revise(job)
    bench.go(2)
    assert [k for k in (1, 2, 3, 4) if bench.admit(shard=(k, 4)).looked_at] == [mine]


@pytest.mark.parametrize("shard", [(0, 2), (3, 2), (1, 0), (-1, -1), (1, 1025)])
def test_a_shard_that_does_not_exist_is_refused(bench: Bench, shard: tuple[int, int]) -> None:
    with pytest.raises(InvalidInput, match="does not exist"):
        bench.admit(shard=shard)


def test_there_is_one_leader_until_its_term_is_over(bench: Bench) -> None:
    assert lead(bench, "left") == Term(holder="left", number=1, until=at(0.5))
    assert lead(bench, "right") is None
    bench.rest(20)
    assert lead(bench, "left") == Term(holder="left", number=1, until=at(50 / 60)), (
        "a renewal is the same term"
    )
    bench.rest(29)
    assert lead(bench, "right") is None
    bench.rest(1)
    assert lead(bench, "right") == Term(holder="right", number=2, until=bench.now + TTL)
    assert lead(bench, "left") is None
    assert bench.store.read(last_term) == Term(holder="right", number=2, until=bench.now + TTL)


def test_of_many_that_reach_for_it_one_leads(bench: Bench, another: Callable[[str], Bench]) -> None:
    benches = [another(f"worker-{i}") for i in range(4)]
    terms = all_at_once([partial(lead, one, one.name) for one in benches])
    assert len([term for term in terms if term is not None]) == 1


def test_a_leader_row_that_nobody_understands_is_taken_over(bench: Bench) -> None:
    bench.store.write(lambda tx: tx.put_meta("leader", "{"))
    assert bench.store.read(last_term) is None
    assert lead(bench, "left") is not None


def test_a_term_lasts(bench: Bench) -> None:
    with pytest.raises(InvalidDuration):
        take_leadership(bench.store, holder="left", now=bench.now, ttl=0 * SECOND)


def test_two_that_believe_to_lead_double_nothing(bench: Bench, another: Callable[[str], Bench]) -> None:
    """A leader that slept through the end of its term goes on as if nothing had happened."""
    jobs = [bench.schedule(f"job-{i}") for i in range(10)]
    old, new = another("old"), another("new")
    assert lead(old, "old") is not None
    bench.go(1)
    assert lead(new, "new") is not None
    answers = all_at_once([old.admit, new.admit])
    assert sum(kinds(answer.facts).count("RunAdmitted") for answer in answers) == 10
    assert all(bench.fates(job) == [(1, "ready")] for job in jobs)
