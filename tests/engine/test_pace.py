"""Quick runs are leased ahead of those under way, and wait here: never more start than may."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.engine.faults import PATIENCE, CountingWaker, PassingWaker
from tests.engine.fleet import until
from timewright import Context, Manual, Scheduler
from timewright.core.facts import AttemptStarted, RunSucceeded
from timewright.core.policies import LeaseTerms
from timewright.core.run import Failed, Outcome, RunState, Succeeded
from timewright.core.triggers import every
from timewright.engine.pace import AHEAD_SECONDS, HANDFUL, MOST_AHEAD, Pace
from timewright.engine.tick import LONGEST_TURN, NO_TURNS
from timewright.ledger.lease import Leased
from timewright.ports import Launch
from timewright.ports.outlook import Outlook
from timewright.testing.bench import Bench
from timewright.testing.targets import hang, succeed

CAPACITY = 3
RUNS = 10


def paced(pace: Pace, count: int, *, since: float, until: float, took: float = 0.0, most: int = 100) -> int:
    """So many end one after another between two moments; gives back how many are taken ahead after that."""
    pace.begin(since)
    for number in range(1, count + 1):
        moment = since + (until - since) * number / count
        pace.ended(moment=moment, began=moment - took, most=most)
    return pace.ahead


def test_a_handful_says_nothing_about_a_pace() -> None:
    assert paced(Pace(), HANDFUL - 1, since=0.0, until=0.001) == 0


def test_so_many_are_taken_ahead_as_end_in_a_moment_and_never_more_than_a_limit() -> None:
    pace = Pace()
    assert paced(pace, 2 * HANDFUL, since=10.0, until=10.04) == pytest.approx(1600 * AHEAD_SECONDS, abs=1)
    assert paced(pace, HANDFUL, since=10.5, until=10.501) == MOST_AHEAD


def test_time_in_which_nothing_was_under_way_does_not_make_a_pace_slower() -> None:
    pace = Pace()
    for second in range(4):
        ahead = paced(pace, HANDFUL // 4, since=second, until=second + 0.005)
    assert ahead == pytest.approx(HANDFUL / 0.02 * AHEAD_SECONDS, abs=1)


def test_runs_that_take_long_and_end_together_are_not_quick() -> None:
    assert paced(Pace(), HANDFUL, since=0.0, until=0.001, took=2.0, most=100) <= 100 / 2.0 * AHEAD_SECONDS


def test_where_fewer_than_a_handful_may_be_under_way_none_are_taken_ahead() -> None:
    assert paced(Pace(), 1000, since=0.0, until=0.1, most=HANDFUL - 1) == 0


def test_a_slower_pace_is_believed_step_by_step() -> None:
    pace = Pace()
    pace._rate = 1000.0
    rates = [paced(pace, 1, since=moment, until=moment + 1) / AHEAD_SECONDS for moment in (2.0, 3.0, 4.0)]
    assert rates == [500, 250, 125]


def test_a_clock_that_stands_still_tells_no_pace() -> None:
    assert paced(Pace(), 1000, since=0.0, until=0.0) == 0


# What waits.


def ahead(*, act: Any = None, lease: LeaseTerms | None = None) -> Bench:
    """A bench whose runs were quick of late, with more due than may be under way."""
    bench = Bench(capacity=CAPACITY)
    for number in range(RUNS):
        bench.schedule(f"s{number}", every("1h"), lease=lease or LeaseTerms())
        bench.target.script(f"s{number}", act or hang())
    bench.clock.advance(hours=1)
    bench.loop.launcher._pace._rate = 1e6
    bench.loop.step()
    return bench


def states(bench: Bench) -> set[RunState]:
    return {bench.runs(f"s{number}")[0].state for number in range(RUNS)}


def test_more_are_leased_than_may_be_under_way_and_no_more_are_started() -> None:
    bench = ahead()
    assert states(bench) == {RunState.LEASED}
    assert len(bench.loop.launcher) == RUNS
    assert len(bench.target.launched) == CAPACITY


def test_whoever_waits_starts_when_another_ends_without_asking_the_store() -> None:
    bench = ahead()
    for started in range(CAPACITY + 1, RUNS + 1):
        bench.target.under_way[0].end(Succeeded())
        bench.target.finish_due()
        assert len(bench.target.launched) == started
    assert sum(not work.over for work in bench.target.under_way) == CAPACITY


def test_one_that_is_stopped_while_it_waits_never_starts() -> None:
    bench = ahead()
    waiting = bench.loop.launcher.under_way()[0].lease.run
    bench.loop.launcher.stop(waiting.id, waiting.fence, reason="enough")
    for work in list(bench.target.under_way):
        work.end(Succeeded())
    while bench.target.under_way:
        bench.target.finish_due()
        for work in list(bench.target.under_way):
            work.end(Succeeded())
    bench.tick()
    assert waiting.id not in {launch.run_id for launch in bench.target.launched}
    assert len(bench.target.launched) == RUNS - 1
    assert states(bench) == {RunState.SUCCEEDED, RunState.CANCELLED}


def test_what_waits_when_all_ends_is_given_back_uncharged() -> None:
    bench = ahead()
    bench.loop.stop(wait=timedelta(0), grace=timedelta(0))
    assert states(bench) == {RunState.READY}
    assert {bench.runs(f"s{number}")[0].attempts for number in range(RUNS)} == {0}
    assert len(bench.target.launched) == CAPACITY


def test_what_waits_when_the_end_begins_is_not_started_any_more() -> None:
    bench = ahead(act=succeed(after=timedelta(seconds=1)))
    bench.loop.waker = PassingWaker(bench.clock, bench.target)
    bench.loop.stop(wait=timedelta(seconds=30))
    assert len(bench.target.launched) == CAPACITY
    assert states(bench) == {RunState.READY, RunState.SUCCEEDED}


def test_what_waits_keeps_its_lease_and_loses_none_of_its_time() -> None:
    terms = LeaseTerms(length=timedelta(seconds=30), time_limit=timedelta(seconds=60))
    bench = ahead(lease=terms)
    bench.clock.advance(seconds=20)
    bench.loop.renew_once(now=bench.now)
    bench.clock.advance(seconds=20)
    bench.loop.renew_once(now=bench.now)
    bench.clock.advance(seconds=19)
    bench.loop.launcher.watch()
    assert len(bench.loop.launcher) == RUNS, "what was renewed is not ended"
    bench.target.under_way[0].end(Succeeded())
    begun = [flown for flown in bench.loop.launcher.under_way() if flown.begun]
    assert max(flown.overdue for flown in begun) > bench.clock.monotonic() + 60


def test_a_lease_that_ends_while_its_run_waits_is_a_failure_of_a_run_that_never_started() -> None:
    bench = ahead(lease=LeaseTerms(length=timedelta(seconds=30)))
    bench.clock.advance(seconds=29.5)
    bench.loop.launcher.watch()
    assert len(bench.target.launched) == CAPACITY
    assert len(bench.loop.launcher) == 0


def test_a_thousand_that_answer_while_they_start_do_not_pile_up() -> None:
    """Each is started by the end of the one before: not inside it, or the stack would not hold them."""

    class AtOnce:
        def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> Any:
            done(Succeeded())
            return self

        def stop(self, reason: str) -> None:
            raise AssertionError("it is over")

        def close(self, *, grace: timedelta) -> None:
            pass

    bench = Bench(capacity=1)
    first = Bench.schedule
    for number in range(MOST_AHEAD):
        first(bench, f"s{number}", every("1h"))
    bench.target.script("s0", hang())
    bench.loop.tick.limits = type(bench.loop.tick.limits)(capacity=1, batch=MOST_AHEAD)
    bench.clock.advance(hours=1)
    bench.loop.launcher._pace._rate = 1e6
    bench.loop.step()
    bench._targets["note"] = AtOnce()
    assert len(bench.loop.launcher) > 500
    bench.target.under_way[0].end(Succeeded())
    assert len(bench.loop.launcher) == 0
    bench.tick()
    assert sum(isinstance(fact, RunSucceeded) for fact in bench.facts) == MOST_AHEAD


@pytest.mark.parametrize("capacity", [1, 3])
def test_few_runs_are_never_taken_ahead(capacity: int) -> None:
    bench = Bench(capacity=capacity)
    for number in range(RUNS):
        bench.schedule(f"s{number}", every("1h"))
    bench.clock.advance(hours=1)
    for _ in range(RUNS):
        bench.clock.advance(timedelta(microseconds=1))
        bench.loop.step()
        assert len(bench.loop.launcher) <= capacity


# While the tick goes on.


def test_an_answer_that_is_being_written_is_not_mistaken_for_a_grant_nobody_heard_of() -> None:
    bench = ahead()
    bench.target.under_way[0].end(Succeeded())
    run = next(fact for fact in bench.facts if isinstance(fact, AttemptStarted))
    answers = bench.loop.launcher.take_answers()
    assert bench.loop.tick.take_up(now=bench.now) == []
    bench.loop.launcher.written(answers)
    assert [lease.run.id for lease in bench.loop.tick.take_up(now=bench.now)] == [run.run_id]


def test_an_attempt_never_starts_before_its_lease_however_long_that_took() -> None:
    bench = ahead()
    bench.loop.launcher.let_go()
    tick, late = bench.loop.tick, bench.now - timedelta(seconds=1)
    leases = tick.take_up(now=bench.now)
    tick.launch(leases, now=late, moment=bench.clock.monotonic(), tell=bench.facts.extend)
    under_way = bench.loop.launcher.under_way()
    assert [flown.started_at for flown in under_way] == [flown.lease.run.leased_at for flown in under_way]
    assert len(under_way) == RUNS
    starts = [fact.at for fact in bench.facts[-RUNS:] if isinstance(fact, AttemptStarted)]
    assert starts == [lease.run.leased_at for lease in leases], "and is not told of before it"


@pytest.mark.parametrize(("rate", "ways"), [(0.0, 1), (1e6, 0)])
def test_the_first_of_a_crowd_show_how_quick_they_are_before_more_are_leased(
    monkeypatch: pytest.MonkeyPatch, rate: float, ways: int
) -> None:
    given: list[float] = []
    monkeypatch.setattr("timewright.engine.tick.give_way", given.append)
    bench = Bench(capacity=CAPACITY)
    for number in range(RUNS):
        bench.schedule(f"s{number}", every("1h"))
        bench.target.script(f"s{number}", hang())
    bench.clock.advance(hours=1)
    bench.loop.step()
    bench.target.under_way[0].end(Succeeded())
    tick = bench.loop.tick
    bench.loop.launcher._pace._rate = rate
    leases = tick.lease(now=bench.now).leases
    tick.gives_way = tick.waits_for_room = True
    tick.launch(leases, now=bench.now, moment=bench.clock.monotonic(), tell=bench.facts.extend)
    assert len(given) == ways


def test_many_are_taken_from_a_crowd_in_turn_and_few_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, asked, answers = Bench(capacity=CAPACITY), list[bool](), [Leased(more=True)]

    def lease(*_: Any, turn: timedelta | None, **__: Any) -> Leased:
        asked.append(turn is not None)
        return answers[-1]

    monkeypatch.setattr("timewright.engine.tick.lease_ready", lease)
    tick, pace = bench.loop.tick, bench.loop.launcher._pace
    tick.launch([], now=bench.now, moment=0.0, tell=bench.facts.extend)
    for rate, waits in ((0.0, True), (1e6, False), (1e6, True)):
        pace._rate, tick.waits_for_room = rate, waits
        tick.lease(now=bench.now)
    assert asked == [False, False, True]
    answers.append(Leased(more=True, out_of_turn=True))
    tick.lease(now=bench.now)
    answers.append(Leased(more=True))
    tick.lease(now=bench.now + NO_TURNS / 2)
    tick.lease(now=bench.now + NO_TURNS)
    bench.clock.advance(NO_TURNS)
    assert asked[3:] == [True, False, True], "who did not get a turn goes without for a while"
    for due, takes in ((LONGEST_TURN, False), (2 * LONGEST_TURN, True)):
        tick.lookout._seen = Outlook(due=bench.now + due)
        tick.lease(now=bench.now)
        assert asked[-1] is takes, "whatever is due meanwhile would wait too"


class Resting(Bench):
    """A bench whose settling is a thing of its own, and whose tick rests until it is woken."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.waker = CountingWaker()
        self.loop.waker = self.waker
        self.loop.tick.settles = False

    def end(self, outcome: Outcome, *, name: str = "a", **policies: Any) -> int:
        """Let a run of a new schedule end so, and be settled; how often that woke the tick."""
        self.schedule(name, every("1h"), **policies)
        self.target.script(name, hang())
        self.clock.advance(hours=1)
        self.loop.step()
        before = self.waker.woken
        self.target.under_way[-1].end(outcome)
        self.loop.settler.settle()
        return self.waker.woken - before


