"""The loop around the tick: how long it rests, what wakes it, what it survives, and how it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engine.faults import (
    CannotStop,
    CountingWaker,
    FaultyStore,
    PacedWaker,
    PassingWaker,
    Raises,
    StoppedInLaunch,
)
from tests.engine.fleet import until
from timewright.core import ordinary
from timewright.core.backoff import Constant
from timewright.core.facts import (
    AnswerStale,
    AttemptStarted,
    Fact,
    LeaseLost,
    RunLeased,
    RunReleased,
    RunSucceeded,
    TickFinished,
)
from timewright.core.policies import CatchUp, Delivery, LeaseTerms, Retry
from timewright.core.run import Attempt, Outcome, Run, RunState, Succeeded
from timewright.core.schedule import ScheduleState
from timewright.core.triggers import Once, every
from timewright.engine.launch import BACKSTOP
from timewright.engine.loop import AFTER_ERROR, AWAKE
from timewright.engine.rest import WATCHED, EventWaker, stand_still
from timewright.engine.settler import CROWD, CROWD_LOOKS, LOOK_EVERY
from timewright.engine.tick import Limits
from timewright.errors import StoreUnavailable
from timewright.ledger.lease import lease_ready
from timewright.ledger.settle import cancel
from timewright.ports import Launch
from timewright.testing.bench import START, Bench
from timewright.testing.clock import ManualClock
from timewright.testing.targets import fail, hang, succeed, vanish

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HALF_MINUTE = LeaseTerms(length=30 * SECOND, time_limit=10 * MINUTE, grace=5 * SECOND)


class Faulty(Bench):
    """A bench whose store fails when it is told to."""

    def __init__(self, **options: Any) -> None:
        clock = ManualClock(START)
        self.faults = FaultyStore(clock)
        super().__init__(store=self.faults, clock=clock, **options)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def faulty() -> Faulty:
    return Faulty()


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Whatever a test of this file starts is gone at its end."""
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("timewright-")] == []


def the_run(bench: Bench, name: str) -> Run:
    (run,) = bench.runs(name)
    return run


def attempts(bench: Bench, name: str) -> list[Attempt]:
    run = the_run(bench, name)
    return list(bench.store.read(lambda tx: tx.get_attempts([run.id])).get(run.id, ()))


def under_way(bench: Bench, name: str, *, lease: LeaseTerms = HALF_MINUTE, **policies: Any) -> Run:
    """A schedule that is due now, with its run leased and launched here."""
    bench.schedule(name, every("1h"), lease=lease, **policies)
    bench.clock.advance(hours=1)
    bench.loop.step()
    run = the_run(bench, name)
    assert run.state is RunState.LEASED
    return run


def told(bench: Bench, kind: type[Fact]) -> int:
    return sum(isinstance(fact, kind) for fact in bench.facts)


# Rest.


def test_it_rests_until_the_next_instant_and_not_until_some_poll(bench: Bench) -> None:
    bench.schedule("a", every("45s"))
    bench.clock.advance(seconds=5.25)
    assert bench.loop.step() == 39.75


def test_it_never_rests_longer_than_a_minute_or_what_is_set(bench: Bench) -> None:
    assert bench.loop.step() == 60.0
    bench.schedule("a", every("7d"))
    assert bench.loop.step() == 60.0
    bench.loop.longest_rest = 7 * SECOND
    assert bench.loop.step() == 7.0


def test_it_does_not_rest_while_a_room_is_full(bench: Bench) -> None:
    bench.loop.tick.limits = Limits(batch=2)
    for number in range(5):
        bench.schedule(f"s{number}", every("1h"))
    bench.clock.advance(hours=1)
    rests = [bench.loop.step() for _ in range(4)]
    assert rests[:2] == [0.0, 0.0]
    assert rests[-1] == 60.0
    assert all(the_run(bench, f"s{number}").state is RunState.SUCCEEDED for number in range(5))


