"""Calls in this process: on threads and on the loop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import create_model

from tests.targets import handlers
from tests.targets.stage import Doing, begin, launch_of, nothing_left, outcome_of, read, until
from timewright.core.run import Cancelled, Failed, Outcome, Released, Succeeded, TimedOut
from timewright.core.target import Call, Isolation, Note
from timewright.core.triggers import Once
from timewright.errors import Conflict, InvalidInput, InvalidInstant, NotFound, OverQuota
from timewright.targets.answers import DEEPEST, LONGEST_RESULT, plain_result
from timewright.targets.call import CallTarget
from timewright.targets.context import NOOP, SKIPPED, USEFUL, Context, NotBefore
from timewright.targets.registry import Registry, check_call, load_app
from timewright.targets.signature import Takes, takes_of
from timewright.targets.threads import Threads
from timewright.targets.watch import Watch

SECOND = timedelta(seconds=1)


@pytest.fixture
def target() -> Iterator[CallTarget]:
    with nothing_left():
        made = CallTarget(handlers.registry)
        yield made
        made.close(grace=SECOND)


def call(name: str, isolation: Isolation = "inherit", **args: Any) -> Call:
    return Call(name=name, args=args, isolation=isolation)


class Gate:
    """A function that reports when it is called and waits to be let go."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.go = threading.Event()
        self.most = 0
        self._inside = 0
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            self._inside += 1
            self.most = max(self.most, self._inside)
        self.entered.release()
        self.go.wait(30)
        with self._lock:
            self._inside -= 1


# The registry


def test_a_function_is_registered_under_its_own_name_or_another_and_stays_what_it_was() -> None:
    registry = Registry()

    @registry.register
    def report() -> int:
        return 1

    @registry.register("nightly", isolation="thread")
    def other() -> int:
        return 2

    assert report() == 1
    assert other() == 2
    assert registry.resolve("report").function is report
    assert registry.resolve("nightly").function is other
    assert registry.resolve("nightly").isolation == "thread"
    assert [found.name for found in registry] == ["report", "nightly"]
    assert "other" not in registry
    assert len(registry) == 2


def test_a_name_means_one_function() -> None:
    registry = Registry()
    registry.add(handlers.add)
    registry.add(handlers.add)
    with pytest.raises(Conflict) as refusal:
        registry.add(handlers.pid, name="add")
    assert refusal.value.fix is not None
    assert registry.resolve("add").function is handlers.add


def test_an_unknown_name_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(NotFound, match="no function is registered as 'tel'") as refusal:
        handlers.registry.resolve("tel")
    assert refusal.value.fix == "did you mean 'tell'?"


def takes_context_by_name(context: Any, a: int, b: int = 1) -> None: ...
def takes_context_by_type(c: Context) -> None: ...
def takes_context_by_short_name(ctx: Any) -> None: ...
def takes_context_by_position(c: Any, /, a: int = 1) -> None: ...
def takes_arguments(a: int, *, b: int = 1) -> None: ...
def takes_anything(**others: Any) -> None: ...
def takes_nothing() -> None: ...


@pytest.mark.parametrize(
    ("function", "takes"),
    [
        (
            takes_context_by_name,
            Takes(context=True, names=frozenset({"a", "b"}), required=frozenset({"a"})),
        ),
        (takes_context_by_type, Takes(context=True)),
        (takes_context_by_short_name, Takes(context=True)),
        (takes_context_by_position, Takes(context=True, names=frozenset({"a"}))),
        (takes_arguments, Takes(names=frozenset({"a", "b"}), required=frozenset({"a"}))),
        (takes_anything, Takes(others=True)),
        (takes_nothing, Takes()),
        (print, Takes(names=frozenset({"sep", "end", "file", "flush"}))),
        (dict.fromkeys({}.keys(), None).get, Takes(context=True)),
    ],
    ids=lambda thing: getattr(thing, "__name__", ""),
)
def test_a_signature_says_how_a_function_wants_to_be_called(
    function: Callable[..., Any], takes: Takes
) -> None:
    assert takes_of(function) == takes


def yields() -> Iterator[int]:
    yield 1


def takes_two_by_position(context: Any, a: int, /) -> None: ...


@pytest.mark.parametrize("function", [yields, takes_two_by_position, 42, "add"])
def test_what_could_not_be_called_is_not_registered(function: Any) -> None:
    registry = Registry()
    with pytest.raises(InvalidInput) as refusal:
        registry.add(function, name="f")
    assert refusal.value.fix
    assert len(registry) == 0


