"""Declaring schedules with `Scheduler`: triggers, names, errors and resources."""

from __future__ import annotations

import asyncio
import functools
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from docs import verbs
from timewright import AsyncScheduler, Call, Cron, LeaseTerms, NotBefore, Once, Retry, Scheduler, after, every
from timewright.errors import (
    Conflict,
    InvalidCron,
    InvalidDuration,
    InvalidInput,
    InvalidInstant,
    NotFound,
    TimewrightError,
    UnknownField,
)
from timewright.interfaces.python.resources import PLURALS
from timewright.operations import operations


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Scheduler]:
    app = Scheduler(tmp_path / "app.db")
    yield app
    app.stop(wait=timedelta(0))


def work() -> None: ...


def kept(app: Scheduler) -> dict[str, str]:
    app.start()
    return {row.name: row.trigger for row in app.schedules.list().schedules}


# Declaring.


def test_timedelta_datetime_and_list_are_triggers(app: Scheduler) -> None:
    instant = datetime(2099, 12, 24, 18, tzinfo=UTC)
    app.schedule(timedelta(minutes=5), name="interval")(work)
    app.schedule(instant, name="once")(work)
    app.schedule([every("6h"), Cron("0 9 * * *"), "30 9 * * *"], name="list")(work)
    assert kept(app) == {
        "interval": "every 5m",
        "once": "once at 2099-12-24T18:00:00Z",
        "list": "every 6h or at 09:00 every day, UTC or at 09:30 every day, UTC",
    }


def test_triggers_by_keyword_and_function_arguments(app: Scheduler) -> None:
    def report(team: str) -> str:
        return team

    app.schedule(cron="0 9 * * *", zone="Europe/Berlin", args={"team": "finance"})(report)
    app.schedule(every="5 minutes")(work)
    assert kept(app) == {"report": "at 09:00 every day, Europe/Berlin time", "work": "every 5m"}
    assert app.schedules.get("report").schedule.target == Call(name="report", args={"team": "finance"})


def test_a_second_declaration_of_a_name_is_refused(app: Scheduler) -> None:
    app.schedule(every("1h"))(work)
    with pytest.raises(Conflict, match="already declared as 'work'") as refusal:
        app.schedule("0 9 * * *")(work)
    assert refusal.value.fix == "pass another name=, or give one schedule a list of triggers"
    assert kept(app) == {"work": "every 1h"}


@pytest.mark.parametrize(
    ("when", "policies", "error"),
    [
        ("0 9 * *", {}, InvalidCron),
        (every("1h"), {"overlapp": "skip"}, UnknownField),
        (every("1h"), {"overlap": "maybe"}, InvalidInput),
        (every("1h"), {"retry": -1}, InvalidInput),
        (every("1h"), {"timeout": 5}, InvalidDuration),
        (timedelta(0), {}, InvalidInput),
        (datetime(2099, 1, 1), {}, InvalidInstant),
        ([], {}, InvalidInput),
        (5, {}, InvalidInput),
        (None, {}, InvalidInput),
        (None, {"every": "1h", "cron": "0 9 * * *"}, InvalidInput),
        (work, {}, InvalidInput),
        (every("1h"), {"args": {"team": 1}}, InvalidInput),
        (every("1h"), {"args": [1, 2]}, InvalidInput),
        (every("1h"), {"args": {"when": datetime(2026, 1, 1)}}, InvalidInput),
        (every("1h"), {"id": "work"}, InvalidInput),
        (every("1h"), {"retry": Retry(max_attempts=0)}, InvalidInput),
        (every("1h"), {"retry": Retry(max_attempts="3")}, InvalidInput),  # type: ignore[arg-type]
        (None, {"minutes": 5}, UnknownField),
    ],
)
def test_an_invalid_declaration_is_refused_by_the_decorator(
    app: Scheduler, when: Any, policies: dict[str, Any], error: type[TimewrightError]
) -> None:
    with pytest.raises(error) as refusal:
        app.schedule(when, **policies)(work)
    assert refusal.value.explain()
    assert refusal.value.fix
    assert app.declared == ()
    assert "work" not in app.registry
    app.schedule(every("1h"))(work)


