"""Log lines: exactly one line per fact, as text or JSON, and never a secret."""

from __future__ import annotations

import io
import json
import logging
import time
from typing import Any

import pytest

from timewright import every
from timewright.core.facts import (
    AttemptStarted,
    ClockStepped,
    RunFailed,
    RunParked,
    ScheduleMoved,
    TickFinished,
)
from timewright.ports.store import ScheduleNames
from timewright.telemetry.log import MAX_VALUE_CHARS, FactLog, LogFormat, new_logger
from timewright.testing.bench import DEFAULT_START, Bench

FAILED = RunFailed(
    at=DEFAULT_START, run_id="run_1", schedule_id="sch_1", fence=2, attempts=3, error="502 Bad Gateway"
)

EVIL = ["two\nlines", "\x1b[31mred", "a\u2028b", "\u202eright", '"quoted" =', "x" * 10_000]


def written(*facts: Any, form: LogFormat = "json", level: str = "debug", **more: Any) -> list[str]:
    stream = io.StringIO()
    log = FactLog(new_logger(form, level=level, stream=stream), **more)
    for fact in facts:
        log.notify(fact)
    return stream.getvalue().splitlines()


def test_a_fact_is_one_json_object_on_one_line() -> None:
    (line,) = written(FAILED)
    assert json.loads(line) == {
        "level": "error",
        "fact": "run-failed",
        "at": "2026-03-10T12:00:00Z",
        "namespace": "default",
        "run_id": "run_1",
        "schedule_id": "sch_1",
        "fence": 2,
        "attempts": 3,
        "error": "502 Bad Gateway",
        "queue": "",
    }


def test_a_fact_is_one_line_for_people_with_its_values_by_name() -> None:
    (line,) = written(FAILED, form="text")
    assert line == (
        "2026-03-10T12:00:00Z error   run-failed run_id=run_1 schedule_id=sch_1 fence=2 attempts=3"
        ' error="502 Bad Gateway"'
    )


def test_a_line_names_the_schedule_before_its_id() -> None:
    names = ScheduleNames({"sch_1": "refresh"}.__getitem__)
    (line,) = written(FAILED, form="text", names=names)
    assert line.startswith(
        "2026-03-10T12:00:00Z error   run-failed schedule=refresh run_id=run_1 schedule_id=sch_1"
    )
    (line,) = written(FAILED, names=names)
    assert json.loads(line)["schedule"] == "refresh"


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    "evil", ["two\nlines", "\x1b[31mred", "a\u2028b", "\u202eright", '"quoted" =', "x" * 10_000]
)
def test_a_log_line_stays_one_line_for_any_error_text(form: LogFormat, evil: str) -> None:
    fact = RunParked(
        at=DEFAULT_START, run_id="r", schedule_id="s", fence=1, attempts=1, reason="exhausted", error=evil
    )
    (line,) = written(fact, form=form)
    assert all(character.isprintable() for character in line)
    assert len(line) < MAX_VALUE_CHARS + 400


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("debug", ["schedule-moved", "attempt-started", "tick-finished", "run-failed"]),
        ("info", ["attempt-started", "run-failed"]),
        ("warning", ["run-failed"]),
        ("error", ["run-failed"]),
    ],
)
def test_facts_below_the_level_are_not_logged(level: str, expected: list[str]) -> None:
    facts = (
        ScheduleMoved(at=DEFAULT_START, schedule_id="s", next_at=None, source="paused"),
        AttemptStarted(at=DEFAULT_START, run_id="r", schedule_id="s", fence=1, planned_at=DEFAULT_START),
        TickFinished(at=DEFAULT_START),
        FAILED,
    )
    assert [json.loads(line)["fact"] for line in written(*facts, level=level)] == expected


def test_a_secret_is_taken_out_before_a_line_is_written() -> None:
    fact = RunFailed(
        at=DEFAULT_START, run_id="r", schedule_id="s", fence=1, attempts=1, error="401 for hunter2!"
    )
    for form in ("text", "json"):
        (line,) = written(fact, form=form, redact=lambda text: text.replace("hunter2", "[secret]"))
        assert "hunter2" not in line
        assert "[secret]" in line


def test_a_closed_stream_does_not_stop_the_engine() -> None:
    class Gone(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError("nobody reads")

    FactLog(new_logger("text", level="info", stream=Gone())).notify(FAILED)


def test_a_logger_of_the_application_is_as_good(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="shop"):
        FactLog(logging.getLogger("shop")).notify(FAILED)
    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == ("ERROR", "run-failed")
    told: Any = record
    assert told.fact["error"] == "502 Bad Gateway"


def test_two_instances_do_not_write_each_others_lines() -> None:
    first, second = io.StringIO(), io.StringIO()
    FactLog(new_logger("text", level="info", stream=first)).notify(FAILED)
    new_logger("text", level="info", stream=second)
    assert first.getvalue().count("\n") == 1
    assert second.getvalue() == ""


def test_a_whole_run_is_logged_in_order() -> None:
    stream = io.StringIO()
    bench = Bench()
    bench.loop.observers.append(FactLog(new_logger("json", level="info", stream=stream)))
    bench.schedule("hello", every("1m"))
    bench.advance(minutes=1)
    facts = [json.loads(line)["fact"] for line in stream.getvalue().splitlines()]
    assert facts == ["run-admitted", "run-leased", "attempt-started", "run-succeeded"]


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_step_of_the_clock_beyond_what_python_can_read_is_logged(
    form: LogFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable() -> float:
        raise OverflowError("timestamp too large to convert to C _PyTime_t")

    # A clock set to the year 2999 makes `time.time()` raise, which every log record calls.
    monkeypatch.setattr(time, "time", unreadable)
    monkeypatch.setattr(time, "time_ns", unreadable)

    (line,) = written(ClockStepped(at=DEFAULT_START, by_seconds=3e10, treated_as="pause"), form=form)

    assert "clock-stepped" in line
    assert "warning" in line