def test_a_rest_ends_when_a_lease_of_anyone_may_be_over(bench: Bench) -> None:
    bench.schedule("theirs", every("1h"), lease=HALF_MINUTE)
    bench.loop.tick.leasing = False
    bench.clock.advance(hours=1)
    bench.loop.step()
    lease_ready(bench.store, ids=bench.ids, holder="someone", capacity=1, now=bench.now)
    bench.clock.advance(seconds=10)
    assert bench.loop.step() == 20.0


def test_what_lies_far_back_is_found_at_once_and_not_by_spinning(bench: Bench) -> None:
    bench.advance(minutes=5)
    bench.schedule("past", Once(bench.now - timedelta(hours=2)), catch_up=CatchUp.LAST)
    bench.loop.step()
    assert the_run(bench, "past").leased_at == bench.now


def test_a_run_that_waits_for_room_does_not_keep_the_loop_spinning() -> None:
    bench = Bench(capacity=1)
    retry = Retry(max_attempts=2, backoff=Constant(wait=SECOND))
    bench.schedule("again", every("1h"), retry=retry)
    bench.target.script("again", fail())
    bench.clock.advance(minutes=30)
    bench.schedule("long", every("30m"))
    bench.target.script("long", hang())
    bench.clock.advance(minutes=30)
    bench.loop.step()
    bench.loop.step()
    bench.clock.advance(seconds=5)
    assert the_run(bench, "again").state is RunState.READY
    assert len(bench.loop.launcher) == 1
    assert bench.loop.step() == 1.0, "whoever ends wakes it; until then there is nothing to look at"


def test_a_rest_is_ended_by_whoever_wakes_it_also_before_it_begins() -> None:
    waker = EventWaker()
    waker.wake()
    assert waker.rest(60.0) is True
    assert waker.rest(0.0) is False
    threading.Timer(0.01, waker.wake).start()
    assert waker.rest(60.0) is True


@pytest.mark.parametrize("seconds", [0.0, 0.0001, WATCHED, 0.003])
def test_whoever_stands_still_does_so_for_long_enough(seconds: float) -> None:
    began = monotonic()
    stand_still(seconds)
    assert monotonic() - began >= seconds


@pytest.mark.parametrize(("ahead", "waits"), [(0.002, [0.003]), (0.5, []), (-0.5, [])])
def test_an_end_is_written_after_a_start_that_is_due_in_a_moment_and_waits_no_longer(
    bench: Bench, ahead: float, waits: list[float]
) -> None:
    bench.loop.step()
    rests: list[float] = []
    settler: Any = bench.loop.settler
    settler._patience = SimpleNamespace(rest=rests.append)
    bench.loop._rests_until = bench.now + timedelta(seconds=ahead)
    settler._gather()
    assert rests == pytest.approx(waits)
    bench.loop._rests_until = AWAKE
    settler._gather()
    assert len(rests) == len(waits), "whoever is awake is not waited for"


@pytest.mark.parametrize(
    ("waiting", "room", "answered", "waits"),
    [(True, False, 1, True), (False, False, 1, False), (True, True, 1, False), (True, False, CROWD, False)],
)
def test_the_first_answers_of_a_crowd_wait_a_moment_for_those_that_come_at_once(
    bench: Bench, *, waiting: bool, room: bool, answered: int, waits: bool
) -> None:
    rests: list[float] = []
    settler: Any = bench.loop.settler
    settler._patience = SimpleNamespace(rest=rests.append)
    launcher: Any = bench.loop.launcher
    launcher._line.extend([None] if waiting else [])
    launcher._answers.extend([None] * answered)
    bench.loop.tick.waits_for_room = not room
    settler._gather()
    assert rests == ([LOOK_EVERY] * CROWD_LOOKS if waits else [])


def test_the_last_answers_of_a_crowd_wait_for_nobody(bench: Bench) -> None:
    rests: list[float] = []
    settler: Any = bench.loop.settler
    launcher: Any = bench.loop.launcher
    launcher._line.append(None)
    launcher._answers.append(None)
    bench.loop.tick.waits_for_room = True

    def rest(seconds: float) -> None:
        rests.append(seconds)
        launcher._line.clear()

    settler._patience = SimpleNamespace(rest=rest)
    settler._gather()
    assert rests == [LOOK_EVERY]


