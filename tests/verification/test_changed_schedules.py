"""Schedules that are edited, paused, hinted or skipped while something is due: nothing is left out."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from tests.oracle.damage import without_row
from tests.promises.schedule_outcomes import alarms, at, minutes, skipped_at_ten_past
from timewright.core.moments import to_micros
from timewright.ids import TimedIds
from timewright.operations import OperationContext
from timewright.operations.health.verify import read_history
from timewright.ports import PruneRequest
from timewright.testing.bench import Bench
from timewright.testing.targets import fail, hang, succeed
from timewright.verification.checker import check


def test_a_row_for_instants_that_a_skip_displaces_is_kept_as_long_as_they_are() -> None:
    """Dense seed 120000144: 12:06 and 12:08 have one row, which was pruned before 12:08."""
    bench = Bench()
    bench.call("schedule create", name="j", note="x", every="2m", clamp={"min": "5m"})
    bench.advance("5m30s")
    bench.call("schedule skip", schedule="j")
    bench.advance("20m")
    bench.store.write(lambda tx: tx.prune(PruneRequest(older_than=at("12:07:00"))))

    first = bench.runs("j")[0]
    assert (first.planned_at, first.last_of, first.reason) == (at("12:06:00"), at("12:08:00"), "clamped")
    assert alarms(bench) == []


def test_a_cadence_that_an_edit_adds_in_a_pause_decides_from_the_edit_on() -> None:
    """Dense seed 120000316: 12:02 had no row, because the failure before the edit counted as a streak."""
    bench = Bench()
    bench.call("schedule create", name="j", call="x", every="1m", adaptive=True, overlap="allow")
    bench.target.script("j", fail(after="53s"), succeed())
    bench.advance("1m40s")
    bench.call("hint pause", schedule="j", until=at("12:10:30"))
    bench.advance("3m20s")
    bench.call("schedule update", schedule="j", cadence={"stretch": {}})
    bench.advance("10m")

    paused = [run.planned_at for run in bench.runs("j") if run.reason == "paused"]
    assert paused[:4] == [at(f"12:{minute:02}:00") for minute in range(2, 6)]
    assert alarms(bench) == []


@pytest.mark.parametrize("until", [None, "12:40:00"])
def test_a_failure_in_a_pause_decides_nothing_about_a_hint_that_has_expired_in_it(until: str | None) -> None:
    """Dense seed 120000773: I7, the cursor passed 12:06 and 12:09, which the pause had not recorded."""
    bench = Bench()
    terms = {"adaptive": True, "cadence": {"stretch": {}}, "lease": {"length": "1d"}}
    bench.call("schedule create", name="j", call="x", every="3m", **terms)
    bench.target.script("j", fail(after="20m"), succeed())
    bench.advance("4m")
    bench.call("schedule pause", schedule="j", **({"until": at(until)} if until else {}))
    bench.advance("6m")
    bench.call("hint interval", schedule="j", interval="3h", ttl="2m")
    bench.advance("15m")
    assert (bench.progress("j").failures, alarms(bench)) == (1, [])
    bench.call("schedule resume", schedule="j")
    bench.advance("5m")

    assert [run.planned_at for run in bench.runs("j")] == [at(f"12:{m:02}:00") for m in range(3, 31, 3)]
    assert alarms(bench) == []


def test_an_edit_of_a_backlog_from_before_a_hint_is_planned_by_the_new_trigger() -> None:
    """Dense seed 120000452: the hint was counted from 12:03:59.999999, long before it was made."""
    bench = busy(every="1m", adaptive=True, catch_up="all", catch_up_limit=2, overlap="queue")
    bench.clock.advance("20m")
    bench.tick()
    bench.call("hint interval", schedule="j", interval="2m", ttl="2m")
    bench.advance("10m")
    bench.call("schedule update", schedule="j", cron="*/5 * * * *")
    assert bench.progress("j").next_at == at("12:05:00")
    bench.advance("3h")

    planned = [run.planned_at for run in bench.runs("j")][3:9]
    assert planned == [at(f"12:{minute}:00") for minute in ("05", "10", "15", "20", "25", "30")]
    assert alarms(bench) == []


def test_an_edit_keeps_a_hinted_instant_that_a_limit_carries_over() -> None:
    """Dense seed 120001385: the instant was dropped, and another one took its place."""
    bench = busy(
        cron="0 0 * * *", adaptive=True, catch_up="all", catch_up_limit=2, overlap="queue", hint="2m"
    )
    bench.advance("4m")
    bench.clock.advance("10m")
    bench.tick()
    due = bench.progress("j").next_at
    assert due is not None
    assert due < bench.now
    bench.call("schedule update", schedule="j", clamp={"min": "2m"})
    assert bench.progress("j").next_at == due
    bench.advance("3h")

    assert due in [run.planned_at for run in bench.runs("j")]
    assert alarms(bench) == []


@pytest.mark.parametrize("wish", [None, "8m"])
def test_clearing_hints_keeps_what_no_hint_decided(wish: str | None) -> None:
    """Dense seed 120001396: 12:09 moves to 12:10; then it had no row, because 12:15 was decided instead."""
    bench = Bench()
    bench.call("schedule create", name="j", note="x", every="3m", adaptive=True, clamp={"min": "5m"})
    bench.advance("9m30s")
    if wish is not None:
        bench.call("hint once", schedule="j", after=wish)
    next_at = bench.progress("j").next_at
    bench.call("hint clear", schedule="j")
    assert bench.progress("j").next_at == next_at == at("12:10:00")
    bench.advance("10m")

    assert alarms(bench) == []


def test_an_edit_may_fall_between_instants_that_a_skip_displaced() -> None:
    """Dense seed 120001470: I7, the row of 12:06 and 12:08 was written ahead, and the edit came between."""
    bench = Bench()
    bench.call("schedule create", name="j", note="x", every="2m", clamp={"min": "5m"})
    bench.advance("5m30s")
    bench.call("schedule skip", schedule="j")
    bench.advance("1m")
    bench.call("schedule update", schedule="j", every="25m")
    assert bench.progress("j").cursor == at("12:06:30")
    assert alarms(bench) == []
    bench.advance("1h")
    assert alarms(bench) == []


def test_a_skip_in_a_streak_passes_what_the_cadence_replaces() -> None:
    """Dense seed 120000748: 12:03 was no occurrence when 12:04 was skipped, and is behind the cursor."""
    bench = Bench()
    terms = {"cadence": {"stretch": {}}, "overlap": "allow", "lease": {"length": "1d"}}
    bench.call("schedule create", name="j", call="x", every="1m", **terms)
    bench.target.script("j", succeed(after="1m50s"), fail(after="10s"), succeed())
    bench.advance("2m30s")
    bench.call("schedule skip", schedule="j")
    bench.advance("10m")

    planned = [run.planned_at for run in bench.runs("j")]
    assert planned == [at(f"12:{minute:02}:00") for minute in (1, 2, *range(4, 13))]
    assert alarms(bench) == []


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("made", ["7m40s", "8m"])
def test_a_late_engine_counts_the_clamp_from_what_a_hint_did_not_change(made: str, is_late: bool) -> None:
    """Dense seed 120001702: I4, a late engine kept 12:10 and moved 12:09 to 12:11 beyond it as well."""
    bench = Bench()
    terms = {"adaptive": True, "catch_up": "all", "overlap": "allow", "clamp": {"min": "5m"}}
    bench.call("schedule create", name="j", note="x", every="1m", **terms)
    bench.advance(made)
    bench.call("hint interval", schedule="j", interval="3m", ttl="1m")
    if is_late:
        bench.clock.advance("9m")
    bench.advance("10s" if is_late else "9m10s")

    ran = [run.planned_at for run in bench.runs("j") if run.state.value == "succeeded"]
    assert ran == [at("12:05:00"), at("12:10:00"), at("12:15:00")]
    assert alarms(bench) == []


def test_the_end_of_a_streak_keeps_a_hinted_instant_that_is_due() -> None:
    """Dense seed 120001694: I7, the trigger was planned from just before it, within the hint."""
    bench = Bench()
    terms = {"adaptive": True, "cadence": {"stretch": {}}, "overlap": "allow", "lease": {"length": "1d"}}
    bench.call("queue policy set", queue="q", max_running=2)
    bench.call("schedule create", name="j", queue="q", handoff={}, every="1m", **terms)
    bench.advance("2m")
    first, second = (lease(bench, "1h") for _ in range(2))
    bench.call("queue release", lease=first, failed=True)
    bench.call("hint interval", schedule="j", interval="10m", ttl="15m")
    bench.advance("3m")
    due = bench.progress("j").next_at
    assert due == at("12:14:00")
    bench.clock.advance("18m")
    bench.call("queue complete", lease=second)
    assert bench.progress("j").next_at == due
    bench.advance("1s")

    planned = [run.planned_at for run in bench.runs("j")]
    assert planned[2:5] == [at("12:04:00"), due, at("12:17:00")]
    assert alarms(bench) == []


def test_a_resume_records_what_was_due_before_a_hint_that_was_made_before_the_schedule_was_parked() -> None:
    """Dense seed 120001978: I3, a backlog from before the hint had no rows after the resume."""
    bench = Bench()
    terms = {"catch_up": "all", "catch_up_limit": 2, "overlap": "queue", "disable_after": 1}
    bench.call(
        "schedule create", name="j", call="x", every="1m", adaptive=True, lease={"length": "1d"}, **terms
    )
    bench.target.script("j", fail(after="25m"), succeed())
    bench.advance("1m")
    bench.clock.advance("9m")
    bench.tick()
    bench.call("hint interval", schedule="j", interval="20m", ttl="45m")
    bench.advance("20m")
    assert bench.progress("j").state.value == "parked"
    bench.call("schedule resume", schedule="j")
    bench.advance("1m")

    planned = [run.planned_at for run in bench.runs("j")]
    assert planned[:10] == [at(f"12:{minute:02}:00") for minute in range(1, 11)]
    assert alarms(bench) == []


@pytest.mark.parametrize("by_hand", [False, True])
def test_instants_that_a_success_opened_stay_open_after_another_streak(by_hand: bool) -> None:
    """Dense seed 120000946: a limit carried it over, and the end of the next streak dropped it."""
    bench = Bench()
    terms = {"cadence": {"stretch": {}}, "catch_up": "all", "catch_up_limit": 2, "overlap": "queue"}
    bench.call("schedule create", name="j", call="x", every="1m", lease={"length": "1d"}, **terms)
    ends = [fail(after="30s"), succeed(after="20m"), fail(after="1m"), succeed(after="1m")]
    bench.target.script("j", *ends, *ends[2:], succeed())
    bench.advance("2m")
    bench.clock.advance("10m")
    bench.advance("11m30s")
    assert bench.progress("j").replaced_after is not None
    if by_hand:
        bench.call("schedule run", schedule="j", force=True)
    bench.advance("1h")

    assert bench.progress("j").replaced_after is None
    assert alarms(bench) == []


@pytest.mark.parametrize("ends_by_itself", [False, True])
@pytest.mark.parametrize("fails_first", [False, True])
def test_instants_that_a_success_opened_stay_open_in_a_pause_in_which_runs_fail(
    ends_by_itself: bool, fails_first: bool
) -> None:
    """Dense seed 130000574: a limit carried them over, and a failure in the pause dropped them."""
    bench = Bench()
    terms = {"cadence": {"stretch": {}}, "catch_up": "all", "catch_up_limit": 2, "overlap": "queue"}
    bench.call("schedule create", name="j", call="x", every="1m", lease={"length": "1d"}, **terms)
    bench.target.script("j", fail(after="30s"), succeed(after="20m"), fail(after="1m"), succeed(after="2m"))
    bench.advance("2m")
    bench.clock.advance("10m")
    bench.advance("21m10s" if fails_first else "20m30s")
    assert bench.progress("j").reopened_after == at("12:04:00") - timedelta(microseconds=1)
    bench.call("schedule pause", schedule="j", **({"until": at("12:39:00")} if ends_by_itself else {}))
    bench.advance("40s")
    assert bench.progress("j").failures > 0
    if not ends_by_itself:
        bench.call("schedule resume", schedule="j")
    bench.advance("1h")

    planned = {run.planned_at for run in bench.runs("j")}
    assert set(minutes(4, 22)) <= planned
    assert bench.progress("j").replaced_after is None
    assert alarms(bench) == []


@pytest.mark.parametrize("edit", [{"every": "7m"}, {"every": "20s"}, {"catch_up_limit": 3}])
def test_an_edit_in_a_streak_takes_over_instants_from_before_it(edit: dict[str, object]) -> None:
    """Dense seed 120000946: the edit planned them by the cadence, which began long after them."""
    bench = Bench()
    terms = {"cadence": {"stretch": {}}, "catch_up": "all", "catch_up_limit": 2, "overlap": "queue"}
    bench.call("schedule create", name="j", call="x", every="1m", lease={"length": "1d"}, **terms)
    ends = [fail(after="30s"), succeed(after="20m"), fail(after="1m"), fail(after="2m")]
    bench.target.script("j", *ends, succeed(after="1m"))
    bench.advance("2m")
    bench.clock.advance("10m")
    bench.advance("21m10s")
    before = bench.progress("j")
    assert (before.failing_since, before.next_at) == (at("12:33:00"), at("12:04:00"))
    bench.call("schedule update", schedule="j", **edit)
    assert bench.progress("j").next_at == at("12:07:00" if edit.get("every") == "7m" else "12:04:00")
    bench.advance("1h")

    assert alarms(bench) == []


def busy(*, hint: str = "", **terms: object) -> Bench:
    """A schedule whose first run, at 12:01, lasts two hours; with `hint`, an interval hint made at noon."""
    bench = Bench()
    bench.call("schedule create", name="j", call="x", lease={"length": "1d"}, **terms)
    bench.target.script("j", succeed(after="2h"), succeed())
    if hint:
        bench.call("hint interval", schedule="j", interval=hint, ttl="1h")
    bench.advance(hint or "1m")
    return bench


def lease(bench: Bench, length: str) -> str:
    """Lease the next run of queue q; return the id of the lease."""
    (one,) = bench.call("queue lease", queue="q", holder="h", length=length)["leases"]
    return str(one["lease"])


@pytest.mark.parametrize("every", ["6m", "7m"])
def test_a_missing_row_just_before_an_edit_is_found(every: str) -> None:
    """Without the row of the edit, an instance may have been late, and the new plan taken over."""
    bench = Bench()
    bench.call("schedule create", name="j", note="x", every="10m")
    bench.advance("20m10s")
    bench.call("schedule update", schedule="j", every=every)
    bench.advance("30m")
    history = read_history(OperationContext(store=bench.store, ids=TimedIds(), notify=lambda _facts: None))
    lost = next(run for run in history.runs if run.planned_at == to_micros(at("12:20:00")))
    now = to_micros(bench.now)

    assert check(history, now=now).holds
    found = check(without_row(history, lost), now=now).violations
    assert "I3" in {violation.invariant for violation in found}


def test_two_rows_for_one_instant_are_found_where_runs_queue() -> None:
    bench = Bench()
    bench.call("schedule create", name="j", note="x", every="10m", overlap="queue")
    bench.advance("20m")
    history = read_history(OperationContext(store=bench.store, ids=TimedIds(), notify=lambda _facts: None))
    first = history.runs[0]
    twice = replace(history, runs=(*history.runs, replace(first, id=f"{first.id}x")))

    found = check(twice, now=to_micros(bench.now)).violations
    assert "I1" in {violation.invariant for violation in found}


def test_a_lost_row_of_an_instant_that_was_skipped_by_hand_is_found() -> None:
    bench = skipped_at_ten_past()
    history = read_history(OperationContext(store=bench.store, ids=TimedIds(), notify=lambda _facts: None))
    (skipped,) = history.runs

    found = check(without_row(history, skipped), now=to_micros(bench.now)).violations
    assert [violation.message for violation in found] == [
        "j: 2026-03-10T12:10:00Z was skipped by hand, but has no row"
    ]


def test_an_edit_in_a_pause_of_the_group_keeps_what_is_due_until_the_pause_ends() -> None:
    """The hinted instant is due, so the edit keeps it, and nothing but the end of the pause wakes it."""
    bench = Bench()
    bench.call("schedule create", name="j", note="x", every="1h", adaptive=True, group="g")
    bench.call("hint once", schedule="j", after="5m", ttl="1h")
    bench.call("group pause", group="g", reason="move")
    bench.advance("6m")
    bench.call("schedule update", schedule="j", description="kept")
    bench.call("group resume", group="g")
    bench.advance("1m")

    assert [run.planned_at for run in bench.runs("j")] == [at("12:05:00")]


def test_a_hint_in_a_pause_leaves_what_a_streak_decided_before_it_recorded() -> None:
    """Dense seed 640000124: I3, no row for the instants of the pause before the hint."""
    bench = Bench()
    terms = {"adaptive": True, "cadence": {"ladder": ["1m", "10m"]}}
    bench.call("schedule create", name="j", call="x", every="5m", **terms)
    bench.target.script("j", fail(), succeed())
    bench.advance("7m")
    bench.call("schedule pause", schedule="j", until=at("12:37:00"))
    bench.advance("18m30s")
    bench.call("hint interval", schedule="j", interval="20m", ttl="45m")
    bench.advance("14m")
    bench.call("schedule run", schedule="j")
    bench.advance("5m")
    bench.call("hint clear", schedule="j")
    bench.advance("10m")

    paused = [run.planned_at for run in bench.runs("j") if run.reason == "paused"]
    assert paused == [at(f"12:{minute:02}:00") for minute in range(10, 26, 5)]
    assert alarms(bench) == []


def test_an_instant_of_a_hint_that_an_edit_kept_may_end_with_the_schedule() -> None:
    """Dense seed 640000075: I7, the cursor stayed just before an instant that waited for a run."""
    bench = Bench()
    terms = {"adaptive": True, "overlap": "queue", "catch_up": "all", "catch_up_limit": 1}
    bench.call("schedule create", name="j", call="x", every="1m", lease={"length": "1d"}, **terms)
    bench.target.script("j", succeed(after="30m"))
    bench.advance("1m30s")
    bench.call("hint interval", schedule="j", interval="10s", ttl="45m")
    bench.advance("1m")
    bench.clock.advance("5m")
    bench.call("schedule update", schedule="j", cron="30 2 * * *")
    kept = bench.progress("j").next_at
    assert kept is not None
    bench.advance("1m")
    bench.call("schedule archive", schedule="j")

    assert bench.progress("j").cursor < kept < bench.now, "it was never decided"
    assert alarms(bench) == []


def test_a_hint_for_one_instant_does_not_hide_what_the_clamp_displaces_before_another_hint() -> None:
    """Dense seed 642000010: I3, no row for the instants that the minimum moved to 12:05:20."""
    bench = Bench()
    bench.call("schedule create", name="j", call="x", every="40s", adaptive=True, clamp={"min": "5m"})
    bench.advance("2m")
    bench.call("hint once", schedule="j", at=at("12:30:00"), ttl="1h")
    bench.advance("2m45s")
    bench.call("hint interval", schedule="j", interval="2m", ttl="2m")
    bench.clock.advance("10m")
    bench.advance("10m")

    displaced, first = bench.runs("j")[:2]
    assert (displaced.planned_at, displaced.reason) == (at("12:00:40"), "clamped")
    assert first.planned_at == at("12:05:00")
    assert alarms(bench) == []


def test_an_edit_keeps_an_instant_that_counts_from_the_first_end_of_a_run_that_was_reset() -> None:
    """Dense seed 643000046: I7, because only the last end of the run was known."""
    bench = Bench()
    terms = {"align": "now", "retry": {"max_attempts": 1, "exhausted": "park"}}
    bench.call("schedule create", name="j", call="x", every="1m", lease={"length": "1d"}, **terms)
    bench.target.script("j", fail(after="3m"), succeed(after="20m"))
    bench.advance("4m10s")
    bench.call("run reset", run=bench.runs("j")[0].id, reason="again")
    bench.advance("10s")
    bench.clock.advance("2m")
    bench.call("schedule update", schedule="j", cron="30 2 * * *")
    bench.advance("1m")

    assert bench.progress("j").cursor == at("12:05:00") - timedelta(microseconds=1)
    assert alarms(bench) == []


def test_an_instant_that_a_cadence_kept_counts_failures_of_runs_that_were_reset_since() -> None:
    """Dense seed 130000067: I7, because the second of two failures was no longer known."""
    bench = Bench()
    terms = {
        "cadence": {"ladder": {"steps": ["1m", "10m"]}},
        "retry": {"max_attempts": 1, "exhausted": "park"},
    }
    bench.call("schedule create", name="j", call="x", every="3m", **terms)
    bench.target.script("j", fail(after="5s"), fail(after="90s"), succeed())
    bench.advance("8m")
    assert bench.progress("j").next_at == at("12:17:30")
    bench.call("schedule run", schedule="j")
    bench.advance("10s")
    bench.call("schedule update", schedule="j", every="2m")
    bench.call("run reset", run=bench.runs("j")[1].id, reason="again")
    bench.advance("1m")

    assert alarms(bench) == []


def test_verify_accepts_a_pause_by_hint_while_a_resumed_schedule_catches_up() -> None:
    bench = Bench()
    terms = {"every": "1m", "catch_up": "all", "catch_up_limit": 1, "adaptive": True}
    bench.call("schedule create", name="j", call="x", **terms)
    bench.target.script("j", succeed(after="1m"))
    bench.clock.advance("5m30s")
    bench.call("schedule pause", schedule="j")
    bench.advance("1m")
    bench.call("schedule resume", schedule="j")
    bench.call("hint pause", schedule="j", until=at("12:07:30"))
    assert bench.progress("j").paused_at is not None
    assert alarms(bench) == []
    bench.advance("20m")

    assert alarms(bench) == []


def test_verify_accepts_what_ran_between_two_pauses_of_which_the_first_was_still_stored() -> None:
    bench = Bench()
    terms = {"every": "1m", "catch_up": "all", "catch_up_limit": 1}
    bench.call("schedule create", name="j", call="x", **terms)
    bench.target.script("j", succeed(after="1m"))
    bench.clock.advance("3m30s")
    bench.call("schedule pause", schedule="j")
    bench.advance("2m")
    bench.call("schedule resume", schedule="j")
    bench.advance("40s")
    bench.call("schedule pause", schedule="j", until=at("12:08:30"))
    bench.advance("10m")

    paused = [run.planned_at for run in bench.runs("j") if run.reason == "paused"]
    assert paused == [*minutes(4, 5), *minutes(7, 8)]
    assert alarms(bench) == []


def test_a_resumed_schedule_may_still_have_to_catch_up_on_what_came_due_before_its_pause() -> None:
    """Dense seeds 110000042 and 110000092: I23, because the pause stays stored until its rows are written."""
    bench = Bench()
    terms = {"overlap": "queue", "catch_up": "all", "catch_up_limit": 1, "lease": {"length": "1d"}}
    bench.call("schedule create", name="j", call="x", every="1m", **terms)
    bench.target.script("j", succeed(after="2m"))
    bench.clock.advance("10m")
    bench.advance("10s")
    bench.call("schedule pause", schedule="j")
    bench.advance("3m")
    bench.call("schedule resume", schedule="j")

    progress = bench.progress("j")
    assert (progress.state, progress.next_at) == ("active", at("12:04:00"))
    assert alarms(bench) == []
    bench.target.script("j", succeed())
    bench.advance("30m")
    assert bench.progress("j").paused_at is None
    assert [run.planned_at for run in bench.runs("j") if run.reason == "paused"] == [
        at("12:11:00"),
        at("12:12:00"),
        at("12:13:00"),
    ]
    assert alarms(bench) == []


def test_an_edit_may_leave_nothing_of_what_a_resumed_schedule_had_to_catch_up_on() -> None:
    """Workflow seed 110200036: I23. The pause stays stored until the next occurrence."""
    bench = Bench()
    terms = {"overlap": "queue", "catch_up": "all", "catch_up_limit": 1, "lease": {"length": "1d"}}
    bench.call("schedule create", name="j", call="x", every="1m", **terms)
    bench.target.script("j", succeed(after="2m"))
    bench.clock.advance("10m")
    bench.advance("10s")
    bench.call("schedule pause", schedule="j")
    bench.advance("3m")
    bench.call("schedule resume", schedule="j")
    bench.advance("30m")
    bench.call("schedule update", schedule="j", cron="30 2 * * *")

    progress = bench.progress("j")
    assert (progress.state, progress.paused_until) == ("active", at("12:13:10"))
    assert progress.next_at == at("02:30:00") + timedelta(days=1)
    assert alarms(bench) == []


def test_an_active_schedule_whose_pause_has_not_ended_is_found() -> None:
    bench = Bench()
    bench.call("schedule create", name="j", note="x", every="10m")
    bench.advance("15m")
    history = read_history(OperationContext(store=bench.store, ids=TimedIds(), notify=lambda _facts: None))
    (schedule,) = history.schedules
    for until in (None, to_micros(at("12:30:00")), to_micros(at("12:14:00"))):
        paused = replace(schedule, paused_at=to_micros(at("12:13:00")), paused_until=until)
        found = check(replace(history, schedules=(paused,)), now=to_micros(bench.now)).violations
        assert [one.message for one in found] == [
            "j is active, but its pause since 2026-03-10T12:13:00Z has not ended"
        ]


def test_a_run_may_be_replaced_by_one_with_a_smaller_id() -> None:
    """Dense seeds 110000106 and 110000182: I9. The clock stood still, and two processes made the ids."""
    bench = Bench()
    bench.call("schedule create", name="j", call="x", manual=True, overlap="replace")
    bench.ids = TimedIds(lambda size: b"\x70" * size)
    bench.call("schedule run", schedule="j")
    bench.ids = TimedIds(lambda size: b"\x10" * size)
    bench.call("schedule run", schedule="j")
    bench.advance("1m")

    assert [run.state for run in bench.runs("j")] == ["succeeded", "cancelled"]
    assert alarms(bench) == []
    history = read_history(OperationContext(store=bench.store, ids=TimedIds(), notify=lambda _facts: None))
    alone = replace(history, runs=tuple(run for run in history.runs if run.state == "cancelled"))
    found = check(alone, now=to_micros(bench.now), only=["I9"]).violations
    assert [one.message.partition(" is ")[2] for one in found] == [
        "cancelled because it was replaced, but nothing replaced it"
    ]


def test_a_run_may_be_replaced_by_one_that_is_skipped_later_for_its_needs() -> None:
    """Dense seed 110000209: I9, because a run skipped for its needs did not count as a successor."""
    bench = Bench()
    needs = [{"schedule": "source", "within": "4m", "on": "end", "wait": "0s"}]
    bench.call("schedule create", name="source", note="x", manual=True)
    bench.call("schedule create", name="j", call="x", every="5m", overlap="replace", needs=needs)
    bench.target.script("j", hang())
    bench.advance("4m")
    bench.call("schedule run", schedule="source")
    bench.advance("8m")

    replaced, successor = bench.runs("j")
    assert (replaced.state, replaced.reason) == ("cancelled", "replaced")
    assert (successor.state, successor.reason.partition(":")[0]) == ("skipped", "needs")
    assert alarms(bench) == []


def test_a_run_may_be_replaced_while_the_process_that_ends_it_is_suspended() -> None:
    """Dense seed 110000560: I9. The end was dated before the successor was admitted, and written after."""
    bench = Bench()
    bench.call("schedule create", name="j", call="x", every="5m", overlap="replace")
    bench.target.script("j", hang())
    bench.advance("11m")
    replaced, successor = bench.runs("j")
    assert (replaced.state, replaced.reason) == ("cancelled", "replaced")

    history = read_history(OperationContext(store=bench.store, ids=TimedIds(), notify=lambda _facts: None))
    for seconds, count in ((1, 0), (3, 1)):
        at_end = to_micros(successor.created_at - timedelta(seconds=seconds))
        runs = tuple(
            replace(run, finished_at=at_end) if run.id == replaced.id else run for run in history.runs
        )
        found = check(replace(history, runs=runs), now=to_micros(bench.now), only=["I9"]).violations
        assert len(found) == count


@pytest.mark.parametrize(("hinted", "paused"), [("12:15:00", ["12:09:00"]), ("12:08:00", [])])
def test_an_instant_in_a_pause_after_the_last_run_does_not_run_when_a_hint_expires(
    hinted: str, paused: list[str]
) -> None:
    """Limits seed 110200023: I23. The hint decided what follows the pause, and then the trigger ran 12:09."""
    bench = Bench()
    bench.call("schedule create", name="j", note="x", trigger={"kind": "after", "delay": "3m"}, adaptive=True)
    bench.advance("7m30s")
    bench.call("schedule pause", schedule="j", until=at("12:40:00"))
    bench.advance(at(hinted) - bench.now)
    bench.call("hint interval", schedule="j", interval="1h", ttl=at("12:45:00") - bench.now)
    bench.advance("50m")

    rows = [(run.planned_at, str(run.reason)) for run in bench.runs("j")]
    assert rows[:2] == [(at("12:03:00"), ""), (at("12:06:00"), "")]
    assert [when for when, why in rows if why == "paused"] == [at(one) for one in paused]
    assert rows[2 + len(paused)] == (at("12:48:00"), "")
    assert alarms(bench) == []
