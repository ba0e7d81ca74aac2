"""Promises about which occurrences have a row, and when a schedule is next."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from typing import Any, cast

import pytest
from msgspec.structs import replace

from tests.promises.schedule_outcomes import alarms, at, minutes, outcomes, skipped_at_ten_past
from timewright.core.facts import RunAdmitted, RunSkipped
from timewright.core.run.run import RunState
from timewright.core.run.schedule_end import settle_schedule
from timewright.stores.sqlite.store import SqliteStore
from timewright.testing.bench import Bench
from timewright.testing.targets import fail, succeed


def all_of(instants: list[datetime], outcome: str) -> list[tuple[datetime, str]]:
    return [(instant, outcome) for instant in instants]


def previewed(bench: Bench, name: str = "j") -> list[datetime]:
    """The instants that the preview says will run."""
    shown = bench.call("schedule next", schedule=name, count=10)["next"]
    return [datetime.fromisoformat(row["planned_at"]) for row in shown if row["verdict"] == "fire"]


class TestAClampThatMovesNothing:
    """Ruling 1: a clamp that moves nothing changes nothing."""

    def test_a_clamp_that_moves_nothing_leaves_out_no_instant_of_an_outage(self) -> None:
        bench = made_before_an_outage(catch_up="all")

        assert outcomes(bench) == all_of(minutes(1, 5), "succeeded")

    def test_under_a_clamp_that_moves_nothing_the_newest_instant_of_an_outage_runs(self) -> None:
        bench = made_before_an_outage(catch_up="last")

        assert outcomes(bench) == [*all_of(minutes(1, 4), "missed"), *all_of(minutes(5, 5), "succeeded")]

    def test_a_clamp_that_moves_nothing_leaves_out_no_instant_when_the_engine_is_a_little_late(self) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", note="x", every="1s", catch_up="all", clamp={"max": "1d"})

        for _ in range(8):
            bench.clock.advance("1.5s")
            bench.tick()

        assert [run.planned_at for run in bench.runs("j")] == [at(f"12:00:{n:02}") for n in range(1, 13)]


def made_before_an_outage(*, catch_up: str) -> Bench:
    """A schedule for every minute under a clamp of a day, five and a half minutes of outage later."""
    bench = Bench()
    bench.call(
        "schedule create", name="j", note="x", cron="* * * * *", catch_up=catch_up, clamp={"max": "1d"}
    )
    bench.clock.advance("5m30s")
    bench.advance("1s")
    return bench


class TestAHintEnds:
    """Ruling 22: at its expiry the schedule is decided again: the earlier of what stood and the trigger."""

    def test_a_schedule_follows_its_trigger_again_when_an_interval_hint_has_expired(self) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", note="x", every="5m", adaptive=True)
        bench.call("hint interval", schedule="j", interval="1000d", ttl="6m")

        bench.advance("1h")

        assert outcomes(bench) == all_of(minutes(5, 60, step=5), "succeeded")

    def test_an_interval_from_now_counts_from_the_expiry_also_if_the_engine_is_late(self) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", call="x", preset="adaptive", every="40s")
        bench.call("hint interval", schedule="j", interval="3h", ttl="2m")
        bench.target.script("j", succeed())
        bench.advance("1m")
        bench.clock.advance("65s")
        bench.advance("1m")

        assert [run.planned_at for run in bench.runs("j")] == [at("12:00:40"), at("12:02:40")]
        assert alarms(bench) == []

    def test_no_instant_that_an_interval_hint_asked_for_stands_after_the_hint_expired(self) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", note="x", every="5m", adaptive=True)
        bench.call("hint interval", schedule="j", interval="1000d", ttl="24h")
        bench.advance("1d")

        bench.advance("5m")

        standing = bench.call("hint list", schedule="j")
        assert standing["hints"]["interval"] is None
        assert standing["next_at"] == standing["without_hints"]


class TestTheEndOfAStreakOfFailures:
    """Ruling 23: what came due while the run that ended the streak was under way has a row each."""

    @pytest.mark.parametrize("under_way", ["5m30s", "5m"], ids=["between instants", "exactly on an instant"])
    def test_occurrences_during_the_run_that_ends_a_streak_of_failures_are_caught_up(
        self, under_way: str
    ) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", call="x", preset="desktop", every="60s", catch_up="all")
        bench.target.script("j", fail(), succeed(after="30s"), succeed())
        bench.advance("2m")

        bench.clock.advance(under_way)
        bench.advance("1s")

        assert outcomes(bench) == [(at("12:01:00"), "failed"), *all_of(minutes(2, 7), "succeeded")]


class TestFailuresDuringACatchUp:
    """Ruling 1: a cadence decides from the first failure on; what was due before it has a row each."""

    @pytest.mark.parametrize("clamp", [{}, {"max": "1d"}], ids=["plain", "clamp"])
    def test_several_failures_during_a_catch_up_leave_no_missed_instant_out(
        self, clamp: dict[str, str]
    ) -> None:
        bench = failing_catch_up(failures=5, clamp=clamp)
        bench.advance("1m")

        assert outcomes(bench)[:10] == [
            *all_of(minutes(1, 5), "failed"),
            *all_of(minutes(6, 10), "succeeded"),
        ]
        assert alarms(bench) == []

    def test_a_pause_during_a_catch_up_is_kept_although_several_runs_fail(self) -> None:
        bench = failing_catch_up(failures=2)
        bench.call("schedule pause", schedule="j")
        bench.clock.advance("5m")
        bench.call("schedule resume", schedule="j")
        bench.advance("1m")

        caught_up = [*all_of(minutes(1, 2), "failed"), *all_of(minutes(3, 10), "succeeded")]
        assert outcomes(bench)[:15] == [*caught_up, *all_of(minutes(11, 15), "paused")]
        assert alarms(bench) == []


def failing_catch_up(*, failures: int, **fields: Any) -> Bench:
    """A schedule for every minute with a cadence, ten minutes of outage later; its first runs will fail."""
    bench = Bench()
    cadence = {"cadence": {"kind": "stretch"}, "catch_up": "all", "catch_up_limit": 2}
    bench.call("schedule create", name="j", call="x", every="1m", **cadence, **fields)
    bench.target.script("j", *[fail(after="1s")] * failures, succeed())
    bench.clock.advance("10m30s")
    return bench


class TestCatchingUpUnderReplace:
    """Ruling 24: missed occurrences run one after another, and their number never depends on the limit."""

    @pytest.mark.parametrize("catch_up_limit", [100, 3])
    def test_under_replace_every_missed_occurrence_is_caught_up(self, catch_up_limit: int) -> None:
        bench = Bench()
        policies: dict[str, Any] = {"catch_up": "all", "overlap": "replace", "catch_up_limit": catch_up_limit}
        bench.call("schedule create", name="j", note="x", every="60s", **policies)

        bench.clock.advance("10m30s")
        bench.advance("10s")

        assert outcomes(bench) == all_of(minutes(1, 10), "succeeded")


class TestAlignmentFromNow:
    """Ruling 25, on schedules whose interval counts from the start of the last run."""

    def test_a_run_by_hand_does_not_move_the_next_time(self) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", call="x", preset="adaptive", every="1h")
        bench.advance("5m")

        bench.call("schedule run", schedule="j")
        bench.advance("1s")

        assert bench.progress("j").next_at == at("13:00:00")

    def test_a_run_that_takes_exactly_its_interval_is_followed_by_the_next_at_once(self) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", call="x", preset="adaptive", every="15s")
        bench.target.script("j", succeed(after="15s"))

        bench.advance("1m")

        started = [at("12:00:15"), at("12:00:30"), at("12:00:45"), at("12:01:00")]
        assert [run.planned_at for run in bench.runs("j")] == started


class TestTheCheckerRaisesNoFalseAlarm:
    """What is right is called right, also where several things share one instant."""

    @pytest.mark.parametrize("overlap", ["skip", "queue"])
    def test_verify_finds_nothing_wrong_with_a_long_outage_that_is_spread(self, overlap: str) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", note="x", every="60s", catch_up="spread", overlap=overlap)

        bench.clock.advance("2h")
        bench.advance("5m")

        assert [run.planned_at for run in bench.runs("j")] == minutes(1, 125)
        assert alarms(bench) == []

    def test_verify_finds_nothing_wrong_with_a_pause_that_begins_as_an_occurrence_has_run(self) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", note="x", every="60s")
        bench.advance("5m")

        bench.call("schedule pause", schedule="j")
        bench.advance("3m30s")
        bench.call("schedule resume", schedule="j")
        bench.advance("1s")

        assert outcomes(bench) == [*all_of(minutes(1, 5), "succeeded"), *all_of(minutes(6, 8), "paused")]
        assert alarms(bench) == []

    def test_verify_finds_nothing_wrong_with_a_run_by_hand_that_ends_a_streak_after_a_hint(self) -> None:
        bench = Bench()
        bench.call(
            "schedule create", name="j", call="x", every="1h", adaptive=True, cadence={"kind": "stretch"}
        )
        bench.target.script("j", succeed(), fail(), succeed())
        bench.call("hint interval", schedule="j", interval="2m", ttl="3m")
        bench.advance("90m")
        bench.call("schedule run", schedule="j")
        bench.advance("2m")

        assert bench.progress("j").next_at == at("14:00:00")  # decided by the cadence, not moved by the run
        assert alarms(bench) == []

    def test_verify_finds_nothing_wrong_with_a_resume_that_forgives_a_step_of_the_cadence(self) -> None:
        bench = Bench()
        ladder = {"cadence": {"ladder": {"steps": ["90s"]}}}
        bench.call("schedule create", name="j", call="x", every="1m", **ladder)
        bench.target.script("j", fail(), succeed())
        bench.advance("1m")
        bench.clock.advance("2m")  # past 12:02:30, which the cadence decided
        bench.call("schedule pause", schedule="j")
        bench.call("schedule resume", schedule="j")
        bench.advance("5m")

        assert alarms(bench) == []

    def test_verify_finds_nothing_wrong_with_a_hint_for_a_schedule_that_starts_later(self) -> None:
        bench = Bench()
        later = {"every": "1m", "adaptive": True, "start_at": "2026-03-12T12:00:00Z"}
        bench.call("schedule create", name="j", note="x", **later)
        bench.call("hint interval", schedule="j", interval="3h", ttl="45m")
        bench.advance("1m")

        assert alarms(bench) == []

    def test_verify_finds_nothing_wrong_with_a_backlog_that_is_decided_after_an_edit(self) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", note="x", cron="*/2 * * * *", adaptive=True, catch_up="all")
        bench.clock.advance("1h")
        every = {"every": "3m", "anchor": "2026-03-10T12:00:20Z"}
        bench.call("schedule update", schedule="j", trigger=every)
        bench.advance("10m")

        assert bench.runs("j")[0].planned_at == at("12:03:20"), "12:00:20 was not due before the edit"
        assert alarms(bench) == []

    def test_verify_finds_nothing_wrong_with_a_late_occurrence_that_an_early_one_replaces(self) -> None:
        bench = Bench()
        jitter = {"jitter": "20s", "jitter_side": "both", "clamp": {"min": "2m"}}
        late = {"grace": "10m", "catch_up": "spread", "catch_up_window": "180s", "overlap": "replace"}
        bench.call("schedule create", name="j", note="x", cron="* * * * *", **jitter, **late)
        bench.clock.advance("5m51s")
        bench.tick()

        assert outcomes(bench)[3] == (at("12:04:00"), "superseded")  # by 12:06, which came 9 s early
        assert alarms(bench) == []


class TestWhatWasSkippedByHandStaysSkipped:
    """An occurrence that a person left out is decided, whatever is edited afterwards."""

    @pytest.mark.parametrize("edit", [{"cron": "*/10 * * * *"}, {"every": "5m"}], ids=["same", "others too"])
    def test_the_preview_does_not_show_an_instant_that_was_skipped_by_hand(
        self, edit: dict[str, str]
    ) -> None:
        bench = skipped_at_ten_past()

        bench.call("schedule update", schedule="j", **edit)

        assert at("12:20:00") in previewed(bench)
        assert at("12:10:00") not in previewed(bench)

    def test_an_edit_after_a_skip_opens_the_instants_of_the_new_plan_before_the_one_that_was_skipped(
        self,
    ) -> None:
        bench = skipped_at_ten_past()

        bench.call("schedule update", schedule="j", every="5m")

        assert previewed(bench)[0] == at("12:05:00")

    def test_a_skip_after_an_edit_leaves_out_the_next_instant_that_is_still_open(self) -> None:
        bench = skipped_at_ten_past()
        bench.call("schedule update", schedule="j", cron="*/10 * * * *")

        bench.call("schedule skip", schedule="j")

        assert outcomes(bench) == [(at("12:10:00"), "by_hand"), (at("12:20:00"), "by_hand")]

    def test_every_run_that_is_named_has_a_row(self) -> None:
        bench = skipped_at_ten_past()
        bench.call("schedule update", schedule="j", cron="*/10 * * * *")
        bench.call("schedule skip", schedule="j")
        bench.advance("1h")

        told = [fact.run_id for fact in bench.facts if isinstance(fact, RunAdmitted | RunSkipped)]
        named = told + [run.previous for run in bench.runs("j") if run.previous]
        assert sorted(set(named) - {run.id for run in bench.runs("j")}) == []
        assert alarms(bench) == []


class TestWhatTheModelFound:
    """Differences between the product and the independent model of a schedule's life (tests/oracle)."""

    def test_a_success_after_a_failure_in_one_batch_clears_the_streak(self) -> None:
        bench = Bench()
        bench.call(
            "schedule create", name="j", call="x", every="5m", catch_up="all", overlap="allow", retry=1
        )
        bench.target.script("j", succeed(), fail(), succeed())

        bench.clock.advance("1h")
        bench.tick()

        assert bench.progress("j").failures == 0

    @pytest.mark.parametrize("preset", ["adaptive", "desktop"])
    def test_a_hint_runs_before_an_occurrence_that_was_skipped_by_hand(self, preset: str) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", call="x", preset=preset, every="1h", adaptive=True)
        bench.call("schedule skip", schedule="j")

        bench.call("hint once", schedule="j", after="5m")
        bench.advance("6m")
        bench.call("hint interval", schedule="j", interval="1m", ttl="90s")
        bench.advance("1m30s")

        at_once = [(at("12:05:00"), "succeeded"), (at("12:07:00"), "succeeded")]
        assert outcomes(bench) == [*at_once, (at("13:00:00"), "by_hand")]
        assert alarms(bench) == []

    @pytest.mark.parametrize(
        ("operation", "fields"), [("hint clear", {}), ("schedule update", {"description": "other words"})]
    )
    def test_asking_often_does_not_put_off_an_interval_that_counts_from_the_last_start(
        self, operation: str, fields: dict[str, str]
    ) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", call="x", preset="adaptive", every="10m")

        for minute in range(1, 31):
            bench.advance("1m")
            fields = {key: f"{value} {minute}" for key, value in fields.items()}
            bench.call(operation, schedule="j", **fields)

        assert [run.planned_at for run in bench.runs("j")] == minutes(10, 30, step=10)

    def test_an_expired_hint_leaves_an_interval_to_count_from_the_last_start_and_not_from_a_run_by_hand(
        self,
    ) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", call="x", preset="adaptive", every="10m")
        bench.call("hint interval", schedule="j", interval="20m", ttl="15m")
        bench.advance("12m")
        bench.call("schedule run", schedule="j")

        bench.advance("4m")

        assert bench.progress("j").next_at == at("12:20:00")

    def test_replaced_runs_do_not_shift_an_interval_by_a_microsecond(self) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", call="x", preset="adaptive", every="1m", overlap="replace")
        bench.target.script("j", succeed(after="10m"))

        bench.advance("5m")

        assert [run.planned_at for run in bench.runs("j")] == minutes(1, 5)

    def test_an_occurrence_in_a_pause_during_a_streak_of_failures_has_a_row(self) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", call="x", preset="desktop", every="90s")
        bench.target.script("j", fail())
        bench.advance("100s")

        bench.call("schedule pause", schedule="j", until=at("12:04:30"))
        bench.advance("4m")

        rows = [(at("12:01:30"), "failed"), (at("12:03:00"), "paused"), (at("12:04:30"), "failed")]
        assert outcomes(bench) == rows
        assert alarms(bench) == []

    def test_an_instant_in_a_pause_before_a_run_by_hand_failed_has_a_row(self) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", call="x", preset="desktop", every="90s")
        bench.target.script("j", fail())
        bench.call("schedule pause", schedule="j", until=at("12:08:20"))
        bench.advance("95s")

        bench.call("schedule run", schedule="j")
        bench.advance("10m")

        assert (at("12:01:30"), "paused") in outcomes(bench)
        assert alarms(bench) == []

    def test_a_failure_leaves_no_instant_out_that_was_carried_over_under_a_clamp(self) -> None:
        bench = Bench()
        policies: dict[str, Any] = {"catch_up": "all", "catch_up_limit": 2, "clamp": {"max": "1h"}}
        policies["cadence"] = {"stretch": {}}
        bench.call("schedule create", name="j", call="x", every="60s", **policies)
        bench.target.script("j", fail(after="5s"), succeed(after="20s"))

        bench.clock.advance("10m30s")
        bench.advance("20m")

        assert [planned for planned, _ in outcomes(bench)][:10] == minutes(1, 10)
        assert alarms(bench) == []

    def test_a_run_from_before_an_edit_ends_the_streak_under_the_new_definition(self) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", call="x", every="60s", overlap="queue")
        bench.target.script("j", fail(after="70s"), succeed(after="70s"))
        bench.advance("2m30s")

        bench.call("schedule update", schedule="j", cadence={"stretch": {}})
        bench.advance("10m")

        assert [planned for planned, _ in outcomes(bench)][:8] == minutes(1, 8)
        assert alarms(bench) == []

    def test_a_skip_records_what_the_clamp_moved_also_beside_a_later_hint(self) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", call="x", every="60s", adaptive=True, clamp={"min": "5m"})
        bench.call("hint once", schedule="j", at=at("12:09:30"), ttl="30m")
        bench.advance("7m10s")

        bench.call("schedule skip", schedule="j")
        bench.advance("20m")

        assert alarms(bench) == []

    def test_the_end_of_a_run_keeps_what_the_clamp_moved_although_a_later_instant_is_requested(self) -> None:
        """Dense seed 85000346: 12:05:30 had no row, because the next time was decided again without it."""
        bench = Bench()
        trigger = {"every": "5m", "anchor": at("12:00:30").isoformat()}
        policies: dict[str, Any] = {"adaptive": True, "clamp": {"min": "5m"}}
        bench.call("schedule create", name="j", call="x", trigger=trigger, **policies)
        bench.target.script("j", succeed(after="1m"))
        bench.call("hint once", schedule="j", at=at("12:40:00"), ttl="60m")
        bench.advance("20m")

        displaced = [planned for planned, outcome in outcomes(bench) if outcome == "clamped"]
        assert displaced[:3] == [at("12:00:30"), at("12:05:30"), at("12:10:30")]
        assert alarms(bench) == []

    def test_a_failure_leaves_no_instant_out_that_came_due_since_a_hint_expired(self) -> None:
        bench = Bench()
        policies: dict[str, Any] = {"overlap": "queue", "adaptive": True}
        policies["cadence"] = {"ladder": {"steps": ["60s", "600s"]}}
        bench.call("schedule create", name="j", call="x", every="60s", **policies)
        bench.advance("90s")
        bench.call("hint interval", schedule="j", interval="3h", ttl="5m")
        bench.advance("40s")
        run = replace(bench.runs("j")[-1], state=RunState.FAILED)
        record = bench.store.read(lambda tx: tx.get_schedules([run.schedule_id]))[run.schedule_id]

        # A lease that was lost during an outage is settled before the next admission.
        progress, _ = settle_schedule(record.schedule, record.progress, run, now=at("12:11:30"))

        assert progress.next_at == at("12:07:00")

    def test_an_occurrence_that_was_skipped_by_hand_replaces_nothing(self) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", call="x", every="7m", overlap="replace")
        bench.target.script("j", succeed(after="90s"))
        bench.call("schedule skip", schedule="j")
        bench.call("schedule update", schedule="j", every="1m")

        bench.advance("7m40s")

        rows = [
            *all_of(minutes(1, 5), "cancelled"),
            (at("12:06:00"), "succeeded"),
            (at("12:07:00"), "by_hand"),
        ]
        assert outcomes(bench) == rows

    def test_a_cleared_hint_does_not_prolong_a_pause_by_hand(self) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", call="x", every="1m", adaptive=True)
        bench.call("schedule pause", schedule="j", until=at("12:05:30"))

        bench.call("hint pause", schedule="j", until=at("12:08:30"))
        assert bench.progress("j").next_at == at("12:08:30")
        bench.call("hint clear", schedule="j")
        bench.advance("7m")

        assert outcomes(bench) == [*all_of(minutes(1, 5), "paused"), *all_of(minutes(6, 7), "succeeded")]

    def test_clearing_hints_leaves_out_nothing_of_a_catch_up_after_a_pause(self) -> None:
        """Dense seed 85000163: the pause was over, but not all that came due in it and since was decided."""
        bench = Bench()
        policies: dict[str, Any] = {"adaptive": True, "catch_up": "all", "catch_up_limit": 1}
        bench.call("schedule create", name="j", call="x", every="1m", **policies)
        bench.target.script("j", succeed(after="10s"))
        bench.call("schedule pause", schedule="j", until=at("12:05:30"))
        bench.clock.advance("12m30s")
        bench.advance("1s")
        assert bench.progress("j").state == "paused"

        bench.call("hint clear", schedule="j")
        bench.advance("5m")

        assert [planned for planned, _ in outcomes(bench)][:12] == minutes(1, 12)
        assert alarms(bench) == []

    def test_clearing_a_hinted_pause_ends_a_pause_by_hand_that_is_over(self) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", call="x", every="1m", adaptive=True)
        bench.call("schedule pause", schedule="j", until=at("12:03:30"))
        bench.call("hint pause", schedule="j", until=at("12:20:00"))
        bench.advance("5m30s")
        bench.call("hint clear", schedule="j")
        bench.advance("2m")

        assert outcomes(bench) == [*all_of(minutes(1, 5), "paused"), *all_of(minutes(6, 7), "succeeded")]
        assert alarms(bench) == []