def test_an_end_that_gives_the_tick_nothing_to_do_does_not_wake_it() -> None:
    bench = Resting()
    assert bench.end(Succeeded()) == 0
    assert bench.runs("a")[0].state is RunState.SUCCEEDED


def test_an_end_that_brings_something_nearer_wakes_the_tick() -> None:
    assert Resting().end(Failed(error="again")) == 1


def test_an_end_that_frees_a_place_behind_a_ceiling_wakes_the_tick() -> None:
    assert Resting().end(Succeeded(), limits=("crm",)) == 1


def test_an_end_wakes_a_tick_that_waits_for_room() -> None:
    bench = Resting(capacity=1)
    bench.schedule("other", every("1h"))
    bench.target.script("other", hang())
    assert bench.end(Succeeded()) == 1
    assert len(bench.target.launched) == 1


def test_a_tick_that_looked_for_room_too_early_is_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks, and then all that is under way ends, before the end that called it is written."""
    bench, waker = Bench(capacity=2), CountingWaker()
    for name in ("a", "b", "c", "d"):
        bench.schedule(name, every("1h"))
        bench.target.script(name, hang())
    bench.clock.advance(hours=1)
    bench.loop.tick.settles = False
    bench.loop.waker = waker
    bench.loop.step()
    end_all(bench, most=1)
    now = bench.store.now

    def slow_clock() -> Any:
        monkeypatch.setattr(bench.store, "now", now)
        bench.loop.step()
        waker.woken = 0
        end_all(bench, most=2)
        return now()

    monkeypatch.setattr(bench.store, "now", slow_clock)
    bench.loop.settler.settle()
    assert (len(bench.target.launched), bench.loop.launcher.has_answers) == (3, False)
    assert waker.woken == 1


def end_all(bench: Bench, *, most: int) -> None:
    for work in list(bench.target.under_way)[:most]:
        work.end(Succeeded())
    bench.target.finish_due()


def test_whoever_waits_behind_a_ceiling_starts_when_the_one_before_ends(file: str) -> None:
    app, order = Scheduler(file), list[str]()
    go_on = threading.Event()

    def work(ctx: Context) -> None:
        order.append(ctx.schedule_name)
        assert go_on.wait(PATIENCE)

    for name in ("first", "second"):
        app.schedule(Manual(), name=name, limits=["crm"])(work)
    with app:
        app.schedules.run(schedule="first")
        until(lambda: order == ["first"], "the first to begin")
        app.schedules.run(schedule="second")
        until(lambda: app.runs.list(state="ready")["runs"], "the second to wait")
        go_on.set()
        until(lambda: order == ["first", "second"], "the second to begin", seconds=45)
