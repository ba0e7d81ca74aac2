"""Finds values of a schedule that are valid but probably not meant."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise

from timewright.core.moments import format_duration
from timewright.core.policies.policies import Retry
from timewright.core.schedule.schedule import Schedule
from timewright.core.target import Shell, find_shell_operator, shell_command


def likely_mistakes(schedule: Schedule, upcoming: Sequence[datetime]) -> tuple[str, ...]:
    """Return a warning for each likely mistake; `upcoming` are the next planned instants."""
    return (*_shell_operator(schedule), *_long_jitter(schedule, upcoming), *_unused_backoff(schedule))


def _shell_operator(schedule: Schedule) -> Iterator[str]:
    if not isinstance(schedule.target, Shell):
        return
    # A whole command line in one argument has the operator inside it.
    command = schedule.target.command
    words = command[0].split() if len(command) == 1 else command
    operator = find_shell_operator(words)
    if operator is not None:
        yield (
            f"no shell interprets the command, so {operator!r} is passed to it as an argument;"
            f" to use a shell: {shlex.join(shell_command(words))}"
        )


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