class TestAHintDuringAPause:
    """Rulings 1 and 2: instants of the pause before the hint are the trigger's, and have a row each."""

    @pytest.mark.parametrize(
        ("pause", "fields"),
        [
            ("schedule pause", {}),
            ("schedule pause", {"until": at("12:35:00")}),
            ("hint pause", {"until": at("12:35:00")}),
        ],
        ids=["until it is resumed", "until an instant", "hinted"],
    )
    @pytest.mark.parametrize("ttl", ["2m", "1h"], ids=["expires during the pause", "outlasts it"])
    def test_an_interval_hint_leaves_no_instant_of_the_pause_before_it_without_a_row(
        self, pause: str, fields: dict[str, Any], ttl: str
    ) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", note="x", every="10m", adaptive=True)
        bench.advance("5m")
        bench.call(pause, schedule="j", **fields)
        bench.advance("20m")

        bench.call("hint interval", schedule="j", interval="2m", ttl=ttl)
        bench.advance("10m")
        if not fields:
            bench.call("schedule resume", schedule="j")
        bench.advance("2m")

        before = all_of([at("12:10:00"), at("12:20:00")], "paused")
        then = (at("12:30:00"), "paused") if ttl == "2m" else (at("12:37:00"), "succeeded")
        assert outcomes(bench) == [*before, then]
        assert alarms(bench) == []

    def test_the_pause_goes_on_after_the_hint_as_it_was(self) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", note="x", every="10m", adaptive=True)
        bench.call("schedule pause", schedule="j", until=at("12:35:00"), reason="maintenance")
        bench.advance("20m")

        bench.call("hint interval", schedule="j", interval="2m", ttl="5m")

        shown = bench.progress("j")
        assert (shown.state, shown.reason, shown.paused_at) == ("paused", "maintenance", at("12:00:00"))
        assert (shown.next_at, shown.source) == (at("12:35:00"), "paused")