def test_a_call_that_cannot_succeed_is_refused_when_it_is_written_down() -> None:
    check_call(handlers.registry, call("add", a=1))
    with pytest.raises(NotFound):
        check_call(handlers.registry, call("ad", a=1))
    with pytest.raises(InvalidInput, match="it needs 'a'"):
        check_call(handlers.registry, call("add"))
    with pytest.raises(InvalidInput, match="does not take 'aa'; did you mean 'a'"):
        check_call(handlers.registry, call("add", aa=1))
    with pytest.raises(InvalidInput):
        Registry().add(handlers.add, isolation="moon")  # type: ignore[arg-type]


def test_a_function_no_other_process_can_import_is_refused_for_one() -> None:
    registry = Registry()

    def local() -> None: ...

    decorated = registry.add(lambda: None, name="anonymous"), registry.add(local)
    for registered in decorated:
        with pytest.raises(InvalidInput, match="cannot run in a worker subprocess") as refusal:
            registered.reference()
        assert "module that can be imported" in str(refusal.value.fix)
        with pytest.raises(InvalidInput):
            check_call(registry, Call(name=registered.name, isolation="process"))
    assert registry.add(handlers.add).reference() == "tests.targets.handlers:add"


def test_a_function_hidden_behind_another_decorator_is_refused_for_a_subprocess() -> None:
    def pid() -> int:
        return 0

    pid.__module__, pid.__qualname__ = handlers.pid.__module__, "pid"
    with pytest.raises(InvalidInput, match="another decorator stands above"):
        Registry().add(pid).reference()


def test_an_app_is_found_by_its_name_or_alone_in_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "an_app.py").write_text(
        "from timewright.targets.registry import Registry\n"
        "class Scheduler:\n    registry = Registry()\n"
        "scheduler = Scheduler()\nscheduler.registry.add(lambda: 1, name='one')\n"
    )
    (tmp_path / "two_apps.py").write_text(
        "from timewright.targets.registry import Registry\none = Registry()\ntwo = Registry()\n"
    )
    (tmp_path / "broken_app.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "one" in load_app("an_app:scheduler")
    assert load_app("an_app").app == "an_app"
    for reference in (
        "two_apps",
        "broken_app",
        "no_app_of_this_name",
        "an_app:nothing",
        "os",
        "an_app:Registry",
    ):
        with pytest.raises(InvalidInput, match="leads to no scheduler") as refusal:
            load_app(reference)
        assert refusal.value.fix == "--app myapp:scheduler"
    with pytest.raises(InvalidInput, match=r"\(broken_app.py, line 1\)"):
        load_app("broken_app")
    (tmp_path / "bad_app.py").write_text("from timewright import Cron\n\nCron('0 9 * *')\n")
    with pytest.raises(InvalidInput, match=r"it has 4 fields \(bad_app.py, line 3\)"):
        load_app("bad_app")
    for reference, fix in (("an_app.py", "--app an_app:app"), ("jobs/mine.py:jobs", "--app jobs.mine:jobs")):
        with pytest.raises(InvalidInput) as refusal:
            load_app(reference)
        assert refusal.value.fix == fix


def test_functions_of_installed_packages_are_found_and_a_broken_one_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "extra_calls-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: extra-calls\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        "[timewright.calls]\nbroken = no_such_module:f\nsum = tests.targets.handlers:add\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry()
    assert list(registry.load_entry_points()) == ["broken"]
    assert registry.resolve("sum").function is handlers.add


# What a function may answer


RETURNS: list[tuple[str, dict[str, Any], Outcome]] = [
    ("nothing", {}, Succeeded()),
    ("add", {"a": 1, "b": 2}, Succeeded(result=3)),
    ("word", {"text": USEFUL}, Succeeded(word="useful")),
    ("word", {"text": NOOP}, Succeeded(word="noop")),
    ("word", {"text": SKIPPED}, Succeeded(word="skipped")),
    ("word", {"text": "useless"}, Succeeded(result="useless")),
    (
        "not_yet",
        {},
        Failed(error="asked to be run not before 2026-03-10T12:00:00Z", not_before=handlers.LATER),
    ),
]


@pytest.mark.parametrize("isolation", ["thread", "loop"])
@pytest.mark.parametrize(("name", "args", "outcome"), RETURNS)
def test_what_a_function_gives_back_is_its_outcome(
    target: CallTarget, name: str, args: dict[str, Any], outcome: Outcome, isolation: Isolation
) -> None:
    assert outcome_of(target, Call(name=name, args=args, isolation=isolation)) == outcome


def test_a_time_to_wait_for_must_say_its_offset() -> None:
    with pytest.raises(InvalidInstant):
        NotBefore(datetime(2026, 3, 10, 12))


def test_a_result_that_is_too_large_is_cut_and_says_so(target: CallTarget) -> None:
    result = outcome_of(target, call("huge")).result
    assert result["bytes"] == 1_000_002
    assert result["limit_bytes"] == LONGEST_RESULT
    assert result["truncated"].startswith('"xxx')
    assert len(result["truncated"]) < 1000


def test_a_result_that_is_nested_too_deep_for_others_to_write_is_cut_and_says_so(target: CallTarget) -> None:
    assert outcome_of(target, call("deep", levels=DEEPEST - 1)).result[0]
    result = outcome_of(target, call("deep", levels=900)).result
    assert result["limit_depth"] == DEEPEST
    assert result["bytes"] == 1801
    assert result["truncated"].startswith("[[[")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("odd", "<object object at"),
        ("cyclic", "[[...]]"),
        ("half_character", "'\\udc80'"),
        ("mirrored", "<"),
    ],
)
def test_a_result_that_cannot_be_written_down_is_shown_instead(
    target: CallTarget, name: str, shown: str
) -> None:
    result = outcome_of(target, call(name)).result
    assert result["unserialisable"].startswith(shown)


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_models_arrays_and_paths_are_kept_as_the_data_they_stand_for(
    target: CallTarget, isolation: Isolation
) -> None:
    result = outcome_of(target, Call(name="modelled", isolation=isolation)).result
    assert result == {
        "bill": {"total": "9.50", "mode": "json"},
        "column": [1.0, 2.5],
        "path": "/a/b",
    }