def test_an_outcome_wakes_the_loop_so_that_it_is_written_at_once(bench: Bench) -> None:
    bench.target.script("a", hang())
    under_way(bench, "a")
    waker = bench.loop.waker
    assert waker.rest(0.0) is False
    bench.target.under_way[0].end(Succeeded())
    assert waker.rest(0.0) is True


# Faults.


def test_a_store_that_is_away_is_asked_again_ever_less_often_and_then_all_is_well(faulty: Faulty) -> None:
    faulty.schedule("a", every("1h"))
    faulty.clock.advance(hours=1)
    faulty.faults.failing_writes = 7
    faulty.loop.waker = waker = PacedWaker()
    faulty.loop.start()
    rests = [waker.next_rest() for _ in range(8)]
    assert rests[:7] == [*AFTER_ERROR, AFTER_ERROR[-1], AFTER_ERROR[-1]]
    assert rests[7] > 0
    until(lambda: the_run(faulty, "a").state is RunState.SUCCEEDED, "the run to be done")
    faulty.loop.stop(wait=timedelta(0))
    pulse = faulty.loop.pulse
    assert (pulse.errors, pulse.errors_in_a_row) == (7, 0)
    assert pulse.last_error == "StoreUnavailable: the store is away"


def test_an_error_nobody_thought_of_does_not_end_the_loop(faulty: Faulty) -> None:
    faulty.faults.error = ZeroDivisionError("a bug")
    faulty.faults.failing_reads = 2
    faulty.loop.waker = waker = PacedWaker()
    faulty.loop.start()
    assert [waker.next_rest() for _ in range(3)] == [0.1, 0.5, 60.0]
    faulty.loop.stop(wait=timedelta(0))
    assert faulty.loop.pulse.last_error == "ZeroDivisionError: a bug"


def test_an_answer_survives_a_store_that_is_away(faulty: Faulty) -> None:
    faulty.target.script("a", hang())
    under_way(faulty, "a")
    faulty.target.under_way[0].end(Succeeded(result=42))
    faulty.faults.failing_writes = 2
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            faulty.loop.step()
    faulty.loop.step()
    assert [(a.outcome, a.result) for a in attempts(faulty, "a")] == [("succeeded", 42)]


def test_what_a_room_made_true_is_told_although_the_next_room_fails(faulty: Faulty) -> None:
    faulty.target.script("a", hang())
    under_way(faulty, "a")
    faulty.target.under_way[0].end(Succeeded())
    faulty.clock.advance(seconds=2)
    settle = faulty.loop.tick.settle

    def settle_and_fail(**arguments: Any) -> list[Fact]:
        facts = settle(**arguments)
        faulty.faults.failing_reads = 1
        return facts

    faulty.loop.tick.settle = settle_and_fail  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        faulty.loop.step()
    assert told(faulty, RunSucceeded) == 1


@pytest.mark.parametrize("error", [RuntimeError("mine"), SystemExit(1)])
def test_an_observer_that_raises_matters_to_nobody(bench: Bench, error: BaseException) -> None:
    class Broken:
        def note(self, fact: Fact) -> None:
            raise error

    bench.loop.observers.insert(0, Broken())
    bench.schedule("a", every("1m"))
    bench.advance(minutes=3)
    assert [run.state for run in bench.runs("a")] == [RunState.SUCCEEDED] * 3
    assert told(bench, RunSucceeded) == 3
    assert bench.loop.pulse.last_error.startswith(f"observer: {type(error).__name__}")


