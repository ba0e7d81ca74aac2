"""The embedded door: functions become schedules, operations become methods, facts become events."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.engine.fleet import until
from timewright import AsyncScheduler, Context, Cron, LeaseTerms, Manual, NotBefore, Scheduler, every
from timewright.core import facts as told
from timewright.core.facts import Fact
from timewright.errors import (
    Conflict,
    ForeignStore,
    InvalidInput,
    NotAllowed,
    NotFound,
    StoreError,
    StoreUnavailable,
    TimewrightError,
    UnknownField,
)
from timewright.operations import operations

DONE = ("succeeded", "failed", "parked", "cancelled", "skipped")
QUICK = {"max_attempts": 2, "backoff": {"kind": "constant", "wait": "0.05s"}}
PLURALS = {
    "schedule": "schedules",
    "run": "runs",
    "queue": "queues",
    "hint": "hints",
    "limit": "limits",
    "calendar": "calendars",
    "group": "groups",
    "key": "keys",
    "secret": "secrets",
    "namespace": "namespaces",
}


@pytest.fixture
def app(file: str) -> Iterator[Scheduler]:
    app = Scheduler(file)
    yield app
    app.stop(wait=timedelta(0))


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Whatever a test of this file starts is gone at its end."""
    yield
    until(lambda: not ours(), "every thread of ours to be gone")


def ours() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("timewright-")]


def finish(app: Scheduler, name: str) -> dict[str, Any]:
    """Run a schedule by hand and wait for the end; gives back the run with its attempts."""
    run_id = app.schedules.run(schedule=name)["run"]["id"]

    def look() -> dict[str, Any] | None:
        found: dict[str, Any] = app.runs.get(run=run_id)
        return found if found["run"]["state"] in DONE else None

    found: dict[str, Any] = until(look, f"{name} to end")
    return found


# Declaring.


def test_a_decorated_function_is_a_schedule_of_its_name_and_is_told_its_run(app: Scheduler) -> None:
    seen: list[Context] = []

    @app.schedule(every("1h"))
    def refresh(ctx: Context) -> None:
        seen.append(ctx)

    with app:
        done = finish(app, "refresh")
    (ctx,) = seen
    assert (ctx.schedule_name, ctx.run_id, ctx.key) == ("refresh", done["run"]["id"], done["key"])
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
        assert [row["name"] for row in app.schedules.list()["schedules"]] == ["by-hand", "mornings"]
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
        kept = app.schedules.get(schedule="report")["schedule"]
    assert (kept["overlap"], kept["catch_up"], kept["priority"]) == ("skip", "all", 50)
    assert kept["retry"]["max_attempts"] == 3
    assert (kept["lease"]["length"], kept["grace"], kept["tags"]) == ("20s", "5m", ["a"])
    assert kept["target"]["name"] == "report"


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
            kept.append([each["schedule"] for each in shown])
    assert kept[0] == kept[1]
    assert [each["revision"] for each in kept[1]] == [1, 1]
    assert [each["revision"] for each in kept[2]] == [2, 1]
    assert kept[2][0]["id"] == kept[0][0]["id"]


def test_a_pause_by_hand_outlasts_a_restart_of_the_program(file: str) -> None:
    with declare(file, 3600) as app:
        app.schedules.pause(schedule="refresh", reason="maintenance")
    with declare(file, 3600) as app:
        assert app.schedules.get(schedule="refresh")["standing"]["state"] == "paused"


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
    assert refusal.value.__notes__[-1] == "  in      the schedule 'bad'"
    assert app.schedules.list()["schedules"] == []
    assert ours() == []


# Beginning and ending.


def test_a_scheduler_begins_once_ends_once_and_does_not_begin_again(file: str) -> None:
    app = Scheduler(file)
    app.start()
    app.start()
    assert sorted(ours()) == [f"timewright-{name}" for name in ("hear", "renew", "settle", "tick", "watch")]
    app.stop()
    app.stop()
    assert ours() == []
    with pytest.raises(NotAllowed) as refusal:
        app.start()
    assert refusal.value.fix == "make a new Scheduler"
    with pytest.raises(StoreUnavailable, match="is closed"):
        app.schedules.list()


def test_a_scheduler_that_never_began_can_be_asked_and_ended(file: str) -> None:
    app = Scheduler(file)
    app.schedules.create(name="a", manual={}, note="hello")
    app.stop()
    with Scheduler(file) as later:
        assert finish(later, "a")["attempts"][0]["result"] == "hello"


