"""The embedded scheduler: facts become events, operations become methods."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.engine.instances.scheduler_kit import PLURALS, QUICK, app, finish, nothing_left
from tests.faults.tools.worker_fleet import wait_until
from timewright import Context, Manual, Scheduler
from timewright.core import facts as told
from timewright.core.facts import Fact
from timewright.errors import (
    InvalidInput,
    NotFound,
    TimewrightError,
    UnknownField,
)
from timewright.operations import operations

__all__ = ["app", "nothing_left"]


# Events.


def test_events_arrive_after_the_commit_with_their_fact(app: Scheduler) -> None:
    received: list[tuple[str, Fact]] = []
    for event in ("started", "completed", "failed", "exhausted", "parked"):
        app.on(event)(lambda fact, event=event: received.append((event, fact)))

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
        facts_of = {}
        for name, last in (("fails", "exhausted"), ("parks", "parked"), ("works", "completed")):
            finish(app, name)
            wait_until(lambda last=last: received and received[-1][0] == last, "the last fact")  # type: ignore[misc]
            assert {getattr(fact, "schedule_name", "") for _, fact in received} == {name}
            # A listener receives the fact with the name of its schedule.
            facts_of[name] = [(event, type(fact).__base__) for event, fact in received]
            received.clear()
    tried = [
        ("started", told.AttemptStarted),
        ("failed", told.RunWillRetry),
        ("started", told.AttemptStarted),
    ]
    assert facts_of["fails"] == [*tried, ("failed", told.RunFailed), ("exhausted", told.RunFailed)]
    ends = [(event, told.RunParked) for event in ("failed", "exhausted", "parked")]
    assert facts_of["parks"] == [*tried, *ends]
    assert facts_of["works"] == [("started", told.AttemptStarted), ("completed", told.RunSucceeded)]


def test_skipped_and_cancelled_runs_are_reported_too(app: Scheduler) -> None:
    received: list[Fact] = []
    app.on("skipped")(received.append)
    app.on("cancelled")(received.append)

    @app.schedule(Manual())
    def long(ctx: Context) -> None:
        ctx.cancelled.wait(30)

    with app:
        run = app.schedules.run(schedule="long").run.id
        wait_until(lambda: app.runs.get(run=run).run.state == "leased", "it to begin")
        app.schedules.run(schedule="long")
        app.runs.cancel(run=run, reason="enough")
        wait_until(lambda: len(received) == 2, "both facts")
    assert isinstance(received[0], told.RunSkipped)
    assert isinstance(received[1], told.RunCancelled)
    assert (received[0].reason, received[1].reason) == ("overlap", "enough")


def test_a_failing_listener_does_not_affect_others(app: Scheduler) -> None:
    received: list[Fact] = []

    @app.on_completed
    def broken(fact: Fact) -> None:
        raise RuntimeError("mine alone")

    app.on_completed(received.append)
    app.schedule(Manual(), name="a")(lambda: None)
    with app:
        finish(app, "a")
        wait_until(lambda: received, "the other listener")


def test_an_unknown_event_is_rejected_with_the_known_ones(app: Scheduler) -> None:
    with pytest.raises(NotFound) as refusal:
        app.on("finished")
    assert refusal.value.rule is not None
    assert "completed" in refusal.value.rule


# Operations.


def test_every_operation_is_a_method_of_its_noun(app: Scheduler) -> None:
    named = [operation for operation in operations if operation.noun in PLURALS]
    assert len(named) > 40
    for operation in named:
        noun, method = getattr(app, PLURALS[operation.noun]), re.sub("[ -]", "_", operation.verb)
        assert getattr(noun, method).__doc__.startswith(f"{operation.summary}\n")
        assert method in dir(noun)


def test_methods_do_what_the_operations_do(app: Scheduler) -> None:
    app.schedules.create(name="a", every="1h", note="hello")
    assert app.schedules.pause(schedule="a").progress.state == "paused"
    assert app.schedules.resume(schedule="a").progress.state == "active"
    assert app.schedules.get(schedule="a").schedule.revision == 1
    app.schedules.update(schedule="a", overlap="queue")
    assert app.schedules.get(schedule="a").schedule.revision == 2
    assert len(app.schedules.next(schedule="a", count=3).next) == 3
    app.queues.policy_set(queue="mail", max_running=2)
    assert app.queues.policy_show(queue="mail").policy.max_running == 2
    assert app.call("health").parked_runs == 0
    assert [line.action for line in app.call("audit list", limit=1).entries]


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
def test_an_invalid_call_raises_our_error(
    app: Scheduler, ask: Any, error: type[TimewrightError], says: str | None
) -> None:
    with pytest.raises(error) as refusal:
        ask(app)
    assert refusal.value.explain()
    assert says is None or refusal.value.fix == says


def test_names_that_python_asks_for_are_no_operations(app: Scheduler) -> None:
    assert not hasattr(app.schedules, "_repr_html_")
    assert not hasattr(app.schedules, "__wrapped__")
