"""The causes of simulator seeds that once failed, each as a direct test with a clock moved by hand.

The seeds themselves cannot be kept: every refactoring changes the random draws.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from timewright.core.facts import RunAdmitted, RunSkipped
from timewright.stores.sqlite.store import SqliteStore
from timewright.testing.bench import Bench
from timewright.testing.clock import ManualClock
from timewright.testing.targets import hang

MILLISECOND = timedelta(milliseconds=1)
PREPARED, OTHERS_WAIT, OWN_RUN = "prepared", "others wait", "own run in flight"
PATHS = [PREPARED, OTHERS_WAIT, OWN_RUN]


def at(clock: str) -> datetime:
    """An instant of the day on which a bench begins (at 12:00)."""
    return datetime.fromisoformat(f"2026-03-10T{clock}").replace(tzinfo=UTC)


class FastMonotonic(ManualClock):
    """A host whose monotonic clock runs ahead of its wall clock by one second in a thousand."""

    pace = 1.001

    def monotonic(self) -> float:
        return super().monotonic() * self.pace

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds / self.pace)


class DecidingAhead(Bench):
    """A bench that decides before the instant, as a running instance does; only the commit waits for it."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        super().__init__(clock=clock, capacity=1)
        self.loop.sleep_plan.lead_time = cast("SqliteStore", self.store).lead_time

    def pass_instant(self, instant: datetime) -> None:
        """Tick until the clock shows the instant, as the loop does."""
        while (seconds := self.loop.step()) < 1 and self.store.now() < instant:
            self.clock.sleep(seconds)
        self.loop.step()

    def schedule_minutely(self, path: str) -> None:
        """Create a schedule and set up one of the code paths that lead to its instant."""
        self.call("schedule create", name="j", call="x", every="1m", overlap="queue")
        if path == OWN_RUN:
            self._start_run("j")
        if path == OTHERS_WAIT:
            # One takes all the capacity here, and another waits for it.
            for name in ("first", "second"):
                self.call("schedule create", name=name, call="x", manual=True)
                self._start_run(name)

    def planned(self) -> list[datetime]:
        """The occurrences that have a row; manual runs are left out."""
        return [run.planned_at for run in self.runs("j") if run.source != "manual"]

    def _start_run(self, name: str) -> None:
        self.target.script(name, hang())
        self.call("schedule run", schedule=name)
        self.loop.step()

    def approach(self, instant: datetime, *, ahead: timedelta) -> None:
        """Read what is due next, sleep, and wake up shortly before it."""
        self.loop.step()
        self.clock.advance(instant - ahead - self.now)


class TestNothingIsAdmittedEarly:
    """Seeds 771044, 900002 and 13 more (I5): what is decided ahead is committed at its instant.

    Paths: the transaction is prepared and only its commit waits; runs wait for capacity, or a run of the same
    schedule is in flight, so nothing is decided before the instant.
    """

    @pytest.mark.parametrize("path", PATHS)
    def test_nothing_is_committed_early_where_the_monotonic_clock_runs_fast(self, path: str) -> None:
        bench = DecidingAhead(FastMonotonic("2026-03-10T12:00:00Z"))
        bench.schedule_minutely(path)

        bench.approach(at("12:01:00"), ahead=4 * MILLISECOND)
        bench.loop.step()

        assert bench.planned() == [] or bench.store.now() >= at("12:01:00")

    @pytest.mark.parametrize("path", PATHS)
    def test_nothing_is_committed_early_while_the_store_clock_is_frozen(self, path: str) -> None:
        bench = DecidingAhead()
        bench.schedule_minutely(path)
        bench.approach(at("12:01:00"), ahead=2 * MILLISECOND)
        freeze_store_clock(bench)

        bench.loop.step()

        assert bench.store.now() < at("12:01:00")
        assert bench.planned() == []

    def test_the_loop_does_not_spin_while_the_store_clock_is_frozen_before_an_instant(self) -> None:
        """Dense seed 71000013; a step back that is too small to be reported freezes the clock too."""
        bench = DecidingAhead()
        bench.schedule_minutely(PREPARED)
        bench.approach(at("12:01:00"), ahead=timedelta(microseconds=1))
        freeze_store_clock(bench, by="-1s")

        steps = 0
        while bench.planned() == []:
            bench.clock.advance(seconds=max(bench.loop.step(), 1e-6))
            steps += 1
            assert steps < 100

        assert bench.store.now() >= at("12:01:00")

    @pytest.mark.parametrize("path", PATHS)
    def test_an_admission_decided_ahead_is_committed_at_its_instant_by_a_right_clock(self, path: str) -> None:
        bench = DecidingAhead()
        bench.schedule_minutely(path)

        bench.approach(at("12:01:00"), ahead=2 * MILLISECOND)
        bench.pass_instant(at("12:01:00"))

        assert bench.store.now() == at("12:01:00")
        assert bench.planned() == [at("12:01:00")]

    def test_nothing_is_admitted_early_by_a_pass_that_follows_at_once(self) -> None:
        bench = busy_with_a_frozen_clock()
        bench.call("schedule create", name="next", note="x", cron="* * * * *")

        bench.clock.advance(seconds=0.09)
        bench.loop.step()

        assert bench.store.now() < at("12:04:00")
        assert bench.runs("next") == []


