"""Finds values of a schedule that could never run, or are valid but probably not meant."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise

from timewright.core.moments import ZERO, check_storable, format_duration, format_instant
from timewright.core.policies.policies import Retry
from timewright.core.recurrence.triggers import Manual, Once
from timewright.core.schedule.schedule import Schedule
from timewright.core.target import Call, Shell, find_shell_operator, shell_command
from timewright.errors import InvalidInput


def likely_mistakes(schedule: Schedule, upcoming: Sequence[datetime]) -> tuple[str, ...]:
    """Return a warning for each likely mistake; `upcoming` are the next planned instants."""
    return (
        *_shell_words(schedule),
        *_no_function(schedule),
        *_long_jitter(schedule, upcoming),
        *_unused_backoff(schedule),
    )


def _shell_words(schedule: Schedule) -> Iterator[str]:
    """What only a shell would interpret: operators, variables, the home folder, commands such as cd."""
    if not isinstance(schedule.target, Shell):
        return
    # A whole command line in one argument has the operator inside it.
    command = schedule.target.command
    words = command[0].split() if len(command) == 1 else command
    use_shell = f"to use a shell: {shlex.join(shell_command(words))}"
    operator = find_shell_operator(words)
    variable = next((word for word in words if _VARIABLE.match(word)), None)
    if operator is not None:
        yield f"no shell interprets the command, so {operator!r} is passed to it as an argument; {use_shell}"
    elif words[0] in _SHELL_COMMANDS:
        yield f"{words[0]!r} is a command of a shell, not a program; {use_shell}"
    elif variable is not None and len(command) > 1 and not _HAS_SHELL.search(command[0]):
        yield f"no shell interprets the command, so {variable!r} stays as it is; {use_shell}"


_SHELL_COMMANDS = frozenset({"cd", "source", "export", "alias", "eval", "set", "."})
_VARIABLE = re.compile(r"\$\{?[A-Za-z_]\w*\}?(?:$|[/.:_-])|~(?:$|/)")
_HAS_SHELL = re.compile(r"(?:^|[/\\])(?:ba|da|z|k|c|tc|fi|pw)?sh(?:\.exe)?$|cmd\.exe$|powershell")


def _no_function(schedule: Schedule) -> Iterator[str]:
    """A function that is written as a call or as a file."""
    name = schedule.target.name if isinstance(schedule.target, Call) else ""
    if name.endswith(("()", ".py")) or "/" in name or "\\" in name:
        rule = "a function has the name that its program gives it, without path, .py and ()"
        plain = re.sub(r"[/\\]+", ".", name.removesuffix("()").removesuffix(".py")).strip(".")
        yield f"{rule}; did you mean {plain}{'.FUNCTION' if name.endswith('.py') else ''}?"


def _long_jitter(schedule: Schedule, upcoming: Sequence[datetime]) -> Iterator[str]:
    shortest = min((later - earlier for earlier, later in pairwise(upcoming)), default=None)
    if shortest and schedule.jitter > shortest:
        yield (
            f"jitter {format_duration(schedule.jitter)} is longer than the interval of"
            f" {format_duration(shortest)}, so runs overlap or are skipped; use at most"
            f" {format_duration(shortest)}"
        )


def _unused_backoff(schedule: Schedule) -> Iterator[str]:
    retry = schedule.retry
    if retry.max_attempts == 1 and retry.backoff != Retry().backoff:
        yield "a backoff has no effect on one attempt; set max_attempts: 3 to try a failed run again"


def check_new_schedule(schedule: Schedule, *, now: datetime, catch_up_given: bool) -> None:
    """Refuse a new schedule that could never run: a past instant, or an `end_at` in the past."""
    trigger = schedule.trigger
    if isinstance(trigger, Once):
        _check_once(trigger.at, schedule, now=now, catch_up_given=catch_up_given)
    if isinstance(trigger, Manual):
        return
    if schedule.end_at is not None and schedule.end_at < now and not catch_up_given:
        raise InvalidInput(
            f"end_at {format_instant(schedule.end_at)} is in the past, so it would never run",
            field="end_at",
            value=format_instant(schedule.end_at),
            rule="end_at is in the future",
            fix="a later end_at, or leave it out",
        )
    if schedule.deadline is not None and schedule.deadline <= ZERO:
        raise InvalidInput(
            f"deadline {format_duration(schedule.deadline)} leaves no time to start",
            field="deadline",
            value=format_duration(schedule.deadline),
            rule="longer than zero",
            fix="deadline: 10m",
        )


def _check_once(at: datetime, schedule: Schedule, *, now: datetime, catch_up_given: bool) -> None:
    check_storable(at, field="trigger.at")
    if at <= now and not catch_up_given:
        oldest = now - schedule.catch_up_window if schedule.catch_up_window is not None else at
        raise InvalidInput(
            f"once at {format_instant(at)} is in the past",
            field="trigger.at",
            value=format_instant(at),
            rule="an instant in the future; one within catch_up_window runs at once with catch_up",
            fix="a later instant, or catch_up: last" if at >= oldest else "a later instant",
        )
    if not schedule.window.contains(at):
        raise InvalidInput(
            f"once at {format_instant(at)} is outside start_at and end_at, so it would never run",
            field="trigger.at",
            value=format_instant(at),
            rule="the instant is between start_at and end_at",
            fix="leave start_at and end_at out",
        )
