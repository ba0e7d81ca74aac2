"""Whatever people, agents and workers do in any order, all promises hold after every step."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conformance.conftest import TABLES
from tests.conformance.support.databases import Database
from tests.ledger.state_machine.ledger_machine import LedgerMachine


def test_all_promises_hold_after_every_step() -> None:
    run_state_machine_as_test(LedgerMachine, settings=settings(stateful_step_count=50))


@pytest.mark.parametrize("kind", ["postgres"])
def test_all_promises_hold_after_every_step_on_postgres(database: Database) -> None:
    class Server(LedgerMachine):
        """The same machine, each time on an empty PostgreSQL database."""

        kind, place = database.kind, database.place

        def __init__(self) -> None:
            for table in TABLES:
                database.sql(f"DELETE FROM {table}")
            super().__init__()

    examples = settings().max_examples // 10
    run_state_machine_as_test(Server, settings=settings(max_examples=examples, stateful_step_count=25))
