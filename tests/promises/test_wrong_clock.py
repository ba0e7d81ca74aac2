"""Whatever is done to the host's clock, no schedule runs early for it, falls silent, or runs anything twice.

The clock of a running instance on SQLite is set while it runs, as an administrator or a broken time server
does it. DESIGN, ruling 35: a reading more than 24 hours away from what the monotonic clock allows is not
used. Smaller steps are an outage.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.interfaces.http.http_client import ADMIN, HttpTestClient
from timewright.core.facts import AttemptStarted, ClockStepped, LeaseLost, RunAdmitted
from timewright.core.run.run import Run, RunState
from timewright.interfaces.http.app import HttpApp
from timewright.operations import operations
from timewright.operations.access.authentication import context_for
from timewright.operations.context import OperationContext
from timewright.ports import ProgressUpdate, Transaction
from timewright.stores.sqlite.store import SqliteStore
from timewright.testing.bench import Bench
from timewright.testing.clock import ManualClock
from timewright.testing.targets import succeed

SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)
NOON = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
SCHEDULES = {"minutely": {"every": "1m"}, "hourly": {"every": "1h"}, "daily": {"cron": "0 18 * * *"}}
SMALL_STEPS = ["+3s", "-3s", "+1h", "-1h"]
BACK = ["-2d", "-40d"]
# Enough passes to catch up with eleven years of an hourly schedule.
MAX_PASSES = 20
AHEAD = ["+2d", "+40d", "2999-01-01T00:00:00Z"]


def running() -> Bench:
    """An instance with an hourly, a daily and a minutely schedule, five and a half minutes past two."""
    bench = Bench()
    for name, trigger in SCHEDULES.items():
        bench.call("schedule create", name=name, note="x", **trigger)
    bench.advance("2h5m30s")
    return bench


def let_pass(bench: Bench, seconds: int, *, every: int = 1) -> None:
    """Let the instance run on the clock as it is set: one pass a second, however much is due."""
    for _ in range(0, seconds, every):
        bench.loop.step()
        bench.loop.renew_leases(now=bench.store.now())
        bench.clock.advance(seconds=every)


def set_wrong_for_three_seconds(bench: Bench, wrong: str) -> None:
    """Set the clock, let three seconds pass, and set it right again."""
    right = bench.now
    bench.clock.step(wrong)
    let_pass(bench, 3)
    bench.clock.step(right + 3 * SECOND)


def rows(bench: Bench, name: str) -> list[tuple[datetime, str]]:
    return [(run.planned_at, str(run.reason or run.state)) for run in bench.runs(name)]


def started(bench: Bench, name: str) -> list[datetime]:
    """The instants of a schedule that were launched."""
    return [launch.planned_at for launch in bench.target.launched if launch.schedule_name == name]


def undisturbed(name: str) -> list[tuple[datetime, str]]:
    """What a schedule has done at 18:05:33 on a clock that was always right."""
    bench = running()
    bench.advance("4h3s")
    return rows(bench, name)


class TestAClockThatIsWrongForThreeSeconds:
    """A wild reading is not used; then nothing is different from a day on which the clock was right."""

    @pytest.mark.parametrize("wrong", AHEAD)
    @pytest.mark.parametrize("name", SCHEDULES)
    def test_a_schedule_does_not_run_when_the_clock_jumps_far_ahead(self, name: str, wrong: str) -> None:
        bench = running()
        before = rows(bench, name)

        set_wrong_for_three_seconds(bench, wrong)

        assert rows(bench, name) == before

    @pytest.mark.parametrize("wrong", AHEAD)
    @pytest.mark.parametrize("name", SCHEDULES)
    def test_a_schedule_goes_on_as_planned_after_the_clock_was_far_ahead(self, name: str, wrong: str) -> None:
        bench = running()
        set_wrong_for_three_seconds(bench, wrong)

        bench.advance("4h")

        assert rows(bench, name) == undisturbed(name)

    @pytest.mark.parametrize("wrong", BACK)
    @pytest.mark.parametrize("name", SCHEDULES)
    def test_a_schedule_goes_on_as_planned_after_the_clock_was_far_behind(
        self, name: str, wrong: str
    ) -> None:
        bench = running()
        set_wrong_for_three_seconds(bench, wrong)

        bench.advance("4h")

        assert rows(bench, name) == undisturbed(name)

    @pytest.mark.parametrize("wrong", SMALL_STEPS)
    @pytest.mark.parametrize("name", SCHEDULES)
    def test_after_a_small_step_every_instant_has_one_row_and_none_runs_twice(
        self, name: str, wrong: str
    ) -> None:
        bench = running()
        set_wrong_for_three_seconds(bench, wrong)

        bench.advance("4h")

        assert [at for at, _ in rows(bench, name)] == [at for at, _ in undisturbed(name)]
        assert len(started(bench, name)) == len(set(started(bench, name)))
        assert bench.call("verify")["holds"]


@pytest.mark.parametrize("wrong", [*BACK, *AHEAD])
def test_an_instance_looks_every_second_whether_its_clock_is_right_again(wrong: str) -> None:
    bench = running()
    bench.clock.step(wrong)
    for _ in range(3):
        seconds = bench.loop.step()
    assert seconds <= 1


class TestLeasesUnderAWrongClock:
    """Leases go on by the monotonic clock."""

    @pytest.mark.parametrize("wrong", AHEAD)
    def test_work_under_way_keeps_its_lease_when_the_clock_jumps_far_ahead(self, wrong: str) -> None:
        bench = at_work()

        set_wrong_for_three_seconds(bench, wrong)

        assert [fact for fact in bench.facts if isinstance(fact, LeaseLost)] == []
        assert [(run.state, run.fence) for run in bench.runs("work")] == [("leased", 1)]

    @pytest.mark.parametrize("wrong", AHEAD)
    def test_no_lease_reaches_further_than_its_length_after_the_clock_was_far_ahead(self, wrong: str) -> None:
        bench = at_work()

        set_wrong_for_three_seconds(bench, wrong)

        ends = [run.lease_until for run in bench.runs("work") if run.lease_until is not None]
        assert max(ends) <= bench.now + timedelta(minutes=5)

    @pytest.mark.parametrize("wrong", ["+3s", "-3s", "-1h", *BACK])
    def test_work_under_way_ends_once_after_a_step_back_or_a_short_one(self, wrong: str) -> None:
        bench = at_work()

        set_wrong_for_three_seconds(bench, wrong)
        bench.advance("10m")

        assert [str(run.state) for run in bench.runs("work")][:1] == ["succeeded"]
        assert started(bench, "work").count(NOON + timedelta(hours=1)) == 1


def at_work() -> Bench:
    """An instance whose run of 13:00 takes four minutes, one minute after it began."""
    bench = Bench()
    bench.call("schedule create", name="work", call="x", every="1h")
    bench.target.script("work", succeed(after="4m"))
    bench.advance("1h1m")
    return bench


class TestAWrongClockThatStays:
    """Admission and leasing stop until the reading has lasted an hour, or a person accepts it."""

    def test_nothing_is_admitted_or_started_while_a_wild_reading_is_younger_than_an_hour(self) -> None:
        bench = running()
        known = len(bench.facts)
        bench.clock.step("+40d")

        let_pass(bench, 59 * 60, every=20)

        assert [f for f in bench.facts[known:] if isinstance(f, RunAdmitted | AttemptStarted)] == []

    def test_a_reading_that_has_lasted_more_than_an_hour_is_an_outage(self) -> None:
        bench = running()
        before = started(bench, "hourly")
        bench.clock.step("+40d")
        let_pass(bench, 59 * 60, every=20)
        assert started(bench, "hourly") == before

        let_pass(bench, 2 * 60, every=20)

        assert len(started(bench, "hourly")) == len(before) + 1

    def test_a_wild_reading_is_not_reported_as_an_outage(self) -> None:
        bench = running()
        bench.clock.step("+40d")

        let_pass(bench, 3)

        steps = [fact.treated_as for fact in bench.facts if isinstance(fact, ClockStepped)]
        assert steps
        assert "outage" not in steps

    def test_an_instance_whose_clock_is_wrong_is_not_ready(self) -> None:
        bench = running()
        context = OperationContext(store=bench.store, ids=bench.ids, notify=bench.loop.notify_observers)
        app = HttpApp(
            context,
            monotonic=bench.clock.monotonic,
            authenticate=lambda _: ADMIN,
            engine_health=bench.loop.health,
        )
        with HttpTestClient(app) as client:
            assert client.request("GET", "/readyz").status == 200
            bench.clock.step("+40d")
            let_pass(bench, 3)

            assert client.request("GET", "/readyz").status == 503
            assert client.request("GET", "/overdue").status == 503

    def test_doctor_says_that_the_clock_is_wrong(self) -> None:
        bench = running()
        bench.clock.step("+40d")
        let_pass(bench, 3)

        said = bench.call("doctor")["findings"]

        assert [found for found in said if "clock" in found["sentence"] and found["severity"] != "ok"]

    def test_a_person_can_accept_a_new_time(self) -> None:
        assert "clock accept" in {operation.name for operation in operations}
        bench = running()
        before = started(bench, "hourly")
        bench.clock.step("+40d")
        let_pass(bench, 3)
        assert started(bench, "hourly") == before

        bench.call("clock accept")
        let_pass(bench, 3)

        assert len(started(bench, "hourly")) == len(before) + 1

    def test_a_remote_administrator_can_accept_a_new_time(self) -> None:
        bench = running()
        before = started(bench, "hourly")
        bench.clock.step("+40d")
        let_pass(bench, 3)
        context = OperationContext(store=bench.store, ids=bench.ids, notify=bench.loop.notify_observers)
        remote = replace(ADMIN, local=False)

        answer = operations["clock accept"](context_for(context, remote), {})
        let_pass(bench, 3)

        assert answer["accepted"]
        assert len(started(bench, "hourly")) == len(before) + 1

    def test_another_process_can_accept_a_new_time(self, tmp_path: Path) -> None:
        clock = ManualClock(NOON)
        engine = Bench(store=SqliteStore(tmp_path / "timewright.db", clock=clock), clock=clock)
        engine.call("schedule create", name="hourly", note="x", every="1h")
        engine.advance("2h5m30s")
        before = started(engine, "hourly")
        clock.step("+40d")
        let_pass(engine, 3)
        command = Bench(store=SqliteStore(tmp_path / "timewright.db", clock=clock), clock=clock)

        assert command.call("clock accept")["accepted"]
        let_pass(engine, 3)

        assert len(started(engine, "hourly")) == len(before) + 1


class TestTheClockAtStart:
    """A gap since the last mark in the file is downtime up to 90 days, and a wild reading beyond that."""

    def test_an_instance_that_was_down_for_89_days_catches_up(self, tmp_path: Path) -> None:
        later = started_again(tmp_path, after=89 * DAY)

        assert started(later, "hourly") == [later.now.replace(minute=0, second=0)]

    @pytest.mark.parametrize("days", [91, 4000])
    def test_an_instance_that_seems_to_have_been_down_for_longer_starts_nothing(
        self, tmp_path: Path, days: int
    ) -> None:
        later = started_again(tmp_path, after=days * DAY)

        assert started(later, "hourly") == []
        assert [fact for fact in later.facts if isinstance(fact, RunAdmitted)] == []


def started_again(folder: Path, *, after: timedelta) -> Bench:
    """An instance on a file that another one ran on until 14:05:30, so much later by the host's clock."""
    path = folder / "timewright.db"
    clock = ManualClock(NOON)
    store = SqliteStore(path, clock=clock)
    first = Bench(store=store, clock=clock)
    first.call("schedule create", name="hourly", note="x", every="1h")
    first.advance("2h5m30s")
    store.close()
    clock = ManualClock(first.now + after)
    second = Bench(store=SqliteStore(path, clock=clock), clock=clock)
    for _ in range(MAX_PASSES):
        second.loop.step()
    return second