class TestJitterToBothSides:
    """§3.5: jitter moves the start of an occurrence, never the distance between planned instants."""

    def test_an_interval_hint_shorter_than_the_jitter_keeps_its_interval(self) -> None:
        bench = Bench()
        jitter = {"jitter": "1m", "jitter_side": "both"}
        bench.call(
            "schedule create", name="j", note="x", every="1h", adaptive=True, overlap="allow", **jitter
        )
        bench.call("hint interval", schedule="j", interval="10s", ttl="5m")

        bench.advance("4m")

        planned = [run.planned_at for run in bench.runs("j")]
        assert len(planned) == 30
        assert {(b - a).total_seconds() for a, b in pairwise(planned)} == {10}
        assert alarms(bench) == []

    def test_an_interval_from_now_that_is_shorter_than_the_jitter_is_kept(self) -> None:
        bench = Bench()
        jitter = {"jitter": "1m", "jitter_side": "both"}
        bench.call("schedule create", name="j", note="x", every="10s", align="now", overlap="allow", **jitter)

        bench.advance("4m")

        planned = [run.planned_at for run in bench.runs("j")]
        assert {(b - a).total_seconds() for a, b in pairwise(planned)} == {10}

    @pytest.mark.parametrize("left_out", [False, True], ids=["whole", "one row removed"])
    def test_an_edit_follows_what_was_admitted_before_its_instant(self, left_out: bool) -> None:
        """Dense seed 71000053: the new trigger's 12:10 lies before an instant that was admitted at 12:08."""
        bench = Bench()
        jitter = {"jitter": "3m", "jitter_side": "both", "overlap": "allow"}
        bench.call("schedule create", name="j", note="x", every="45s", align="now", **jitter)
        bench.advance("8m")
        bench.call("schedule update", schedule="j", cron="*/10 * * * *")
        bench.advance("42m")

        after = [run.planned_at for run in bench.runs("j") if run.planned_at > at("12:11:00")]
        assert after == [at("12:20:00"), at("12:30:00"), at("12:40:00"), at("12:50:00")]
        if left_out:
            removed = next(run.id for run in bench.runs("j") if run.planned_at == at("12:20:00"))
            cast("SqliteStore", bench.store)._writer.connection.execute(
                "DELETE FROM runs WHERE id = ?", (removed,)
            )
        assert any("12:20" in alarm for alarm in alarms(bench)) is left_out
        assert left_out or alarms(bench) == []


