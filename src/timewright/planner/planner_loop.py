"""The planner's loop: every few minutes, analyse the schedules of each namespace that are due for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from timewright.core.moments import MINUTE, parse_instant
from timewright.errors import NotAllowed, NotFound, TimewrightError
from timewright.operations import OperationContext, operations
from timewright.operations.access.authentication import Caller, context_for
from timewright.operations.hints.analyses import FAILURES_INCREASED
from timewright.planner.analysis import analyse
from timewright.planner.heuristic_advisor import HeuristicAdvisor
from timewright.ports import Advisor, Clock

DEFAULT_INTERVAL = 5 * MINUTE
MAX_SCHEDULES_PER_PASS = 100
MONTH_IS_SPENT = "the token quota of the month is used up: advised by the rules"
# The planner may read and give hints, whatever the rights of its host process are.
PLANNER_CALLER = Caller(actor="planner", origin="agent", scopes=frozenset({"read", "hint"}))


class Planner:
    """A loop beside the engine. Its only effect is hints, which are stored and expire."""

    def __init__(
        self,
        context: OperationContext,
        advisor: Advisor,
        *,
        clock: Clock,
        interval: timedelta = DEFAULT_INTERVAL,
        uses_tokens: bool = False,
        on_error: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._context = context
        self._advisor = advisor
        self._clock = clock
        self._interval = interval
        self._uses_tokens = uses_tokens
        self._on_error = on_error
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def run_once(self) -> list[dict[str, Any]]:
        """Analyse every schedule that is due for it; return the analyses made."""
        made: list[dict[str, Any]] = []
        for context in self._contexts():
            due = operations["analysis due"](context, {"limit": MAX_SCHEDULES_PER_PASS})
            left = due["tokens_left"]
            for wanted in due["schedules"]:
                if self._ended.is_set():
                    break
                for one in self._analyse(context, wanted, tokens_left=left):
                    made.append(one)
                    left -= one["tokens"]
        return made

    def start(self) -> None:
        """Analyse now and at every interval, on a thread."""
        self._thread = threading.Thread(target=self._run, name="timewright-planner", daemon=True)
        self._thread.start()

    def stop(self, *, wait: timedelta = MINUTE) -> None:
        """Begin no further analysis, and wait for the one under way."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(wait.total_seconds())

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self.run_once()
            except Exception as error:  # noqa: BLE001  boundary: a failed pass is reported and tried again
                if not self._ended.is_set():
                    self._on_error(f"planner pass failed: {error}")
            self._ended.wait(self._interval.total_seconds())

    def _contexts(self) -> Iterator[OperationContext]:
        """A context for each namespace with the planner's rights; a remote context is used as it is."""
        if self._context.remote is not None:
            yield self._context
            return
        cursor = ""
        while True:
            page = operations["namespace list"](self._context, {"limit": 1000, "cursor": cursor})
            for one in page["namespaces"]:
                yield context_for(self._context, PLANNER_CALLER, one["name"])
            cursor = page["cursor"]
            if not cursor:
                return

    def _analyse(
        self, context: OperationContext, wanted: dict[str, Any], *, tokens_left: int
    ) -> Iterator[dict[str, Any]]:
        try:
            if self._uses_tokens and _was_analysed(context, wanted):
                return
            is_spent = self._uses_tokens and tokens_left <= 0
            yield analyse(
                context,
                wanted["schedule_id"],
                HeuristicAdvisor() if is_spent else self._advisor,
                clock=self._clock,
                why=wanted["why"],
                tokens_left=tokens_left,
                notes=(MONTH_IS_SPENT,) if is_spent else (),
            )
        except (NotFound, NotAllowed):
            return  # it was archived or changed meanwhile
        except TimewrightError as error:
            self._on_error(f"planner could not analyse {wanted['schedule']}: {error.message}")


def _was_analysed(context: OperationContext, wanted: dict[str, Any]) -> bool:
    """Whether another planner analysed it meanwhile; a second analysis would cost tokens again."""
    if wanted["why"] == FAILURES_INCREASED:
        return False
    rows = operations["analysis list"](context, {"schedule": wanted["schedule_id"], "limit": 1})["analyses"]
    now = parse_instant(operations["health"](context, {})["now"])
    return bool(rows) and parse_instant(rows[0]["look_again_at"]) > now
