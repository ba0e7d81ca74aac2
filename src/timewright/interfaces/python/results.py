"""Waits for runs and returns their results, or raises the reason why there is none."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from timewright.clocks import SystemClock
from timewright.core.moments import as_duration, check_duration, format_duration
from timewright.core.run.run import UNFINISHED_STATES, RunState
from timewright.errors import NotAllowed
from timewright.operations.health.doctor import InstanceList
from timewright.operations.views import RunDetail

DEFAULT_TIMEOUT = timedelta(minutes=5)
# Poll intervals grow from 2 ms to 100 ms, because most runs are short.
MIN_POLL_S, MAX_POLL_S, POLL_GROWTH = 0.002, 0.1, 1.5

_monotonic = SystemClock().monotonic

_REMEDIES = {
    RunState.FAILED: "see app.runs.explain({run!r}); retry with app.runs.retry({run!r})",
    RunState.PARKED: "fix the cause, then app.runs.reset({run!r})",
    RunState.SKIPPED: "wait for the run in progress, or pass force=True",
    RunState.CANCELLED: "app.runs.retry({run!r})",
}


class RunNotSucceeded(NotAllowed):
    """A run ended without success. `run` is the answer of `run get`."""

    def __init__(self, message: str, *, run: RunDetail | None = None, **details: Any) -> None:
        super().__init__(message, **details)
        self.run = run


class RunNotFinished(RunNotSucceeded, TimeoutError):
    """A run did not end within the timeout; it continues."""


def is_finished(detail: RunDetail) -> bool:
    """Whether a run, given as the answer of `run get`, has ended."""
    return detail.run.state not in UNFINISHED_STATES


def timeout_seconds(timeout: timedelta | str) -> float:
    """Return a timeout in seconds."""
    return check_duration(as_duration(timeout, field="timeout"), field="timeout").total_seconds()


def poll_intervals(seconds: float) -> Iterator[float]:
    """Yield poll intervals until the given number of seconds has passed."""
    deadline, interval = _monotonic() + seconds, MIN_POLL_S
    while (left := deadline - _monotonic()) > 0:
        yield min(interval, left)
        interval = min(interval * POLL_GROWTH, MAX_POLL_S)


def result_of(detail: RunDetail, timeout: timedelta | str) -> Any:
    """Return the result of a run; raises if it did not succeed or has not ended."""
    if not is_finished(detail):
        raise _not_finished(detail, format_duration(as_duration(timeout)))
    result = detail.attempts[-1].result if detail.attempts else None
    if detail.run.state is not RunState.SUCCEEDED:
        raise _not_succeeded(detail, result)
    return result if result is not None else detail.run.outcome_label or None


def _not_succeeded(detail: RunDetail, result: Any) -> RunNotSucceeded:
    run, state = detail.run, detail.run.state
    verb = state.value if state is RunState.FAILED else f"was {state.value}"
    reason = ": ".join(text for text in dict.fromkeys((run.reason, run.error)) if text)
    error = RunNotSucceeded(
        f"run {run.id} of {run.schedule} {verb}" + (f": {reason}" if reason else ""),
        field="run",
        value=run.id,
        rule="only a successful run has a result",
        fix=_REMEDIES[state].format(run=run.id),
        run=detail,
    )
    trace = result.get("traceback") if isinstance(result, dict) else None
    if trace:
        error.add_note(f"in the run:\n{trace}")
    return error


def _not_finished(detail: RunDetail, waited: str) -> RunNotFinished:
    run = detail.run
    return RunNotFinished(
        f"run {run.id} of {run.schedule} has not ended after {waited}: it is {run.state}",
        field="timeout",
        value=waited,
        rule="the run continues; an instance must be running",
        fix=f"use a longer timeout, or call app.result({run.id!r}) later",
        run=detail,
    )


def require_live_instance(schedule: str, instances: InstanceList) -> None:
    """Raise if no live instance could start a run of the schedule."""
    if any(one.state == "alive" for one in instances.instances):
        return
    raise NotAllowed(
        f"no instance can run {schedule!r}: this scheduler is not started and no other uses its store",
        field="schedule",
        value=schedule,
        rule="runs are started by a live instance",
        fix="call app.start() or use `with app:`; app.schedules.run() does not wait",
    )
