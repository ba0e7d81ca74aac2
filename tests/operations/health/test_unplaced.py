"""What waits because no live instance can run it says so: in explain, doctor, overdue and the log."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from tests.operations.harness import NOON, OperationsHarness
from timewright.core.facts import NoInstance
from timewright.core.run.needs import Offer
from timewright.engine.maintenance import Heartbeat
from timewright.ledger.admit import admit_due
from timewright.ledger.records.instances import FleetOffers
from timewright.ports.store import ScheduleNames
from timewright.telemetry.log import ApplicationLog

OLD, NEW = Offer(functions=("send",)), Offer(functions=("refresh", "send"))
WHY = "no running instance has function 'refresh'"


def beat(harness: OperationsHarness, name: str, offer: Offer, *, stops: bool = False) -> None:
    heartbeat = Heartbeat(
        harness.store, name, clock=harness.bench.clock, capacity=1, in_flight=[], offer=lambda: offer
    )
    heartbeat.send_if_due()
    if stops:
        heartbeat.send_stopped()


def admit(harness: OperationsHarness, offer: Offer) -> list[NoInstance]:
    fleet = FleetOffers(lambda: offer)
    now = harness.bench.clock.now()
    found = admit_due(harness.store, ids=harness.bench.ids, now=now, limit=10, fleet=fleet)
    again = admit_due(harness.store, ids=harness.bench.ids, now=now, limit=10, fleet=fleet)
    assert not [fact for fact in again.facts if isinstance(fact, NoInstance)]
    return [fact for fact in found.facts if isinstance(fact, NoInstance)]


def test_a_due_schedule_says_which_function_nobody_has_and_who_had_it() -> None:
    harness = OperationsHarness()
    harness.ask("schedule create", name="news", every="1m", call="refresh")
    beat(harness, "ins_new", NEW, stops=True)
    harness.bench.clock.advance(timedelta(minutes=2, seconds=30))
    beat(harness, "ins_old", OLD)
    (fact,) = admit(harness, OLD)
    expected = f"{WHY}; last offered by ins_new on "
    assert fact.reason.startswith(expected)
    assert fact.reason.endswith(" at 2026-03-10T12:00:00Z")
    explained = harness.ask("schedule explain", schedule="news")
    assert explained["because"][0] == fact.reason
    assert "waits for an instance that can run it" in explained["summary"]
    (late,) = harness.ask("overdue")["late"]
    assert (late["schedule"], late["since"]) == ("news", "2026-03-10T12:01:00Z")
    assert fact.reason in late["sentence"]
    (found,) = [one for one in harness.ask("doctor")["findings"] if one["kind"] == "unplaced"]
    assert found["sentence"] == f"news waits: {fact.reason}"
    assert harness.ask("run list")["runs"] == []


def test_the_next_occurrence_says_whether_an_instance_runs_that_could_start_it() -> None:
    harness = OperationsHarness()
    harness.ask("schedule create", name="news", every="1m", call="refresh")

    def explained() -> tuple[str, str]:
        answer = harness.ask("schedule explain", schedule="news")
        return answer["summary"].split("12:01:00Z ")[-1], answer["because"][0]

    assert explained() == (
        "will run if an instance is running then",
        "no instance is running now, so nothing starts; start one: timewright up, or your program",
    )
    beat(harness, "ins_old", OLD)
    assert explained() == (
        "will be due, and then wait for an instance that can run it",
        f"{WHY}; none has offered it within a week",
    )
    beat(harness, "ins_new", NEW)
    assert explained() == ("will run", "it is next because of its interval")


def test_a_ready_run_says_which_function_nobody_has() -> None:
    harness = OperationsHarness()
    harness.ask("schedule create", name="news", manual=True, call="refresh")
    run = harness.ask("schedule run", schedule="news")["run"]["id"]
    harness.bench.clock.advance(timedelta(minutes=2))
    beat(harness, "ins_old", OLD)
    (reason,) = harness.ask("run explain", run=run)["because"][1:]
    assert reason == f"{WHY}; none has offered it within a week"
    (late,) = harness.ask("overdue")["late"]
    assert reason in late["sentence"]
    assert [one["run"] for one in harness.ask("doctor")["findings"] if one["kind"] == "unplaced"] == [run]
    fleet = FleetOffers(lambda: OLD)
    now = harness.bench.clock.now()
    (fact,) = harness.store.read(lambda tx: fleet.report_waiting(tx, now=now))
    assert (fact.run_id, fact.reason) == (run, reason)
    beat(harness, "ins_new", NEW)
    assert "it has waited 2m for an engine" in harness.ask("run explain", run=run)["because"][-1]
    assert harness.store.read(lambda tx: FleetOffers(lambda: OLD).report_waiting(tx, now=now)) == []


def test_the_warning_names_the_schedule(caplog: pytest.LogCaptureFixture) -> None:
    log = ApplicationLog(ScheduleNames(lambda _: "news"), traceback_of=lambda *_: "")
    log.notify(NoInstance(at=NOON, schedule_id="sch_1", reason=WHY))
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.WARNING, f"news: it waits: {WHY}")


@pytest.mark.parametrize(
    ("catch_up", "states"),
    [("none", ["skipped"] * 4), ("last", ["skipped"] * 3 + ["ready"]), ("all", ["held"] * 3 + ["ready"])],
)
def test_time_without_a_capable_instance_is_an_outage(catch_up: str, states: list[str]) -> None:
    harness = OperationsHarness()
    harness.ask("schedule create", name="news", every="1m", call="refresh", catch_up=catch_up, grace="10s")
    for _ in range(4):
        harness.bench.clock.advance(timedelta(minutes=1))
        admit(harness, OLD)
    assert harness.ask("run list")["runs"] == []
    harness.bench.clock.advance(timedelta(seconds=30))
    beat(harness, "ins_new", NEW)
    woken = harness.store.write(
        lambda tx: tx.wake_waiting_schedules(
            harness.bench.loop.launcher.lease_offer(), now=harness.bench.clock.now()
        )
    )
    assert woken == 1
    assert admit(harness, OLD) == [], "another instance can run it, so any instance admits it"
    found = harness.ask("run list")["runs"]
    assert sorted(run["state"] for run in found) == sorted(states)


@pytest.mark.parametrize("change", ["edit", "hint"])
def test_a_change_decides_what_was_due_although_no_instance_can_run_it(change: str) -> None:
    harness = OperationsHarness()
    draft = {"name": "news", "every": "1m", "align": "now", "call": "refresh", "adaptive": True}
    harness.ask("schedule create", **draft)
    harness.bench.clock.advance(timedelta(minutes=1))
    admit(harness, OLD)
    harness.bench.clock.advance(timedelta(minutes=1))
    if change == "edit":
        harness.ask("schedule update", schedule="news", every="5m")
    else:
        harness.ask("hint interval", schedule="news", interval="5m", ttl="1h")
    assert [run["planned_at"] for run in harness.ask("run list")["runs"]] == ["2026-03-10T12:01:00Z"]


def test_an_edit_does_not_decide_what_waits_for_the_end_of_a_pause() -> None:
    harness = OperationsHarness()
    harness.ask("schedule create", name="news", every="1m", align="now", call="refresh", group="reports")
    harness.ask("pause", scope="group", name="reports", due="wait")
    harness.bench.clock.advance(timedelta(minutes=1))
    admit(harness, NEW)
    harness.ask("schedule update", schedule="news", every="5m")
    assert harness.ask("run list")["runs"] == []
