"""`verify` detects each scheduling defect when it is put back, and finds nothing wrong without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tests.simulation.mutants.mutation import Mutant, Patches, applied, original
from timewright.core.moments import HOUR
from timewright.core.run import admission, due_verdicts, schedule_end
from timewright.core.schedule import due
from timewright.core.schedule.decision import Decision, Source
from timewright.core.schedule.hints import Hints
from timewright.core.schedule.pauses import Pauses
from timewright.ledger import manual_runs, replan, run_ends
from timewright.ledger.queues import limits
from timewright.ports import ProgressUpdate
from timewright.testing.bench import Bench
from timewright.testing.targets import fail, succeed


def _clamp_replaces_trigger() -> Patches:
    """Under a clamp only the decided instant is due."""
    real = original(due, "follows_trigger")

    def follows(schedule: Any, progress: Any, **terms: Any) -> Any:
        return not (schedule.clamp.min or schedule.clamp.max) and real(schedule, progress, **terms)

    return [(due, "follows_trigger", follows)]


def _hint_kept_after_expiry() -> Patches:
    """The expired hint is removed, but its instant stays."""

    def keep(schedule: Any, progress: Any, *_: Any, **__: Any) -> Any:
        return Decision(progress.next_at, progress.source or Source.PAUSED, progress.trail)

    return [(admission, "decide_without_expired", keep)]


def _streak_ends_from_now() -> Patches:
    """The end of a streak plans from now instead of from the cursor."""
    plan_next = original(schedule_end, "plan_next")
    real = original(schedule_end, "_decide_at_settle")

    def decide(schedule: Any, before: Any, after: Any, run: Any, *, now: Any, calendars: Any) -> Any:
        if before.failures and not after.failures:
            return plan_next(schedule, after, now=now, calendars=calendars)
        return real(schedule, before, after, run, now=now, calendars=calendars)

    return [(schedule_end, "_decide_at_settle", decide)]


def _second_failure_replaces_backlog() -> Patches:
    """From the second failure on, a cadence also replaces what was due before the first."""
    real = original(due, "replaced_at")

    def replaced(schedule: Any, progress: Any) -> Any:
        return real(schedule, progress) if progress.failures < 2 else None

    return [(due, "replaced_at", replaced), (admission, "replaced_at", replaced)]


def _replaced_while_catching_up() -> Patches:
    real = original(due_verdicts, "apply_overlap")

    def overlap(schedule: Any, chosen: Any, **terms: Any) -> Any:
        return real(schedule, [replace(one, missed=False) for one in chosen], **terms)

    return [(due_verdicts, "apply_overlap", overlap)]


def _manual_run_moves_next_time() -> Patches:
    real, is_simple = original(run_ends, "settle_schedule"), original(run_ends, "_is_simple")

    def settle(schedule: Any, progress: Any, run: Any, **terms: Any) -> Any:
        return real(schedule, progress, replace(run, dedupe_scope=""), **terms)

    def simple(schedule: Any, run: Any) -> Any:
        return is_simple(schedule, replace(run, dedupe_scope=""))

    return [(run_ends, "settle_schedule", settle), (run_ends, "_is_simple", simple)]


def _one_more_at_once() -> Patches:
    real = original(limits, "own_limits")
    return [(limits, "own_limits", lambda found: {key: size + 1 for key, size in real(found).items()})]


def _limit_of_first_revision() -> Patches:
    real = original(replan, "save_own_limits")

    def save(tx: Any, schedules: Any, **terms: Any) -> None:
        if "had" not in terms:  # an edit says what the schedule had before
            real(tx, schedules, **terms)

    return [(replan, "save_own_limits", save)]


def _exact_interval_is_past() -> Patches:
    real = original(schedule_end, "plan_next")

    def plan(schedule: Any, progress: Any, *, now: Any, **terms: Any) -> Any:
        decision = real(schedule, progress, now=now, **terms)
        return real(schedule, progress, now=now) if decision.at == now else decision

    return [(schedule_end, "plan_next", plan)]


def _skipped_again() -> Patches:
    """Instants that were skipped by hand are forgotten after an edit, and skipped again."""

    def add(tx: Any, record: Any, runs: Any, progress: Any) -> None:
        tx.add_runs(runs)
        tx.save_progress([ProgressUpdate(record.schedule.id, progress, runs[-1].id)])

    def forget(tx: Any, schedule: Any, progress: Any, calendars: Any) -> Any:
        return progress

    return [
        (manual_runs, "add_schedule_runs", add),
        (manual_runs, "pass_decided", forget),
        (replan, "pass_decided", forget),
    ]


def _backlog_lost_to_hint() -> Patches:
    """An interval hint replaces the trigger also for instants that came due before it."""
    return [(module, "replaced_at", lambda *_: None) for module in (admission, due)]


def _outage_under(clamp: dict[str, str]) -> Callable[[Bench], None]:
    def story(bench: Bench) -> None:
        bench.call("schedule create", name="j", note="x", cron="* * * * *", catch_up="all", clamp=clamp)
        bench.clock.advance("9m30s")
        bench.advance("5m")

    return story


def _hinted(bench: Bench) -> None:
    bench.call("schedule create", name="j", note="x", every="5m", adaptive=True)
    bench.call("hint interval", schedule="j", interval="1000d", ttl="6m")
    bench.advance("1h")


def _hinted_in_a_pause(bench: Bench) -> None:
    bench.call("schedule create", name="j", note="x", every="5m", adaptive=True)
    bench.call("schedule pause", schedule="j", until=bench.now + HOUR)
    bench.advance("22m")
    bench.call("hint interval", schedule="j", interval="2m", ttl="10m")
    bench.advance("2h")


def _paused(bench: Bench) -> None:
    bench.call("schedule create", name="j", note="x", every="5m", catch_up="all")
    bench.advance("5m")
    bench.call("schedule pause", schedule="j", until=bench.now + HOUR)
    bench.advance("2h")


def _streak(bench: Bench) -> None:
    bench.call("schedule create", name="j", call="x", preset="desktop", every="60s", catch_up="all")
    bench.target.script("j", fail(), succeed(after="30s"), succeed())
    bench.advance("2m")
    bench.clock.advance("5m30s")
    bench.advance("5m")


def _failing_catch_up(bench: Bench) -> None:
    policies: dict[str, Any] = {"catch_up": "all", "catch_up_limit": 2, "cadence": {"kind": "stretch"}}
    bench.call("schedule create", name="j", call="x", every="1m", **policies)
    bench.target.script("j", *[fail(after="1s")] * 5, succeed())
    bench.clock.advance("10m30s")
    bench.advance("1h")


def _replacing(bench: Bench) -> None:
    policies: dict[str, Any] = {"catch_up": "all", "overlap": "replace"}
    bench.call("schedule create", name="j", note="x", every="60s", **policies)
    bench.clock.advance("10m30s")
    bench.advance("10s")


def _run_by_hand(bench: Bench) -> None:
    bench.call("schedule create", name="j", call="x", preset="adaptive", every="1h")
    bench.advance("1h5m")
    bench.call("schedule run", schedule="j")
    bench.advance("3h")


def _exactly_one_interval(bench: Bench) -> None:
    bench.call("schedule create", name="j", call="x", preset="adaptive", every="15s")
    bench.target.script("j", succeed(after="15s"), succeed())
    bench.advance("2m")


def _skipping(bench: Bench) -> None:
    bench.call("schedule create", name="j", note="x", every="10m")
    bench.advance("1m")
    bench.call("schedule skip", schedule="j")
    bench.call("schedule update", schedule="j", cron="*/10 * * * *")
    bench.call("schedule skip", schedule="j")
    bench.advance("1h")


def _several_at_once(bench: Bench) -> None:
    policies: dict[str, Any] = {"overlap": "allow", "max_running": 2}
    bench.call("schedule create", name="j", call="x", every="1m", **policies)
    bench.target.script("j", *[succeed(after="30m")] * 9)
    bench.advance("5m")
    bench.call("schedule update", schedule="j", max_running=1)
    bench.advance("2h")


CASES: dict[str, tuple[str, Callable[[], Patches], Callable[[Bench], None]]] = {
    "a clamp.max that moves nothing hides instants": (
        "I3",
        _clamp_replaces_trigger,
        _outage_under({"max": "1d"}),
    ),
    "a clamp.min displaces instants without a row": (
        "I3",
        _clamp_replaces_trigger,
        _outage_under({"min": "2m"}),
    ),
    "nothing wakes a schedule when its hint expires": (
        "I25",
        lambda: [(Hints, "next_expiry", lambda _: None)],
        _hinted,
    ),
    "the instant of an expired hint stays": ("I25", _hint_kept_after_expiry, _hinted),
    "a hint in a pause hides instants before it": ("I3", _backlog_lost_to_hint, _hinted_in_a_pause),
    "instants of a pause with an end run after it": (
        "I23",
        lambda: [(Pauses, "contains", lambda *_: False)],
        _paused,
    ),
    "the end of a streak hides instants": ("I3", _streak_ends_from_now, _streak),
    "a second failure hides missed instants": ("I3", _second_failure_replaces_backlog, _failing_catch_up),
    "missed occurrences are superseded": ("I22", _replaced_while_catching_up, _replacing),
    "a manual run moves the next time": ("I24", _manual_run_moves_next_time, _run_by_hand),
    "a run of exactly one interval counts as too long": (
        "I24",
        _exact_interval_is_past,
        _exactly_one_interval,
    ),
    "an instant is skipped twice": ("I31", _skipped_again, _skipping),
    "one more than max_running may run": ("I14", _one_more_at_once, _several_at_once),
    "an edit of max_running changes no limit": ("I14", _limit_of_first_revision, _several_at_once),
}


@pytest.mark.parametrize("name", CASES)
def test_verify_detects_a_scheduling_defect(name: str) -> None:
    invariant, patches, story = CASES[name]
    with applied(Mutant(name=name, broken_invariants=(invariant,), patches=patches)):
        broken = Bench()
        story(broken)
        found = {violation["promise"] for violation in broken.call("verify")["violations"]}

    assert invariant in found


@pytest.mark.parametrize("name", CASES)
def test_verify_finds_nothing_wrong_without_the_defect(name: str) -> None:
    _, _, story = CASES[name]
    bench = Bench()

    story(bench)

    assert bench.call("verify")["violations"] == []