class TestAManualScheduleThatGetsATrigger:
    """§3.2: a trigger plans from the edit on, also if the edit is made during a pause."""

    @pytest.mark.parametrize("pause", ["schedule pause", "hint pause"])
    def test_nothing_before_the_edit_is_an_occurrence(self, pause: str) -> None:
        """Dense seed 81000034: every instant since the creation was caught up."""
        bench = Bench()
        bench.call("schedule create", name="j", note="x", manual=True, adaptive=True, catch_up="all")
        bench.advance("10m")
        bench.call(pause, schedule="j", until=at("12:35:00"))
        bench.advance("10m")
        bench.call("schedule update", schedule="j", every="5m")
        bench.advance("11m")
        if pause == "schedule pause":
            bench.call("schedule resume", schedule="j")
        bench.advance("10m")

        expected = ["12:25:00", "12:30:00", "12:35:00", "12:40:00"]
        assert [run.planned_at for run in bench.runs("j")] == [at(clock) for clock in expected]
        assert alarms(bench) == []


class TestASuccessByHandInAStreak:
    """§3.6: a run by hand keeps the next time, also where it ends a streak of failures."""

    def recovered_by_hand(self) -> Bench:
        """A schedule whose run of 12:03 failed, and whose run by hand at 12:05:10 succeeded."""
        bench = Bench()
        ladder = {"ladder": ["60s", "10m"]}
        bench.call("schedule create", name="j", call="x", cron="*/3 * * * *", cadence=ladder, overlap="allow")
        bench.target.script("j", fail(after="2m1s"), succeed())
        bench.advance("5m10s")
        bench.call("schedule run", schedule="j")
        bench.advance("1s")
        return bench

    @pytest.mark.parametrize("late", ["0s", "20s"])
    def test_the_instant_that_the_cadence_decided_has_a_row(self, late: str) -> None:
        """Dense seed 5000: 12:06:01 was shown as the next time, and never came."""
        bench = self.recovered_by_hand()
        assert (bench.progress("j").failures, bench.progress("j").next_at) == (0, at("12:06:01"))
        assert previewed(bench)[:2] == [at("12:06:01"), at("12:09:00")]

        bench.clock.advance("50s")
        bench.clock.advance(late)
        bench.advance("3m30s")

        planned = [run.planned_at for run in bench.runs("j") if run.source != "manual"]
        assert planned == [at("12:03:00"), at("12:06:01"), at("12:09:00")]
        assert alarms(bench) == []

    def test_an_instant_that_is_given_up_with_its_schedule_is_no_alarm(self) -> None:
        """Dense seed 81000034: archived before the instant that the cadence had decided."""
        bench = self.recovered_by_hand()
        bench.call("schedule archive", schedule="j")
        bench.advance("5m")
        assert alarms(bench) == []