def test_a_schedule_that_cannot_be_decided_is_parked_and_stops_no_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = ordinary.next_on_time

    def stumble(schedule: Any, *positional: Any, **named: Any) -> Any:
        if schedule.name == "bad":
            raise ZeroDivisionError("this one alone")
        return decide(schedule, *positional, **named)

    monkeypatch.setattr("timewright.ledger.admission_pass.next_on_time", stumble)
    bench.schedule("bad", every("1m"))
    bench.schedule("good", every("1m"))
    bench.advance(minutes=3)
    assert [run.state for run in bench.runs("good")] == [RunState.SUCCEEDED] * 3
    assert bench.standing("bad").state is ScheduleState.PARKED
    assert bench.standing("bad").reason == "this one alone"


def test_an_answer_that_no_store_can_keep_fails_its_run_and_keeps_no_other_from_being_written(
    bench: Bench,
) -> None:
    endless: list[Any] = []
    for _ in range(100_000):
        endless = [endless]
    bench.schedule("bad", every("1h"), retry=Retry(max_attempts=1))
    bench.schedule("good", every("1h"))
    bench.target.script("bad", succeed(result=endless))
    bench.advance(hours=1)
    assert the_run(bench, "good").state is RunState.SUCCEEDED
    assert the_run(bench, "bad").error.startswith("its answer could not be kept: ")
    assert bench.loop.pulse.errors == 0
    while endless:  # an endless list is taken apart by hand: to let it go at once goes too deep
        endless = endless.pop()


def test_a_target_that_cannot_be_launched_is_an_outcome_and_no_error_of_the_loop(bench: Bench) -> None:
    bench.loop.launcher._targets = {"note": Raises()}
    bench.schedule("a", every("1h"), retry=Retry(max_attempts=1))
    bench.advance(hours=1)
    assert the_run(bench, "a").error == "RuntimeError: the target broke"
    assert bench.loop.pulse.errors == 0


def test_a_target_that_cannot_even_be_built_fails_its_runs_and_no_others(bench: Bench) -> None:
    class Missing(Mapping[str, Any]):
        def __getitem__(self, kind: str) -> Any:
            raise ImportError("no such library")

        def __iter__(self) -> Iterator[str]:
            return iter(["note"])

        def __len__(self) -> int:
            return 1

    bench.loop.launcher._targets = Missing()
    bench.schedule("a", every("1h"), retry=Retry(max_attempts=1))
    bench.advance(hours=1)
    assert the_run(bench, "a").error == "ImportError: no such library"


def test_a_kind_of_target_this_process_does_not_have_parks_the_schedule(bench: Bench) -> None:
    bench.loop.launcher._targets = {}
    bench.schedule("a", every("1h"), retry=Retry(max_attempts=2, backoff=Constant(wait=SECOND)))
    bench.advance(hours=1, minutes=1)
    assert attempts(bench, "a")[0].error == "this process has no note target"
    assert bench.standing("a").state is ScheduleState.PARKED


def test_a_grant_nobody_heard_of_is_taken_up_when_the_store_is_back(faulty: Faulty) -> None:
    faulty.loop.step()
    faulty.schedule("a", every("1h"), delivery=Delivery.AT_MOST_ONCE)
    faulty.clock.advance(hours=1)
    faulty.faults.error = StoreUnavailable("away")

    class Cuts:
        """The connection breaks at the commit of the admission, and nobody can be asked about it."""

        def __call__(self, **arguments: Any) -> Any:
            faulty.faults.lost_answers = 1
            faulty.faults.failing_reads = 1
            return admit(**arguments)

    admit = faulty.loop.tick.admit
    faulty.loop.tick.admit = Cuts()  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        faulty.loop.step()
    faulty.loop._troubled(StoreUnavailable("away"))
    faulty.loop.tick.admit = admit  # type: ignore[method-assign]
    assert the_run(faulty, "a").state is RunState.LEASED
    assert faulty.target.launched == []
    faulty.clock.advance(seconds=1)
    faulty.tick()
    assert [(a.outcome, a.fence) for a in attempts(faulty, "a")] == [("succeeded", 1)]
    assert len(faulty.target.launched) == 1


