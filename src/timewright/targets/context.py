"""What a function is told about the run it is called for, and what it may answer besides a result."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from logging import Logger
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from timewright.clocks import SystemClock
from timewright.core.costs import Cost, added, read_money, read_tokens
from timewright.core.moments import ZERO, as_instant
from timewright.errors import InvalidInput
from timewright.targets.overheard import RUN_LOG

if TYPE_CHECKING:
    from timewright.ports import Launch

Word = Literal["useful", "noop", "skipped"]

USEFUL: Word = "useful"
NOOP: Word = "noop"
SKIPPED: Word = "skipped"
WORDS: tuple[Word, ...] = (USEFUL, NOOP, SKIPPED)

_monotonic = SystemClock().monotonic
_CANCELLING = threading.Lock()


class NotBefore(Struct, frozen=True):
    """The answer of a function that could not do its work yet: try again, and not before this instant."""

    at: datetime

    def __post_init__(self) -> None:
        as_instant(self.at, field="not_before")


class Cancellation:
    """Whether anyone still waits for the answer: true from the moment the run was asked to stop."""

    __slots__ = ("_event", "_is_set", "reason")

    def __init__(self) -> None:
        self.reason = ""
        self._is_set = False
        self._event: threading.Event | None = None

    def set(self, reason: str) -> None:
        """Tell the function to stop, and why; the first reason stays."""
        with _CANCELLING:
            if self._is_set:
                return
            self.reason = reason
            self._is_set = True
            if self._event is not None:
                self._event.set()

    def is_set(self) -> bool:
        """Whether the run was asked to stop."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Rest for so many seconds, or until asked to stop; says whether that was so."""
        with _CANCELLING:
            # Made when someone waits, because most never do.
            if self._event is None:
                self._event = threading.Event()
            if self._is_set:
                self._event.set()
        return self._event.wait(timeout)

    def __bool__(self) -> bool:
        return self._is_set


class Facts(Struct, frozen=True, kw_only=True):
    """A run in plain values: whose it is, when it was planned, which attempt this is, what it missed."""

    run_id: str
    namespace: str
    schedule_id: str
    schedule_name: str
    key: str
    fence: int
    attempt: int
    planned_at: datetime
    fire_at: datetime
    previous_at: datetime | None = None
    next_at: datetime | None = None
    zone: str = "UTC"
    missed: int = 0
    fired_by: tuple[int, ...] = ()
    source: str = ""
    time_limit: timedelta
    payload: Any = None
    metadata: Mapping[str, Any] = {}
    traceparent: str = ""

    @classmethod
    def of(cls, launch: Launch) -> Facts:
        """The facts of a launch."""
        return Facts(**dict(zip(_NAMES, _values(launch), strict=True)))


_NAMES = Facts.__struct_fields__
_values = attrgetter(*_NAMES)


class Spent:
    """What a function said it has cost so far."""

    __slots__ = ("cost",)

    def __init__(self) -> None:
        self.cost: Cost | None = None


class Context(Facts, frozen=True, kw_only=True):
    """The facts of a run, and two living things: whether it was cancelled, and how long it has left."""

    cancelled: Cancellation
    deadline: float
    spent: Spent

    @classmethod
    def begin(cls, facts: Facts | Launch, *, cancelled: Cancellation) -> Context:
        """The context of work that starts now, from its facts or from the launch that has them."""
        told = dict(zip(_NAMES, _values(facts), strict=True))
        deadline = _monotonic() + facts.time_limit.total_seconds()
        return Context(**told, cancelled=cancelled, deadline=deadline, spent=Spent())

    def cost(
        self, *, tokens: int | None = None, money: str | float | Decimal | None = None, currency: str = ""
    ) -> None:
        """Say what the work has cost, now or bit by bit; it is added up, and charged to its budgets."""
        for field, said, read in (
            ("tokens", tokens, read_tokens(tokens)),
            ("money", money, read_money(money)),
        ):
            if said is not None and read is None:
                raise InvalidInput(
                    f"{field} {said!r} is not a cost",
                    field=field,
                    value=str(said)[:40],
                    rule="a number that is not negative; tokens are whole",
                    fix=f"context.cost({field}={'1200' if field == 'tokens' else repr('0.02')})",
                )
        said_now = Cost(tokens=read_tokens(tokens), money=read_money(money), currency=currency)
        self.spent.cost = added(self.spent.cost, said_now)

    @property
    def log(self) -> Logger:
        """Where to say how it goes: lines from INFO on are shown with the run while it is under way."""
        return RUN_LOG

    @property
    def remaining(self) -> timedelta:
        """How long the function may still take; never negative."""
        return max(ZERO, timedelta(seconds=self.deadline - _monotonic()))
