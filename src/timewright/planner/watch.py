"""Who deserves attention now: every few minutes each namespace is looked through, and schedules analysed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from timewright.core.moments import MINUTE, parse_instant
from timewright.errors import NotAllowed, NotFound, TimewrightError
from timewright.operations import Context, operations
from timewright.operations.access import Caller, acting
from timewright.operations.analyses import FAILURES_ROSE
from timewright.planner.analysis import analyse
from timewright.ports import Advisor, Clock

EVERY = 5 * MINUTE
MOST_A_PASS = 100
# It may read and wish, and nothing else, whoever runs it.
PLANNER = Caller(actor="planner", origin="agent", scopes=frozenset({"read", "hint"}))


class Planner:
    """A loop beside the engine, which it never talks to: what it wishes is written down, and expires."""

    def __init__(
        self,
        context: Context,
        advisor: Advisor,
        *,
        clock: Clock,
        every: timedelta = EVERY,
        spends: bool = False,
        trouble: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._context = context
        self._advisor = advisor
        self._clock = clock
        self._every = every
        self._spends = spends
        self._trouble = trouble
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def look(self) -> list[dict[str, Any]]:
        """One pass: analyse whoever deserves it; gives back the analyses that were kept."""
        made: list[dict[str, Any]] = []
        for context in self._contexts():
            asked = operations["analysis due"](context, {"limit": MOST_A_PASS})
            left = asked["tokens_left"]
            for wanted in asked["schedules"]:
                if self._ended.is_set() or (self._spends and left <= 0):
                    break
                for one in self._analysed(context, wanted, tokens_left=left):
                    made.append(one)
                    left -= one["tokens"]
        return made

    def start(self) -> None:
        """Look now and every few minutes, on a thread of its own."""
        self._thread = threading.Thread(target=self._run, name="timewright-planner", daemon=True)
        self._thread.start()

    def stop(self, *, wait: timedelta = MINUTE) -> None:
        """Begin nothing further, and wait for the analysis under way."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(wait.total_seconds())

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self.look()
            except Exception as error:  # noqa: BLE001  the boundary: advice may fail, and is tried again
                if not self._ended.is_set():
                    self._trouble(f"the planner could not look: {error}")
            self._ended.wait(self._every.total_seconds())

    def _contexts(self) -> Iterator[Context]:
        """The namespaces, each as the planner sees it; one that is asked elsewhere is the only one."""
        if self._context.elsewhere is not None:
            yield self._context
            return
        cursor = ""
        while True:
            page = operations["namespace list"](self._context, {"limit": 1000, "cursor": cursor})
            for one in page["namespaces"]:
                yield acting(self._context, PLANNER, one["name"])
            cursor = page["cursor"]
            if not cursor:
                return

    def _analysed(
        self, context: Context, wanted: dict[str, Any], *, tokens_left: int
    ) -> Iterator[dict[str, Any]]:
        try:
            if self._spends and _was_seen(context, wanted):
                return
            yield analyse(
                context,
                wanted["schedule_id"],
                self._advisor,
                clock=self._clock,
                why=wanted["why"],
                tokens_left=tokens_left,
            )
        except (NotFound, NotAllowed):
            return  # it was archived or changed while it was looked at
        except TimewrightError as error:
            self._trouble(f"the planner could not look at {wanted['schedule']}: {error.message}")


def _was_seen(context: Context, wanted: dict[str, Any]) -> bool:
    """Whether another planner looked while this one was on its way; a second look would cost again."""
    if wanted["why"] == FAILURES_ROSE:
        return False
    rows = operations["analysis list"](context, {"schedule": wanted["schedule_id"], "limit": 1})["analyses"]
    now = parse_instant(operations["health"](context, {})["now"])
    return bool(rows) and parse_instant(rows[0]["look_again_at"]) > now