def test_a_traceback_ends_with_the_fix(app: Scheduler) -> None:
    with pytest.raises(InvalidCron) as refusal:
        app.schedule("0 9 * *")(work)
    assert traceback.format_exception_only(refusal.value)[-1].endswith("; try: '0 9 * * *')\n")


def test_a_decorator_without_a_trigger_shows_an_example(app: Scheduler) -> None:
    with pytest.raises(InvalidInput) as refusal:
        app.schedule(work)  # type: ignore[arg-type]
    assert refusal.value.fix == 'write it with a trigger: @app.schedule(every("5m"))'


def test_a_program_with_a_past_one_time_schedule_can_restart(tmp_path: Path) -> None:
    for at in (datetime(2026, 3, 9, tzinfo=UTC), datetime(2026, 3, 11, tzinfo=UTC)):
        app = Scheduler(tmp_path / "app.db", clock=FixedClock(at))
        app.schedule(Once(datetime(2026, 3, 10, tzinfo=UTC)))(work)
        app._save_declared()
        app.stop()


class FixedClock:
    """A clock that does not advance."""

    def __init__(self, at: datetime) -> None:
        self._at = at

    def now(self) -> datetime:
        return self._at

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError("this clock does not advance")


@dataclass
class Price:
    """A value of the application."""

    amount: int = 5


class Shop:
    """An object of the application."""

    def tidy(self) -> None: ...


def test_bound_methods_can_be_scheduled(app: Scheduler) -> None:
    with pytest.raises(InvalidInput, match="it is an unbound method") as refusal:
        app.schedule(every("1h"))(Shop.tidy)
    assert refusal.value.fix == "define a function without parameters"
    app.schedule(every("1h"))(Shop().tidy)
    assert kept(app) == {"tidy": "every 1h"}


@pytest.mark.parametrize(
    ("value", "fix"),
    [
        (datetime(2026, 1, 1), "its isoformat()"),
        ({1, 2}, "list() of it"),
        (Price(), "dataclasses.asdict() of it"),
        (Retry(), "msgspec.to_builtins() of it"),
        (object(), "put it in quotes"),
    ],
)
def test_a_non_json_argument_is_refused_with_a_fix(app: Scheduler, value: Any, fix: str) -> None:
    def work(given: Any) -> None: ...

    with pytest.raises(InvalidInput, match="cannot be written as JSON") as refusal:
        app.schedule(every("1h"), args={"given": value})(work)
    assert refusal.value.field == "target.args.given"
    assert refusal.value.fix == fix


@pytest.mark.parametrize("nameless", [functools.partial(work), lambda: None])
def test_a_callable_without_a_name_needs_a_given_name(app: Scheduler, nameless: Any) -> None:
    with pytest.raises(InvalidInput, match="has no name") as refusal:
        app.schedule(every("1h"))(nameless)
    assert refusal.value.fix == 'pass name="nightly-report"'
    app.schedule(every("1h"), name="named")(nameless)
    assert kept(app) == {"named": "every 1h"}


def test_task_works_with_and_without_parentheses(app: Scheduler) -> None:
    bare: Any = app.task(work)
    assert bare is work
    assert app.task("other")(work) is work
    assert {"work", "other"} <= {name for name in ("work", "other") if name in app.registry}


@pytest.mark.parametrize("length", [5, 0.5, None])
def test_a_number_is_not_an_interval(length: Any) -> None:
    with pytest.raises(InvalidDuration):
        every(length)
    with pytest.raises(InvalidDuration):
        after("load", delay=length)
    with pytest.raises(InvalidDuration) as refusal:
        every(5)  # type: ignore[call-overload]
    assert refusal.value.fix == "5s for seconds or 5m for minutes"


@pytest.mark.parametrize("at", ["5m", timedelta(minutes=5), 5, None])
def test_invalid_instants_and_durations_are_refused(app: Scheduler, at: Any) -> None:
    with pytest.raises(InvalidInstant, match="is not a point in time"):
        NotBefore(at)
    with pytest.raises(InvalidDuration):
        LeaseTerms(length=5)  # type: ignore[arg-type]
    app.start()
    with pytest.raises(InvalidDuration, match="wait '5' is not a duration"):
        app.stop(wait=5)  # type: ignore[arg-type]
    assert app.is_running, "a refusal leaves nothing half done"


