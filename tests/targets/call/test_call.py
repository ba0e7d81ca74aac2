"""Calls in this process: on threads and on the loop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import create_model

from tests.targets.call import functions
from tests.targets.call.outcomes import RAISES, RETURNS
from tests.targets.kit import (
    CallItem,
    OutcomeRecorder,
    launch_of,
    nothing_left,
    outcome_of,
    read,
    start_launch,
    wait_until,
)
from timewright.core.recurrence.triggers import Once
from timewright.core.run.run import Cancelled, Failed, Outcome, Released, Succeeded, TimedOut
from timewright.core.target import Call, Isolation, Note
from timewright.errors import Conflict, InvalidInput, InvalidInstant, NotFound, OverQuota
from timewright.ports import must_return
from timewright.targets.call.registry import FunctionRegistry, check_call, check_call_payload, load_app
from timewright.targets.call.signature import FunctionSignature, read_signature
from timewright.targets.call.target import CallTarget
from timewright.targets.call.threads import CallThreadPool
from timewright.targets.context import Context, NotBefore
from timewright.targets.io_thread import IoThread
from timewright.targets.outcomes import MAX_JSON_DEPTH, MAX_RESULT_BYTES, to_json_value

SECOND = timedelta(seconds=1)


@pytest.fixture
def target() -> Iterator[CallTarget]:
    with nothing_left():
        made = CallTarget(functions.registry)
        yield made
        made.close(grace=SECOND)


def call(name: str, isolation: Isolation = "inherit", **args: Any) -> Call:
    return Call(name=name, args=args, isolation=isolation)


class BlockingFunction:
    """A function that reports its call and waits until it is released."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.go = threading.Event()
        self.max_running = 0
        self._inside = 0
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            self._inside += 1
            self.max_running = max(self.max_running, self._inside)
        self.entered.release()
        self.go.wait(30)
        with self._lock:
            self._inside -= 1


# The registry


def test_a_function_is_registered_under_its_own_or_another_name_and_returned_unchanged() -> None:
    registry = FunctionRegistry()

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


def test_a_name_belongs_to_one_function() -> None:
    registry = FunctionRegistry()
    registry.add(functions.add)
    registry.add(functions.add)
    with pytest.raises(Conflict) as refusal:
        registry.add(functions.pid, name="add")
    assert refusal.value.fix is not None
    assert registry.resolve("add").function is functions.add


def test_an_unknown_name_is_refused_with_the_closest_one() -> None:
    with pytest.raises(NotFound, match="no function is registered as 'tel'") as refusal:
        functions.registry.resolve("tel")
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
            FunctionSignature(
                takes_context=True, parameters=frozenset({"a", "b"}), required=frozenset({"a"})
            ),
        ),
        (takes_context_by_type, FunctionSignature(takes_context=True)),
        (takes_context_by_short_name, FunctionSignature(takes_context=True)),
        (takes_context_by_position, FunctionSignature(takes_context=True, parameters=frozenset({"a"}))),
        (takes_arguments, FunctionSignature(parameters=frozenset({"a", "b"}), required=frozenset({"a"}))),
        (takes_anything, FunctionSignature(accepts_any=True)),
        (takes_nothing, FunctionSignature()),
        (print, FunctionSignature(parameters=frozenset({"sep", "end", "file", "flush"}))),
        (dict.fromkeys({}.keys(), None).get, FunctionSignature(takes_context=True)),
    ],
    ids=lambda thing: getattr(thing, "__name__", ""),
)
def test_the_signature_decides_how_a_function_is_called(
    function: Callable[..., Any], takes: FunctionSignature
) -> None:
    assert read_signature(function) == takes


def yields() -> Iterator[int]:
    yield 1


def takes_two_by_position(context: Any, a: int, /) -> None: ...


@pytest.mark.parametrize("function", [yields, takes_two_by_position, 42, "add"])
def test_an_object_that_cannot_be_called_is_not_registered(function: Any) -> None:
    registry = FunctionRegistry()
    with pytest.raises(InvalidInput) as refusal:
        registry.add(function, name="f")
    assert refusal.value.fix
    assert len(registry) == 0