class TestACadenceAfterALongRun:
    """§3.6: a ladder waits from the end of the run, which may be after the next interval from its start."""

    @pytest.mark.parametrize("moved", [0, 1])
    def test_the_step_counts_from_the_end(self, moved: int) -> None:
        """Dense seed 82000027, a false alarm of I2; an instant that is 1 µs off is still found."""
        bench = Bench()
        terms = {"cadence": {"ladder": ["60s", "10m"]}, "align": "now"}
        bench.call("schedule create", name="j", call="x", every="5m", **terms)
        bench.target.script("j", fail(after="9m7s"), succeed())
        bench.advance("16m")

        last = bench.runs("j")[-1]
        assert (last.planned_at, str(last.state)) == (at("12:15:07"), "succeeded")
        cast("SqliteStore", bench.store)._writer.connection.execute(
            "UPDATE runs SET planned_at = planned_at + ? WHERE id = ?", (moved, last.id)
        )
        assert any("I2" in alarm for alarm in alarms(bench)) is bool(moved)


class TestAHintOverABacklog:
    """Ruling 1: what came due before an interval hint is the trigger's, however long it is caught up."""

    @pytest.mark.parametrize("limit", [1, 4, 100])
    @pytest.mark.parametrize("ttl", ["5s", "45m"])
    def test_a_one_shot_hint_in_the_backlog_loses_nothing(self, ttl: str, limit: int) -> None:
        """Dense seed 82000009: after the requested instant the trigger's were passed over, or it was."""
        bench = Bench()
        policies: dict[str, Any] = {"catch_up": "all", "catch_up_limit": limit, "adaptive": True}
        bench.call("schedule create", name="j", note="x", every="2m", **policies)
        bench.call("hint once", schedule="j", at=at("12:09:23"), ttl="60m")

        bench.clock.advance("13m")
        bench.call("hint interval", schedule="j", interval="2m", ttl=ttl)
        bench.clock.advance("10s")
        bench.advance("30s")

        due = sorted([*minutes(2, 12, step=2), at("12:09:23")])
        assert [run.planned_at for run in bench.runs("j")] == due
        assert alarms(bench) == []

    @pytest.mark.parametrize("clamp", [{}, {"max": "1h"}, {"min": "90s"}], ids=str)
    def test_a_hint_during_a_catch_up_leaves_no_missed_instant_out(self, clamp: dict[str, str]) -> None:
        bench = Bench()
        policies: dict[str, Any] = {"catch_up": "all", "catch_up_limit": 2, "clamp": clamp, "adaptive": True}
        bench.call("schedule create", name="j", note="x", every="1m", **policies)

        bench.clock.advance("5m30s")
        bench.call("hint interval", schedule="j", interval="1h", ttl="10m")
        bench.advance("1m")

        covered = [run.planned_at for run in bench.runs("j")]
        assert set(minutes(1, 5)) <= set(covered) if not clamp.get("min") else len(covered) > 3
        assert alarms(bench) == []


