"""A store with 5,000 schedules and a day of 100,000 runs, written in seconds; for tests of the dashboard."""

from __future__ import annotations

import random
import sys
from datetime import datetime, timedelta
from pathlib import Path

import apsw
from msgspec.structs import replace

from timewright.clocks import SystemClock
from timewright.core.moments import HOUR, MINUTE, SECOND
from timewright.core.recurrence.triggers import Cron, Every
from timewright.core.run.run import Run, RunState
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState
from timewright.core.target import Note
from timewright.ids import TimedIds
from timewright.ports import ProgressUpdate, ScheduleWrite
from timewright.stores.sqlite.store import SqliteStore

DAY = timedelta(days=1)
SCHEDULES = 5000
RUNS_EACH = 20
FAILING = 40
GROUPS = ("billing", "reports", "imports", "mail", "sync")
# A run causes four events, so this schedule causes 10 a second once it is resumed.
EVENTS, EVENTS_INTERVAL = "events", timedelta(seconds=0.4)
VERBS = ("load", "export", "check", "send", "rebuild", "sync", "archive", "score")


def name_of(number: int) -> str:
    return f"{GROUPS[number % 5]}-{VERBS[number % 8]}-{number:04}"


def write_large_store(path: Path, *, schedules: int = SCHEDULES, runs_each: int = RUNS_EACH) -> None:
    """Write schedules that run about once an hour, and their runs of the last day; 40 schedules fail."""
    store = SqliteStore(str(path), clock=SystemClock())
    now, ids = store.now(), TimedIds(random.Random(28).randbytes)
    try:
        store.write(lambda tx: tx.put_schedules([_events(ids, now)]))
        for first in range(0, schedules - 1, 500):
            rows, runs, ends = [], [], []
            for number in range(first, min(first + 500, schedules - 1)):
                schedule = _schedule(ids, number, now)
                history = _history(ids, schedule.id, number, now=now, count=runs_each)
                failures = 3 if number < FAILING else 0
                progress = ScheduleProgress(
                    cursor=now,
                    next_at=now + HOUR + number * SECOND,
                    wake_at=now + HOUR + number * SECOND,
                    failures=failures,
                    last_finished_at=history[-1].finished_at,
                )
                rows.append(ScheduleWrite(schedule=schedule, progress=progress, at=now))
                runs += history
                ends.append(ProgressUpdate(schedule.id, progress, history[-1].id))
            store.write(lambda tx, rows=rows: tx.put_schedules(rows))  # type: ignore[misc]
            store.write(lambda tx, runs=runs: tx.add_runs(runs))  # type: ignore[misc]
            store.write(lambda tx, ends=ends: tx.save_progress(ends))  # type: ignore[misc]
        _end_runs(path)
    finally:
        store.close()


def _events(ids: TimedIds, now: datetime) -> ScheduleWrite:
    """A paused schedule, stored directly because callers may not go below an interval of 1 s."""
    schedule = Schedule(
        id=ids.new("schedule", now=now - DAY),
        name=EVENTS,
        created_at=now - DAY,
        trigger=Every(EVENTS_INTERVAL, now),
        target=Note(text="hello"),
    )
    progress = ScheduleProgress(cursor=now, state=ScheduleState.PAUSED)
    return ScheduleWrite(schedule=schedule, progress=progress, at=now)


def _schedule(ids: TimedIds, number: int, now: datetime) -> Schedule:
    trigger = (
        Cron(f"{number % 60} * * * *", "UTC") if number % 2 else Every(HOUR, now - DAY + number * SECOND)
    )
    return Schedule(
        id=ids.new("schedule", now=now - DAY),
        name=name_of(number),
        created_at=now - DAY,
        trigger=trigger,
        target=Note(text="hello"),
        group=GROUPS[number % 5],
        tags=(f"team-{number % 7}", "nightly") if number % 3 == 0 else (),
    )


def _history(ids: TimedIds, schedule_id: str, number: int, *, now: datetime, count: int) -> list[Run]:
    found: list[Run] = []
    for n in range(count):
        at = now - DAY + (n + 0.5) * (DAY / count) + (number % 60) * MINUTE * 0.9 - HOUR / 2
        at = at.replace(microsecond=0)
        skipped = n == count // 2 and number % 9 == 0
        run = Run(
            id=ids.new("run", now=at),
            schedule_id=schedule_id,
            planned_at=at,
            fire_at=at,
            created_at=at,
            revision=1,
            state=RunState.SKIPPED if skipped else RunState.SUCCEEDED,
            reason="missed" if skipped else "",
            previous=found[-1].id if found else "",
            finished_at=at + SECOND,
        )
        if number < FAILING and n >= count - 3:
            run = replace(run, state=RunState.FAILED)
        found.append(run)
    return found


def _end_runs(path: Path) -> None:
    """Give the runs starts and errors, which `add_runs` does not write."""
    connection = apsw.Connection(str(path))
    connection.execute(
        "UPDATE runs SET fence = 1,"
        " started_at = planned_at + 2000 + (abs(random()) % 90) * (abs(random()) % 90) * 100,"
        " error = CASE WHEN state = 'failed' THEN 'ValueError: row ' || (abs(random()) % 1000) ||"
        " ' of batch 0x' || hex(randomblob(3)) || ' has no amount' ELSE '' END"
        " WHERE state <> 'skipped'"
    )
    connection.close()


if __name__ == "__main__":
    write_large_store(Path(sys.argv[1]))
