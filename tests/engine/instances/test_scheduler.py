"""The embedded scheduler: declarations, start and stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.engine.instances.scheduler_kit import app, finish, nothing_left, ours
from tests.faults.tools.worker_fleet import wait_until
from timewright import Call, Context, Cron, LeaseTerms, Manual, Scheduler, every
from timewright.errors import (
    Conflict,
    InvalidInput,
    NotAllowed,
    StoreUnavailable,
)

__all__ = ["app", "nothing_left"]


# Declarations.


def test_a_decorated_function_is_a_schedule_of_its_name_and_is_told_its_run(app: Scheduler) -> None:
    seen: list[Context] = []

    @app.schedule(every("1h"), time_limit="5m")
    def refresh(ctx: Context) -> None:
        seen.append(ctx)

    with app:
        done = finish(app, "refresh")
    (ctx,) = seen
    assert (ctx.schedule_name, ctx.run_id, ctx.key) == ("refresh", done.run.id, done.key)
    assert (ctx.attempt, ctx.fence, ctx.namespace) == (1, 1, "default")
    assert ctx.remaining <= timedelta(seconds=300)
    assert not ctx.cancelled
    refresh(ctx)
    assert len(seen) == 2, "the function stays what it was"


def test_a_function_may_have_another_name_and_more_than_one_schedule(app: Scheduler) -> None:
    calls: list[str] = []

    @app.schedule("0 9 * * 1-5", name="mornings")
    @app.schedule(Manual(), name="by-hand")
    def report(ctx: Context) -> None:
        calls.append(ctx.schedule_name)

    with app:
        finish(app, "mornings")
        finish(app, "by-hand")
        assert [row.name for row in app.schedules.list().schedules] == ["by-hand", "mornings"]
    assert calls == ["mornings", "by-hand"]


def test_a_function_need_not_take_the_context_and_may_take_arguments(app: Scheduler) -> None:
    got: list[Any] = []

    @app.schedule(Manual())
    def bare() -> None:
        got.append("bare")

    @app.task("mailer")
    def send(to: str, copies: int = 1) -> None:
        got.append((to, copies))

    with app:
        finish(app, "bare")
        app.schedules.create(name="mail", manual={}, call={"name": "mailer", "args": {"to": "ada"}})
        finish(app, "mail")
    assert got == ["bare", ("ada", 1)]


def test_policies_are_words_numbers_or_values(app: Scheduler) -> None:
    lease = LeaseTerms(length=timedelta(seconds=20))

    @app.schedule(
        Cron("0 9 * * *", zone="Europe/Berlin"),
        overlap="FORBID",
        catch_up="fire_immediately",
        retry=3,
        priority="high",
        lease=lease,
        grace="5m",
        tags=["a"],
    )
    def report() -> None: ...

    with app:
        kept = app.schedules.get(schedule="report").schedule
    assert (kept.overlap, kept.catch_up, kept.priority) == ("skip", "all", 50)
    assert kept.retry.max_attempts == 3
    assert (kept.lease.length, kept.grace) == (timedelta(seconds=20), timedelta(minutes=5))
    assert (kept.tags, kept.target) == (("a",), Call(name="report"))


def declare(place: str, seconds: int) -> Scheduler:
    app = Scheduler(place)

    @app.schedule(every(timedelta(seconds=seconds)), retry=3, lease=LeaseTerms(length=timedelta(seconds=20)))
    def refresh() -> None: ...

    @app.schedule("0 9 * * 1-5", zone="Europe/Berlin")
    def mornings() -> None: ...

    return app


def test_the_same_declaration_again_changes_nothing_and_another_makes_a_revision(place: str) -> None:
    kept = []
    for seconds in (3600, 3600, 1800):
        with declare(place, seconds) as app:
            shown = [app.schedules.get(schedule=name) for name in ("refresh", "mornings")]
            kept.append([each.schedule for each in shown])
    assert kept[0] == kept[1]
    assert [each.revision for each in kept[1]] == [1, 1]
    assert [each.revision for each in kept[2]] == [2, 1]
    assert kept[2][0].id == kept[0][0].id


def test_a_pause_by_hand_outlasts_a_restart_of_the_program(file: str) -> None:
    with declare(file, 3600) as app:
        app.schedules.pause(schedule="refresh", reason="maintenance")
    with declare(file, 3600) as app:
        assert app.schedules.get(schedule="refresh").progress.state == "paused"


def test_a_schedule_that_is_declared_while_it_runs_begins_at_once(app: Scheduler) -> None:
    ran = threading.Event()
    app.start()

    @app.schedule(every("1s"))
    def late() -> None:
        ran.set()

    assert ran.wait(45), "and not after the minute that it rests"


def test_a_name_means_one_function(app: Scheduler) -> None:
    app.task("twice")(lambda: None)
    with pytest.raises(Conflict, match="already registered as 'twice'"):
        app.task("twice")(lambda: None)


def test_one_declaration_that_is_refused_keeps_none_of_them(app: Scheduler) -> None:
    app.schedule(Manual(), name="good")(lambda: None)
    app.schedule(datetime(2020, 1, 1, tzinfo=UTC), name="bad")(lambda: None)
    with pytest.raises(InvalidInput, match="is in the past") as refusal:
        app.start()
    assert refusal.value.__notes__[-1] == "  in      schedule 'bad'"
    assert app.schedules.list().schedules == ()
    assert ours() == []


# Start and stop.


def test_a_scheduler_begins_once_ends_once_and_does_not_begin_again(file: str) -> None:
    app = Scheduler(file)
    app.start()
    app.start()
    assert sorted(ours()) == [
        f"timewright-{name}" for name in ("listen", "outbox", "renew", "settle", "tick", "watch")
    ]
    app.stop()
    app.stop()
    assert ours() == []
    with pytest.raises(NotAllowed) as refusal:
        app.start()
    assert refusal.value.fix == "create a new Scheduler"
    with pytest.raises(StoreUnavailable, match="is closed"):
        app.schedules.list()


def test_a_scheduler_that_never_began_can_be_asked_and_ended(file: str) -> None:
    app = Scheduler(file)
    app.schedules.create(name="a", manual={}, note="hello")
    app.stop()
    with Scheduler(file) as later:
        assert finish(later, "a").attempts[0].result == "hello"


def test_an_edit_wakes_a_sleeping_scheduler(app: Scheduler) -> None:
    app.start()
    wait_until(lambda: app.instance.loop.health.ticks, "the first tick")
    app.schedules.create(name="soon", every="1s", note="now")
    wait_until(lambda: app.runs.list(state="succeeded").runs, "the rest of a minute to end", seconds=45)


def test_runs_in_flight_at_stop_are_finished_or_released(file: str) -> None:
    began, go_on = threading.Event(), threading.Event()
    app = Scheduler(file)

    @app.schedule(Manual())
    def brief() -> str:
        began.set()
        go_on.wait(60)
        return "noop"

    @app.schedule(Manual())
    def endless(ctx: Context) -> None:
        ctx.cancelled.wait(60)

    with app:
        for name in ("endless", "brief"):
            app.schedules.run(schedule=name)
        assert began.wait(60)
        threading.Timer(0.1, go_on.set).start()
        app.stop(wait=timedelta(seconds=1))
    later = Scheduler(file)
    states = {row.schedule: row for row in later.runs.list().runs}
    later.stop()
    assert (states["brief"].state, states["brief"].outcome_label) == ("succeeded", "noop")
    given_back = states["endless"]
    assert (given_back.state, given_back.reason) == ("ready", "released at stop")
    assert (given_back.fence, given_back.attempts) == (1, 0)


PROGRAM = """
import sys
from timewright import Scheduler, every
app = Scheduler(sys.argv[1])
@app.schedule(every("1s"), max_runs=1)
def refresh():
    print("ready", flush=True)
