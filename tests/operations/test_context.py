"""Transactions of several steps, facts after the commit, and dry runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tests.operations.harness import OperationsHarness, dump
from timewright.core.facts import Fact
from timewright.errors import InvalidInput, StoreUnavailable
from timewright.operations.context import OperationContext, dry_run, in_transaction


def write(name: str) -> Callable[[OperationContext], str]:
    def work(inside: OperationContext) -> str:
        inside.store.write(lambda tx: tx.put_meta(name, name))
        found = inside.store.read(lambda tx: tx.get_meta(name))
        assert found is not None
        return found

    return work


def test_a_transaction_sees_its_own_writes_and_commits_them(harness: OperationsHarness) -> None:
    assert in_transaction(harness.context, write("a")) == "a"
    assert harness.store.read(lambda tx: tx.get_meta("a")) == "a"


def test_a_failed_transaction_leaves_nothing(harness: OperationsHarness) -> None:
    before = dump(harness.store)

    def work(inside: OperationContext) -> None:
        write("a")(inside)
        inside.notify([Fact(at=harness.now)])
        raise InvalidInput("no")

    with pytest.raises(InvalidInput):
        in_transaction(harness.context, work)
    assert dump(harness.store) == before
    assert harness.facts == []


def test_a_dry_run_sees_its_own_writes_and_leaves_nothing(harness: OperationsHarness) -> None:
    before = dump(harness.store)
    assert dry_run(harness.context, lambda inside: in_transaction(inside, write("a"))) == "a"
    assert dump(harness.store) == before


def test_a_dry_run_reads_the_clock_once_and_sends_no_facts(harness: OperationsHarness) -> None:
    def work(inside: OperationContext) -> bool:
        inside.notify([Fact(at=harness.now)])
        first = inside.now()
        harness.sleep(seconds=5)
        return inside.now() == first

    assert dry_run(harness.context, work)
    assert harness.facts == []


def test_the_facts_of_retried_work_are_sent_once(harness: OperationsHarness) -> None:
    class Twice:
        """A store that retries the work once, as PostgreSQL does after a deadlock."""

        def __getattr__(self, name: str) -> Any:
            return getattr(harness.store, name)

        def write(self, work: Callable[[Any], Any]) -> Any:
            with pytest.raises(StoreUnavailable):
                harness.store.write(lambda tx: self._lost(work, tx))
            return harness.store.write(work)

        def _lost(self, work: Callable[[Any], Any], tx: Any) -> None:
            work(tx)
            raise StoreUnavailable("deadlock")

    context = replace(harness.context, store=Twice())
    in_transaction(context, lambda inside: inside.notify([Fact(at=harness.now)]))
    assert len(harness.facts) == 1


def test_the_reason_of_the_request_overrides_that_of_the_caller(harness: OperationsHarness) -> None:
    assert harness.context.with_reason("x").by.reason == "x"
    assert harness.context.with_reason("").by.name == "ada"
