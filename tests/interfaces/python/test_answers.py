"""Answers are typed values: their attributes, and what `help` and type checkers know of them."""

from __future__ import annotations

import inspect
import pydoc
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from tests.operations.harness import sample_harness
from timewright import Call, Every, Scheduler
from timewright.core.input.aliases import FIELD_ALIASES
from timewright.core.run.run import RunState
from timewright.core.schedule.schedule import Schedule, ScheduleState
from timewright.interfaces.cli.fields import options_of
from timewright.interfaces.python.resources import PLURALS
from timewright.interfaces.python.signatures import SHORTHAND_FIELDS, parameters_of
from timewright.operations import Operation, operations
from timewright.operations.json_schemas import request_schema
from timewright.operations.views import RunDetail, ScheduleDetail

HOUR = timedelta(hours=1)

PROGRAM = """
from datetime import timedelta

from timewright import AsyncScheduler, Retry, Scheduler, every

app = Scheduler("timewright.db")


@app.schedule(every("5m"), overlap="skip", retry=Retry(max_attempts=3), args={"n": 1})
def right(n: int) -> int:
    return n


@app.schedule(cron="0 9 * * *", zone="Europe/Berlin", tags=["a"], time_limit=timedelta(minutes=2))
async def right_too() -> None: ...


@app.schedule(every("5m"), overlapp="skip")  # wrong: overlapp
def misspelt() -> None: ...


app.schedules.create("a", every="1h", http="POST https://example.com/hook", catch_up="last", max_runs=3)
app.schedules.create("a", evry="1h", note="hello")  # wrong: evry
app.schedules.update("a", every=5)  # wrong: every
number: int = app.runs.list(schedule="a").runs[0].attempts
app.runs.list(schedule="a").runs[0].stat  # wrong: stat
app.schedules.get("a")["progress"]  # wrong: ScheduleDetail
app.channels.create("ops", to="https://example.com/hook", evnts=["run-failed"])  # wrong: evnts
sentences: list[str] = [one.sentence for one in app.incidents.list(closed=True).incidents]
app.incidents.snooze("inc_1", lenght="2h")  # wrong: lenght
app.alerts.set(faild=3)  # wrong: faild
app.pings.create("a").adress  # wrong: adress


async def main(other: AsyncScheduler) -> None:
    names: list[str] = [row.name for row in (await other.schedules.list()).schedules]
    await other.schedules.create("a", evry="1h", note="hello")  # wrong: evry
"""


@pytest.fixture
def app() -> Iterator[Scheduler]:
    app = Scheduler(":memory:")
    yield app
    app.stop(wait=timedelta(0))


def parts_of(value: Any) -> Iterator[Any]:
    """Yield a value and everything in it."""
    yield value
    if isinstance(value, Struct):
        inner: list[Any] = [getattr(value, name) for name in value.__struct_fields__]
    elif isinstance(value, Mapping):
        inner = list(value.values())
    else:
        inner = list(value) if isinstance(value, list | tuple) else []
    for one in inner:
        yield from parts_of(one)


def test_an_answer_has_attributes_of_the_real_types(app: Scheduler) -> None:
    created = app.schedules.create("a", every="1h", note="hello")
    assert isinstance(created, ScheduleDetail)
    assert created.progress.state is ScheduleState.ACTIVE
    assert created.schedule.trigger == Every(HOUR, anchor=created.schedule.created_at)
    assert created.progress.next_at == created.schedule.created_at + HOUR
    assert created.schedule.created_at.tzinfo is UTC
    run = app.schedules.run("a")
    assert isinstance(run, RunDetail)
    assert app.runs.list(schedule="a").runs[0].state is RunState.READY
    assert (run.run.state == "ready", f"{run.run.state}") == (True, "ready")


def test_call_returns_the_same_value_as_the_method(app: Scheduler) -> None:
    app.schedules.create("a", every="1h", note="hello")
    assert app.call("schedule get", schedule="a") == app.schedules.get("a")
    assert app.call("health").instances == 0