def test_an_edit_wakes_a_scheduler_that_rests(app: Scheduler) -> None:
    app.start()
    until(lambda: app.house.loop.pulse.ticks, "the first tick")
    app.schedules.create(name="soon", every="1s", note="now")
    until(lambda: app.runs.list(state="succeeded")["runs"], "the rest of a minute to end", seconds=45)


def test_what_was_under_way_at_the_end_is_done_or_given_back(file: str) -> None:
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
    states = {row["schedule"]: row for row in later.runs.list()["runs"]}
    later.stop()
    assert (states["brief"]["state"], states["brief"]["word"]) == ("succeeded", "noop")
    given_back = states["endless"]
    assert (given_back["state"], given_back["reason"]) == ("ready", "released at stop")
    assert (given_back["fence"], given_back["attempts"]) == (1, 0)


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
    assert (program.returncode, said, complaints) == (0, "ended\n", "")


def test_a_scheduler_may_be_run_on_a_thread_that_gets_no_signals(file: str) -> None:
    app = Scheduler(file)
    thread = threading.Thread(target=app.run)
    thread.start()
    until(lambda: app.house.loop.pulse.ticks, "the first tick")
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
        assert [row["state"] for row in later.runs.list()["runs"]][-1] == "succeeded"


def test_a_listener_may_end_the_scheduler_it_listens_to(file: str) -> None:
    app = Scheduler(file)
    app.schedule(every("1s"), name="last")(lambda: None)
    app.on_completed(lambda _: app.stop())
    app.run()
    assert ours() == []


# Events.


def test_every_event_comes_after_it_is_true_and_with_its_fact(app: Scheduler) -> None:
    heard: list[tuple[str, Fact]] = []
    for event in ("started", "completed", "failed", "exhausted", "parked"):
        app.on(event)(lambda fact, event=event: heard.append((event, fact)))

    @app.schedule(Manual(), retry=QUICK)
    def fails() -> None:
        raise ValueError("no")

    @app.schedule(Manual(), retry={**QUICK, "exhausted": "park"})
    def parks() -> None:
        raise ValueError("no")

    @app.schedule(Manual())
    def works() -> str:
        return "useful"

    with app:
        heard_of = {}
        for name, last in (("fails", "exhausted"), ("parks", "parked"), ("works", "completed")):
            finish(app, name)
            until(lambda last=last: heard and heard[-1][0] == last, "the last fact")  # type: ignore[misc]
            assert {getattr(fact, "schedule_name", "") for _, fact in heard} == {name}
            # What a listener is told is the fact itself with the name of its schedule beside.
            heard_of[name] = [(event, type(fact).__base__) for event, fact in heard]
            heard.clear()
    tried = [
        ("started", told.AttemptStarted),
        ("failed", told.RunWillRetry),
        ("started", told.AttemptStarted),
    ]
    assert heard_of["fails"] == [*tried, ("failed", told.RunFailed), ("exhausted", told.RunFailed)]
    ends = [(event, told.RunParked) for event in ("failed", "exhausted", "parked")]
    assert heard_of["parks"] == [*tried, *ends]
    assert heard_of["works"] == [("started", told.AttemptStarted), ("completed", told.RunSucceeded)]


def test_what_was_skipped_or_cancelled_is_told_too(app: Scheduler) -> None:
    heard: list[Fact] = []
    app.on("skipped")(heard.append)
    app.on("cancelled")(heard.append)

    @app.schedule(Manual())
    def long(ctx: Context) -> None:
        ctx.cancelled.wait(30)

    with app:
        run = app.schedules.run(schedule="long")["run"]["id"]
        until(lambda: app.runs.get(run=run)["run"]["state"] == "leased", "it to begin")
        app.schedules.run(schedule="long")
        app.runs.cancel(run=run, reason="enough")
        until(lambda: len(heard) == 2, "both facts")
    assert isinstance(heard[0], told.RunSkipped)
    assert isinstance(heard[1], told.RunCancelled)
    assert (heard[0].reason, heard[1].reason) == ("overlap", "enough")


def test_a_listener_that_raises_spoils_nobody_elses_listening(app: Scheduler) -> None:
    heard: list[Fact] = []

    @app.on_completed
    def broken(fact: Fact) -> None:
        raise RuntimeError("mine alone")

    app.on_completed(heard.append)
    app.schedule(Manual(), name="a")(lambda: None)
    with app:
        finish(app, "a")
        until(lambda: heard, "the other listener")