class TestALeaseIsNoLongerThanItsLength:
    """Seed 5563 (I17): a lease counts from the store's clock."""

    def test_no_lease_is_dated_ahead_of_the_clock_of_the_store(self) -> None:
        bench = busy_with_a_frozen_clock()

        bench.clock.advance(seconds=0.09)
        bench.loop.step()

        leased = [run.leased_at for run in bench.runs("busy") if run.leased_at is not None]
        assert max(leased) <= bench.store.now()


def freeze_store_clock(bench: Bench, *, by: str = "-10m") -> None:
    """Set the host's clock back: the store's stands still until the host's has caught up."""
    shown = bench.store.now()
    bench.clock.step(by)
    assert bench.store.now() == shown


def busy_with_a_frozen_clock() -> Bench:
    """An instance that goes on at once, because it met its catch-up limit; 50 ms before 12:04."""
    bench = Bench()
    bench.call(
        "schedule create",
        name="busy",
        note="x",
        every="1m",
        catch_up="all",
        catch_up_limit=1,
        overlap="allow",
    )
    bench.loop.step()
    bench.clock.advance(at("12:04:00") - 50 * MILLISECOND - bench.now)
    bench.store.now()
    freeze_store_clock(bench)
    assert bench.loop.step() == 0.0
    return bench


class TestACursorNeverFalls:
    """Seed 900161 (I7 and I8): an edit does not reopen what is decided."""

    def test_an_edit_of_the_trigger_does_not_reopen_an_occurrence_that_was_admitted_early(self) -> None:
        bench = admitted_early()
        cursor = bench.progress("j").cursor

        bench.call("schedule update", schedule="j", cron="*/10 * * * *")

        assert bench.progress("j").cursor >= cursor

    def test_after_an_edit_no_occurrence_is_next_that_has_run_already(self) -> None:
        bench = admitted_early()

        bench.call("schedule update", schedule="j", cron="*/10 * * * *")

        assert bench.progress("j").next_at not in [run.planned_at for run in bench.runs("j")]


def admitted_early() -> Bench:
    """A schedule whose occurrence of 12:10 was admitted before 12:10 by its jitter, which has gone since."""
    bench = Bench()
    bench.call("schedule create", name="j", note="x", every="10m", jitter="4m", jitter_side="both")
    bench.advance("9m")
    assert [run.planned_at for run in bench.runs("j")] == [at("12:10:00")]
    bench.call("schedule update", schedule="j", jitter="0s")
    return bench


class TestEveryRunThatIsNamedHasARow:
    """Seed 900094 (I31): the same instant is not skipped twice."""

    def test_a_skip_after_an_edit_and_its_undoing_names_no_run_that_has_no_row(self) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", note="x", every="10m")
        bench.advance("1m")
        bench.call("schedule skip", schedule="j")
        bench.call("schedule update", schedule="j", every="45m")
        bench.call("schedule update", schedule="j", every="10m")

        bench.call("schedule skip", schedule="j")

        named = [fact.run_id for fact in bench.facts if isinstance(fact, RunAdmitted | RunSkipped)]
        assert sorted(named) == sorted(run.id for run in bench.runs("j"))

    def test_the_history_of_a_schedule_is_whole_after_two_skips_and_two_edits(self) -> None:
        bench = Bench()
        bench.call("schedule create", name="j", note="x", every="10m")
        bench.advance("10m")
        bench.call("schedule skip", schedule="j")
        bench.call("schedule update", schedule="j", every="45m")
        bench.call("schedule update", schedule="j", every="10m")

        bench.call("schedule skip", schedule="j")
        bench.advance("1h")

        assert at("12:10:00") in [run.planned_at for run in bench.runs("j")]
        assert bench.call("verify")["violations"] == []
