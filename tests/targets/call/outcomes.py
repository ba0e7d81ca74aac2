"""The expected outcomes of functions, on threads, on the loop and in worker processes."""

from __future__ import annotations

from typing import Any

from tests.targets.call import functions
from timewright.core.run.run import Failed, Outcome, Succeeded
from timewright.targets.context import NOOP, SKIPPED, USEFUL

RETURNS: list[tuple[str, dict[str, Any], Outcome]] = [
    ("nothing", {}, Succeeded()),
    ("add", {"a": 1, "b": 2}, Succeeded(result=3)),
    ("word", {"text": USEFUL}, Succeeded(outcome_label="useful")),
    ("word", {"text": NOOP}, Succeeded(outcome_label="noop")),
    ("word", {"text": SKIPPED}, Succeeded(outcome_label="skipped")),
    ("word", {"text": "useless"}, Succeeded(result="useless")),
    (
        "not_yet",
        {},
        Failed(
            error="the function asked to run again not before 2026-03-10T12:00:00Z",
            not_before=functions.LATER,
        ),
    ),
]

RAISES = [
    ("boom", {}, "ValueError: the cat \\x00 is \\udc80 out"),
    ("unshowable", {}, "Unshowable: (its message cannot be read: SystemExit)"),
    ("raise_wordy", {}, "Wordy: in words of its own"),
    ("raise_anonymous", {}, "Anonymous: who"),
    ("raise_it", {"name": "exit"}, "SystemExit: 3"),
    ("raise_it", {"name": "interrupt"}, "KeyboardInterrupt"),
    ("raise_it", {"name": "generator"}, "GeneratorExit"),
    ("recurse", {}, "RecursionError: maximum recursion depth exceeded"),
    ("raise_it_async", {"name": "exit"}, "SystemExit: 3"),
    ("raise_it_async", {"name": "cancelled"}, "CancelledError"),
]