def test_a_model_of_pydantic_is_kept_as_its_fields() -> None:
    bill = create_model("Bill", total=(Decimal, ...), due=(datetime, ...))
    kept = plain_result([bill(total=Decimal("9.50"), due=handlers.LATER)])
    assert kept == [{"total": "9.50", "due": "2026-03-10T12:00:00Z"}]


def test_a_generator_that_nobody_runs_is_no_success(target: CallTarget) -> None:
    outcome = outcome_of(target, call("yielding"))
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("it gave back a generator, of which nothing has run")


RAISES = [
    ("boom", {}, "ValueError: the cat \\x00 is \\udc80 out"),
    ("unshowable", {}, "Unshowable: (its text cannot be shown: SystemExit)"),
    ("raise_wordy", {}, "Wordy: in words of its own"),
    ("raise_anonymous", {}, "Anonymous: who"),
    ("raise_it", {"name": "exit"}, "SystemExit: 3"),
    ("raise_it", {"name": "interrupt"}, "KeyboardInterrupt"),
    ("raise_it", {"name": "generator"}, "GeneratorExit"),
    ("recurse", {}, "RecursionError: maximum recursion depth exceeded"),
    ("raise_it_async", {"name": "exit"}, "SystemExit: 3"),
    ("raise_it_async", {"name": "cancelled"}, "CancelledError"),
]


@pytest.mark.parametrize("isolation", ["thread", "loop"])
@pytest.mark.parametrize(("name", "args", "error"), RAISES)
def test_whatever_a_function_raises_is_a_failure_and_the_next_call_succeeds(
    target: CallTarget, name: str, args: dict[str, Any], error: str, isolation: Isolation
) -> None:
    outcome = outcome_of(target, Call(name=name, args=args, isolation=isolation))
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith(error)
    assert not outcome.final
    assert "handlers.py" in outcome.result["traceback"]
    assert "answers.py" not in outcome.result["traceback"].splitlines()[1]
    assert len(outcome.result["traceback"]) <= 8000
    assert outcome_of(target, call("add", isolation, a=1)).result == 2


def test_a_task_that_exits_does_not_end_the_loop_for_the_others(target: CallTarget) -> None:
    assert outcome_of(target, call("exit_in_a_task")) == Succeeded(word="noop")
    assert outcome_of(target, call("tell_async", x=1)).result["args"] == {"x": 1}