class TestTheCheckerKnowsTheClock:
    """`verify` names a schedule that stands further ahead than its trigger and the clock allow."""

    @pytest.mark.parametrize("ahead", [40 * DAY, 3600 * DAY], ids=["40d", "3600d"])
    def test_verify_notices_a_schedule_that_stands_far_ahead_of_the_clock(self, ahead: timedelta) -> None:
        bench = running()

        leave_what_a_wild_reading_leaves(bench, "hourly", last=NOON + ahead)

        assert not bench.call("verify")["holds"]


def leave_what_a_wild_reading_leaves(bench: Bench, name: str, *, last: datetime) -> None:
    """Write what an instance on a clock far ahead writes: one row for all it missed, and the next time."""
    ran = bench.runs(name)[-1]
    first, following = ran.planned_at + HOUR, last + HOUR
    dropped = Run(
        id=bench.ids.new("run", now=last),
        schedule_id=ran.schedule_id,
        planned_at=first,
        fire_at=first,
        state=RunState.SKIPPED,
        reason="missed",
        source=ran.source,
        revision=1,
        last_of=last,
        dropped=(last - first) // HOUR + 1,
        created_at=last,
        finished_at=last,
        previous=ran.id,
    )
    standing = replace(bench.progress(name), cursor=last, next_at=following, wake_at=following)
    stood = ProgressUpdate(ran.schedule_id, standing, dropped.id)

    def write(tx: Transaction) -> None:
        tx.add_runs([dropped])
        tx.save_progress([stood])

    bench.store.write(write)


