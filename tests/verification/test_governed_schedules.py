"""Schedules whose instants depend on their runs: what `verify` must find, and what is no gap."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any, cast

import pytest

from tests.oracle.damage import without_row
from tests.oracle.model import to_time
from tests.promises.schedule_outcomes import alarms, at, minutes, outcomes
from timewright.core.schedule.decision import Source
from timewright.ids import TimedIds
from timewright.operations import OperationContext
from timewright.operations.health.verify import read_history
from timewright.ports import PruneRequest
from timewright.stores.sqlite.store import SqliteStore
from timewright.testing.bench import Bench
from timewright.testing.targets import fail, succeed
from timewright.verification.checker import check


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


@pytest.mark.parametrize("catch_up", ["none", "last", "all", "spread"])
@pytest.mark.parametrize("overlap", ["skip", "queue"])
@pytest.mark.parametrize("limit", [3, 100])
def test_a_success_opens_what_was_replaced_before_a_later_instant(
    catch_up: str, overlap: str, limit: int
) -> None:
    """Story 5300053018: 12:02 runs until 12:22; an outage and 12:13 come before that (ruling 23)."""
    bench = Bench()
    terms = {"preset": "desktop", "catch_up": catch_up, "overlap": overlap, "catch_up_limit": limit}
    bench.call("schedule create", name="j", call="x", every="1m", lease={"length": "1d"}, **terms)
    bench.target.script("j", fail(), succeed(after="20m"), succeed())
    bench.advance("2m")
    bench.clock.advance("10m")
    bench.advance("9m30s")
    planned = [run.planned_at for run in bench.runs("j")]
    assert planned[:2] == [at("12:01:00"), at("12:02:00")]
    assert planned[3] > at("12:12:00")
    assert alarms(bench) == []
    bench.advance("10m")

    planned = sorted(run.planned_at for run in bench.runs("j"))
    assert planned == [at(f"12:{minute:02}:00") for minute in range(1, 32)]
    assert alarms(bench) == []


def test_rows_that_a_success_opens_are_required_only_after_the_next_admission() -> None:
    bench = Bench()
    bench.call("schedule create", name="j", queue="q", handoff={}, preset="desktop", every="1m")
    bench.advance("1m")
    lease = bench.call("queue lease", queue="q", holder="h", length="1h")["leases"][0]
    bench.call("queue release", lease=lease["lease"], failed=True)
    bench.advance("1m")
    lease = bench.call("queue lease", queue="q", holder="h", length="1h")["leases"][0]
    bench.clock.advance("10m")
    bench.advance("2m30s")
    bench.call("queue complete", lease=lease["lease"])
    assert bench.progress("j").replaced_after == at("12:02:00")
    assert alarms(bench) == []
    bench.call("schedule update", schedule="j", every="2m")

    assert [run.planned_at for run in bench.runs("j")][-1] <= at("12:14:30")
    assert len(bench.runs("j")) == 14
    assert alarms(bench) == []


@pytest.mark.parametrize("is_skipped", [False, True])
def test_an_edit_takes_over_what_a_success_opened_and_a_limit_carries(is_skipped: bool) -> None:
    """Dense seed 91000168: I3, the instants that were carried over had no row after the edit."""
    bench = Bench()
    terms = {"preset": "desktop", "catch_up": "all", "overlap": "queue", "catch_up_limit": 3}
    bench.call("schedule create", name="j", call="x", every="1m", lease={"length": "1d"}, **terms)
    bench.target.script("j", fail(), succeed(after="20m"), succeed(after="5m"))
    bench.advance("2m")
    bench.clock.advance("10m")
    bench.advance("9m30s")
    if is_skipped:
        bench.call("schedule skip", schedule="j")
    bench.advance("1m")
    opened = bench.progress("j").replaced_after
    assert opened is not None
    bench.call("schedule update", schedule="j", every="2m", catch_up="none")
    bench.advance("1s")
    assert alarms(bench) == []
    bench.advance("20m")

    planned = {run.planned_at for run in bench.runs("j")}
    assert {at(f"12:{minute:02}:00") for minute in range(24, 40, 2)} <= planned
    assert any(opened < one < at("12:13:00") for one in planned)
    assert bench.progress("j").replaced_after is None
    assert alarms(bench) == []


def test_a_missing_row_at_the_end_of_a_pause_is_found() -> None:
    """Story 30003010: with `align: now` the end of a pause is an occurrence, whatever comes next."""
    bench = Bench()
    bench.call("schedule create", name="j", call="x", preset="adaptive", every="7m")
    bench.call("hint pause", schedule="j", until=at("12:01:00"))
    bench.clock.advance("12m")
    bench.tick()
    bench.call("hint once", schedule="j", after="1m", ttl="8m")
    bench.advance("20m")
    removed = bench.runs("j")[0]
    assert removed.planned_at == at("12:01:00")
    assert alarms(bench) == []
    connection = cast("SqliteStore", bench.store)._writer.connection
    connection.execute("DELETE FROM attempts WHERE run_id = ?", (removed.id,))
    connection.execute("DELETE FROM runs WHERE id = ?", (removed.id,))

    assert any(alarm.startswith("I7") for alarm in alarms(bench)), outcomes(bench)


def test_instants_between_the_expiry_of_a_hint_and_a_failure_are_decided_behind_a_backlog() -> None:
    """The hint began behind what a limit carried over, and the cadence replaced what came after the hint."""
    bench = Bench()
    terms = {"cadence": {"ladder": {"steps": ["90s"]}}, "catch_up": "all", "catch_up_limit": 1}
    bench.call("schedule create", name="j", call="x", every="1m", adaptive=True, overlap="queue", **terms)
    bench.target.script("j", fail(after="5m"), fail(after="1s"))
    bench.clock.advance("5m30s")
    bench.call("hint interval", schedule="j", interval="10s", ttl="2m")
    bench.advance("20m")

    planned = [run.planned_at for run in bench.runs("j")]
    assert planned[:8] == [*minutes(1, 5), *minutes(8, 10)]
    assert alarms(bench) == []


def test_a_hint_that_expired_while_the_engine_was_stopped_is_no_alarm() -> None:
    bench = Bench()
    bench.call("schedule create", name="j", call="x", every="1m", adaptive=True)
    bench.call("hint pause", schedule="j", until=at("12:03:20"))
    bench.call("hint interval", schedule="j", interval="10m", ttl="7m")
    bench.advance("4m")
    bench.clock.advance("9m")
    assert alarms(bench) == []
    bench.advance("1m")

    assert bench.runs("j")[-1].planned_at >= at("12:13:00")
    assert alarms(bench) == []


def test_a_requested_instant_in_a_pause_is_skipped_also_if_a_streak_begins_in_it() -> None:
    """It ran at the end of the pause, and the trigger's instants after it were said to be requested."""
    bench = Bench()
    terms = {"cadence": {"stretch": {}}, "catch_up": "all", "adaptive": True}
    bench.call("schedule create", name="j", call="x", cron="*/2 * * * *", **terms)
    bench.target.script("j", fail(after="3m"), succeed())
    bench.advance("3m")
    bench.call("hint once", schedule="j", after="4m")
    bench.call("hint pause", schedule="j", until=at("12:09:30"))
    bench.advance("10m")

    assert outcomes(bench)[:6] == [
        (at("12:02:00"), "failed"),
        (at("12:04:00"), "paused"),
        (at("12:06:00"), "paused"),
        (at("12:07:00"), "paused"),
        (at("12:08:00"), "paused"),
        (at("12:10:00"), "succeeded"),
    ]
    assert [run.source for run in bench.runs("j")].count(Source.AI_ONESHOT) == 1
    assert alarms(bench) == []


