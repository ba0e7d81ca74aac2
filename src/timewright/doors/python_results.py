"""Results: what a run by hand gave back, in one line, or why there is nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from timewright.clocks import SystemClock
from timewright.core.moments import as_duration, bounded, spell_duration
from timewright.core.run import RunState
from timewright.errors import NotAllowed

PATIENCE = timedelta(minutes=5)
# The rests between two looks at a run, in seconds: short ones first, because most work is short.
FIRST_REST, LONGEST_REST, GROWTH = 0.002, 0.1, 1.5

_monotonic = SystemClock().monotonic

_OVER = {RunState.SUCCEEDED, RunState.FAILED, RunState.PARKED, RunState.SKIPPED, RunState.CANCELLED}
_REMEDIES = {
    RunState.FAILED: "app.runs.explain({run!r}) says more; app.runs.retry({run!r}) tries it again",
    RunState.PARKED: "mend the cause, then app.runs.reset({run!r})",
    RunState.SKIPPED: "wait for the run that is under way, or force=True",
    RunState.CANCELLED: "app.runs.retry({run!r})",
}


class NoResult(NotAllowed):
    """A run ended without success; `run` has all of it, as `run get` shows it."""

    def __init__(self, message: str, *, run: dict[str, Any] | None = None, **said: Any) -> None:
        super().__init__(message, **said)
        self.run = run


class NotYet(NoResult, TimeoutError):
    """A run has not ended within the time that was given; it goes on."""


def is_over(detail: dict[str, Any]) -> bool:
    """Whether a run, as `run get` shows it, has ended for good."""
    return detail["run"]["state"] in _OVER


def read_patience(timeout: timedelta | str) -> float:
    """How many seconds someone would wait."""
    return bounded(as_duration(timeout, field="timeout"), field="timeout").total_seconds()


def rests(seconds: float) -> Iterator[float]:
    """The rests between two looks, until so many seconds have passed."""
    until, rest = _monotonic() + seconds, FIRST_REST
    while (left := until - _monotonic()) > 0:
        yield min(rest, left)
        rest = min(rest * GROWTH, LONGEST_REST)


def ended(detail: dict[str, Any], timeout: timedelta | str) -> Any:
    """What a run gave back; refused with the reason if it did not succeed, or has not ended in that time."""
    run, attempts = detail["run"], detail["attempts"]
    if not is_over(detail):
        raise _not_yet(detail, spell_duration(as_duration(timeout)))
    last: dict[str, Any] = attempts[-1] if attempts else {}
    if run["state"] != RunState.SUCCEEDED:
        raise _no_result(detail, last.get("result"))
    return last.get("result") if last.get("result") is not None else run["word"] or None


def _no_result(detail: dict[str, Any], result: Any) -> NoResult:
    run, state = detail["run"], RunState(detail["run"]["state"])
    verb = state.value if state is RunState.FAILED else f"was {state.value}"
    why = ": ".join(text for text in dict.fromkeys((run["reason"], run["error"])) if text)
    error = NoResult(
        f"run {run['id']} of {run['schedule']} {verb}" + (f": {why}" if why else ""),
        field="run",
        value=run["id"],
        rule="only a run that succeeded has a result",
        fix=_REMEDIES[state].format(run=run["id"]),
        run=detail,
    )
    trace = result.get("traceback") if isinstance(result, dict) else None
    if trace:
        error.add_note(f"in the run:\n{trace}")
    return error


def _not_yet(detail: dict[str, Any], waited: str) -> NotYet:
    run = detail["run"]
    return NotYet(
        f"run {run['id']} of {run['schedule']} has not ended after {waited}: it is {run['state']}",
        field="timeout",
        value=waited,
        rule="an instance must run it, and end it in that time; it goes on",
        fix=f"a longer timeout, or later app.result({run['id']!r})",
        run=detail,
    )


def refuse_if_nobody_runs(schedule: str, instances: dict[str, Any]) -> None:
    """Refuse to wait for a run where no instance is alive that would start it."""
    if any(one["state"] == "alive" for one in instances["instances"]):
        return
    raise NotAllowed(
        f"nobody would run {schedule!r}: this scheduler is not started, and no other is on its store",
        field="schedule",
        value=schedule,
        rule="a run is started by an instance that runs",
        fix="app.start(), or with app: around it; app.schedules.run() leaves it to a later one",
    )