class TestASkipUnderAClampThatCountsFromTheLastStart:
    """§3.5: with `align: now` the trigger has no grid whose instants a clamp could displace."""

    def test_a_skip_records_no_instant_of_the_grid(self) -> None:
        """Dense seed 85000039: `skipped: clamped` for instants that were never planned."""
        bench = Bench()
        bench.call("schedule create", name="j", note="x", every="2m", align="now", clamp={"min": "5m"})
        bench.advance("7m")
        bench.call("schedule skip", schedule="j")
        bench.advance("20m")

        assert "clamped" not in [outcome for _, outcome in outcomes(bench)]
        assert alarms(bench) == []


class TestAPauseDuringAStreak:
    """Ruling 2: a pause suppresses what is planned inside it, and nothing else."""

    @pytest.mark.parametrize("until", ["12:06:20", "12:06:30"])
    def test_an_instant_that_a_cadence_planned_after_the_pause_stays(self, until: str) -> None:
        """Story 5300049008: 12:06:30 was left out with the trigger's instant that it replaces."""
        bench = Bench()
        ladder = {"ladder": ["60s"]}
        bench.call("schedule create", name="j", call="x", cron="*/3 * * * *", cadence=ladder)
        bench.target.script("j", fail(after="2m30s"), succeed())
        bench.advance("5m40s")
        assert bench.progress("j").next_at == at("12:06:30")

        bench.call("schedule pause", schedule="j", until=at(until))
        bench.advance("4m")

        assert outcomes(bench)[-2:] == [(at("12:06:30"), "succeeded"), (at("12:09:00"), "succeeded")]
        assert alarms(bench) == []