def test_a_missing_row_of_a_hint_that_another_replaced_after_its_instant_is_found() -> None:
    """Dense seed 120000422: what is due stays due, also if a limit carries it over."""
    bench = Bench()
    terms = {"every": "5m", "adaptive": True, "catch_up": "all", "catch_up_limit": 1}
    bench.call("schedule create", name="j", call="x", **terms)
    bench.call("hint once", schedule="j", after="12m")
    bench.clock.advance("32m")
    bench.call("hint once", schedule="j", after="12m")
    bench.advance("30m")
    removed = bench.runs("j")[2]
    assert removed.planned_at == at("12:12:00")
    assert alarms(bench) == []
    connection = cast("SqliteStore", bench.store)._writer.connection
    connection.execute("DELETE FROM attempts WHERE run_id = ?", (removed.id,))
    connection.execute("DELETE FROM runs WHERE id = ?", (removed.id,))

    assert any("12:12:00Z, as asked" in alarm for alarm in alarms(bench)), outcomes(bench)


@pytest.mark.parametrize("until", ["12:01:30", "12:02:00"])
@pytest.mark.parametrize("is_late", [False, True])
def test_an_interval_goes_on_after_a_skip_that_a_pause_ends_at(until: str, is_late: bool) -> None:
    """Story 41121006: a late engine planned from now, and the instants before it had no row."""
    bench = Bench()
    bench.call("schedule create", name="j", call="x", preset="adaptive", every="2m", catch_up="none")
    bench.advance("1m")
    bench.call("schedule skip", schedule="j")
    bench.call("schedule pause", schedule="j", until=at(until))
    if is_late:
        bench.clock.advance("5m")
    bench.advance("1s" if is_late else "5m")

    assert [run.planned_at for run in bench.runs("j")][:2] == [at("12:02:00"), at("12:04:00")]
    assert alarms(bench) == []


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