def test_a_function_that_stops_the_loop_or_cancels_its_task_does_so_for_itself_alone(
    target: CallTarget,
) -> None:
    assert outcome_of(target, call("stop_the_loop")) == Succeeded(word="noop")
    outcome = outcome_of(target, call("cancel_itself"))
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("a function cancelled its task")
    assert outcome_of(target, call("tell_async", x=1)).result["args"] == {"x": 1}


def test_what_a_function_logs_fails_no_run_that_it_did_not_fail_before(
    target: CallTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    assert outcome_of(target, call("log_what_has_no_text")) == Succeeded(word="useful")


def test_an_unknown_function_is_unresolved_with_the_nearest_name(target: CallTarget) -> None:
    outcome = outcome_of(target, call("tel"))
    assert outcome == Failed(
        error="no function is registered as 'tel'; did you mean 'tell'?", unresolved=True
    )


def test_arguments_that_do_not_fit_are_told_before_the_function_is_called(target: CallTarget) -> None:
    assert "it needs 'a'" in outcome_of(target, call("add")).error


def test_a_target_of_another_kind_fails_for_good(target: CallTarget) -> None:
    assert outcome_of(target, Note(text="x")) == Failed(error="a Note is not a call", final=True)


# Where it runs, and what it is told


def test_async_functions_run_on_the_loop_and_others_on_threads(target: CallTarget) -> None:
    assert outcome_of(target, call("tell")).result["thread"].startswith("timewright-call-")
    assert outcome_of(target, call("tell_async")).result["thread"] == "timewright-calls"
    assert outcome_of(target, call("tell", "loop")).result["thread"] == "timewright-calls"
    assert outcome_of(target, call("tell_async", "thread")).result["thread"].startswith("timewright-call-")


def test_the_schedules_wish_comes_before_the_functions_and_that_before_the_targets() -> None:
    registry = Registry()
    registry.add(handlers.tell, name="plain")
    registry.add(handlers.tell, name="looped", isolation="loop")
    with nothing_left():
        target = CallTarget(registry, isolation="thread")
        assert outcome_of(target, call("plain")).result["thread"].startswith("timewright-call-")
        assert outcome_of(target, call("looped")).result["thread"] == "timewright-calls"
        assert outcome_of(target, call("looped", "thread")).result["thread"].startswith("timewright-call-")
        target.close(grace=SECOND)


def test_a_function_is_told_about_its_run() -> None:
    told: list[Context] = []
    registry = Registry()

    @registry.register
    def listen(context: Context) -> None:
        told.append(context)

    with nothing_left():
        listening = CallTarget(registry)
        later = datetime(2026, 3, 11, 12, tzinfo=UTC)
        outcome_of(
            listening,
            call("listen"),
            missed=4,
            fired_by=(1,),
            zone="Europe/Berlin",
            trigger=Once(later),
            source="baseline-cron",
            payload={"n": 1},
            metadata={"team": "a"},
        )
        listening.close(grace=SECOND)
    (context,) = told
    assert (context.run_id, context.schedule_name, context.key) == ("run_1", "nightly-report", "abc")
    assert (context.fence, context.attempt, context.missed, context.fired_by) == (3, 2, 4, (1,))
    assert (context.zone, context.next_at, context.previous_at) == ("Europe/Berlin", later, None)
    assert (context.source, context.payload, context.metadata) == ("baseline-cron", {"n": 1}, {"team": "a"})
    assert timedelta(0) < context.remaining <= timedelta(seconds=60)
    assert not context.cancelled
    with pytest.raises(AttributeError):
        context.missed = 0  # type: ignore[misc]


def test_a_launch_returns_while_the_function_is_still_at_it() -> None:
    gate, registry = Gate(), Registry()
    registry.add(gate, name="gate")
    with nothing_left():
        target = CallTarget(registry)
        _, ear = begin(target, call("gate"))
        assert gate.entered.acquire(timeout=60)
        assert ear.heard == []
        gate.go.set()
        assert ear.wait() == Succeeded()
        target.close(grace=SECOND)


def test_no_more_threads_work_at_once_than_there_may_be() -> None:
    gate, registry = Gate(), Registry()
    registry.add(gate, name="gate")
    with nothing_left():
        target = CallTarget(registry, threads=2)
        ears = [begin(target, call("gate"))[1] for _ in range(6)]
        assert gate.entered.acquire(timeout=60)
        assert gate.entered.acquire(timeout=60)
        gate.go.set()
        assert [ear.wait() for ear in ears] == [Succeeded()] * 6
        assert gate.most == 2
        target.close(grace=SECOND)


# Stopping


def test_a_thread_that_takes_too_long_is_reported_at_once_and_counted_until_it_comes_back() -> None:
    gate, registry = Gate(), Registry()
    registry.add(gate, name="gate")
    registry.add(handlers.add)
    with nothing_left():
        target = CallTarget(registry, threads=1)
        assert outcome_of(target, call("gate"), limit=0.05, grace=60) == TimedOut(
            error="time limit of 0.05 s reached"
        )
        until(lambda: target.leaked == 1)
        assert outcome_of(target, call("add", a=1)).result == 2
        gate.go.set()
        until(lambda: target.leaked == 0)
        target.close(grace=SECOND)


def test_a_function_may_see_that_its_time_is_up(target: CallTarget, tmp_path: Path) -> None:
    what = call("wait_until_cancelled", ready=str(tmp_path / "ready"))
    assert isinstance(outcome_of(target, what, limit=0.05), TimedOut)
    until(lambda: target.leaked == 0)


@pytest.mark.parametrize("isolation", ["thread", "loop"])
def test_a_stopped_call_is_cancelled_with_the_reason(
    target: CallTarget, tmp_path: Path, isolation: str
) -> None:
    ready, tidied = tmp_path / "ready", tmp_path / "tidied"
    if isolation == "thread":
        work, ear = begin(target, call("wait_until_cancelled", ready=str(ready)))
    else:
        work, ear = begin(target, call("tidy_up_async", ready=str(ready), tidied=str(tidied)))
    read(ready)
    work.stop("replaced")
    work.stop("another reason")
    assert ear.wait() == Cancelled(reason="replaced")
    assert target.leaked == 0
    assert isolation == "thread" or tidied.read_text() == "tidied"


def test_a_thread_that_does_not_stop_is_given_up_after_its_grace() -> None:
    gate, registry = Gate(), Registry()
    registry.add(gate, name="gate")
    with nothing_left():
        target = CallTarget(registry)
        work, ear = begin(target, call("gate"), grace=0.05)
        assert gate.entered.acquire(timeout=60)
        work.stop("by_hand")
        assert ear.wait() == Cancelled(reason="by_hand")
        until(lambda: target.leaked == 1)
        gate.go.set()
        until(lambda: target.leaked == 0)
        target.close(grace=SECOND)


def test_a_call_that_waits_for_a_thread_is_cancelled_without_being_made() -> None:
    gate, registry, called = Gate(), Registry(), threading.Event()
    registry.add(gate, name="gate")
    registry.add(called.set, name="call")
    with nothing_left():
        target = CallTarget(registry, threads=1)
        _, first = begin(target, call("gate"))
        assert gate.entered.acquire(timeout=60)
        work, second = begin(target, call("call"), grace=60)
        work.stop("by_hand")
        assert second.wait() == Cancelled(reason="by_hand")
        gate.go.set()
        assert first.wait() == Succeeded()
        target.close(grace=SECOND)
    assert not called.is_set()


def test_an_async_function_is_cancelled_at_its_time_limit(target: CallTarget, tmp_path: Path) -> None:
    ready, tidied = tmp_path / "ready", tmp_path / "tidied"
    what = call("tidy_up_async", ready=str(ready), tidied=str(tidied))
    assert isinstance(outcome_of(target, what, limit=0.1), TimedOut)
    assert tidied.read_text() == "tidied"
    assert target.leaked == 0


def test_an_async_function_that_does_not_mind_being_cancelled_is_given_up(
    target: CallTarget, tmp_path: Path
) -> None:
    ready, release = tmp_path / "ready", tmp_path / "release"
    work, ear = begin(target, call("ignore_cancel", ready=str(ready), release=str(release)), grace=0.05)
    read(ready)
    work.stop("by_hand")
    assert ear.wait() == Cancelled(reason="by_hand")
    assert target.leaked == 1
    release.write_text("")
    until(lambda: target.leaked == 0)


def test_a_function_that_blocks_the_loop_is_reported_on_time_and_threads_do_not_notice() -> None:
    gate, registry = Gate(), Registry()

    async def block() -> None:
        gate()

    registry.add(block)
    registry.add(handlers.add)
    with nothing_left():
        target = CallTarget(registry)
        _, ear = begin(target, call("block"), limit=0.1, grace=0.05)
        assert gate.entered.acquire(timeout=60)
        assert outcome_of(target, call("add", a=1)).result == 2
        assert isinstance(ear.wait(), TimedOut)
        until(lambda: target.leaked == 1)
        gate.go.set()
        until(lambda: target.leaked == 0)
        target.close(grace=SECOND)


@pytest.mark.parametrize("isolation", ["thread", "loop"])
def test_stopping_at_the_very_moment_of_the_answer_gives_one_outcome(
    target: CallTarget, isolation: Isolation
) -> None:
    for _ in range(200):
        work, ear = begin(target, call("add", isolation, a=1))
        work.stop("by_hand")
        assert ear.wait() in (Succeeded(result=2), Cancelled(reason="by_hand"))
    assert target.leaked == 0


def has_lines(path: Path, count: int) -> bool:
    return len(path.read_text().split()) >= count


def test_of_a_function_that_forks_only_the_first_answers(tmp_path: Path) -> None:
    answers = tmp_path / "answers"

    def fork() -> str:
        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)
        return "useful"

    async def fork_async() -> str:
        return fork()

    def write(outcome: Outcome) -> None:
        with answers.open("a") as file:
            file.write(f"{os.getpid()}\n")

    registry = Registry()
    registry.add(fork)
    registry.add(fork_async)
    with nothing_left():
        target = CallTarget(registry)
        for number, name in enumerate(("fork", "fork_async"), start=1):
            target.launch(launch_of(call(name)), write)
            read(answers)
            until(partial(has_lines, answers, number))
        target.close(grace=SECOND)
    assert answers.read_text().split() == [str(os.getpid())] * 2


