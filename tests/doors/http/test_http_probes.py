"""What machines ask that look after us: alive, ready, overdue, numbers."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.doors.http.visitor import ADA, Visitor, visiting
from tests.operations.house import House
from timewright.engine.loop import Pulse


def test_alive_is_answered_without_a_store(house: House) -> None:
    house.store.close()
    with visiting(house) as visitor:
        assert visitor.ask("GET", "/healthz").data == {"alive": True}


def test_ready_says_whether_the_engine_beside_it_goes_on(house: House) -> None:
    pulse = Pulse(last_tick_at=house.now)
    with visiting(house, pulse=pulse) as visitor:
        assert visitor.ask("GET", "/readyz").data["ready"] is True
        pulse.errors_in_a_row, pulse.last_error = 1, "StoreUnavailable: away"
        troubled = visitor.ask("GET", "/readyz")
        assert (troubled.status, troubled.data["trouble"]) == (503, "StoreUnavailable: away")
        pulse.errors_in_a_row = 0
        house.sleep(minutes=2)
        late = visitor.ask("GET", "/readyz")
        assert (late.status, late.data["trouble"]) == (503, "no tick for 2m")


def test_ready_without_an_engine_is_the_store_alone(visitor: Visitor) -> None:
    assert visitor.ask("GET", "/readyz").data["engine"] is False


def test_overdue_speaks_while_no_engine_runs(visitor: Visitor, house: House) -> None:
    calm = visitor.ask("GET", "/overdue")
    assert (calm.status, calm.data["late"]) == (200, [])
    house.sleep(days=1)
    late = visitor.ask("GET", "/overdue")
    assert (late.status, late.data["overdue"]) == (503, True)
    assert {"nightly-report", "orders-poll"} <= {row["schedule"] for row in late.data["late"]}
    assert visitor.ask("GET", "/overdue?tolerance=2d").status == 200
    assert visitor.ask("GET", "/overdue?tolerance=soon").status == 422
    house.advance(seconds=1)
    assert visitor.ask("GET", "/overdue").status == 200


def test_overdue_looks_at_runs_that_nobody_begins(visitor: Visitor, house: House) -> None:
    made = house.ask("schedule run", schedule="nightly-report")["run"]["id"]
    house.sleep(minutes=2)
    late = visitor.ask("GET", "/overdue").data["late"]
    assert made in {row["run"] for row in late}


def test_overdue_is_of_one_namespace(visitor: Visitor, house: House) -> None:
    house.sleep(days=1)
    assert visitor.ask("GET", "/overdue?namespace=other").data["late"] == []
    assert visitor.ask("GET", "/overdue", headers={"timewright-namespace": "other"}).status == 200


@pytest.mark.parametrize("tolerance", ["-1s", "400d", "x", ""])
def test_a_tolerance_that_means_nothing_is_refused(visitor: Visitor, tolerance: str) -> None:
    assert visitor.ask("GET", f"/api/v1/overdue?tolerance={tolerance}").status == 422


def test_numbers_are_there_when_someone_counts(house: House) -> None:
    with visiting(house, metrics=lambda: "timewright_ticks_total 3\n") as visitor:
        answer = visitor.ask("GET", "/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert answer.body == b"timewright_ticks_total 3\n"
    with visiting(house) as visitor:
        assert visitor.ask("GET", "/metrics").status == 404


def test_numbers_of_a_namespace_are_for_those_who_may_enter_it(house: House) -> None:
    lines = [
        "# HELP timewright_runs_total Runs that ended, by how.",
        'timewright_runs_total{namespace="default",outcome="failed",queue="mail"} 1.0',
        'timewright_runs_total{namespace="other",outcome="failed",queue="mail"} 2.0',
        'timewright_schedule_runs_total{a="x",namespace="other",schedule="hidden"} 3.0',
        "timewright_ticks_total 3.0",
    ]
    shown = {"metrics": lambda: "\n".join(lines) + "\n"}
    with visiting(house, caller=replace(ADA, namespaces=("default",)), **shown) as visitor:
        answer = visitor.ask("GET", "/metrics")
        assert answer.body.decode().splitlines() == [*lines[:2], lines[-1]]
    with visiting(house, caller=replace(ADA, scopes=frozenset({"hint"})), **shown) as visitor:
        assert visitor.ask("GET", "/metrics").status == 403


def test_a_late_look_is_measured(visitor: Visitor, house: House) -> None:
    house.sleep(hours=1)
    rows = visitor.ask("GET", "/overdue").data["late"]
    assert rows == sorted(rows, key=lambda row: row["since"])
    assert rows[0]["late_by"] == "57m"