def test_an_edit_takes_over_a_backlog_that_a_limit_carries() -> None:
    """Dense seed 120000014: the next time is due, and was decided under the edit, not at its instant."""
    bench = Bench()
    terms = {"adaptive": True, "catch_up": "all", "catch_up_limit": 2, "overlap": "queue"}
    bench.call("schedule create", name="j", call="x", cron="*/3 * * * *", lease={"length": "1d"}, **terms)
    bench.target.script("j", succeed(after="3h"))
    bench.advance("3m")
    bench.clock.advance("97m")
    bench.advance("1s")
    bench.call("schedule update", schedule="j", every="1h")
    bench.tick()
    next_at = bench.progress("j").next_at
    assert next_at is not None
    assert next_at <= bench.now
    assert alarms(bench) == []


def test_a_hint_may_decide_behind_what_was_skipped_ahead_until_it_expires() -> None:
    """Story 501577016: I3 at 12:02, because 12:05 is skipped and the hint is over by then."""
    bench = Bench()
    bench.call("schedule create", name="j", call="x", every="5m", adaptive=True)
    bench.call("schedule skip", schedule="j")
    bench.advance("1m")
    bench.call("hint interval", schedule="j", interval="1000s", ttl="100s")
    bench.call("schedule update", schedule="j", catch_up="none")
    bench.advance("1m")
    assert alarms(bench) == []
    bench.advance("10m")
    assert outcomes(bench) == [(at("12:05:00"), "by_hand"), (at("12:10:00"), "succeeded")]


@pytest.mark.parametrize("overlap", ["skip", "queue", "allow"])
@pytest.mark.parametrize("terms", [{"adaptive": True}, {"align": "now"}])
def test_an_interval_counts_from_an_occurrence_that_jitter_admitted_early(
    overlap: str, terms: dict[str, Any]
) -> None:
    """Dense seed 140000531: every pass of a late engine admitted the instant two minutes after itself."""
    bench = Bench()
    jitter = {"jitter": "3m", "jitter_side": "both"}
    bench.call("schedule create", name="j", call="x", every="2m", overlap=overlap, **jitter, **terms)
    bench.target.script("j", succeed(after="3h"))
    if "adaptive" in terms:
        bench.call("hint interval", schedule="j", interval="2m", ttl="45m", reason="as before")
    bench.clock.advance("1m1s")
    for _ in range(60):
        bench.advance("1s")

    planned = [run.planned_at for run in bench.runs("j")]
    assert planned == [at("12:02:00"), at("12:04:00")]
    assert alarms(bench) == []


def test_a_minimum_counts_from_an_occurrence_that_jitter_admitted_early() -> None:
    """Dense seed 150000218: occurrences two minutes apart under a minimum of five."""
    bench = Bench()
    terms = {"jitter": "3m", "jitter_side": "both", "adaptive": True, "clamp": {"min": "5m"}}
    bench.call("schedule create", name="j", call="x", every="2m", **terms)
    later = (bench.now + timedelta(minutes=50)).isoformat()
    bench.call("hint once", schedule="j", at=later, ttl="1h", reason="then too")
    bench.advance("18m")

    planned = [run.planned_at for run in bench.runs("j") if run.reason != "clamped"]
    assert min(after - before for before, after in pairwise(planned)) == timedelta(minutes=5)
    assert alarms(bench) == []


def test_an_instant_after_the_end_of_its_hint_is_not_admitted_before_that_end() -> None:
    """Dense seed 140000531: jitter admitted an instant early that the end of the hint decides again."""
    bench = Bench()
    terms = {"jitter": "3m", "jitter_side": "both", "adaptive": True}
    bench.call("schedule create", name="j", call="x", cron="*/3 * * * *", **terms)
    bench.target.script("j", succeed(after="3h"))
    bench.call("hint interval", schedule="j", interval="4m", ttl="5m30s", reason="less often")
    bench.advance("5m")

    assert bench.progress("j").wake_at == at("12:05:30")
    bench.advance("25m")
    planned = [run.planned_at for run in bench.runs("j")]
    assert planned[:3] == [at("12:03:00"), at("12:06:00"), at("12:09:00")]
    assert alarms(bench) == []


