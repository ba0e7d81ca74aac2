"""An embedded scheduler logs to the standard logger `timewright`."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from timewright import Scheduler, Settings, every
from timewright.core import facts
from timewright.core.sensitive_keys import redact_store_url
from timewright.engine.constants import OUTAGE_ERRORS
from timewright.engine.observers import ObserverDispatcher
from timewright.engine.waiting import LoopHealth
from timewright.errors import InvalidInput, OverQuota, TimewrightError
from timewright.ports.store import ScheduleNames
from timewright.telemetry.log import LOGGER, ApplicationLog, log_outage

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)

PROGRAM = """
import logging
from timewright import Scheduler

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
app = Scheduler("jobs.db")

@app.schedule(manual=True, retry=1)
def refresh():
    raise ValueError("the disk is full")

app.on_failed(lambda fact: print(fact.run_id))

with app:
    try:
        app.run_now("refresh")
    except Exception:
        pass
"""


def test_a_raising_function_prints_its_traceback_and_names_its_schedule(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    run_id = done.stdout.strip()
    lines = done.stderr.splitlines()
    failed = f"ERROR timewright refresh: run {run_id} failed at attempt 1: ValueError: the disk is full"
    assert lines.count(failed) == 1
    assert 'raise ValueError("the disk is full")' in done.stderr
    assert done.stderr.count("Traceback (most recent call last)") == 1
    assert lines[0].startswith("INFO timewright started on jobs.db with 1 declared schedule; to look at it: ")
    assert lines[0].endswith("timewright now --store jobs.db")
    assert lines[-1] == "INFO timewright stopped on jobs.db"


def test_a_password_of_the_store_is_never_logged() -> None:
    url = "postgresql://app:hunter2@db.example:5433/jobs?sslmode=require&password=hunter2"
    assert redact_store_url(url) == "postgresql://app@db.example:5433/jobs"
    assert redact_store_url("folder/jobs.db") == "folder/jobs.db"
    socket = "postgresql:///jobs?user=app&host=%2Frun%2Fpg"
    assert redact_store_url(f"{socket}&password=pw") == socket


def test_a_scheduler_with_its_own_log_does_not_log_twice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = Scheduler(tmp_path / "app.db", settings=Settings(log="text", log_level="error"))

    @app.schedule(manual=True, retry=1)
    def broken() -> None:
        raise ValueError

    caplog.set_level(logging.WARNING, logger="timewright")
    with app, pytest.raises(TimewrightError, match="broken"):
        app.run_now("broken")
    assert [record for record in caplog.records if record.name == "timewright"] == []


FACTS = [
    (
        facts.RunWillRetry(
            at=NOON,
            run_id="run_1",
            schedule_id="sch_1",
            fence=1,
            attempts=1,
            error="boom\nsecond line",
            fire_at=NOON + timedelta(seconds=5),
        ),
        "WARNING refresh: run run_1 failed at attempt 1, retries at 2026-03-10T12:00:05Z: boom\\nsecond line",
    ),
    (
        facts.RunParked(
            at=NOON,
            run_id="run_1",
            schedule_id="sch_1",
            fence=3,
            attempts=3,
            reason="exhausted",
            error="boom",
        ),
        "ERROR refresh: run run_1 failed at attempt 3 and is parked: exhausted: boom",
    ),
    (
        facts.RunParked(at=NOON, run_id="run_1", schedule_id="sch_1", fence=1, attempts=1, reason="unknown"),
        "WARNING refresh: run run_1 is parked: unknown",
    ),
    (
        facts.ScheduleParked(at=NOON, schedule_id="sch_1", reason="too_many_failures"),
        "WARNING refresh: the schedule is parked: too_many_failures",
    ),
    (
        facts.RunSkipped(at=NOON, run_id="run_1", schedule_id="sch_1", planned_at=NOON, reason="missed"),
        "WARNING refresh: missed 2026-03-10T12:00:00Z",
    ),
    (
        facts.OccurrencesDropped(
            at=NOON,
            run_id="run_1",
            schedule_id="sch_1",
            planned_at=NOON,
            last_of=NOON + timedelta(hours=3),
            count=4,
            reason="missed",
        ),
        "WARNING refresh: missed 4 occurrences, 2026-03-10T12:00:00Z to 2026-03-10T15:00:00Z",
    ),
    (
        facts.LeaseLost(at=NOON, run_id="run_1", schedule_id="sch_1", fence=2, holder="ins_9"),
        "WARNING refresh: run run_1 lost its lease 2, held by ins_9",
    ),
    (
        facts.RunFailed(
            at=NOON, run_id="run_7", schedule_id="", fence=1, attempts=1, error="x", queue="mail"
        ),
        "ERROR queue mail: run run_7 failed at attempt 1: x",
    ),
]


def test_an_outage_is_one_line_for_each_schedule() -> None:
    missed = [
        facts.RunSkipped(
            at=NOON,
            run_id=f"run_{n}",
            schedule_id=f"sch_{n % 2}",
            planned_at=NOON + timedelta(seconds=n),
            reason="missed",
        )
        for n in range(7)
    ]
    failed = facts.RunFailed(at=NOON, run_id="run_9", schedule_id="sch_1", fence=1, attempts=1, error="x")
    lines: list[str] = []
    log = ApplicationLog(ScheduleNames(str), traceback_of=lambda _run, _fence: "")
    dispatcher = ObserverDispatcher([log], on_error=lambda error: lines.append(str(error)))
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    LOGGER.addHandler(handler)
    try:
        dispatcher.dispatch([*missed[:3], failed, *missed[3:]])
        dispatcher.dispatch(missed[:1])
    finally:
        LOGGER.removeHandler(handler)
    assert lines == [
        "sch_0: missed 4 occurrences, 2026-03-10T12:00:00Z to 2026-03-10T12:00:06Z",
        "sch_1: missed 3 occurrences, 2026-03-10T12:00:01Z to 2026-03-10T12:00:05Z",
        "sch_1: run run_9 failed at attempt 1: x",
        "sch_0: missed 2026-03-10T12:00:00Z",
    ]


@pytest.mark.parametrize(("fact", "line"), FACTS, ids=[line for _, line in FACTS])
def test_a_fact_that_needs_attention_is_one_line(
    fact: facts.Fact, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = ApplicationLog(ScheduleNames(lambda _: "refresh"), traceback_of=lambda _run, _fence: "")
    assert isinstance(fact, log.kinds)
    with caplog.at_level(logging.WARNING, logger="timewright"):
        log.notify(fact)
    assert [f"{record.levelname} {record.getMessage()}" for record in caplog.records] == [line]


def test_a_skip_that_a_policy_asked_for_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    log = ApplicationLog(ScheduleNames(lambda _: "refresh"), traceback_of=lambda _run, _fence: "")
    skipped = facts.RunSkipped(at=NOON, run_id="r", schedule_id="s", planned_at=NOON, reason="overlap")
    with caplog.at_level(logging.WARNING, logger="timewright"):
        log.notify(skipped)
    assert caplog.records == []


def test_the_text_of_an_error_has_its_rule_and_its_fix() -> None:
    error = InvalidInput("limit is 0", field="limit", value=0, rule="1 to 1000", fix="limit: 50")
    assert str(error) == "limit is 0 (field: limit; rule: 1 to 1000; try: limit: 50)"
    assert str(InvalidInput("limit is 0")) == "limit is 0"
    assert "wait" in str(OverQuota("too many requests", fix="wait 3 s", retry_after=3))


def test_a_refusal_in_a_program_ends_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as refusal:
        Scheduler(tmp_path / "app.db").schedule(every("1h"), jitterr="1m")(print)  # type: ignore[call-arg]
    assert str(refusal.value).endswith(f"try: {refusal.value.fix})")


def test_a_store_that_fails_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    app = Scheduler(tmp_path / "jobs.db")
    app.schedule(every("1s"), name="tick")(lambda: None)
    app.start()
    try:
        (tmp_path / "jobs.db").rename(tmp_path / "moved.db")
        end = time.monotonic() + 20
        while app.instance.loop.health.errors_in_a_row <= OUTAGE_ERRORS:
            assert time.monotonic() < end
            time.sleep(0.05)
    finally:
        app.stop(wait=timedelta(0))
    errors = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1
    assert errors[0].startswith("the store fails, so nothing starts; retrying: UnsafeStore: ")


def test_the_end_of_an_outage_is_logged_only_after_its_start(caplog: pytest.LogCaptureFixture) -> None:
    health = LoopHealth(on_outage=log_outage)
    for failures in (OUTAGE_ERRORS - 1, OUTAGE_ERRORS + 2):
        for _ in range(failures):
            health.record_failure(OSError("a password: hunter2\nand a line"))
        health.record_success()
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("ERROR", "the store fails, so nothing starts; retrying: OSError: a password: hunter2\\nand a line"),
        ("WARNING", "the store answers again"),
    ]