class TestAHintThatEndsInAPause:
    """Ruling 1: a hint decides only while it is in force."""

    def test_a_hint_made_in_a_pause_plans_nothing_before_it_was_made(self) -> None:
        """Dense seed 86000050: 12:04 was recorded as skipped, two minutes before the hint."""
        bench = Bench()
        bench.call(
            "schedule create",
            name="j",
            call="x",
            cron="15 5 * * *",
            cadence={"ladder": ["60s"]},
            adaptive=True,
        )
        bench.target.script("j", fail(), succeed())
        bench.call("hint once", schedule="j", at=at("12:02:00"))
        bench.advance("3m")
        bench.call("schedule pause", schedule="j", until=at("12:20:00"))
        bench.advance("5m")
        bench.call("hint interval", schedule="j", interval="2m", ttl="6m")
        bench.advance("20m")

        assert outcomes(bench) == [(at("12:02:00"), "failed")]
        assert alarms(bench) == []


class TestAStreakThatBeginsInAPause:
    """Ruling 2: what came due before the pause is no part of it, whatever happens in the pause."""

    @pytest.mark.parametrize("pause_at", ["12:04:06", "12:05:06"])
    def test_an_instant_due_before_the_pause_is_decided_after_it(self, pause_at: str) -> None:
        """Dense seed 88000088: 12:04 was not admitted when the pause began, and the run failed in it."""
        bench = Bench()
        policies: dict[str, Any] = {"cadence": {"ladder": ["60s"]}, "overlap": "allow", "catch_up": "all"}
        bench.call("schedule create", name="j", call="x", every="2m", lease={"length": "10m"}, **policies)
        bench.target.script("j", fail(after="3m"), succeed())
        bench.advance("2m10s")
        bench.clock.advance(at(pause_at) - bench.now)
        bench.target.finish_due()
        bench.loop.settle_at_shutdown()
        bench.call("schedule pause", schedule="j", until=at("12:20:00"))
        bench.advance("20m")

        assert outcomes(bench)[:2] == [(at("12:02:00"), "failed"), (at("12:04:00"), "succeeded")]
        assert alarms(bench) == []