def test_a_call_that_cannot_succeed_is_refused_when_it_is_created() -> None:
    check_call(functions.registry, call("add", a=1))
    with pytest.raises(NotFound):
        check_call(functions.registry, call("ad", a=1))
    with pytest.raises(InvalidInput, match="it needs 'a'") as refusal:
        check_call(functions.registry, call("add"))
    assert refusal.value.fix == 'args: {"a": …, "b": …}'
    with pytest.raises(InvalidInput, match="does not take 'aa'; did you mean 'a'"):
        check_call(functions.registry, call("add", aa=1))
    with pytest.raises(InvalidInput):
        FunctionRegistry().add(functions.add, isolation="moon")  # type: ignore[arg-type]


def test_a_function_that_cannot_be_imported_is_refused_for_a_worker_process() -> None:
    registry = FunctionRegistry()

    def local() -> None: ...

    decorated = registry.add(lambda: None, name="anonymous"), registry.add(local)
    for registered in decorated:
        with pytest.raises(InvalidInput, match="cannot run in a worker process") as refusal:
            registered.import_reference()
        assert "importable module" in str(refusal.value.fix)
        with pytest.raises(InvalidInput):
            check_call(registry, Call(name=registered.name, isolation="process"))
    assert registry.add(functions.add).import_reference() == "tests.targets.call.functions:add"


def test_a_function_wrapped_by_another_decorator_is_refused_for_a_worker_process() -> None:
    def pid() -> int:
        return 0

    pid.__module__, pid.__qualname__ = functions.pid.__module__, "pid"
    with pytest.raises(InvalidInput, match="another decorator wraps it"):
        FunctionRegistry().add(pid).import_reference()


def test_an_app_is_found_by_its_name_or_alone_in_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "an_app.py").write_text(
        "from timewright.targets.call.registry import FunctionRegistry\n"
        "class Scheduler:\n    registry = FunctionRegistry()\n"
        "scheduler = Scheduler()\nscheduler.registry.add(lambda: 1, name='one')\n"
    )
    (tmp_path / "two_apps.py").write_text(
        "from timewright.targets.call.registry import FunctionRegistry\n"
        "one = FunctionRegistry()\ntwo = FunctionRegistry()\n"
    )
    (tmp_path / "broken_app.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "one" in load_app("an_app:scheduler")
    assert load_app("an_app").app == "an_app"
    for reference in (
        "two_apps",
        "broken_app",
        "no_app_of_this_name",
        "",
        "an_app:nothing",
        "os",
        "an_app:FunctionRegistry",
    ):
        with pytest.raises(InvalidInput, match="is not a scheduler") as refusal:
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


def test_entry_points_are_loaded_and_a_broken_one_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "extra_calls-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: extra-calls\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        "[timewright.calls]\nbroken = no_such_module:f\nsum = tests.targets.call.functions:add\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    registry = FunctionRegistry()
    assert list(registry.load_entry_points()) == ["broken"]
    assert registry.resolve("sum").function is functions.add


# Outcomes


@pytest.mark.parametrize("isolation", ["thread", "loop"])
@pytest.mark.parametrize(("name", "args", "outcome"), RETURNS)
def test_the_return_value_of_a_function_is_its_outcome(
    target: CallTarget, name: str, args: dict[str, Any], outcome: Outcome, isolation: Isolation
) -> None:
    assert outcome_of(target, Call(name=name, args=args, isolation=isolation)) == outcome


def test_not_before_needs_a_utc_offset() -> None:
    with pytest.raises(InvalidInstant):
        NotBefore(datetime(2026, 3, 10, 12))


def test_a_too_large_result_fails_the_run_with_its_size_and_the_limit(target: CallTarget) -> None:
    outcome = outcome_of(target, call("huge"))
    assert outcome.error.startswith(
        f"the result has 1000002 bytes, and at most {MAX_RESULT_BYTES} are stored"
    )
    assert outcome.final


def test_a_too_deeply_nested_result_fails_the_run(target: CallTarget) -> None:
    assert outcome_of(target, call("deep", levels=MAX_JSON_DEPTH - 1)).result[0]
    outcome = outcome_of(target, call("deep", levels=900))
    assert outcome.error == f"the result is nested deeper than {MAX_JSON_DEPTH} levels; return flatter data"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("odd", "<object object at"),
        ("cyclic", "[[...]]"),
        ("half_character", "'\\udc80'"),
        ("mirrored", "<"),
    ],
)
def test_a_result_that_is_not_json_is_stored_as_its_repr(target: CallTarget, name: str, shown: str) -> None:
    result = outcome_of(target, call(name)).result
    assert result["unserialisable"].startswith(shown)


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_models_arrays_and_paths_are_stored_as_plain_data(target: CallTarget, isolation: Isolation) -> None:
    result = outcome_of(target, Call(name="modelled", isolation=isolation)).result
    assert result == {
        "bill": {"total": "9.50", "mode": "json"},
        "column": [1.0, 2.5],
        "path": "/a/b",
    }


