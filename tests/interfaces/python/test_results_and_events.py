"""Results, listeners, event loops and error messages of the Python interface."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from timewright import AsyncScheduler, Context, Scheduler, Settings, every
from timewright.core.facts import RunFailed, RunSucceeded
from timewright.errors import (
    InvalidDuration,
    InvalidInput,
    NotAllowed,
    NotFound,
    StoreUnavailable,
    TimewrightError,
)
from timewright.interfaces.python.results import RunNotFinished, RunNotSucceeded
from timewright.targets.loop_thread import BorrowedLoop
from timewright.testing.bench import Bench


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Scheduler]:
    app = Scheduler(tmp_path / "app.db")
    yield app
    app.stop(wait=timedelta(0))


# Errors in the words of Python.

SPELLED = [
    (lambda app: app.schedules.get("x"), "app.schedules.list() shows the names"),
    (lambda app: app.runs.get("x"), "app.runs.list() shows the ids"),
    (lambda app: app.schedules.create("ok", every="5m", note="a"), 'or app.schedules.update("ok"))'),
    (lambda app: app.hints.interval("ok", interval="5m"), 'app.schedules.update("ok", adaptive=True)'),
    (lambda app: app.schedules.create("x"), """try: cron="0 9 * * 1-5", or every="15m")"""),
    (
        lambda app: app.schedules.create("x", every="0", note="a"),
        "every '0' is not longer than zero (field: every;",
    ),
    (lambda app: app.schedules.create("x", every="5m", note="a", time_limit="x"), "time_limit 'x' is not"),
    (lambda app: app.schedules.create("x", every="5m", note="a", retry="many"), "try: retry=3)"),
    (lambda app: app.schedules.create("x", every="5m", note="a", overlap="x"), 'try: overlap="skip")'),
    (lambda app: app.call("nonsense"), "no operation 'nonsense'"),
]


@pytest.mark.parametrize(("call", "words"), SPELLED, ids=[words for _, words in SPELLED])
def test_the_text_of_an_error_names_keywords_and_methods(
    app: Scheduler, call: Callable[[Scheduler], Any], words: str
) -> None:
    app.schedules.create("ok", every="5m", note="a")
    with pytest.raises(TimewrightError) as refusal:
        call(app)
    assert words in str(refusal.value)
    assert "--" not in str(refusal.value)
    assert str(pickle.loads(pickle.dumps(refusal.value))) == str(refusal.value)


# A result in one line.


def test_run_now_returns_the_result_of_the_function(app: Scheduler) -> None:
    @app.schedule(manual=True)
    def add(ctx: Context) -> dict[str, Any]:
        return {"of": ctx.payload}

    app.schedule(manual=True, name="word")(lambda: "useful")
    with app:
        assert app.run_now("add", payload=[1, 2]) == {"of": [1, 2]}
        assert app.run_now(add) == {"of": None}
        assert app.run_now("word") == "useful"
        assert app.result(app.schedules.run("add").run.id) == {"of": None}


def test_run_now_raises_the_error_with_its_traceback(app: Scheduler) -> None:
    @app.schedule(manual=True, retry=1)
    def broken() -> None:
        raise ValueError("the disk is full")

    with (
        app,
        pytest.raises(
            RunNotSucceeded, match="of broken failed: exhausted: ValueError: the disk is full"
        ) as no,
    ):
        app.run_now(broken)
    told = "".join(traceback.format_exception_only(no.value))
    assert 'raise ValueError("the disk is full")' in told
    assert no.value.run is not None
    assert no.value.run.run.state == "failed"
    assert f"app.runs.retry('{no.value.value}')" in str(no.value.fix)


# The seconds of the documentation with TIMEWRIGHT_FULL; the function takes twice its limit.
LIMIT_S = 10 if os.environ.get("TIMEWRIGHT_FULL") else 0.2


def test_a_function_past_its_time_limit_never_runs_beside_its_next_attempt(app: Scheduler) -> None:
    spans: list[tuple[float, float]] = []

    @app.schedule(manual=True, time_limit=timedelta(seconds=LIMIT_S), retry=2)
    def slow() -> None:
        started = time.monotonic()
        time.sleep(2 * LIMIT_S)
        spans.append((started, time.monotonic()))

    with app:
        with pytest.raises(RunNotSucceeded, match='isolation="process" for a hard stop'):
            app.run_now(slow, timeout=timedelta(seconds=100))
        (run,) = app.runs.list().runs
    assert (run.state, run.attempts) == ("failed", 2)
    (_, first_end), (second_start, _) = spans
    assert second_start >= first_end


def test_a_run_continues_after_the_timeout_of_run_now(app: Scheduler) -> None:
    go = threading.Event()
    app.schedule(manual=True, name="slow")(lambda: go.wait(10) and 5)
    with app:
        with pytest.raises(TimeoutError, match=r"has not ended after 0\.01s") as no:
            app.run_now("slow", timeout="0.01s")
        assert isinstance(no.value, RunNotFinished)
        with pytest.raises(RunNotSucceeded, match="was skipped: overlap") as skipped:
            app.run_now("slow")
        go.set()
        assert app.result(str(no.value.run and no.value.run.run.id)) == 5
    assert skipped.value.fix == "wait for the run in progress, or pass force=True"


def test_run_now_needs_a_live_instance(app: Scheduler) -> None:
    app.schedules.create("hello", manual=True, note="hello")
    with pytest.raises(NotAllowed, match="no instance can run 'hello'"):
        app.run_now("hello")
    assert app.runs.list().runs == (), "and none is left behind for later"


@pytest.mark.parametrize(
    ("asked", "options", "error"),
    [("hallo", {}, NotFound), (print, {}, NotFound), ("hello", {"timeout": 5}, InvalidDuration)],
)
def test_run_now_refuses_unknown_schedules(
    app: Scheduler, asked: Any, options: dict[str, Any], error: type[Exception]
) -> None:
    app.schedules.create("hello", manual=True, note="hello")
    with app:
        with pytest.raises(error):
            app.run_now(asked, **options)
        assert app.runs.list().runs == ()


# Events.


def test_listeners_get_the_schedule_name(app: Scheduler) -> None:
    received: list[Any] = []
    app.on_completed(received.append)
    app.on("failed")(received.append)
    app.schedule(manual=True, name="good")(lambda: None)
    app.schedule(manual=True, name="bad", retry=1)(lambda: 1 / 0)
    with app:
        app.run_now("good")
        with pytest.raises(RunNotSucceeded):
            app.run_now("bad")
    assert [(type(fact).__name__, fact.schedule_name) for fact in received] == [
        ("RunSucceeded", "good"),
        ("RunFailed", "bad"),
    ]
    assert isinstance(received[0], RunSucceeded)
    assert isinstance(received[1], RunFailed)
    assert received[0].schedule_id.startswith("sch_")
    assert pickle.loads(pickle.dumps(received)) == received


def test_async_listeners_are_awaited_in_order(app: Scheduler) -> None:
    received: list[str] = []

    @app.on_completed
    async def first(fact: Any) -> None:
        await asyncio.sleep(0.01)
        received.append(f"first {fact.schedule_name}")

    app.on_completed(lambda _: received.append("second"))
    app.schedule(manual=True, name="good")(lambda: None)
    with app:
        app.run_now("good")
    assert received == ["first good", "second"]


@pytest.mark.parametrize("listener", [lambda: None, lambda a, b: None, "a name", 5])
def test_a_listener_with_a_wrong_signature_is_refused(app: Scheduler, listener: Any) -> None:
    with pytest.raises(InvalidInput, match="listener") as refusal:
        app.on_failed(listener)
    assert refusal.value.fix == "def on_fact(fact): ..."


def test_an_unknown_event_gets_a_suggestion(app: Scheduler) -> None:
    for word, ours in (("failure", "failed"), ("success", "completed"), ("skiped", "skipped")):
        with pytest.raises(NotFound) as refusal:
            app.on(word)
        assert refusal.value.fix == f"did you mean {ours!r}?"
    untyped: Any = app
    with pytest.raises(NotFound, match="is a function"):
        untyped.on(print)


def test_listeners_of_an_adopted_app_work_on_the_bench(app: Scheduler) -> None:
    received: list[str] = []
    app.schedule(every("1h"), name="report")(lambda: None)

    @app.on_completed
    async def tell(fact: Any) -> None:
        received.append(fact.schedule_name)

    bench = Bench()
    bench.adopt(app)
    bench.advance(hours=2)
    assert received == ["report", "report"]


# Async code.


def test_async_functions_and_listeners_run_on_the_callers_loop(tmp_path: Path) -> None:
    async def main() -> tuple[list[bool], Any]:
        app, came = AsyncScheduler(tmp_path / "app.db"), asyncio.Event()
        mine: list[bool] = []

        @app.schedule(manual=True)
        async def poll(ctx: Context) -> int:
            mine.append(asyncio.get_running_loop() is loop)
            return 7

        @app.on_completed
        async def tell(_: Any) -> None:
            mine.append(asyncio.get_running_loop() is loop)
            came.set()

        loop = asyncio.get_running_loop()
        async with app:
            result = await app.run_now("poll")
            await asyncio.wait_for(came.wait(), 10)
        return mine, result

    assert asyncio.run(main()) == ([True, True], 7)


@pytest.mark.parametrize("who", ["function", "listener"])
def test_async_run_ends_when_a_function_or_listener_stops_it(tmp_path: Path, who: str) -> None:
    async def main() -> bool:
        app = AsyncScheduler(tmp_path / "app.db")

        @app.schedule(manual=True)
        async def enough() -> None:
            if who == "function":
                await app.stop()

        @app.on_completed
        async def tell(_: Any) -> None:
            if who == "listener":
                await app.stop()

        await app.start()
        staying = asyncio.create_task(app.run())
        await app.schedules.run("enough")
        await asyncio.wait_for(staying, 10)
        return app.is_running

    assert asyncio.run(main()) is False


def test_a_closed_event_loop_is_replaced() -> None:
    lent = asyncio.new_event_loop()
    lent.close()
    loop = BorrowedLoop("timewright-calls", lent)

    async def answer() -> int:
        return 5

    assert loop.call(answer(), timeout=timedelta(seconds=10)) == 5
    loop.close(grace=timedelta(0))


# Guesses.


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("add_job", '@app.schedule(every("5m"))'),
        ("periodic_task", '@app.schedule("0 9 * * mon-fri"'),
        ("shutdown", "app.stop()"),
        ("get_jobs", "app.schedules.list()"),
        ("on_failure", "@app.on_failed"),
        ("shedules", "did you mean app.schedules?"),
        ("explain", "app.schedules.explain(…)"),
        ("verify", 'app.call("verify")'),
        ("qwertz", "dir(app) lists the attributes"),
    ],
)
def test_method_names_of_other_schedulers_get_suggestions(app: Scheduler, name: str, fix: str) -> None:
    assert not hasattr(app, name)
    with pytest.raises(AttributeError, match=f"Scheduler has no attribute '{name}'") as refusal:
        getattr(app, name)
    assert str(refusal.value.fix).startswith(fix)  # type: ignore[attr-defined]


def test_a_declared_but_unsaved_schedule_has_its_own_error(app: Scheduler) -> None:
    app.schedule(every("1h"), name="report")(lambda: None)
    with pytest.raises(NotFound, match="'report' is declared but not saved yet") as refusal:
        app.schedules.get("report")
    assert refusal.value.fix == "call app.start(), or use `with app:`"


def test_repr_and_the_error_after_stop(app: Scheduler) -> None:
    app.schedule(every("1h"), name="report")(lambda: None)
    assert repr(app).endswith("app.db: not started, 1 declared>")
    app.start()
    assert "running" in repr(app)
    app.stop()
    with pytest.raises(StoreUnavailable, match="this scheduler was stopped") as refusal:
        app.schedules.list()
    assert refusal.value.fix == "create a new Scheduler"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"store": 5}, "store"),
        ({"settings": {"threads": 3}}, "settings"),
        ({"settings": Settings(threads="many")}, "threads"),  # type: ignore[arg-type]
        ({"namespace": ""}, "namespace"),
        ({"clock": 5}, "clock"),
        ({"observers": [print]}, "observers[0]"),
    ],
)
def test_invalid_scheduler_arguments_are_refused_by_field(
    tmp_path: Path, options: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        Scheduler(**{"store": tmp_path / "app.db", **options})
    assert refusal.value.field == field
    assert refusal.value.rule
    assert refusal.value.fix
    assert not list(tmp_path.iterdir())


def test_settings_in_python_accept_the_same_forms_as_in_a_file() -> None:
    with pytest.raises(InvalidDuration, match="stop_wait '5' is not a duration"):
        Settings(stop_wait=5)  # type: ignore[arg-type]


def test_context_log_is_callable(app: Scheduler, caplog: pytest.LogCaptureFixture) -> None:
    @app.schedule(manual=True)
    def work(ctx: Context) -> None:
        ctx.log("half of %d", 8)
        ctx.log.warning("nearly")

    with app, caplog.at_level(logging.INFO, "timewright.run"):
        app.run_now("work")
        (run,) = app.runs.list().runs
        said = app.runs.logs(run.id).attempts[0].streams["output"].splitlines()
    assert [line.partition(" ")[2] for line in said] == ["INFO half of 8", "WARNING nearly"]
    assert {record.funcName for record in caplog.records} == {"work"}