def test_an_answer_that_waits_for_the_store_is_not_mistaken_for_a_grant_nobody_heard_of(
    faulty: Faulty,
) -> None:
    faulty.target.script("a", hang())
    run = under_way(faulty, "a")
    faulty.target.under_way[0].end(Succeeded())
    assert faulty.loop.tick.take_up(now=faulty.now) == []
    faulty.loop.step()
    assert the_run(faulty, "a").state is RunState.SUCCEEDED
    assert faulty.loop.launcher.knows(run) is False


# Leases.


def test_a_lease_is_renewed_when_a_third_of_it_is_used(bench: Bench) -> None:
    bench.target.script("a", hang())
    run = under_way(bench, "a")
    bench.clock.advance(seconds=9)
    bench.loop.renew_once(now=bench.now)
    assert the_run(bench, "a").lease_until == run.lease_until
    bench.clock.advance(seconds=1)
    bench.loop.renew_once(now=bench.now)
    assert the_run(bench, "a").lease_until == bench.now + 30 * SECOND
    assert bench.loop.launcher.watch() == 29.0


def test_work_whose_lease_cannot_be_renewed_is_ended_before_the_lease_is(faulty: Faulty) -> None:
    faulty.target.script("a", hang(), succeed())
    run = under_way(faulty, "a", retry=Retry(max_attempts=2))
    faulty.faults.failing_writes = 3
    for seconds in (10, 10, 8.9):
        faulty.clock.advance(seconds=seconds)
        with pytest.raises(StoreUnavailable):
            faulty.loop.renew_once(now=faulty.now)
        faulty.loop.launcher.watch()
        assert len(faulty.loop.launcher) == 1
    faulty.clock.advance(seconds=0.1)
    faulty.loop.launcher.watch()
    assert faulty.target.under_way[0].over
    assert run.lease_until is not None
    assert faulty.now < run.lease_until, "nobody else can have it yet"
    faulty.loop.step()
    (failed,) = attempts(faulty, "a")
    assert (failed.outcome, failed.charged, failed.error) == ("failed", True, "lease not renewed in time")


def test_a_lease_of_a_second_is_not_ended_before_it_could_be_renewed(bench: Bench) -> None:
    bench.target.script("a", hang())
    under_way(bench, "a", lease=LeaseTerms(length=SECOND))
    bench.clock.advance(seconds=0.5)
    bench.loop.launcher.watch()
    assert not bench.target.under_way[0].over
    bench.loop.renew_once(now=bench.now)
    bench.clock.advance(seconds=0.8)
    bench.loop.launcher.watch()
    assert not bench.target.under_way[0].over
    bench.clock.advance(seconds=0.1)
    bench.loop.launcher.watch()
    assert bench.target.under_way[0].over


def test_a_lease_counts_from_when_it_was_asked_for_however_long_the_store_takes(faulty: Faulty) -> None:
    faulty.target.script("a", hang())
    faulty.schedule("a", every("1h"), lease=HALF_MINUTE)
    faulty.clock.advance(hours=1)
    faulty.faults.write_takes = 3 * SECOND
    faulty.loop.step()
    run = the_run(faulty, "a")
    assert run.lease_until is not None
    faulty.clock.advance(run.lease_until - faulty.now - SECOND)
    faulty.loop.launcher.watch()
    assert faulty.target.under_way[0].over


def test_a_short_lease_quickens_the_beat_that_renews_it(bench: Bench) -> None:
    bench.loop._beats = [CountingWaker()]  # type: ignore[list-item]
    bench.target.script("long", hang())
    bench.target.script("short", hang())
    under_way(bench, "long", lease=LeaseTerms())
    assert bench.loop._beats[0].woken == 0  # type: ignore[attr-defined]
    under_way(bench, "short", lease=LeaseTerms(length=2 * SECOND))
    assert bench.loop._beats[0].woken == 1  # type: ignore[attr-defined]
    assert bench.loop._pause() == pytest.approx(1 / 3)
    bench.target.under_way[-1].end(Succeeded())
    assert bench.loop._pause() == 1.0