class TestARunByHandThatDisables:
    """§3.6: failures of runs by hand count, and what a cadence replaced until then is no occurrence."""

    def test_verify_knows_the_end_of_a_run_by_hand(self) -> None:
        """Dense seed 88000027: the cursor stood at that end, and the run was reset later."""
        bench = Bench()
        policies: dict[str, Any] = {"disable_after": 2, "cadence": {"ladder": ["60s"]}, "overlap": "allow"}
        bench.call("schedule create", name="j", call="x", every="40s", **policies)
        bench.target.script("j", fail(after="70s"), fail(after="5s"), succeed())
        bench.advance("30s")
        started = bench.call("schedule run", schedule="j")
        bench.advance("5m")
        assert bench.progress("j").cursor == at("12:01:40")
        assert alarms(bench) == []

        bench.call("run retry", run=started["run"]["id"])
        bench.advance("1m")


class TestAFailureAfterAnExpiredHint:
    """Ruling 22: from its expiry on the trigger decides, also while an instant of the hint is still due."""

    def test_the_instants_between_the_expiry_and_the_failure_have_a_row(self) -> None:
        """Dense seed 26 with schedules that run at a start: 12:08 to 12:12 were left out."""
        bench = Bench()
        terms: dict[str, Any] = {"adaptive": True, "overlap": "allow", "cadence": {"ladder": ["60s"]}}
        bench.call("schedule create", name="j", handoff={}, queue="mail", every="2m", **terms)
        bench.call("hint interval", schedule="j", interval="3m", ttl="7m")
        bench.advance("3m")
        (lease,) = bench.call("queue lease", queue="mail", holder="h", length="30m")["leases"]
        bench.clock.advance("10m30s")
        bench.call("queue release", lease=lease["lease"], failed=True, error="no")
        bench.advance("1m")

        assert {at("12:05:00"), *minutes(8, 12, step=2)} <= {run.planned_at for run in bench.runs("j")}
        assert alarms(bench) == []


class TestASkippedInstantOfAHint:
    """Ruling 1: what the clamp displaces is one folded row, also where it moved an instant of a hint."""

    def test_a_skip_records_what_the_clamp_displaced_behind_a_hinted_instant(self) -> None:
        """Dense seed 120000019: 12:07 had no row."""
        bench = Bench()
        terms: dict[str, Any] = {"adaptive": True, "clamp": {"min": "2m"}, "catch_up": "none"}
        bench.call("schedule create", name="j", note="x", every="60s", **terms)
        bench.advance("5m10s")
        bench.call("hint once", schedule="j", at="2026-03-10T12:06:18Z", ttl="20m")
        bench.call("schedule skip", schedule="j")
        bench.call("schedule skip", schedule="j")
        bench.advance("5m")

        assert (at("12:07:00"), "clamped") in outcomes(bench)
        assert alarms(bench) == []
