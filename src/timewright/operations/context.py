"""The context of an operation, and how to run it: in one transaction, or without blocking."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.facts import Fact
from timewright.core.run.run import Outcome
from timewright.core.sensitive_keys import redact_text
from timewright.core.target import AnyTarget
from timewright.ledger.queues.policies import PolicyFile
from timewright.ledger.records.namespaces import Namespace, read_namespace
from timewright.ledger.replan import Actor
from timewright.operations.access.auth_cache import AuthCache
from timewright.operations.access.callers import LOCAL_CALLER, Caller
from timewright.ports import Ids, Launch, RunHandle, Store, Transaction
from timewright.ports.attempt_output import ArtifactReader
from timewright.ports.host_info import HostInfo
from timewright.ports.store import NonBlockingReader, WouldBlock
from timewright.settings import Settings

T = TypeVar("T")
OnStart = Callable[[RunHandle], None]


class TargetCheck(Protocol):
    """Rejects a target that could never start; with `args_later`, missing arguments are accepted."""

    def __call__(self, target: AnyTarget, *, args_later: bool = False) -> None:
        """Return if the target can start, raise otherwise."""
        ...


class OperationContext(Struct, frozen=True, kw_only=True):
    """What an operation works with: the store, the caller, and where facts are sent after the commit."""

    store: Store
    ids: Ids
    by: Actor = Actor()
    """Who acts; in an operation that writes, with the reason of the request."""
    caller: Caller = LOCAL_CALLER
    auth_cache: AuthCache | None = None
    namespace: str = "default"
    settings: Settings = Settings()
    policy_file: Callable[[], PolicyFile] | None = None
    host_info: Callable[[], HostInfo] | None = None
    run_target_test: Callable[[Launch, OnStart | None], Outcome] | None = None
    on_test_started: OnStart | None = None
    """Receives the work that `schedule test` starts, so that a caller who gives up can stop it."""
    on_wait: Callable[[float, str], None] | None = None
    """Receives the progress of a run, from 0 to 1, and its note, whenever `run wait` has read it."""
    check_target: TargetCheck | None = None
    check_payload: Callable[[AnyTarget, Any], None] | None = None
    """Rejects the payload of a manual run that could not reach the target."""
    known_functions: Callable[[], frozenset[str]] | None = None
    broken_functions: Callable[[], Mapping[str, str]] | None = None
    system_zone: str = ""
    """The zone of the caller's machine, if the caller is a person or a program on it."""
    file_zone: str = ""
    """The zone of the file that the request comes from; it wins over every setting."""
    notify: Callable[[Sequence[Fact]], None]
    artifacts: ArtifactReader | None = None
    """Where the files of artifacts are; None without a place for them."""
    remote: Callable[[str, Mapping[str, Any]], dict[str, Any]] | None = None
    """Forwards an operation (name, request) to a server, when the store belongs to one."""

    def now(self) -> datetime:
        """Return the store's time; each operation reads it once."""
        return self.store.now()

    def quotas(self) -> Namespace:
        """Return the quotas and settings of the namespace."""
        return self.store.read(lambda tx: read_namespace(tx, self.namespace))

    def default_zone(self) -> str:
        """Return the zone of times that name none: of the file, key, namespace, settings or host."""
        return (
            self.file_zone
            or self.caller.zone
            or self.quotas().zone
            or self.settings.zone
            or self.system_zone
            or "UTC"
        )

    def queue_policy_file(self) -> PolicyFile | None:
        """Return the policy file of this namespace's queues, if there is one."""
        file = self.policy_file() if self.policy_file is not None else None
        return file if file is not None and file.namespace == self.namespace else None

    def with_reason(self, reason: str) -> OperationContext:
        """Return the context for acting with this reason; without a reason, the context as it is."""
        return replace(self, by=replace(self.by, reason=redact_text(reason))) if reason else self

    def audit(
        self,
        tx: Transaction,
        action: str,
        subject: str,
        *,
        before: str = "",
        after: str = "",
    ) -> None:
        """Add what the caller has done in this namespace to the audit log."""
        entry = self.by.audit_entry(
            action, namespace=self.namespace, subject=subject, now=self.now(), before=before, after=after
        )
        tx.add_audit([entry])


class NestedStore:
    """A store inside one open transaction: its writes commit or roll back with that transaction."""

    def __init__(self, tx: Transaction, *, now: datetime) -> None:
        self._tx = tx
        self._now = now

    def now(self) -> datetime:
        """Return the instant at which the transaction began."""
        return self._now

    def write(self, work: Callable[[Transaction], T], *, commit_at: datetime | None = None) -> T:
        """Run `work` as a part of the transaction."""
        return work(self._tx)

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` over what the transaction has written so far."""
        return work(self._tx)

    def close(self) -> None:
        """Do nothing: the code that began the transaction ends it."""


class _RolledBack(Exception):
    """Carries an answer out of a transaction that is rolled back."""

    def __init__(self, answer: Any) -> None:
        super().__init__("dry run")
        self.answer = answer


def in_transaction(context: OperationContext, work: Callable[[OperationContext], T]) -> T:
    """Run several steps in one transaction; send their facts after the commit."""
    facts: list[Fact] = []
    now = context.now()

    def nested(tx: Transaction) -> T:
        # A store may retry the work: only the facts of the last try are true.
        facts.clear()
        return work(replace(context, store=NestedStore(tx, now=now), notify=facts.extend))

    answer = context.store.write(nested)
    context.notify(facts)
    return answer


def dry_run(context: OperationContext, work: Callable[[OperationContext], T]) -> T:
    """Run the same code in a transaction that is rolled back; no facts are sent."""
    now = context.now()

    def nested(tx: Transaction) -> None:
        raise _RolledBack(work(replace(context, store=NestedStore(tx, now=now), notify=_discard_facts)))

    try:
        context.store.write(nested)
    except _RolledBack as rolled_back:
        answer: T = rolled_back.answer
        return answer
    raise AssertionError("a dry run was committed")


def _discard_facts(facts: Sequence[Fact]) -> None:
    """Drop the facts of a dry run."""


class NonBlockingStore:
    """A read-only store that answers without blocking or raises `WouldBlock`; always, without a reader."""

    def __init__(self, reader: NonBlockingReader | None) -> None:
        self._reader = reader

    def now(self) -> datetime:
        """Return the store's time."""
        return self._required_reader().now()

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` over one consistent snapshot of the store."""
        return self._required_reader().read(work)

    def write(self, work: Callable[[Transaction], T], *, commit_at: datetime | None = None) -> T:
        """Raise WouldBlock: a write waits for the disk."""
        raise WouldBlock

    def close(self) -> None:
        """Do nothing: the code that opened the store closes it."""

    def _required_reader(self) -> NonBlockingReader:
        if self._reader is None:
            raise WouldBlock
        return self._reader


def non_blocking_reader(context: OperationContext) -> NonBlockingReader | None:
    """Return the store's non-blocking reader, if it has one."""
    reader: NonBlockingReader | None = getattr(context.store, "nonblocking_reader", None)
    return reader


def check_may_block(context: OperationContext) -> None:
    """Raise WouldBlock on a non-blocking store; called before work of unbounded length."""
    if isinstance(context.store, NonBlockingStore):
        raise WouldBlock