def test_work_whose_lease_was_lost_is_stopped_and_what_it_says_is_refused(bench: Bench) -> None:
    bench.target.script("a", vanish(), succeed())
    under_way(bench, "a", retry=Retry(max_attempts=2, backoff=Constant(wait=timedelta(0))))
    (first,) = bench.target.under_way
    bench.clock.advance(seconds=40)
    bench.loop.step()
    bench.loop.step()
    assert told(bench, LeaseLost) == 1
    bench.loop.renew_once(now=bench.now)
    (flown,) = bench.loop.launcher.under_way()
    assert flown.stopping == "lease not renewed in time"
    first.end(Succeeded())
    bench.tick()
    assert told(bench, AnswerStale) == 1
    assert [(a.outcome, a.fence) for a in attempts(bench, "a")] == [("lost", 1), ("succeeded", 2)]


def test_a_lease_that_was_taken_away_is_noticed_at_the_next_renewal(bench: Bench) -> None:
    bench.target.script("a", hang())
    run = under_way(bench, "a")
    cancel(bench.store, run.id, actor="ada", reason="enough", now=bench.now)
    bench.clock.advance(seconds=6)
    Bench(store=bench.store, clock=bench.clock, name="other").loop.step()
    assert the_run(bench, "a").state is RunState.CANCELLED
    bench.clock.advance(seconds=10)
    (flown,) = bench.loop.launcher.under_way()
    bench.loop.renew_once(now=bench.now)
    assert (flown.stopping, flown.ended) == ("lease lost", True)
    bench.loop.step()
    assert told(bench, AnswerStale) == 1


@pytest.mark.parametrize("who", ["tick", "renewal"])
def test_a_cancel_is_noticed_by_the_tick_and_by_the_renewal(bench: Bench, who: str) -> None:
    bench.target.script("a", hang())
    run = under_way(bench, "a")
    cancel(bench.store, run.id, actor="ada", reason="enough", now=bench.now)
    if who == "tick":
        bench.loop.step()
    else:
        bench.loop._renew()
    assert bench.target.under_way[0].over
    bench.loop.step()
    assert (the_run(bench, "a").state, the_run(bench, "a").reason) == (RunState.CANCELLED, "enough")


def test_the_watch_ends_work_although_the_store_answers_nobody(faulty: Faulty) -> None:
    faulty.target.script("a", hang())
    faulty.schedule("a", every("1h"), lease=HALF_MINUTE)
    faulty.clock.advance(hours=1)
    faulty.loop.start()
    until(lambda: faulty.target.under_way, "the work to begin")
    faulty.faults.open.clear()
    faulty.clock.advance(seconds=29.5)
    until(lambda: faulty.target.under_way[0].over, "the watch to end it", seconds=45)
    faulty.faults.open.set()
    faulty.loop.stop(wait=timedelta(0))


def test_a_renewal_that_breaks_in_a_way_nobody_thought_of_is_tried_again(faulty: Faulty) -> None:
    faulty.target.script("a", hang())
    run = under_way(faulty, "a", lease=LeaseTerms(length=6 * SECOND))
    faulty.faults.error = ZeroDivisionError("a bug")
    faulty.faults.failing_writes = 1
    faulty.loop.tick.leasing = False
    faulty.clock.advance(seconds=2)
    faulty.loop._stopping.set()
    faulty.loop.start()
    until(lambda: the_run(faulty, "a").lease_until != run.lease_until, "the lease to be renewed")
    assert faulty.faults.failing_writes == 0
    faulty.target.under_way[0].end(Succeeded())
    faulty.loop.stop(wait=timedelta(0))


def test_work_that_outlives_its_limit_is_timed_out_although_its_target_says_nothing(bench: Bench) -> None:
    terms = LeaseTerms(length=10 * MINUTE, time_limit=MINUTE, grace=5 * SECOND)
    bench.target.script("a", vanish(), succeed())
    under_way(bench, "a", lease=terms, retry=Retry(max_attempts=1))
    bench.clock.advance(MINUTE + (5 + BACKSTOP) * SECOND)
    bench.loop.step()
    assert len(bench.loop.launcher) == 1
    bench.clock.advance(seconds=0.1)
    bench.loop.step()
    bench.loop.step()
    assert [a.outcome for a in attempts(bench, "a")] == ["timed_out"]
    assert len(bench.loop.launcher) == 0, "what it holds here is free again"