@pytest.mark.parametrize("max_runs", [14, 20])
def test_instants_after_the_last_allowed_run_of_a_reopened_backlog_need_no_row(max_runs: int) -> None:
    """Dense seed 150000331: the last run that `max_runs` allowed lay before one that was admitted earlier."""
    bench = Bench()
    terms = {"preset": "desktop", "catch_up": "all", "overlap": "queue", "max_runs": max_runs}
    bench.call("schedule create", name="j", call="x", every="1m", lease={"length": "1d"}, **terms)
    bench.target.script("j", fail(), succeed(after="20m"), succeed())
    bench.advance("2m")
    bench.clock.advance("10m")
    bench.advance("40m")

    planned = [run.planned_at for run in sorted(bench.runs("j"), key=lambda run: run.created_at)]
    assert len(planned) == max_runs
    assert planned[-1] < max(planned)
    assert alarms(bench) == []


def test_a_run_that_ends_when_a_pause_ends_leaves_the_end_of_the_pause() -> None:
    """Story 530021014: the run decided the next time, and the pause stayed until then (ruling 2)."""
    bench = Bench()
    bench.call("schedule create", name="j", call="x", every="10m", align="now", adaptive=True)
    bench.target.script("j", succeed(after="1m"), succeed())
    bench.advance("10m")
    bench.call("hint pause", schedule="j", until=at("12:11:00"))
    bench.advance("5m")
    assert outcomes(bench) == [(at("12:10:00"), "succeeded"), (at("12:11:00"), "succeeded")]
    bench.call("hint interval", schedule="j", interval="30s", ttl="10m")
    bench.advance("10m")
    assert alarms(bench) == []


@pytest.mark.parametrize(("later_us", "holds"), [(1, True), (2_000, False)])
def test_an_interval_counts_from_an_instant_whose_row_is_dated_a_moment_later(
    later_us: int, holds: bool
) -> None:
    """Dense seed 110400013 on a file: what is decided ahead is dated by the clock of its commit."""
    bench = Bench()
    bench.call("schedule create", name="j", call="x", every="2m", align="now", overlap="queue")
    bench.target.script("j", succeed(after="30m"))
    bench.advance("7m")
    held = bench.runs("j")[1]
    assert held.planned_at == at("12:04:00")
    connection = cast("SqliteStore", bench.store)._writer.connection
    connection.execute("UPDATE runs SET created_at = created_at + ? WHERE id = ?", (later_us, held.id))

    assert (alarms(bench) == []) is holds, alarms(bench)


Step = tuple[str, dict[str, Any]]
LOST: dict[str, tuple[dict[str, Any], list[Step], str]] = {
    "what an interval hint asked for stands after its end": (
        {"every": "10m", "adaptive": True},
        [("hint interval", {"interval": "2m", "ttl": "5m"}), ("", {"lasts": "20m"})],
        "12:06:00",
    ),
    "an interval hint puts nothing off": (
        {"every": "2m", "adaptive": True},
        [
            ("", {"lasts": "3m"}),
            ("hint interval", {"interval": "10m", "ttl": "5m"}),
            ("", {"lasts": "30m"}),
        ],
        "12:04:00",
    ),
    "what is due when hints are cleared stays due": (
        {"every": "20m", "adaptive": True},
        [
            ("hint interval", {"interval": "4m", "ttl": "10m"}),
            ("", {"lasts": "4m"}),
            ("hint clear", {}),
            ("", {"lasts": "30m"}),
        ],
        "12:04:00",
    ),
    "a hint for an instant in a pause": (
        {"every": "10m", "adaptive": True},
        [
            ("hint once", {"after": "4m", "ttl": "9m"}),
            ("schedule pause", {"until": at("12:06:00")}),
            ("", {"lasts": "20m"}),
        ],
        "12:04:00",
    ),
    "the end of a pause by a resume": (
        {"every": "10m", "align": "now"},
        [
            ("", {"lasts": "15m"}),
            ("schedule pause", {}),
            ("", {"lasts": "10m"}),
            ("schedule resume", {}),
            ("", {"lasts": "20m"}),
        ],
        "12:25:00",
    ),
}


@pytest.mark.parametrize("lost", LOST)
def test_a_row_that_was_never_written_is_found(lost: str) -> None:
    create, steps, planned = LOST[lost]
    bench = Bench()
    bench.call("schedule create", name="j", call="x", **create)
    for operation, fields in steps:
        if operation:
            bench.call(operation, schedule="j", **fields)
        else:
            bench.advance(fields["lasts"])
    context = OperationContext(store=bench.store, ids=TimedIds(), notify=lambda _: None)
    history, now = read_history(context), to_time(bench.now)
    (removed,) = [run for run in history.runs if run.planned_at == to_time(at(planned))]
    assert check(history, now=now).holds

    found = check(without_row(history, removed), now=now).violations
    assert any(one.invariant == "I3" for one in found), outcomes(bench)
