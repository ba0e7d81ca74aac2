"""The embedded scheduler: results of functions, invalid store URLs, async use."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.engine.instances.scheduler_kit import QUICK, app, finish, nothing_left
from tests.faults.tools.worker_fleet import wait_until
from timewright import AsyncScheduler, Context, Manual, NotBefore, Scheduler, every
from timewright.errors import (
    ForeignStore,
    InvalidInput,
    NotAllowed,
    NotFound,
    StoreError,
    StoreUnavailable,
)

__all__ = ["app", "nothing_left"]


# Return values.


@pytest.mark.parametrize(
    ("answer", "word", "result"),
    [
        (None, "", None),
        ("useful", "useful", None),
        ("noop", "noop", None),
        ("skipped", "skipped", None),
        ("a text", "", "a text"),
        ({"rows": 3}, "", {"rows": 3}),
        (False, "", False),
    ],
)
def test_a_return_value_is_the_outcome_label_or_the_result(
    app: Scheduler, answer: Any, word: str, result: Any
) -> None:
    app.schedule(Manual(), name="a")(lambda: answer)
    with app:
        done = finish(app, "a")
    assert (done.run.state, done.run.outcome_label) == ("succeeded", word)
    assert done.attempts[0].result == result


def test_results_that_no_store_can_keep_as_they_are_hold_up_nothing(place: str) -> None:
    strange = {
        "zero": {"a": "x\0y"},
        "half": "\ud800",
        "nan": float("nan"),
        "set": {1},
    }
    with Scheduler(place) as app:
        app.schedule(Manual(), name="huge")(lambda: "x" * 1_000_000)
        for name, answer in strange.items():
            app.schedule(Manual(), name=name)(lambda answer=answer: answer)
        huge = finish(app, "huge").run
        if place.startswith("postgresql:"):  # no folder beside the store for artifacts
            assert huge.state == "failed"
            assert huge.error.startswith("the result has 1000002 bytes, and at most 100000 are stored")
        else:
            assert huge.state == "succeeded"
            assert [one.size for one in app.runs.artifacts(run=huge.id).artifacts] == [1_000_002]
        for name in strange:
            assert finish(app, name).run.state == "succeeded"
        assert app.instance.loop.health.errors == 0


def test_a_function_that_raises_fails_with_its_message_and_traceback(app: Scheduler) -> None:
    def broken() -> None:
        raise KeyError("the\0key")

    app.schedule(Manual(), retry=1)(broken)
    with app:
        done = finish(app, "broken")
    (attempt,) = done.attempts
    assert (done.run.state, done.run.reason) == ("failed", "exhausted")
    assert attempt.error.startswith("KeyError: ")
    assert "in broken" in attempt.result["traceback"]
    assert "timewright/targets" not in attempt.result["traceback"]


def test_a_function_that_leaves_the_program_fails_and_the_program_stays(app: Scheduler) -> None:
    app.schedule(Manual(), name="leaves", retry=1)(sys.exit)
    with app:
        assert finish(app, "leaves").run.error.startswith("SystemExit")


def test_a_function_may_ask_to_be_called_later(app: Scheduler) -> None:
    wishes = [NotBefore(datetime.now(UTC) + timedelta(seconds=1))]

    @app.schedule(Manual(), retry=QUICK)
    def not_yet() -> Any:
        return wishes.pop() if wishes else "useful"

    asked = wishes[0].at
    with app:
        done = finish(app, "not_yet")
    first, second = done.attempts
    assert (first.outcome, second.outcome) == ("deferred", "succeeded")
    assert (second.leased_at >= asked, done.run.attempts) == (True, 0)


def test_a_run_waits_for_its_function_and_starts_when_it_is_registered(app: Scheduler) -> None:
    app.schedules.create(name="a", every="1h", call="send-mail", retry=QUICK)
    with app:
        run = app.schedules.run(schedule="a").run
        assert app.runs.get(run=run.id).run.state == "ready"
        app.task("send-mail")(lambda: None)
        wait_until(lambda: app.runs.get(run=run.id).run.state == "succeeded", "the waiting run to succeed")
        assert app.schedules.get(schedule="a").progress.state == "active"


def test_how_a_schedule_does_can_be_asked(app: Scheduler) -> None:
    works = iter([True, True, False, True])

    @app.schedule(Manual(), retry=1)
    def sometimes() -> None:
        assert next(works)

    with app:
        for _ in range(3):
            finish(app, "sometimes")
        health = app.schedules.health(schedule="sometimes")
        assert health.failures == 1
        assert health.windows["1h"].outcomes == {"succeeded": 2, "failed": 1}
        finish(app, "sometimes")
        assert app.schedules.health(schedule="sometimes").failures == 0


def test_namespaces_do_not_see_each_other(file: str) -> None:
    ours, theirs = Scheduler(file, namespace="ours"), Scheduler(file, namespace="theirs")
    ours.schedules.create(name="a", manual={}, note="x")
    assert theirs.schedules.list().schedules == ()
    with pytest.raises(NotFound):
        theirs.schedules.pause(schedule="a")
    theirs.schedules.create(name="a", manual={}, note="y")
    ours.stop()
    theirs.stop()


# Invalid store URLs.


def test_invalid_store_urls_raise_our_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, but long enough to be looked at" * 100)
    with pytest.raises(InvalidInput, match="unknown scheme"):
        Scheduler("mysql://localhost/x")
    with pytest.raises(InvalidInput, match="has a host"):
        Scheduler("sqlite://host/x.db")
    with pytest.raises(ForeignStore):
        Scheduler(tmp_path / "text")
    for place in (tmp_path, tmp_path / "nowhere" / "x.db"):
        with pytest.raises(StoreError):
            Scheduler(place)


# Async.


def test_an_async_program_awaits_the_same_scheduler(file: str) -> None:
    app = AsyncScheduler(file)

    @app.schedule(Manual())
    async def poll(ctx: Context) -> str:
        await asyncio.sleep(0)
        return ctx.schedule_name

    async def main() -> Any:
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        app.on_completed(lambda _: loop.call_soon_threadsafe(done.set))
        async with app:
            run = (await app.call("schedule run", schedule="poll")).run.id
            await done.wait()
            with pytest.raises(NotFound):
                await app.call("schedule pauze")
            return await app.call("run get", run=run)

    found = asyncio.run(asyncio.wait_for(main(), 60))
    assert found.attempts[0].result == "poll"
    with pytest.raises(StoreUnavailable):
        asyncio.run(app.call("schedule list"))


def test_an_async_function_is_cancelled_when_its_run_is(app: Scheduler) -> None:
    seen: list[str] = []

    @app.schedule(Manual())
    async def sleeper() -> None:
        seen.append("began")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    with app:
        run = app.schedules.run(schedule="sleeper").run.id
        wait_until(lambda: seen, "it to begin")
        app.runs.cancel(run=run, reason="enough")
        wait_until(lambda: app.runs.get(run=run).run.state == "cancelled", "the cancel")
    assert seen == ["began", "cancelled"]


def test_a_scheduler_that_another_process_runs_opens_nothing_and_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMEWRIGHT_HOSTED", str(tmp_path / "host.db"))
    app = Scheduler(tmp_path / "own.db")
    app.on_failed(lambda fact: None)
    app.schedule(every("1h"), name="hourly")(lambda: None)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NotAllowed, match="run by the process that loads it"):
        app.start()
    assert app.schedules.list().schedules == ()
    assert {path.name.partition("-")[0] for path in tmp_path.iterdir()} == {"host.db"}
    app.stop()