def test_work_that_ends_when_its_limit_is_enforced_was_late_and_not_cancelled(bench: Bench) -> None:
    terms = LeaseTerms(length=10 * MINUTE, time_limit=MINUTE, grace=timedelta(0))
    bench.target.script("a", hang())
    under_way(bench, "a", lease=terms, retry=Retry(max_attempts=1))
    bench.clock.advance(minutes=2)
    bench.loop.launcher.watch()
    bench.loop.step()
    assert [(a.outcome, a.charged) for a in attempts(bench, "a")] == [("timed_out", True)]


def test_work_that_is_asked_to_stop_while_it_starts_is_stopped_when_it_has(bench: Bench) -> None:
    target = StoppedInLaunch(bench.loop.launcher.stop_all)
    bench.loop.launcher._targets = {"note": target}
    under_way(bench, "a")
    assert target.reasons == ["stopping"]


def test_work_that_cannot_be_stopped_has_failed(bench: Bench) -> None:
    bench.loop.launcher._targets = {"note": CannotStop()}
    under_way(bench, "a", retry=Retry(max_attempts=1))
    bench.loop.launcher.stop_all()
    bench.loop.step()
    assert the_run(bench, "a").error == "could not be stopped: RuntimeError: no brakes"


def test_no_more_is_started_than_there_is_room_for() -> None:
    bench = Bench(capacity=3)
    for number in range(10):
        bench.schedule(f"s{number}", every("10m"))
        bench.target.script(f"s{number}", hang())
    bench.clock.advance(minutes=10)
    for _ in range(5):
        bench.loop.step()
        assert len(bench.loop.launcher) <= 3
    assert len(bench.target.launched) == 3
    bench.target.under_way[0].end(Succeeded())
    bench.loop.step()
    assert len(bench.target.launched) == 4


# The end.


def stoppable(**options: Any) -> Faulty:
    bench = Faulty(**options)
    bench.loop.waker = PassingWaker(bench.clock, bench.target)
    return bench


def test_a_stop_waits_for_work_that_ends_in_time_and_writes_how_it_did() -> None:
    bench = stoppable()
    bench.target.script("a", succeed(after=3 * SECOND))
    under_way(bench, "a")
    began = bench.now
    bench.loop.stop(wait=30 * SECOND)
    assert the_run(bench, "a").state is RunState.SUCCEEDED
    assert bench.now - began == pytest.approx(3 * SECOND, abs=SECOND / 10)
    assert told(bench, RunSucceeded) == 1


def test_a_stop_asks_what_takes_longer_to_end_and_gives_it_back_uncharged() -> None:
    bench = stoppable()
    bench.target.script("a", hang())
    under_way(bench, "a")
    began = bench.now
    bench.loop.stop(wait=2 * SECOND)
    (released,) = attempts(bench, "a")
    assert (released.outcome, released.charged, released.error) == ("released", False, "released at stop")
    run = the_run(bench, "a")
    assert (run.state, run.attempts, run.reason) == (RunState.READY, 0, "released at stop")
    assert bench.now - began < 3 * SECOND
    assert told(bench, RunReleased) == 1
    assert told(bench, AnswerStale) == 0


def test_work_that_does_not_listen_delays_a_stop_by_its_limit_and_no_more() -> None:
    bench = stoppable()
    bench.target.script("a", vanish())
    under_way(bench, "a")
    (deaf,) = bench.target.under_way
    began = bench.now
    bench.loop.stop(wait=2 * SECOND, grace=4 * SECOND)
    assert bench.now - began == pytest.approx(6 * SECOND, abs=SECOND / 5)
    assert [a.outcome for a in attempts(bench, "a")] == ["released"]
    assert len(bench.loop.launcher) == 0
    deaf.end(Succeeded())
    assert not bench.loop.launcher.answered, "nobody listens any more"