# Closing


def test_closing_gives_back_what_is_under_way_and_takes_nothing_more(tmp_path: Path) -> None:
    with nothing_left():
        target = CallTarget(handlers.registry)
        ready = [tmp_path / "one", tmp_path / "two"]
        _, thread = begin(target, call("wait_until_cancelled", ready=str(ready[0])))
        _, loop = begin(target, call("tidy_up_async", ready=str(ready[1]), tidied=str(tmp_path / "tidied")))
        for path in ready:
            read(path)
        target.close(grace=SECOND)
        for ear in (thread, loop):
            assert ear.wait() == Released(reason="the target is closing")
        for isolation in ("thread", "loop", "process"):
            assert isinstance(outcome_of(target, call("add", isolation, a=1)), Released)
        target.close(grace=SECOND)


def test_closing_does_not_wait_for_a_thread_that_never_stops() -> None:
    gate, registry = Gate(), Registry()
    registry.add(gate, name="gate")
    with nothing_left():
        target = CallTarget(registry)
        _, ear = begin(target, call("gate"))
        assert gate.entered.acquire(timeout=60)
        target.close(grace=timedelta(seconds=0.05))
        assert isinstance(ear.wait(), Released)
        assert target.leaked == 1
        gate.go.set()
        until(lambda: target.leaked == 0)