def test_an_event_nobody_knows_is_refused_with_those_we_have(app: Scheduler) -> None:
    with pytest.raises(NotFound) as refusal:
        app.on("finished")
    assert refusal.value.rule is not None
    assert "completed" in refusal.value.rule


# Operations.


def test_every_operation_is_a_method_of_its_noun(app: Scheduler) -> None:
    named = [operation for operation in operations if operation.noun in PLURALS]
    assert len(named) > 40
    for operation in named:
        noun, method = getattr(app, PLURALS[operation.noun]), operation.verb.replace(" ", "_")
        assert getattr(noun, method).__doc__ == operation.summary
        assert method in dir(noun)


def test_methods_do_what_the_operations_do(app: Scheduler) -> None:
    app.schedules.create(name="a", every="1h", note="hello")
    assert app.schedules.pause(schedule="a")["standing"]["state"] == "paused"
    assert app.schedules.resume(schedule="a")["standing"]["state"] == "active"
    assert app.schedules.get(schedule="a")["schedule"]["revision"] == 1
    app.schedules.update(schedule="a", overlap="queue")
    assert app.schedules.get(schedule="a")["schedule"]["revision"] == 2
    assert len(app.schedules.next(schedule="a", count=3)["next"]) == 3
    app.queues.policy_set(queue="mail", max_concurrent=2)
    assert app.queues.policy_show(queue="mail")["policy"]["max_concurrent"] == 2
    assert app.call("health")["alive"] is True
    assert [line["action"] for line in app.call("audit list", limit=1)["entries"]]


@pytest.mark.parametrize(
    ("ask", "error", "says"),
    [
        (lambda app: app.schedules.pauze(schedule="a"), NotFound, "did you mean schedule pause?"),
        (lambda app: app.call("schedule pauze"), NotFound, "did you mean schedule pause?"),
        (lambda app: app.schedules.pause(schedule="nobody"), NotFound, None),
        (lambda app: app.schedules.pause(schedul="a"), UnknownField, None),
        (lambda app: app.schedules.pause(), InvalidInput, None),
        (lambda app: app.schedules.pause(schedule=7), InvalidInput, None),
        (lambda app: app.schedules.create(name="a", every="1h"), InvalidInput, None),
        (
            lambda app: app.schedules.create(name="a", every="1h", note="x", overlap="maybe"),
            InvalidInput,
            None,
        ),
        (lambda app: app.runs.get(run="run_nobody"), NotFound, None),
        (lambda app: app.schedules.create(name="b", every=object(), note="x"), InvalidInput, None),
    ],
)
def test_what_is_refused_is_refused_in_our_words(
    app: Scheduler, ask: Any, error: type[TimewrightError], says: str | None
) -> None:
    with pytest.raises(error) as refusal:
        ask(app)
    assert refusal.value.explain()
    assert says is None or refusal.value.fix == says


def test_names_that_python_asks_for_are_no_operations(app: Scheduler) -> None:
    assert not hasattr(app.schedules, "_repr_html_")
    assert not hasattr(app.schedules, "__wrapped__")


# What functions answer.


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
def test_what_a_function_returns_is_its_word_or_its_result(
    app: Scheduler, answer: Any, word: str, result: Any
) -> None:
    app.schedule(Manual(), name="a")(lambda: answer)
    with app:
        done = finish(app, "a")
    assert (done["run"]["state"], done["run"]["word"]) == ("succeeded", word)
    assert done["attempts"][0]["result"] == result


def test_results_that_no_store_can_keep_as_they_are_hold_up_nothing(place: str) -> None:
    strange = {
        "zero": {"a": "x\0y"},
        "half": "\ud800",
        "huge": "x" * 1_000_000,
        "nan": float("nan"),
        "set": {1},
    }
    with Scheduler(place) as app:
        for name, answer in strange.items():
            app.schedule(Manual(), name=name)(lambda answer=answer: answer)
        for name in strange:
            assert finish(app, name)["run"]["state"] == "succeeded"
        assert app.house.loop.pulse.errors == 0


