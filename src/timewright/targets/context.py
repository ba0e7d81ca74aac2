"""What a function is told about the run it is called for, and what it may answer besides a result."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from timewright.clocks import SystemClock
from timewright.core.costs import LONGEST_CURRENCY, Cost, added, is_currency, read_money, read_tokens
from timewright.core.moments import ZERO, as_instant
from timewright.errors import InvalidInput
from timewright.targets.overheard import RUN_LOG, RunLog

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


class Context:
    """The facts of a run, and two living things: whether it was cancelled, and how long it has left.

    A fact is read when it is asked for: most functions ask for one or two, and some have to be worked out.
    """

    __slots__ = ("_cancelled", "_deadline", "_facts", "_spent")

    def __init__(self, facts: Facts | Launch, *, cancelled: Cancellation, deadline: float) -> None:
        self._facts = facts
        self._cancelled = cancelled
        self._deadline = deadline
        self._spent = Spent()

    @classmethod
    def begin(cls, facts: Facts | Launch, *, cancelled: Cancellation) -> Context:
        """The context of work that starts now, from its facts or from the launch that has them."""
        return cls(facts, cancelled=cancelled, deadline=_monotonic() + facts.time_limit.total_seconds())

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={getattr(self, name)!r}" for name in _NAMES)
        return f"Context({told}, cancelled={bool(self.cancelled)})"

    @property
    def run_id(self) -> str:
        """The run it is called for."""
        return self._facts.run_id

    @property
    def namespace(self) -> str:
        """Whose it is."""
        return self._facts.namespace

    @property
    def schedule_id(self) -> str:
        """Its schedule; empty for a run without one."""
        return self._facts.schedule_id

    @property
    def schedule_name(self) -> str:
        """Its schedule's name."""
        return self._facts.schedule_name

    @property
    def key(self) -> str:
        """What tells this occurrence from every other; the same for all attempts."""
        return self._facts.key

    @property
    def fence(self) -> int:
        """A number larger than that of every earlier lease of the run."""
        return self._facts.fence

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1 on."""
        return self._facts.attempt

    @property
    def planned_at(self) -> datetime:
        """The instant it was planned for."""
        return self._facts.planned_at

    @property
    def fire_at(self) -> datetime:
        """The instant from which it might start."""
        return self._facts.fire_at

    @property
    def previous_at(self) -> datetime | None:
        """The planned instant before it."""
        return self._facts.previous_at

    @property
    def next_at(self) -> datetime | None:
        """The planned instant after it."""
        return self._facts.next_at

    @property
    def zone(self) -> str:
        """The time zone of its trigger."""
        return self._facts.zone

    @property
    def missed(self) -> int:
        """How many occurrences before it were missed."""
        return self._facts.missed

    @property
    def fired_by(self) -> tuple[int, ...]:
        """Which parts of a composed trigger it is for."""
        return self._facts.fired_by

    @property
    def source(self) -> str:
        """What planned it."""
        return self._facts.source

    @property
    def time_limit(self) -> timedelta:
        """How long it may take."""
        return self._facts.time_limit

    @property
    def payload(self) -> Any:
        """What it was queued or made with."""
        return self._facts.payload

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What its schedule says beside."""
        return self._facts.metadata

    @property
    def traceparent(self) -> str:
        """The trace it belongs to; empty without one."""
        return self._facts.traceparent

    @property
    def cancelled(self) -> Cancellation:
        """Whether it was asked to stop."""
        return self._cancelled

    @property
    def deadline(self) -> float:
        """When its time is over, by the monotonic clock."""
        return self._deadline

    @property
    def spent(self) -> Spent:
        """What it said it has cost."""
        return self._spent

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
        if not is_currency(currency):
            raise InvalidInput(
                f"currency {str(currency)[:40]!a} is not the name of one",
                field="currency",
                value=str(currency)[:40],
                rule=f"text that can be printed, at most {LONGEST_CURRENCY} characters",
                fix="context.cost(money='0.02', currency='EUR')",
            )
        said_now = Cost(tokens=read_tokens(tokens), money=read_money(money), currency=currency)
        self.spent.cost = added(self.spent.cost, said_now)

    @property
    def log(self) -> RunLog:
        """Where to say how it goes: lines from INFO on are shown with the run while it is under way.

        It is a logger, and may be called: `ctx.log("half way")`.
        """
        return RUN_LOG

    @property
    def remaining(self) -> timedelta:
        """How long the function may still take; never negative."""
        return max(ZERO, timedelta(seconds=self._deadline - _monotonic()))