def test_a_pydantic_model_is_stored_as_its_fields() -> None:
    bill = create_model("Bill", total=(Decimal, ...), due=(datetime, ...))
    kept = to_json_value([bill(total=Decimal("9.50"), due=functions.LATER)])
    assert kept == [{"total": "9.50", "due": "2026-03-10T12:00:00Z"}]


def test_a_returned_generator_is_a_failure(target: CallTarget) -> None:
    outcome = outcome_of(target, call("yielding"))
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("the function returned a generator, which was not run")


@pytest.mark.parametrize("isolation", ["thread", "loop"])
@pytest.mark.parametrize(("name", "args", "error"), RAISES)
def test_an_exception_is_a_failure_and_the_next_call_succeeds(
    target: CallTarget, name: str, args: dict[str, Any], error: str, isolation: Isolation
) -> None:
    outcome = outcome_of(target, Call(name=name, args=args, isolation=isolation))
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith(error)
    assert not outcome.final
    assert "functions.py" in outcome.result["traceback"]
    assert "answers.py" not in outcome.result["traceback"].splitlines()[1]
    assert len(outcome.result["traceback"]) <= 8000
    assert outcome_of(target, call("add", isolation, a=1)).result == 2


def test_a_task_that_exits_does_not_end_the_loop_for_the_others(target: CallTarget) -> None:
    assert outcome_of(target, call("exit_in_a_task")) == Succeeded(outcome_label="noop")
    assert outcome_of(target, call("tell_async", x=1)).result["args"] == {"x": 1}


def test_a_function_that_stops_the_loop_or_cancels_its_task_affects_only_itself(
    target: CallTarget,
) -> None:
    assert outcome_of(target, call("stop_the_loop")) == Succeeded(outcome_label="noop")
    outcome = outcome_of(target, call("cancel_itself"))
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("the function cancelled its own task")
    assert outcome_of(target, call("tell_async", x=1)).result["args"] == {"x": 1}


