"""What a program declares beside a trigger: runs at the start, a limit of its own, calendars."""

from __future__ import annotations

import builtins
import os
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone, tzinfo
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.interfaces.terminal import invoke
from tests.operations.harness import OperationsHarness
from timewright import Cron, Scheduler, cron, every
from timewright.core.run.needs import ANYTHING, Offer
from timewright.errors import InvalidCron, InvalidInput, InvalidZone, StoreUnavailable, UnknownField
from timewright.operations import operations
from timewright.operations.runs import at_start
from timewright.operations.runs.at_start import StartedProcess, run_schedules_at_start


def wait_for(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()


def runs_of(app: Scheduler, name: str) -> list[Any]:
    return list(app.runs.list(schedule=name).runs)


def has_succeeded(app: Scheduler, name: str, *, times: int) -> bool:
    return [run.state for run in runs_of(app, name)] == ["succeeded"] * times


def test_a_function_runs_when_its_program_starts_and_again_when_it_is_started_again(tmp_path: Path) -> None:
    for start in (1, 2):
        app = Scheduler(tmp_path / "jobs.db")
        app.schedule("0 9 1 1 *", name="warm", run_at_start=True)(lambda: "useful")
        with app:
            wait_for(partial(has_succeeded, app, "warm", times=start))
            assert app.schedules.get("warm").trigger.endswith(", and at start")


def test_reboot_is_a_trigger_that_only_the_start_fires() -> None:
    app = Scheduler(":memory:")
    ran = threading.Event()
    app.schedule("@reboot", name="boot")(ran.set)
    app.schedule(["@Reboot", "0 9 1 1 *"], name="both")(lambda: None)
    with app:
        assert ran.wait(10)
        shown = {row.name: (row.trigger, row.next_at is None) for row in app.schedules.list().schedules}
    assert shown["boot"] == ("at start", True)
    assert shown["both"][0].endswith(", and at start")


def test_the_command_line_takes_reboot_and_a_plain_cron_refuses_it(harness: OperationsHarness) -> None:
    said = invoke(harness, "schedule", "create", "boot", "--cron", "@reboot", "--note", "up", "--json")
    assert said.data["schedule"]["run_at_start"] is True
    with pytest.raises(InvalidCron) as refusal:
        Cron("@reboot")
    assert "run_at_start" in str(refusal.value)


def process(number: int) -> StartedProcess:
    return StartedProcess(id=f"ins_{number}", host="here", pid=number)


def started(harness: OperationsHarness, number: int, *, offer: Offer = ANYTHING, gone: bool = False) -> int:
    return run_schedules_at_start(harness.context, process(number), offer, is_gone=lambda _host, _pid: gone)


def test_workers_that_start_together_run_it_once(harness: OperationsHarness) -> None:
    harness.ask("schedule create", name="warm", manual=True, run_at_start=True, note="x", overlap="allow")
    assert [started(harness, number) for number in (1, 2, 3)] == [1, 0, 0]
    assert started(harness, 4, gone=True) == 1  # the first one has been killed
    assert len(harness.ask("run list", schedule="warm")["runs"]) == 2


def test_a_start_whose_answer_was_lost_is_not_repeated(harness: OperationsHarness) -> None:
    harness.ask("schedule create", name="warm", manual=True, run_at_start=True, note="x", overlap="allow")
    assert [started(harness, 1, gone=True) for _ in range(2)] == [1, 0]


def test_a_store_that_is_away_at_the_start_delays_only_the_run_at_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Scheduler(tmp_path / "jobs.db")
    app.schedules.create(name="warm", manual={}, run_at_start=True, note="x")
    tries: list[int] = []

    def away_twice(*given: Any, **options: Any) -> int:
        tries.append(1)
        if len(tries) < 3:
            raise StoreUnavailable("the store is unavailable")
        return run_schedules_at_start(*given, **options)

    monkeypatch.setattr(at_start, "run_schedules_at_start", away_twice)
    with app:
        wait_for(partial(has_succeeded, app, "warm", times=1))
    assert len(tries) == 3
    assert not [one.name for one in threading.enumerate() if one.name == "timewright-start"]


@pytest.mark.parametrize(
    ("guard", "functions", "starts"), [("_claim", ("warm", "warm"), 2), ("_starts_it", ("other", "warm"), 1)]
)
def test_each_guard_of_a_run_at_start_is_needed(
    harness: OperationsHarness,
    monkeypatch: pytest.MonkeyPatch,
    guard: str,
    functions: tuple[str, ...],
    starts: int,
) -> None:
    """Without it, two workers run it, or one that does not have the function is the first to try."""
    harness.ask("schedule create", name="warm", manual=True, run_at_start=True, call="warm", overlap="allow")
    monkeypatch.setattr(at_start, guard, lambda *_, **__: True)
    made = [started(harness, number, offer=Offer(functions=(one,))) for number, one in enumerate(functions)]
    assert (sum(made), made[0]) == (starts, 1)


def test_only_an_instance_that_can_run_it_starts_it(harness: OperationsHarness) -> None:
    harness.ask("schedule create", name="warm", manual=True, run_at_start=True, call="warm")
    harness.ask("schedule create", name="asleep", manual=True, run_at_start=True, call="warm")
    harness.ask("schedule pause", schedule="asleep")
    assert started(harness, 1, offer=Offer(functions=("other",))) == 0
    assert started(harness, 2, offer=Offer(functions=("warm",))) == 1


def test_at_most_max_running_runs_of_a_schedule_run_at_once(tmp_path: Path) -> None:
    app = Scheduler(tmp_path / "jobs.db")
    release, running, most = threading.Event(), [0], [0]
    lock = threading.Lock()

    @app.schedule(every("1h"), overlap="allow", max_running=3)
    def slow() -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        release.wait(10)
        with lock:
            running[0] -= 1

    with app:
        made = [app.schedules.run("slow").run.id for _ in range(5)]
        wait_for(lambda: running[0] == 3)
        waiting = [run for run in runs_of(app, "slow") if run.state == "ready"]
        assert len(waiting) == 2
        because = app.runs.explain(waiting[0].id).because
        assert any("3 of its runs are running, and max_running is 3" in one for one in because)
        release.set()
        wait_for(lambda: all(run.state == "succeeded" for run in runs_of(app, "slow")))
        assert (most[0], len(made)) == (3, 5)
        assert app.call("verify").violations == ()


def test_a_removed_max_running_lets_the_waiting_runs_start(harness: OperationsHarness) -> None:
    harness.ask(
        "schedule create", name="w", every="1h", overlap="allow", max_running=1, handoff=True, queue="q"
    )
    harness.ask("queue policy set", queue="q", max_running=10)
    for _ in range(3):
        harness.ask("schedule run", schedule="w")
    assert len(harness.ask("queue lease", queue="q", limit=5)["leases"]) == 1
    harness.ask("schedule update", schedule="w", max_running=None)
    assert len(harness.ask("queue lease", queue="q", limit=5)["leases"]) == 2


def test_max_running_needs_runs_that_may_overlap() -> None:
    app = Scheduler(":memory:")
    with pytest.raises(InvalidInput) as refusal:
        app.schedule(every("5m"), name="x", max_running=3)(lambda: None)
    assert (refusal.value.field, refusal.value.fix) == ("max_running", "overlap: allow")


def test_a_program_declares_its_calendars() -> None:
    app = Scheduler(":memory:")
    app.calendar("holidays", yearly=["12-25"], zone="Europe/Berlin")
    app.schedule(cron("0 9 * * *"), name="report", calendar="except holidays")(lambda: None)
    with pytest.raises(UnknownField):
        app.calendar("wrong", yearlyy=["12-25"])
    with pytest.raises(InvalidInput):
        app.calendar("wrong", yearly=["13-45"])
    with app:
        assert app.calendars.get("holidays").used_by == ("report",)
        app.calendar("holidays", yearly=["12-25"], zone="Europe/Berlin")
        assert app.calendars.get("holidays").calendar.revision == 1  # the same again is not written
        app.calendar("holidays", yearly=["12-25", "12-26"], zone="Europe/Berlin")
        assert app.calendars.get("holidays").calendar.revision == 2


def test_a_notebook_cell_that_makes_the_scheduler_again_stops_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cell() -> Scheduler:
        app = Scheduler(tmp_path / "jobs.db")
        app.schedule(every("1h"), name="refresh")(lambda: None)
        app.start()
        return app

    first = cell()
    second = cell()  # a program may have two
    assert (first.is_running, second.is_running) == (True, True)
    first.stop()
    second.stop()
    monkeypatch.setattr(builtins, "get_ipython", lambda: None, raising=False)
    first = cell()
    second = cell()
    assert (first.is_running, second.is_running) == (False, True)
    second.stop()


def test_the_new_fields_are_known_to_type_checkers_and_help() -> None:
    from timewright.interfaces.python.signatures import parameters_of

    names = {one.name for one in parameters_of(operations["schedule put"])}
    assert {"run_at_start", "max_running", "zone"} <= names


def test_a_function_past_its_time_limit_never_runs_beside_its_second_attempt(tmp_path: Path) -> None:
    """Real time: 20 s with a limit of 10 s with --full, and 2 s with a limit of 1 s otherwise."""
    length = 20.0 if os.environ.get("TIMEWRIGHT_FULL") else 2.0
    app = Scheduler(tmp_path / "jobs.db")
    running, most, ended = [0], [0], list[float]()

    @app.schedule("manual", time_limit=f"{length / 2:g}s", retry={"max_attempts": 2, "backoff": "0s"})
    def slow() -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        time.sleep(length)
        running[0] -= 1
        ended.append(time.monotonic())

    with app:
        run = app.schedules.run("slow").run.id
        wait_for(lambda: app.runs.get(run).run.state == "failed", seconds=10 * length)
        found = app.runs.get(run)
    assert (len(ended), most[0]) == (2, 1)
    assert [one.outcome for one in found.attempts] == ["timed_out", "timed_out"]
    assert "isolation" in found.attempts[0].error
    assert ended[1] - ended[0] >= length


class Zoned(tzinfo):
    """A zone as pytz has it."""

    zone = "Europe/Berlin"

    def utcoffset(self, _: datetime | None) -> timedelta:
        return timedelta(hours=1)

    def dst(self, _: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, _: datetime | None) -> str:
        return "CET"


def test_a_zone_object_of_python_or_pytz_is_a_zone_and_an_offset_is_not() -> None:
    app = Scheduler(":memory:")
    app.schedule("daily", zone=Zoned(), name="pytz")(print)
    with app:
        trigger = app.schedules.get("pytz").schedule.trigger
    assert getattr(trigger, "zone", "") == "Europe/Berlin"
    with pytest.raises(InvalidZone, match=r"'UTC\+01:00' is an offset, not a zone"):
        Scheduler(":memory:").schedule("daily", zone=timezone(timedelta(hours=1)), name="x")(print)


@pytest.mark.parametrize(
    "value", [object(), print, complex(1), "\ud800"], ids=["object", "function", "complex", "surrogate"]
)
def test_a_value_that_cannot_be_stored_is_refused_when_it_is_declared(value: object) -> None:
    app = Scheduler(":memory:")
    with pytest.raises(InvalidInput) as error:
        app.schedule("daily", name="a", metadata={"x": value})(print)
    assert error.value.field == "metadata.x"


def test_a_function_can_be_what_another_one_runs_after() -> None:
    app = Scheduler(":memory:")

    @app.schedule("daily", name="load")
    def first() -> None: ...

    after: Any = first
    app.schedule(after=after, name="report")(print)
    with app:
        trigger: Any = app.schedules.get("report").schedule.trigger
    assert trigger.schedule == "load"


def test_a_resource_that_is_used_as_a_list_says_what_to_write() -> None:
    app = Scheduler(":memory:")
    schedules: Any = app.schedules
    with pytest.raises(TypeError, match=r"write app\.schedules\.list\(\)\.schedules and app\.schedules\.get"):
        list(schedules)
    with pytest.raises(TypeError, match="is not a list or a mapping"):
        schedules["a"]
    app.stop()


def test_an_empty_store_is_refused() -> None:
    with pytest.raises(InvalidInput, match="store '' is not a store"):
        Scheduler("")
