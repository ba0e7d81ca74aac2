"""Schedules whose instants depend on their runs: what `verify` must find, and what is no gap."""

from __future__ import annotations

from typing import cast

import pytest

from tests.promises.schedule_outcomes import alarms, at, outcomes
from timewright.ports import PruneRequest
from timewright.stores.sqlite.store import SqliteStore
from timewright.testing.bench import Bench
from timewright.testing.targets import fail


@pytest.mark.parametrize("lasts", ["4m", "5m", "7m"])
def test_the_end_of_a_run_may_decide_again_what_came_due_during_it(lasts: str) -> None:
    """Dense seed 85000004: with `align: now`, a run that ended exactly one interval after its start."""
    bench = Bench()
    terms = {"every": "5m", "align": "now", "overlap": "allow", "queue": "mail"}
    bench.call("schedule create", name="j", handoff={}, **terms)
    bench.advance("5m")
    bench.clock.advance("1h")
    (lease,) = bench.call("queue lease", queue="mail", holder="h", length="30m")["leases"]
    bench.clock.advance(lasts)
    bench.call("queue complete", lease=lease["lease"])
    bench.advance("20m")

    assert bench.runs("j")[1].planned_at >= at("13:10:00")
    assert alarms(bench) == []


@pytest.mark.parametrize("pruned", [False, True])
def test_failures_that_were_pruned_still_stretch_the_interval(pruned: bool) -> None:
    """Dense seed 83000106: I3, because the failures before the pruning were not counted."""
    bench = Bench()
    terms = {"align": "now", "cadence": {"stretch": {}}}
    bench.call("schedule create", name="j", call="x", every="1m", **terms)
    bench.target.script("j", fail())
    bench.advance("40m")
    if pruned:
        bench.store.write(lambda tx: tx.prune(PruneRequest(older_than=at("12:14:00"))))
    assert len(bench.runs("j")) == (2 if pruned else 5)
    assert alarms(bench) == []


def test_a_gap_in_a_streak_whose_runs_are_all_known_is_found() -> None:
    bench = Bench()
    bench.call("schedule create", name="j", call="x", every="1m", align="now", cadence={"stretch": {}})
    bench.target.script("j", fail())
    bench.advance("40m")
    removed = bench.runs("j")[2]
    connection = cast("SqliteStore", bench.store)._writer.connection
    connection.execute("DELETE FROM attempts WHERE run_id = ?", (removed.id,))
    connection.execute("DELETE FROM runs WHERE id = ?", (removed.id,))
    assert any(alarm.startswith(("I2", "I3")) for alarm in alarms(bench)), outcomes(bench)


def test_an_edit_after_a_skipped_instant_plans_from_the_edit() -> None:
    """Story 12400036009: a revision without rows whose only instant was skipped by hand before it."""
    bench = Bench()
    bench.call("schedule create", name="j", note="x", cron="10 * * * *")
    bench.advance("5m")
    bench.call("schedule skip", schedule="j")
    bench.call("schedule update", schedule="j", catch_up="all")
    bench.advance("20m30s")
    bench.call("schedule update", schedule="j", every="5m")
    bench.advance("10m")

    planned = [run.planned_at for run in bench.runs("j")]
    assert planned == [at("12:10:00"), at("12:30:00"), at("12:35:00")]
    assert alarms(bench) == []