def test_capturing_log_records_never_fails_a_run(target: CallTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    assert outcome_of(target, call("log_what_has_no_text")) == Succeeded(outcome_label="useful")


def test_an_unknown_function_is_unresolved_with_the_closest_name(target: CallTarget) -> None:
    outcome = outcome_of(target, call("tel"))
    assert outcome == Failed(
        error="no function is registered as 'tel'; did you mean 'tell'?", unresolved=True
    )


def test_arguments_that_do_not_fit_fail_before_the_function_is_called(target: CallTarget) -> None:
    assert "it needs 'a'" in outcome_of(target, call("add")).error


def test_the_fields_of_a_payload_become_arguments_of_the_run(target: CallTarget) -> None:
    for isolation in ("inherit", "process"):
        assert outcome_of(target, call("add", isolation, a=1, b=2), payload={"b": 40}) == Succeeded(result=41)
    told = outcome_of(target, call("tell_async", x=1), payload={"x": 2, "y": 3})
    assert isinstance(told, Succeeded)
    assert told.result["args"] == {"x": 2, "y": 3}


@pytest.mark.parametrize(
    ("payload", "why"),
    [({"a": 1, "c": 2}, "it does not take 'c'"), ([1, 2], "only a JSON object"), ({"b": 2}, "it needs 'a'")],
)
def test_a_payload_that_cannot_reach_the_function_is_refused_and_fails_the_run(
    target: CallTarget, payload: Any, why: str
) -> None:
    outcome = outcome_of(target, call("add"), payload=payload)
    assert isinstance(outcome, Failed)
    assert why in outcome.error
    with pytest.raises(InvalidInput, match=why) as refusal:
        check_call_payload(functions.registry, call("add"), payload)
    assert (refusal.value.field, refusal.value.fix) == ("payload", 'payload: {"a": …, "b": …}')


def test_a_function_with_the_context_may_get_any_payload(target: CallTarget) -> None:
    for payload in ({"unknown": 1}, [1, 2], "text", None):
        check_call_payload(functions.registry, call("tell"), payload)
        assert isinstance(outcome_of(target, call("tell"), payload=payload), Succeeded)


def test_the_context_of_a_workflow_step_never_becomes_an_argument(target: CallTarget) -> None:
    step = {"workflow": "orders", "step": "add", "b": 40}
    assert outcome_of(target, call("add", a=1), payload=step, schedule_id="") == Succeeded(result=2)


def test_a_target_of_another_kind_fails_finally(target: CallTarget) -> None:
    assert outcome_of(target, Note(text="x")) == Failed(error="a Note is not a call", final=True)


# Isolation and context


def test_async_functions_run_on_the_loop_and_others_on_threads(target: CallTarget) -> None:
    assert outcome_of(target, call("tell")).result["thread"].startswith("timewright-call-")
    assert outcome_of(target, call("tell_async")).result["thread"] == "timewright-calls"
    assert outcome_of(target, call("tell", "loop")).result["thread"] == "timewright-calls"
    assert outcome_of(target, call("tell_async", "thread")).result["thread"].startswith("timewright-call-")


def test_the_isolation_of_the_schedule_precedes_that_of_the_function_and_the_target() -> None:
    registry = FunctionRegistry()
    registry.add(functions.tell, name="plain")
    registry.add(functions.tell, name="looped", isolation="loop")
    with nothing_left():
        target = CallTarget(registry, isolation="thread")
        assert outcome_of(target, call("plain")).result["thread"].startswith("timewright-call-")
        assert outcome_of(target, call("looped")).result["thread"] == "timewright-calls"
        assert outcome_of(target, call("looped", "thread")).result["thread"].startswith("timewright-call-")
        target.close(grace=SECOND)


def test_a_function_gets_the_facts_of_its_run() -> None:
    contexts: list[Context] = []
    registry = FunctionRegistry()

    @registry.register
    def listen(context: Context) -> None:
        contexts.append(context)

    with nothing_left():
        listening = CallTarget(registry)
        later = datetime(2026, 3, 11, 12, tzinfo=UTC)
        outcome_of(
            listening,
            call("listen"),
            run_id="run_1",
            missed=4,
            fired_by=(1,),
            zone="Europe/Berlin",
            trigger=Once(later),
            source="baseline-cron",
            payload={"n": 1},
            metadata={"team": "a"},
        )
        listening.close(grace=SECOND)
    (context,) = contexts
    assert (context.run_id, context.schedule_name, context.key) == ("run_1", "nightly-report", "abc")
    assert (context.fence, context.attempt, context.missed, context.fired_by) == (3, 2, 4, (1,))
    assert (context.zone, context.next_at, context.previous_at) == ("Europe/Berlin", later, None)
    assert (context.source, context.payload, context.metadata) == ("baseline-cron", {"n": 1}, {"team": "a"})
    assert timedelta(0) < context.remaining <= timedelta(seconds=60)
    assert not context.cancelled
    with pytest.raises(AttributeError):
        context.missed = 0  # type: ignore[misc]


def test_a_launch_returns_while_the_function_runs() -> None:
    blocking, registry = BlockingFunction(), FunctionRegistry()
    registry.add(blocking, name="blocking")
    with nothing_left():
        target = CallTarget(registry)
        _, recorder = start_launch(target, call("blocking"))
        assert blocking.entered.acquire(timeout=60)
        assert recorder.outcomes == []
        blocking.go.set()
        assert recorder.wait() == Succeeded()
        target.close(grace=SECOND)


def test_concurrent_threads_never_exceed_the_limit() -> None:
    blocking, registry = BlockingFunction(), FunctionRegistry()
    registry.add(blocking, name="blocking")
    with nothing_left():
        target = CallTarget(registry, threads=2)
        recorders = [start_launch(target, call("blocking"))[1] for _ in range(6)]
        assert blocking.entered.acquire(timeout=60)
        assert blocking.entered.acquire(timeout=60)
        blocking.go.set()
        assert [recorder.wait() for recorder in recorders] == [Succeeded()] * 6
        assert blocking.max_running == 2
        target.close(grace=SECOND)


# Stopping


def test_a_thread_past_its_time_limit_ends_its_run_only_when_it_returns() -> None:
    blocking, registry = BlockingFunction(), FunctionRegistry()
    registry.add(blocking, name="blocking")
    registry.add(functions.add)
    with nothing_left():
        target = CallTarget(registry, threads=1)
        work, recorder = start_launch(target, call("blocking"), limit=0.05, grace=60)
        wait_until(lambda: target._in_process.threads.leaked == 1)
        assert must_return(work)
        assert outcome_of(target, call("add", a=1)).result == 2, "its thread was replaced"
        assert recorder.outcomes == []
        blocking.go.set()
        outcome = recorder.wait()
        assert isinstance(outcome, TimedOut)
        assert outcome.error.startswith(
            "time limit of 0.05 s reached; a function on a thread cannot be killed"
        )
        assert outcome.error.endswith('use isolation="process" for a hard stop')
        wait_until(lambda: target._in_process.threads.leaked == 0)
        target.close(grace=SECOND)


def test_a_call_without_a_time_limit_runs_to_its_end() -> None:
    blocking, registry = BlockingFunction(), FunctionRegistry()
    registry.add(blocking, name="blocking")
    with nothing_left():
        target = CallTarget(registry)
        recorder = OutcomeRecorder()
        target.launch(replace(launch_of(call("blocking")), time_limit=None), recorder)
        assert blocking.entered.acquire(timeout=60)
        assert target._in_process.io_thread._loop is None, "no timer runs for it"
        blocking.go.set()
        assert recorder.wait() == Succeeded()
        target.close(grace=SECOND)


@pytest.mark.parametrize("isolation", ["thread", "loop"])
def test_two_calls_of_one_run_never_run_side_by_side(isolation: Isolation) -> None:
    entered, go, registry = threading.Semaphore(0), [threading.Event() for _ in range(3)], FunctionRegistry()
    order: list[str] = []

    def work(number: int) -> None:
        order.append(f"{number} begins")
        entered.release()
        go[number].wait(60)
        order.append(f"{number} ends")

    async def work_async(number: int) -> None:
        await asyncio.to_thread(work, number)

    registry.add(work if isolation == "thread" else work_async, name="work")
    with nothing_left():
        first, second = CallTarget(registry), CallTarget(registry)
        _, old = start_launch(first, call("work", isolation, number=0), run_id="run_x", fence=1)
        assert entered.acquire(timeout=60)
        _, new = start_launch(second, call("work", isolation, number=1), run_id="run_x", fence=2)
        third, stopped = start_launch(second, call("work", isolation, number=2), run_id="run_x", fence=3)
        third.stop("lease lost")
        assert stopped.wait() == Cancelled(reason="lease lost")
        assert order == ["0 begins"]
        go[0].set()
        assert old.wait() == Succeeded()
        assert entered.acquire(timeout=60)
        go[1].set()
        assert new.wait() == Succeeded()
        for target in (first, second):
            target.close(grace=SECOND)
    assert order == ["0 begins", "0 ends", "1 begins", "1 ends"]


def test_a_function_can_read_its_remaining_time(target: CallTarget, tmp_path: Path) -> None:
    what = call("wait_until_cancelled", ready=str(tmp_path / "ready"))
    assert isinstance(outcome_of(target, what, limit=0.05), TimedOut)
    wait_until(lambda: target._in_process.threads.leaked == 0)


@pytest.mark.parametrize("isolation", ["thread", "loop"])
def test_a_stopped_call_is_cancelled_with_the_reason(
    target: CallTarget, tmp_path: Path, isolation: str
) -> None:
    ready, tidied = tmp_path / "ready", tmp_path / "tidied"
    if isolation == "thread":
        work, recorder = start_launch(target, call("wait_until_cancelled", ready=str(ready)))
    else:
        work, recorder = start_launch(target, call("tidy_up_async", ready=str(ready), tidied=str(tidied)))
    read(ready)
    work.stop("replaced")
    work.stop("another reason")
    assert recorder.wait() == Cancelled(reason="replaced")
    assert target._in_process.threads.leaked == 0
    assert isolation == "thread" or tidied.read_text() == "tidied"


def test_a_thread_that_does_not_stop_ends_its_run_when_it_returns() -> None:
    blocking, registry = BlockingFunction(), FunctionRegistry()
    registry.add(blocking, name="blocking")
    with nothing_left():
        target = CallTarget(registry)
        work, recorder = start_launch(target, call("blocking"), grace=0.05)
        assert blocking.entered.acquire(timeout=60)
        work.stop("by_hand")
        wait_until(lambda: target._in_process.threads.leaked == 1)
        assert recorder.outcomes == []
        blocking.go.set()
        assert recorder.wait() == Cancelled(reason="by_hand")
        wait_until(lambda: target._in_process.threads.leaked == 0)
        target.close(grace=SECOND)


def test_a_queued_call_is_cancelled_without_calling_the_function() -> None:
    blocking, registry, called = BlockingFunction(), FunctionRegistry(), threading.Event()
    registry.add(blocking, name="blocking")
    registry.add(called.set, name="call")
    with nothing_left():
        target = CallTarget(registry, threads=1)
        _, first = start_launch(target, call("blocking"))
        assert blocking.entered.acquire(timeout=60)
        work, second = start_launch(target, call("call"), grace=60)
        work.stop("by_hand")
        assert second.wait() == Cancelled(reason="by_hand")
        blocking.go.set()
        assert first.wait() == Succeeded()
        target.close(grace=SECOND)
    assert not called.is_set()


def test_an_async_function_is_cancelled_at_its_time_limit(target: CallTarget, tmp_path: Path) -> None:
    ready, tidied = tmp_path / "ready", tmp_path / "tidied"
    what = call("tidy_up_async", ready=str(ready), tidied=str(tidied))
    assert isinstance(outcome_of(target, what, limit=0.1), TimedOut)
    assert tidied.read_text() == "tidied"


def test_an_async_function_that_ignores_cancellation_ends_its_run_when_it_returns(
    target: CallTarget, tmp_path: Path
) -> None:
    ready, release = tmp_path / "ready", tmp_path / "release"
    work, recorder = start_launch(
        target, call("ignore_cancel", ready=str(ready), release=str(release)), grace=0.05
    )
    read(ready)
    work.stop("by_hand")
    time.sleep(0.2)  # longer than its grace
    assert recorder.outcomes == []
    release.write_text("")
    assert recorder.wait() == Cancelled(reason="by_hand")


def test_a_function_that_blocks_the_loop_times_out_without_affecting_threads() -> None:
    blocking, registry = BlockingFunction(), FunctionRegistry()

    async def block() -> None:
        blocking()

    registry.add(block)
    registry.add(functions.add)
    with nothing_left():
        target = CallTarget(registry)
        _, recorder = start_launch(target, call("block"), limit=0.1, grace=0.05)
        assert blocking.entered.acquire(timeout=60)
        assert outcome_of(target, call("add", a=1)).result == 2
        time.sleep(0.3)  # longer than its time limit and its grace
        assert recorder.outcomes == []
        blocking.go.set()
        assert isinstance(recorder.wait(), TimedOut)
        target.close(grace=SECOND)


@pytest.mark.parametrize("isolation", ["thread", "loop"])
def test_stopping_while_the_call_returns_gives_one_outcome(target: CallTarget, isolation: Isolation) -> None:
    for _ in range(200):
        work, recorder = start_launch(target, call("add", isolation, a=1))
        work.stop("by_hand")
        assert recorder.wait() in (Succeeded(result=2), Cancelled(reason="by_hand"))
    assert target._in_process.threads.leaked == 0


def has_lines(path: Path, count: int) -> bool:
    return len(path.read_text().split()) >= count


def test_a_function_that_forks_reports_once(tmp_path: Path) -> None:
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

    registry = FunctionRegistry()
    registry.add(fork)
    registry.add(fork_async)
    with nothing_left():
        target = CallTarget(registry)
        for number, name in enumerate(("fork", "fork_async"), start=1):
            target.launch(launch_of(call(name)), write)
            read(answers)
            wait_until(partial(has_lines, answers, number))
        target.close(grace=SECOND)
    assert answers.read_text().split() == [str(os.getpid())] * 2


# Closing


def test_closing_releases_running_calls_and_accepts_no_more(tmp_path: Path) -> None:
    with nothing_left():
        target = CallTarget(functions.registry)
        ready = [tmp_path / "one", tmp_path / "two"]
        _, thread = start_launch(target, call("wait_until_cancelled", ready=str(ready[0])))
        _, loop = start_launch(
            target, call("tidy_up_async", ready=str(ready[1]), tidied=str(tmp_path / "tidied"))
        )
        for path in ready:
            read(path)
        target.close(grace=SECOND)
        for recorder in (thread, loop):
            assert recorder.wait() == Released(reason="the target is closing")
        for isolation in ("thread", "loop", "process"):
            assert isinstance(outcome_of(target, call("add", isolation, a=1)), Released)
        target.close(grace=SECOND)


def test_closing_does_not_wait_for_a_thread_that_never_stops() -> None:
    blocking, registry = BlockingFunction(), FunctionRegistry()
    registry.add(blocking, name="blocking")
    with nothing_left():
        target = CallTarget(registry)
        _, recorder = start_launch(target, call("blocking"))
        assert blocking.entered.acquire(timeout=60)
        target.close(grace=timedelta(seconds=0.05))
        assert isinstance(recorder.wait(), Released)
        assert target._in_process.threads.leaked == 1
        blocking.go.set()
        wait_until(lambda: target._in_process.threads.leaked == 0)


def test_a_hung_thread_does_not_prevent_the_exit_of_the_program() -> None:
    source = (
        "import threading\n"
        "from tests.targets.kit import start_launch\n"
        "from timewright.core.target import Call\n"
        "from timewright.targets.call.target import CallTarget\n"
        "from timewright.targets.call.registry import FunctionRegistry\n"
        "entered, registry = threading.Event(), FunctionRegistry()\n"
        "registry.add(lambda: (entered.set(), threading.Event().wait()), name='hang')\n"
        "start_launch(CallTarget(registry), Call(name='hang'))\n"
        "entered.wait()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], env={"PYTHONPATH": os.pathsep.join(sys.path)}, timeout=60, check=False
    )
    assert done.returncode == 0


# Threads and the I/O thread


def test_the_number_of_abandoned_threads_is_limited() -> None:
    blocking = BlockingFunction()
    threads = CallThreadPool(limit=1, max_leaked=2)
    for _ in range(2):
        piece = CallItem(blocking)
        threads.submit(piece)
        assert blocking.entered.acquire(timeout=60)
        assert threads.abandon(piece)
        assert not threads.abandon(piece)
    with pytest.raises(OverQuota) as refusal:
        threads.submit(CallItem(blocking))
    assert "isolation: process" in str(refusal.value.fix)
    blocking.go.set()
    wait_until(lambda: threads.leaked == 0)
    ended = threading.Event()
    threads.submit(CallItem(ended.set))
    assert ended.wait(60)
    threads.close(grace=5)
    assert threads.count == 0


def test_queued_work_gets_the_slot_of_an_abandoned_thread() -> None:
    blocking, ended = BlockingFunction(), threading.Event()
    threads = CallThreadPool(limit=1)
    stuck = CallItem(blocking)
    threads.submit(stuck)
    assert blocking.entered.acquire(timeout=60)
    threads.submit(CallItem(ended.set))
    assert not ended.is_set()
    assert threads.abandon(stuck)
    assert ended.wait(60)
    blocking.go.set()
    wait_until(lambda: threads.leaked == 0)
    threads.close(grace=5)


def test_an_idle_thread_ends_after_the_idle_time() -> None:
    threads, ended = CallThreadPool(idle_seconds=0.02), threading.Event()
    threads.submit(CallItem(ended.set))
    assert ended.wait(60)
    wait_until(lambda: threads.count == 0)
    again = threading.Event()
    threads.submit(CallItem(again.set))
    assert again.wait(60)
    threads.close(grace=5)


def test_a_failing_callback_is_reported_and_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", shown.append)
    with nothing_left():
        io_thread, called = IoThread(), threading.Event()

        def bad() -> None:
            raise ValueError("bad")

        io_thread.call_soon(bad)
        io_thread.call_later(0.0, bad)
        io_thread.call_later(0.01, called.set)
        assert called.wait(60)
        io_thread.close()
    assert [found.exc_type for found in shown] == [ValueError, ValueError]


def test_an_excepthook_that_raises_does_not_end_the_io_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threading, "excepthook", sys.exit)
    with nothing_left():
        io_thread, called = IoThread(), threading.Event()
        io_thread.call_soon(lambda: 1 / 0)
        io_thread.call_soon(called.set)
        assert called.wait(60)
        io_thread.close()