class TestTheClockReturns:
    """A wrong reading that was used because it lasted does not silence schedules when the clock returns."""

    @pytest.mark.parametrize("name", SCHEDULES)
    def test_a_reading_of_the_year_2999_is_not_used_although_it_lasts_two_hours(self, name: str) -> None:
        bench = running()
        before, right = rows(bench, name), bench.now
        bench.clock.step("2999-01-01T00:00:00Z")
        let_pass(bench, 2 * 3600, every=60)
        assert rows(bench, name) == before

        bench.clock.step(right + 2 * HOUR)
        bench.advance("2h3s")

        assert rows(bench, name)[-1] == undisturbed(name)[-1]
        assert bench.call("verify")["violations"] == []

    def test_schedules_go_on_after_forty_days_that_were_used_are_taken_back(self) -> None:
        bench = running()
        right = bench.now
        bench.clock.step("+40d")
        let_pass(bench, 2 * 3600, every=60)
        assert bench.progress("hourly").cursor > right + 39 * DAY

        bench.clock.step(right + 2 * HOUR)
        bench.advance("2h3s")

        assert [at.hour for at in started(bench, "hourly")][-2:] == [17, 18]
        assert len(started(bench, "minutely")) == len(set(started(bench, "minutely")))
        following = bench.progress("daily").next_at
        assert following is not None
        assert following <= bench.now + 2 * DAY
        leased = [run.lease_until for run in bench.runs("minutely") if run.state is RunState.LEASED]
        assert all(until is not None and until < bench.now + DAY for until in leased)

    def test_leases_under_way_continue_when_the_clock_returns(self) -> None:
        bench = at_work()
        right = bench.now
        bench.clock.step("2999-01-01T00:00:00Z")
        let_pass(bench, 60)
        bench.clock.step(right + 60 * SECOND)
        bench.advance("10m")
        assert [(str(run.state), run.fence) for run in bench.runs("work")][:1] == [("succeeded", 1)]

    def test_an_earlier_time_is_used_when_it_has_lasted_an_hour_and_nothing_runs_twice(self) -> None:
        bench = Bench()
        bench.call("schedule create", name="hourly", note="x", every="1h")
        bench.advance("3d")
        bench.clock.step("-2d")
        let_pass(bench, 59 * 60, every=20)
        assert bench.store.now() > bench.now + DAY

        let_pass(bench, 3 * 60, every=20)
        assert bench.store.now() == bench.now
        bench.advance("3h")
        bench.call("schedule create", name="new", note="x", every="1h")
        bench.advance("1h")

        assert len(started(bench, "hourly")) == len(set(started(bench, "hourly")))
        assert len(started(bench, "new")) == 1