def test_an_unknown_upstream_result_is_refused_with_the_valid_ones() -> None:
    assert after("load", "failure").describe() == "after load failed"
    with pytest.raises(InvalidInput) as refusal:
        after("load", "broken")
    assert refusal.value.rule == "one of success, failure, end"


# Asking.


def test_the_object_can_be_the_first_positional_argument(app: Scheduler) -> None:
    app.schedules.create("a", every="1h", note="hello")
    assert app.schedules.pause("a", reason="maintenance").progress.state == "paused"
    assert app.schedules.get("a").schedule.name == "a"
    assert app.queues.policy_set("mail", max_running=2).policy.max_running == 2
    untyped: Any = app.schedules
    with pytest.raises(TypeError, match="takes only schedule by position; pass the rest by keyword"):
        untyped.pause("a", "maintenance")
    with pytest.raises(TypeError, match="multiple values for argument 'schedule'"):
        untyped.pause("a", schedule="a")
    with pytest.raises(TypeError, match="takes no argument by position"):
        untyped.list("a")


def test_hasattr_works_on_resources(app: Scheduler) -> None:
    assert not hasattr(app.schedules, "pauze")
    untyped: Any = app.schedules
    with pytest.raises(NotFound) as refusal:
        untyped.pauze("a")
    assert refusal.value.fix == "did you mean schedule pause?"
    assert "pause" in repr(app.schedules)


def test_a_function_given_as_call_is_answered_with_its_name(app: Scheduler) -> None:
    with pytest.raises(InvalidInput, match="call is the name of a function") as refusal:
        app.call("schedule create", name="x", every="1h", call=print)
    assert "call='print'" in str(refusal.value.fix)


def test_reminders_instances_and_audit_are_resources(app: Scheduler) -> None:
    app.reminders.set(text="stretch", every="2h")
    assert [row.text for row in app.reminders.list().reminders] == ["stretch"]
    assert app.instances.list().instances == ()
    assert app.audit.list().entries
    assert "policy_set" in dir(app.queues)


def test_the_type_stub_lists_every_operation() -> None:
    assert verbs.FILE.read_text("utf-8") == verbs.text(), ".venv/bin/python -m docs.verbs writes it again"
    assert {one.name.split()[0] for one in operations if one.noun} == set(PLURALS)


def test_async_resources_are_awaitable(tmp_path: Path) -> None:
    async def main() -> tuple[str, list[str]]:
        app = AsyncScheduler(tmp_path / "app.db")
        await app.start()
        await app.schedules.create("a", every="1h", note="hello")
        state = (await app.schedules.pause("a")).progress.state
        listed = (await app.schedules.list()).schedules
        await app.stop(wait=timedelta(0))
        return state, [row.name for row in listed]

    assert asyncio.run(main()) == ("paused", ["a"])


# Payloads of runs by hand.


def test_a_payload_brings_the_arguments_of_a_run_by_hand(app: Scheduler) -> None:
    @app.schedule("manual")
    def report(region: str, day: str = "today") -> str:
        return f"{region} {day}"

    app.start()
    run = app.schedules.run("report", payload={"region": "eu"})
    assert app.result(run.run.id) == "eu today"
    with pytest.raises(InvalidInput, match="it does not take 'regoin'; did you mean 'region'"):
        app.schedules.run("report", payload={"regoin": "eu"})
    with pytest.raises(InvalidInput, match="it needs 'region'"):
        app.schedules.run_many(runs=[{"schedule": "report", "payload": {"day": "monday"}}])
    assert len(app.runs.list(schedule="report").runs) == 1


def test_only_a_schedule_that_runs_by_hand_may_lack_arguments(app: Scheduler) -> None:
    def report(region: str) -> str:
        return region

    with pytest.raises(InvalidInput, match="it needs 'region'"):
        app.schedule("every 1h")(report)