@pytest.fixture(scope="module")
def sample_app() -> Scheduler:
    """A scheduler with sample data, on which every example of an operation succeeds."""
    harness, app = sample_harness(), Scheduler(":memory:")
    app._context = lambda: harness.context  # type: ignore[method-assign]
    return app


@pytest.mark.parametrize("operation", [pytest.param(one, id=one.name) for one in operations])
def test_every_operation_returns_its_answer_type_with_aware_instants(
    sample_app: Scheduler, operation: Operation[Any]
) -> None:
    for example in operation.examples:
        dry_run = {} if operation.read_only else {"dry_run": True}
        answer = sample_app.call(operation.name, **{**example, **dry_run})
        assert type(answer) is operation.answer_type
        instants = [part for part in parts_of(answer) if isinstance(part, datetime)]
        assert all(instant.tzinfo is not None for instant in instants)
        assert repr(answer).startswith(f"{operation.answer_type.__name__}({answer.__struct_fields__[0]}=")


def test_changing_a_dict_of_an_answer_changes_nothing_else(app: Scheduler) -> None:
    def work(team: str) -> None: ...

    app.task()(work)
    target = {"name": "work", "args": {"team": "finance"}}
    app.schedules.create("a", every="1h", call=target, metadata={"labels": ["x"]})
    for read in (lambda: app.schedules.get("a").schedule, lambda: app.schedules.list().schedules[0]):
        metadata = read().metadata
        metadata["labels"].append("y")
        metadata["more"] = 1
        assert read().metadata == {"labels": ["x"]}
    called = app.schedules.get("a").schedule.target
    assert isinstance(called, Call)
    called.args["team"] = "sales"
    assert app.schedules.get("a").schedule.target == Call(name="work", args={"team": "finance"})


def test_the_attributes_of_an_answer_are_read_only(app: Scheduler) -> None:
    answer: Any = app.schedules.create("a", every="1h", note="hello")
    with pytest.raises(AttributeError):
        answer.held = 5


def test_help_lists_the_fields_of_a_method(app: Scheduler) -> None:
    text = pydoc.plain(pydoc.render_doc(app.schedules.create))
    assert "Create a schedule and decide its first occurrence" in text
    for line in ("every: timedelta | str", "overlap: str", "max_runs: int | None", "dry_run: bool"):
        assert f"\n      {line}\n" in text
    assert "Returns ScheduleDetail: schedule, progress," in text
    signature = inspect.signature(app.schedules.pause)
    assert str(signature) == (
        "(schedule: 'str', *, reason: 'str' = ..., dry_run: 'bool' = ..., "
        "until: 'datetime | str | None' = ...) -> 'ScheduleDetail'"
    )
    assert [noun for noun in PLURALS.values() if not hasattr(app, noun)] == []


def test_the_fields_of_a_method_are_the_fields_of_its_operation() -> None:
    for operation in operations:
        named = {one.name for one in parameters_of(operation)}
        known = set(request_schema(operation)["properties"])
        known |= {option.key for option in options_of(operation)}
        # On the command line `args` belong to `call`; Python gives them inside it.
        assert known - named <= {"args"}, operation.name
        assert named - known <= set(FIELD_ALIASES[Schedule]), operation.name
    assert set(SHORTHAND_FIELDS) <= set(FIELD_ALIASES[Schedule])


def test_a_type_checker_finds_misspelt_fields_in_a_program(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    (tmp_path / "mypy.ini").write_text("[mypy]\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", program.name]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    errors = [line for line in checked.stdout.splitlines() if ": error: " in line]
    expected = {
        number: line.rpartition("# wrong: ")[2]
        for number, line in enumerate(PROGRAM.splitlines(), start=1)
        if "# wrong: " in line
    }
    assert [int(line.split(":")[1]) for line in errors] == list(expected), checked.stdout + checked.stderr
    for line, word in zip(errors, expected.values(), strict=True):
        assert f'"{word}"' in line
