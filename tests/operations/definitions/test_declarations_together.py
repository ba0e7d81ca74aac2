"""Instances of one program that start at the same time declare the same schedules."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from timewright.ids import TimedIds
from timewright.operations.context import OperationContext
from timewright.operations.definitions.programs import Program, save_declarations
from timewright.testing.postgres import fresh_database
from timewright.wiring import open_store

INSTANCES = 6


def test_instances_that_start_together_declare_each_schedule_once(
    postgres_url: str, postgres_template: str
) -> None:
    requests = {f"job-{n}": {"name": f"job-{n}", "every": "1h", "note": "x"} for n in range(3)}
    barrier = Barrier(INSTANCES)

    with fresh_database(postgres_url, template=postgres_template) as place:

        def start(number: int) -> list[str]:
            store = open_store(place)
            context = OperationContext(store=store, ids=TimedIds(), notify=lambda _: None)
            try:
                barrier.wait()
                changes = save_declarations(context, Program(), requests, instance=f"ins_{number}")
            finally:
                store.close()
            return [change.change for change in changes]

        with ThreadPoolExecutor(INSTANCES) as pool:
            found = sorted(pool.map(start, range(INSTANCES)))
    assert found == [["created"] * 3, *[["unchanged"] * 3] * (INSTANCES - 1)]