app.run()
print("ended", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_program_that_runs_until_a_signal_ends_well(file: str, number: signal.Signals) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, file],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    with program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        program.send_signal(number)
        said, complaints = program.communicate(timeout=60)
    # The end of the run may not be recorded yet when the signal comes.
    notes = [line for line in complaints.splitlines() if not line.startswith("stopping: 1 run in progress")]
    assert (program.returncode, said, notes) == (0, "ended\n", [])


def test_a_scheduler_may_be_run_on_a_thread_that_gets_no_signals(file: str) -> None:
    app = Scheduler(file)
    thread = threading.Thread(target=app.run)
    thread.start()
    wait_until(lambda: app.instance.loop.health.ticks, "the first tick")
    app.stop()
    thread.join(60)
    assert not thread.is_alive()


def test_a_function_of_ours_may_end_the_scheduler_it_runs_in(file: str) -> None:
    app = Scheduler(file)

    @app.schedule(every("1s"))
    def last() -> None:
        app.stop()

    app.run()
    with Scheduler(file) as later:
        assert [row.state for row in later.runs.list().runs][-1] == "succeeded"


def test_a_listener_may_end_the_scheduler_it_listens_to(file: str) -> None:
    app = Scheduler(file)
    app.schedule(every("1s"), name="last")(lambda: None)
    app.on_completed(lambda _: app.stop())
    app.run()
    assert ours() == []
