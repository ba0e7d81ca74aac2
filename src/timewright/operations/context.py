"""What an operation works with, and how several steps become one: kept together, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.facts import Fact
from timewright.core.run import Outcome
from timewright.core.target import AnyTarget
from timewright.core.telling_names import hide_named
from timewright.ledger.policy_file import PolicyFile
from timewright.ledger.replan import By
from timewright.operations.callers import LOCAL, Caller
from timewright.operations.doorkeeper import Doorkeeper
from timewright.ports import Ids, Launch, Store, Transaction
from timewright.ports.surroundings import Surroundings
from timewright.settings import Settings

T = TypeVar("T")


class Check(Protocol):
    """Refuses a target that could never be started; the arguments of a step may come only when it starts."""

    def __call__(self, target: AnyTarget, *, args_later: bool = False) -> None:
        """Return, or raise what is wrong with it."""
        ...


class Context(Struct, frozen=True, kw_only=True):
    """What an operation works with: the store, who asks, and where to tell what happened."""

    store: Store
    ids: Ids
    by: By = By()
    caller: Caller = LOCAL
    doorkeeper: Doorkeeper | None = None
    namespace: str = "default"
    settings: Settings = Settings()
    policy_file: Callable[[], PolicyFile] | None = None
    surroundings: Callable[[], Surroundings] | None = None
    trial: Callable[[Launch], Outcome] | None = None
    check: Check | None = None
    functions: Callable[[], frozenset[str]] | None = None
    broken: Callable[[], Mapping[str, str]] | None = None
    tell: Callable[[Sequence[Fact]], None]
    elsewhere: Callable[[str, Mapping[str, Any]], dict[str, Any]] | None = None
    """Who answers instead, when the store is a server's: asked with an operation's name and its request."""

    def now(self) -> datetime:
        """The store's clock, read once per operation."""
        return self.store.now()

    def policies(self) -> PolicyFile | None:
        """What the policy file says of the queues of this namespace, if there is one for it."""
        file = self.policy_file() if self.policy_file is not None else None
        return file if file is not None and file.namespace == self.namespace else None

    def because(self, reason: str) -> By:
        """Who asks, with the reason this request gives."""
        return replace(self.by, reason=hide_named(reason)) if reason else self.by


class Within:
    """A store that is one open transaction: what is written here is kept or undone with it."""

    def __init__(self, tx: Transaction, *, now: datetime) -> None:
        self._tx = tx
        self._now = now

    def now(self) -> datetime:
        """The instant at which the transaction was begun."""
        return self._now

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` as a part of the transaction."""
        return work(self._tx)

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` over what the transaction has made so far."""
        return work(self._tx)

    def close(self) -> None:
        """Nothing: the transaction belongs to whoever began it."""


class _Undone(Exception):
    """Carries an answer out of a transaction that must not be kept."""

    def __init__(self, answer: Any) -> None:
        super().__init__("rehearsed")
        self.answer = answer


def together(context: Context, work: Callable[[Context], T]) -> T:
    """Do several things in one transaction; what they tell is told after the commit."""
    told: list[Fact] = []
    now = context.now()

    def inside(tx: Transaction) -> T:
        # A store may run the work again, and only what the last run told is true.
        told.clear()
        return work(replace(context, store=Within(tx, now=now), tell=told.extend))

    answer = context.store.write(inside)
    context.tell(told)
    return answer


def rehearse(context: Context, work: Callable[[Context], T]) -> T:
    """Do everything but keep it: the same code in a transaction that is undone; nothing is told."""
    now = context.now()

    def inside(tx: Transaction) -> None:
        raise _Undone(work(replace(context, store=Within(tx, now=now), tell=_nobody)))

    try:
        context.store.write(inside)
    except _Undone as undone:
        answer: T = undone.answer
        return answer
    raise AssertionError("a rehearsal that was kept")


def _nobody(facts: Sequence[Fact]) -> None:
    """What did not happen is told to nobody."""
