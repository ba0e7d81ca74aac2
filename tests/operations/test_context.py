"""Several steps as one: kept together, told after the commit, or rehearsed and undone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tests.operations.house import House, dump
from timewright.core.facts import Fact
from timewright.errors import InvalidInput, StoreUnavailable
from timewright.operations.context import Context, rehearse, together


def write(name: str) -> Callable[[Context], str]:
    def work(inside: Context) -> str:
        inside.store.write(lambda tx: tx.put_meta(name, name))
        found = inside.store.read(lambda tx: tx.get_meta(name))
        assert found is not None
        return found

    return work


def test_what_is_done_together_is_seen_inside_and_kept_outside(house: House) -> None:
    assert together(house.context, write("a")) == "a"
    assert house.store.read(lambda tx: tx.get_meta("a")) == "a"


def test_what_fails_together_leaves_nothing(house: House) -> None:
    before = dump(house.store)

    def work(inside: Context) -> None:
        write("a")(inside)
        inside.tell([Fact(at=house.now)])
        raise InvalidInput("no")

    with pytest.raises(InvalidInput):
        together(house.context, work)
    assert dump(house.store) == before
    assert house.told == []


def test_a_rehearsal_sees_what_it_did_and_leaves_nothing(house: House) -> None:
    before = dump(house.store)
    assert rehearse(house.context, lambda inside: together(inside, write("a"))) == "a"
    assert dump(house.store) == before


def test_a_rehearsal_reads_the_clock_once_and_tells_nobody(house: House) -> None:
    def work(inside: Context) -> bool:
        inside.tell([Fact(at=house.now)])
        first = inside.now()
        house.sleep(seconds=5)
        return inside.now() == first

    assert rehearse(house.context, work)
    assert house.told == []


def test_work_that_a_store_runs_twice_is_told_once(house: House) -> None:
    class Twice:
        """A store that meets a deadlock first, as PostgreSQL may."""

        def __getattr__(self, name: str) -> Any:
            return getattr(house.store, name)

        def write(self, work: Callable[[Any], Any]) -> Any:
            with pytest.raises(StoreUnavailable):
                house.store.write(lambda tx: self._lost(work, tx))
            return house.store.write(work)

        def _lost(self, work: Callable[[Any], Any], tx: Any) -> None:
            work(tx)
            raise StoreUnavailable("deadlock")

    context = replace(house.context, store=Twice())
    together(context, lambda inside: inside.tell([Fact(at=house.now)]))
    assert len(house.told) == 1


def test_a_reason_of_the_request_stands_over_that_of_the_caller(house: House) -> None:
    assert house.context.because("x").reason == "x"
    assert house.context.because("").actor == "ada"