def test_a_hung_thread_does_not_keep_the_program_from_ending() -> None:
    source = (
        "import threading\n"
        "from tests.targets.stage import begin\n"
        "from timewright.core.target import Call\n"
        "from timewright.targets.call import CallTarget\n"
        "from timewright.targets.registry import Registry\n"
        "entered, registry = threading.Event(), Registry()\n"
        "registry.add(lambda: (entered.set(), threading.Event().wait()), name='hang')\n"
        "begin(CallTarget(registry), Call(name='hang'))\n"
        "entered.wait()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], env={"PYTHONPATH": os.pathsep.join(sys.path)}, timeout=60, check=False
    )
    assert done.returncode == 0


# Threads and the watch, by themselves


def test_threads_that_never_come_back_have_a_limit_too() -> None:
    gate = Gate()
    threads = Threads(limit=1, most_leaked=2)
    for _ in range(2):
        piece = Doing(gate)
        threads.give(piece)
        assert gate.entered.acquire(timeout=60)
        assert threads.abandon(piece)
        assert not threads.abandon(piece)
    with pytest.raises(OverQuota) as refusal:
        threads.give(Doing(gate))
    assert "isolation: process" in str(refusal.value.fix)
    gate.go.set()
    until(lambda: threads.leaked == 0)
    ended = threading.Event()
    threads.give(Doing(ended.set))
    assert ended.wait(60)
    threads.close(grace=5)
    assert threads.count == 0


