"""Promises about hints, pauses, skips and moves: they are kept as rows, and previews respect them."""

from __future__ import annotations

from datetime import datetime

from tests.promises.schedule_outcomes import alarms, at, outcomes, skipped_at_ten_past
from timewright.core.schedule.adjustments import Adjustment
from timewright.ledger.replan import Actor
from timewright.ports.objects import AdjustmentsOf
from timewright.testing.bench import Bench
from timewright.testing.targets import fail, succeed


def adjustments(bench: Bench) -> list[Adjustment]:
    """The adjustments of the schedule, oldest first."""
    schedule_id = bench.find("j")
    return bench.store.read(lambda tx: tx.select(AdjustmentsOf(schedule_id)))[::-1]


class TestWhatWasSkippedIsNotShownAsNext:
    """What `schedule get` shows as next has no row yet."""

    def test_an_instant_skipped_before_an_edit_is_not_shown_when_it_is_next(self) -> None:
        bench = skipped_at_ten_past()
        bench.call("schedule update", schedule="j", every="5m")

        bench.advance("5m")

        shown = bench.call("schedule get", schedule="j")
        assert at("12:10:00") not in [datetime.fromisoformat(row["planned_at"]) for row in shown["next"]]
        assert datetime.fromisoformat(shown["progress"]["next_at"]) == at("12:15:00")

    def test_a_hint_for_an_instant_that_was_skipped_by_hand_changes_nothing(self) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", note="x", every="10m", adaptive=True)
        bench.call("schedule skip", schedule="j")

        bench.call("hint once", schedule="j", after="10m")

        assert bench.progress("j").next_at == at("12:20:00")
        bench.advance("20m")
        assert outcomes(bench) == [(at("12:10:00"), "by_hand"), (at("12:20:00"), "succeeded")]
        assert alarms(bench) == []


class TestAdjustmentsAreKept:
    """Ruling 36: hints, pauses and moves are rows with author, reason and times, and are never changed."""

    def test_every_adjustment_is_a_row_with_its_author_reason_and_times(self) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", note="x", every="10m", adaptive=True)
        bench.call("hint interval", schedule="j", interval="2m", ttl="5m", reason="busy")
        bench.call("hint clear", schedule="j")
        bench.call("schedule pause", schedule="j", until=at("12:05:00"), reason="maintenance")
        bench.call("schedule resume", schedule="j")
        bench.call("schedule skip", schedule="j", reason="holiday")
        bench.call("schedule move", schedule="j", to=at("12:12:00"))

        kept = adjustments(bench)

        kinds = ["interval", "clear_hints", "pause", "resume", "skip", "move"]
        assert [one.kind for one in kept] == kinds
        assert [one.reason for one in kept][::2] == ["busy", "maintenance", "holiday"]
        assert [one.until for one in kept[::2]] == [at("12:05:00"), at("12:05:00"), None]
        moved = kept[-1]
        assert (moved.planned_at, moved.moved_to, moved.actor) == (at("12:20:00"), at("12:12:00"), "local")

    def test_a_streak_of_failures_under_a_cadence_is_a_row_at_its_begin_and_at_its_end(self) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", call="x", preset="desktop", every="60s")
        bench.target.script("j", fail(), fail(), succeed())

        bench.advance("10m")

        kept = adjustments(bench)
        assert [(one.kind, one.at) for one in kept] == [
            ("failing", at("12:01:00")),
            ("recovered", at("12:03:00")),
        ]

    def test_explain_names_who_paused_long_ago_and_who_moved_an_occurrence(self) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", note="x", every="10m")
        bench.call("schedule move", schedule="j", to=at("12:07:00"), reason="earlier")
        bench.call("schedule pause", schedule="j", reason="maintenance")
        bench.advance("25m")
        bench.call("schedule resume", schedule="j")
        line = Actor().audit_entry("schedule.run", namespace="default", subject="other", now=bench.now)
        bench.store.write(lambda tx: tx.add_audit([line] * 1001))

        paused = bench.call("schedule explain", schedule="j", at=at("12:20:00"))
        moved = bench.call("schedule explain", schedule="j", at=at("12:10:00"))

        assert "the schedule was paused by local at 2026-03-10T12:00:00Z: maintenance" in str(paused)
        assert "and moved it to 2026-03-10T12:07:00Z by local at 2026-03-10T12:00:00Z: earlier" in str(moved)

    def test_a_run_by_hand_that_ends_a_streak_leaves_the_decided_instant_and_verify_agrees(self) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", call="x", every="1m", cadence={"ladder": {"steps": ["5m"]}})
        bench.target.script("j", fail(), succeed())
        bench.advance("90s")

        bench.call("schedule run", schedule="j")
        bench.advance("6m")

        assert [run.planned_at for run in bench.runs("j") if not run.dedupe_scope] == [
            at("12:01:00"),
            at("12:06:00"),
            at("12:07:00"),
        ]
        assert alarms(bench) == []