@pytest.mark.parametrize(
    ("what", "scarce", "error"),
    [
        ("socket.socketpair", lambda: OSError(24, "Too many open files"), "OSError: [Errno 24] Too many"),
        ("threading.Thread.start", lambda: RuntimeError("no thread left"), "RuntimeError: no thread left"),
    ],
)
def test_a_call_without_a_timer_fails_and_the_next_one_succeeds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str, scarce: Callable[[], Exception], error: str
) -> None:
    def refuse(*_: object) -> None:
        raise scarce()

    with nothing_left():
        target = CallTarget(functions.registry)
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
        io_thread, called, ended = IoThread(), [], threading.Event()
        io_thread.call_later(0.4, lambda: called.append(3))
        io_thread.call_later(0.1, lambda: called.append(1))
        cancelled = [io_thread.call_later(60.0, lambda: called.append(2)) for _ in range(3000)]
        for timer in cancelled:
            timer.cancel()
            timer.cancel()
        io_thread.call_later(0.6, ended.set)
        assert ended.wait(60)
        assert called == [1, 3]
        assert io_thread._loop is not None
        assert len(io_thread._loop._scheduled) < len(cancelled) // 2  # type: ignore[attr-defined]
        io_thread.close()


def test_a_failing_done_callback_does_not_end_the_thread(
    target: CallTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", shown.append)

    def deaf(outcome: Outcome) -> None:
        raise ValueError("deaf")

    target.launch(launch_of(call("nothing")), deaf)
    wait_until(lambda: shown)
    assert outcome_of(target, call("add", a=1)).result == 2


def test_a_coroutine_returned_by_a_sync_function_is_awaited() -> None:
    registry = FunctionRegistry()

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