def test_work_that_waits_gets_the_place_of_a_thread_that_was_given_up() -> None:
    gate, ended = Gate(), threading.Event()
    threads = Threads(limit=1)
    stuck = Doing(gate)
    threads.give(stuck)
    assert gate.entered.acquire(timeout=60)
    threads.give(Doing(ended.set))
    assert not ended.is_set()
    assert threads.abandon(stuck)
    assert ended.wait(60)
    gate.go.set()
    until(lambda: threads.leaked == 0)
    threads.close(grace=5)


def test_a_thread_with_nothing_to_do_leaves_after_a_while() -> None:
    threads, ended = Threads(idle_seconds=0.02), threading.Event()
    threads.give(Doing(ended.set))
    assert ended.wait(60)
    until(lambda: threads.count == 0)
    again = threading.Event()
    threads.give(Doing(again.set))
    assert again.wait(60)
    threads.close(grace=5)


def test_a_callback_that_raises_is_shown_and_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", shown.append)
    with nothing_left():
        watch, heard = Watch(), threading.Event()

        def bad() -> None:
            raise ValueError("bad")

        watch.call(bad)
        watch.later(0.0, bad)
        watch.later(0.01, heard.set)
        assert heard.wait(60)
        watch.close()
    assert [found.exc_type for found in shown] == [ValueError, ValueError]


def test_a_hook_for_errors_that_raises_itself_does_not_end_the_thread_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threading, "excepthook", sys.exit)
    with nothing_left():
        watch, heard = Watch(), threading.Event()
        watch.call(lambda: 1 / 0)
        watch.call(heard.set)
        assert heard.wait(60)
        watch.close()


@pytest.mark.parametrize(
    ("what", "scarce", "error"),
    [
        ("socket.socketpair", lambda: OSError(24, "Too many open files"), "OSError: [Errno 24] Too many"),
        ("threading.Thread.start", lambda: RuntimeError("no thread left"), "RuntimeError: no thread left"),
    ],
)
def test_a_call_whose_time_nobody_can_count_fails_at_once_and_the_next_one_is_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str, scarce: Callable[[], Exception], error: str
) -> None:
    def refuse(*_: object) -> None:
        raise scarce()

    with nothing_left():
        target = CallTarget(handlers.registry)
        with monkeypatch.context() as patched:
            patched.setattr(what, refuse)
            for isolation in ("thread", "loop", "process"):
                outcome = outcome_of(target, Call(name="nothing", isolation=isolation))
                assert outcome.error.startswith(error)
        waits = call("wait_until_cancelled", ready=str(tmp_path / "ready"))
        assert isinstance(outcome_of(target, waits, limit=0.05), TimedOut)
        assert outcome_of(target, call("nothing", "process")) == Succeeded()
        target.close(grace=timedelta(seconds=1))
        gc.collect()  # a loop that could not be made holds its selector until it is collected


def test_timers_fire_in_order_and_cancelled_ones_never() -> None:
    with nothing_left():
        watch, heard, ended = Watch(), [], threading.Event()
        watch.later(0.4, lambda: heard.append(3))
        watch.later(0.1, lambda: heard.append(1))
        cancelled = [watch.later(60.0, lambda: heard.append(2)) for _ in range(3000)]
        for timer in cancelled:
            timer.cancel()
            timer.cancel()
        watch.later(0.6, ended.set)
        assert ended.wait(60)
        assert heard == [1, 3]
        assert len(watch._timers) < len(cancelled) // 2
        watch.close()


def test_an_ear_that_raises_does_not_lose_the_thread(
    target: CallTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", shown.append)

    def deaf(outcome: Outcome) -> None:
        raise ValueError("deaf")

    target.launch(launch_of(call("nothing")), deaf)
    until(lambda: shown)
    assert outcome_of(target, call("add", a=1)).result == 2


def test_a_coroutine_given_back_by_an_ordinary_function_is_awaited() -> None:
    registry = Registry()

    async def inner() -> int:
        await asyncio.sleep(0)
        return 7

    def outer() -> Coroutine[Any, Any, int]:
        return inner()

    registry.add(outer)
    with nothing_left():
        made = CallTarget(registry)
        assert outcome_of(made, call("outer", "thread")) == Succeeded(result=7)
        assert outcome_of(made, call("outer", "loop")) == Succeeded(result=7)
        made.close(grace=SECOND)