def test_a_function_that_raises_has_failed_with_its_words_and_its_own_traceback(app: Scheduler) -> None:
    def broken() -> None:
        raise KeyError("the\0key")

    app.schedule(Manual(), retry=1)(broken)
    with app:
        done = finish(app, "broken")
    (attempt,) = done["attempts"]
    assert (done["run"]["state"], done["run"]["reason"]) == ("failed", "exhausted")
    assert attempt["error"].startswith("KeyError: ")
    assert "in broken" in attempt["result"]["traceback"]
    assert "timewright/targets" not in attempt["result"]["traceback"]


def test_a_function_that_leaves_the_program_fails_and_the_program_stays(app: Scheduler) -> None:
    app.schedule(Manual(), name="leaves", retry=1)(sys.exit)
    with app:
        assert finish(app, "leaves")["run"]["error"].startswith("SystemExit")


def test_a_function_may_ask_to_be_called_later(app: Scheduler) -> None:
    wishes = [NotBefore(datetime.now(UTC) + timedelta(seconds=1))]

    @app.schedule(Manual(), retry=QUICK)
    def not_yet() -> Any:
        return wishes.pop() if wishes else "useful"

    asked = wishes[0].at
    with app:
        done = finish(app, "not_yet")
    first, second = done["attempts"]
    assert (first["outcome"], second["outcome"]) == ("failed", "succeeded")
    assert datetime.fromisoformat(second["leased_at"]) >= asked


def test_a_function_nobody_knows_parks_its_schedule_after_its_attempts_and_keeps_it(app: Scheduler) -> None:
    app.schedules.create(name="a", every="1h", call="send-male", retry=QUICK)
    app.task("send-mail")(lambda: None)
    with app:
        done = finish(app, "a")
        assert [attempt["outcome"] for attempt in done["attempts"]] == ["failed", "failed"]
        assert "did you mean 'send-mail'?" in done["run"]["error"]
        standing = app.schedules.get(schedule="a")["standing"]
    assert standing["state"] == "parked"
    assert standing["reason"].startswith("target does not resolve: no function is registered as")


def test_how_a_schedule_does_can_be_asked(app: Scheduler) -> None:
    works = iter([True, True, False, True])

    @app.schedule(Manual(), retry=1)
    def sometimes() -> None:
        assert next(works)

    with app:
        for _ in range(3):
            finish(app, "sometimes")
        health = app.schedules.health(schedule="sometimes")
        assert health["failures"] == 1
        assert health["windows"]["1h"]["outcomes"] == {"succeeded": 2, "failed": 1}
        finish(app, "sometimes")
        assert app.schedules.health(schedule="sometimes")["failures"] == 0


def test_namespaces_do_not_see_each_other(file: str) -> None:
    ours, theirs = Scheduler(file, namespace="ours"), Scheduler(file, namespace="theirs")
    ours.schedules.create(name="a", manual={}, note="x")
    assert theirs.schedules.list()["schedules"] == []
    with pytest.raises(NotFound):
        theirs.schedules.pause(schedule="a")
    theirs.schedules.create(name="a", manual={}, note="y")
    ours.stop()
    theirs.stop()


# Where it cannot be.


def test_places_that_will_not_do_are_refused_in_our_words(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, but long enough to be looked at" * 100)
    with pytest.raises(InvalidInput, match="of a kind we do not know"):
        Scheduler("mysql://localhost/x")
    with pytest.raises(InvalidInput, match="names a host"):
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
            run = (await app.call("schedule run", schedule="poll"))["run"]["id"]
            await done.wait()
            with pytest.raises(NotFound):
                await app.call("schedule pauze")
            return await app.call("run get", run=run)

    found = asyncio.run(asyncio.wait_for(main(), 60))
    assert found["attempts"][0]["result"] == "poll"
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
        run = app.schedules.run(schedule="sleeper")["run"]["id"]
        until(lambda: seen, "it to begin")
        app.runs.cancel(run=run, reason="enough")
        until(lambda: app.runs.get(run=run)["run"]["state"] == "cancelled", "the cancel")
    assert seen == ["began", "cancelled"]


def test_a_scheduler_that_another_process_runs_opens_nothing_and_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMEWRIGHT_HOSTED", str(tmp_path / "host.db"))
    app = Scheduler(tmp_path / "own.db")
    app.on_failed(lambda fact: None)
    app.schedule(every("1h"), name="hourly")(lambda: None)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NotAllowed, match="run by the process that reads it"):
        app.start()
    assert app.schedules.list()["schedules"] == []
    assert {path.name.partition("-")[0] for path in tmp_path.iterdir()} == {"host.db"}
    app.stop()