def test_a_run_that_may_run_at_most_once_is_not_given_back_but_parked() -> None:
    bench = stoppable()
    bench.target.script("a", hang())
    under_way(bench, "a", delivery=Delivery.AT_MOST_ONCE)
    bench.loop.stop(wait=timedelta(0))
    assert (the_run(bench, "a").state, the_run(bench, "a").reason) == (RunState.PARKED, "unknown")


def test_nothing_new_is_leased_once_a_stop_has_begun() -> None:
    bench = stoppable()
    bench.schedule("a", every("1h"))
    bench.clock.advance(hours=1)
    bench.loop.stop(wait=timedelta(0))
    bench.loop.step()
    assert the_run(bench, "a").state is RunState.READY, "it is decided, and waits for another"
    assert bench.target.launched == []


def test_a_stop_without_a_store_ends_all_the_same_and_leaves_the_leases_to_end() -> None:
    bench = stoppable()
    bench.target.script("a", hang())
    under_way(bench, "a")
    bench.faults.failing_writes = 1_000_000
    bench.loop.stop(wait=SECOND)
    bench.faults.failing_writes = 0
    assert the_run(bench, "a").state is RunState.LEASED
    assert bench.loop.pulse.last_error == "StoreUnavailable: the store is away"


def test_every_thread_is_gone_after_a_stop(bench: Bench) -> None:
    before = threading.active_count()
    bench.loop.start()
    names = {thread.name for thread in threading.enumerate()}
    assert names >= {"timewright-tick", "timewright-renew", "timewright-watch"}
    until(lambda: bench.loop.pulse.ticks, "the first tick")
    bench.loop.stop(wait=timedelta(0))
    assert threading.active_count() == before


def test_the_renewal_does_not_spin_while_the_stop_waits(faulty: Faulty) -> None:
    faulty.target.script("a", hang())
    faulty.schedule("a", every("1h"))
    faulty.clock.advance(hours=1)
    faulty.loop.start()
    until(lambda: faulty.target.under_way, "the work to begin")
    stopping = threading.Thread(target=faulty.loop.stop)
    stopping.start()
    until(faulty.loop.ended.is_set, "the last tick")
    asked = faulty.faults.asked
    threading.Event().wait(0.5)
    assert faulty.faults.asked - asked <= 2
    faulty.target.under_way[0].end(Succeeded())
    stopping.join()
    assert the_run(faulty, "a").state is RunState.SUCCEEDED


def test_nobody_is_told_of_an_end_before_its_start_however_quick_it_was() -> None:
    bench = Bench()
    bench.loop.tick.settles = False
    bench.schedule("a", every("1h"))
    settling = threading.Thread(target=bench.loop.settler.settle)

    class Quick:
        """Has ended, and its end is written, before its launch returns."""

        def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> Any:
            done(Succeeded())
            settling.start()
            until(lambda: the_run(bench, "a").state is RunState.SUCCEEDED, "the end to be written")
            return CannotStop()

        def close(self, *, grace: timedelta) -> None:
            pass

    bench.loop.launcher._targets = {"note": Quick()}
    bench.clock.advance(hours=1)
    bench.loop.step()
    settling.join()
    order = [
        type(fact) for fact in bench.facts if isinstance(fact, RunLeased | AttemptStarted | RunSucceeded)
    ]
    assert order == [RunLeased, AttemptStarted, RunSucceeded]


def test_a_pass_that_did_something_says_what_and_one_that_did_not_is_silent(bench: Bench) -> None:
    bench.schedule("a", every("1m"))
    bench.loop.step()
    assert told(bench, TickFinished) == 0
    bench.advance(minutes=1)
    finished = [fact for fact in bench.facts if isinstance(fact, TickFinished)]
    assert [(fact.admitted, fact.settled) for fact in finished] == [(1, 0), (0, 1)]
