"""Queue policies (show, set, check a file), and the import of a queue that another program stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any, ClassVar, Literal

from msgspec import Struct, field

from timewright.core.input.decode import decode
from timewright.core.input.input_errors import check_name
from timewright.core.input.queue_file import decode_queue_file
from timewright.core.input.scalars import check_size
from timewright.core.policies.policies import QueuePolicy
from timewright.errors import InvalidInput, NotAllowed
from timewright.ledger.lookups import QUEUE, load_queue_policies, load_queue_policy
from timewright.ledger.queues.policies import decode_policies, set_queue_policy
from timewright.ledger.queues.queue_import import import_queue
from timewright.operations.context import OperationContext
from timewright.operations.registry import ObjectName, OperationRequest, WriteRequest, operations
from timewright.ports import StoredObject, Transaction

# A queue is listed from its first entry on, also without a policy.
QUEUE_NAME_KIND = "queue_name"


class ShowQueuePolicy(OperationRequest, frozen=True, kw_only=True):
    """Which queue."""

    queue: ObjectName


class SetQueuePolicy(WriteRequest, frozen=True, kw_only=True):
    """The fields of a queue's policy to change; others stay."""

    flattens: ClassVar[tuple[str, type[Struct]]] = ("policy", QueuePolicy)

    queue: ObjectName
    policy: dict[str, Any] = field(default_factory=dict)


class CheckPolicyFile(OperationRequest, frozen=True, kw_only=True):
    """The content of a policy file."""

    file: Any


class PolicyDifference(Struct, frozen=True, kw_only=True):
    """The policy of a queue in the file, and the current one if it differs."""

    queue: str
    change: Literal["same", "different"]
    policy: QueuePolicy
    in_force: QueuePolicy | None


class PolicyDifferenceList(Struct, frozen=True, kw_only=True):
    """The queues in a policy file, each with what would change."""

    queues: tuple[PolicyDifference, ...]


class QueuePolicyDetail(Struct, frozen=True, kw_only=True):
    """The policy of a queue, and its source: set by a request, from the policy file, or the default."""

    queue: str
    source: Literal["set", "file", "default"]
    policy: QueuePolicy


@operations.read("queue policy show", scope="read", examples=({"queue": "mail"},))
def show_policy(context: OperationContext, tx: Transaction, request: ShowQueuePolicy) -> QueuePolicyDetail:
    """Show the policy of a queue; without one, the default policy."""
    return _policy(tx, context, request.queue)


@operations.write(
    "queue policy set",
    scope="write",
    examples=(
        {"queue": "mail", "max_running": 5, "lease": "2m"},
        {"queue": "mail", "backoff": {"base": "0.5s"}},
    ),
)
def set_policy(context: OperationContext, tx: Transaction, request: SetQueuePolicy) -> QueuePolicyDetail:
    """Change the policy of a queue, effective at once."""
    now = context.now()
    queue = check_name(request.queue, field="queue")
    _reject_if_in_file(context, queue)
    before = _policy(tx, context, queue).policy
    set_queue_policy(
        context.store,
        namespace=context.namespace,
        queue=queue,
        policy=decode(request.policy, QueuePolicy, base=before),
        by=context.by,
        now=now,
    )
    return _policy(tx, context, queue)


@operations.read(
    "queue policy check",
    scope="read",
    examples=({"file": {"mail": {"max_running": 5}, "reports": {"max_attempts": 1}}},),
)
def check_policy_file(
    context: OperationContext, tx: Transaction, request: CheckPolicyFile
) -> PolicyDifferenceList:
    """Check a policy file and show what it would change; nothing is stored."""
    policies = _parse_file(request.file)
    current = load_queue_policies(tx, [(context.namespace, name) for name in policies])
    found = [
        (name, policy, current.get((context.namespace, name))) for name, policy in sorted(policies.items())
    ]
    return PolicyDifferenceList(queues=tuple(_difference(*one) for one in found))


def _parse_file(file: Any) -> dict[str, QueuePolicy]:
    check_size(file, "file")
    try:
        return decode_policies(file)
    except InvalidInput as error:
        field = f"file.{error.field}" if error.field else "file"
        raise type(error)(
            error.message, field=field, value=error.value, rule=error.rule, fix=error.fix
        ) from None


def _difference(queue: str, policy: QueuePolicy, current: QueuePolicy | None) -> PolicyDifference:
    same = policy == current
    return PolicyDifference(
        queue=queue,
        change="same" if same else "different",
        policy=policy,
        in_force=None if same else current,
    )


def list_queue_names(tx: Transaction, namespace: str) -> list[str]:
    """Return the names of queues that have or had an entry, or have a policy."""
    rows = (row for kind in (QUEUE_NAME_KIND, QUEUE) for row in tx.get_objects(kind, namespace=namespace))
    return sorted({row.name for row in rows})


def register_queue(context: OperationContext, queue: str, *, now: datetime) -> None:
    """Record that a queue exists, so that it is listed."""
    register_queues(context, {queue}, now=now)


def register_queues(context: OperationContext, queues: Iterable[str], *, now: datetime) -> None:
    """Record that queues exist, so that they are listed."""
    names, namespace = sorted(queues), context.namespace

    def work(tx: Transaction) -> None:
        known = {row.name for row in tx.get_objects(QUEUE_NAME_KIND, namespace=namespace, names=names)}
        new = [name for name in names if name not in known]
        tx.put_objects(
            [
                StoredObject(kind=QUEUE_NAME_KIND, namespace=namespace, name=name, body=b"{}", at=now)
                for name in new
            ]
        )

    if names:
        context.store.write(work)


def _reject_if_in_file(context: OperationContext, queue: str) -> None:
    """Reject a change to a policy in the policy file, so that the file shows what is in force."""
    file = context.queue_policy_file()
    if file is not None:
        file.check()
    if file is not None and queue in file.policies:
        raise NotAllowed(
            f"the policy of queue {queue} is defined in {file.path}",
            field="queue",
            value=queue,
            rule="a policy in the policy file can only be changed there",
            fix=f"edit {file.path}; it is reloaded within a second",
        )


def _policy(tx: Transaction, context: OperationContext, queue: str) -> QueuePolicyDetail:
    is_set = bool(tx.get_objects(QUEUE, namespace=context.namespace, names=[queue]))
    policy = load_queue_policy(tx, context.namespace, queue)
    file = context.queue_policy_file()
    is_from_file = file is not None and file.policies.get(queue) == policy
    return QueuePolicyDetail(
        queue=queue, source="file" if is_from_file else "set" if is_set else "default", policy=policy
    )


class ImportQueueFile(WriteRequest, frozen=True, kw_only=True):
    """The queue, and the content of the file: a list of entries, or an object with `entries`."""

    queue: ObjectName
    file: Any


class ImportedQueue(Struct, frozen=True, kw_only=True):
    """How many entries were imported, by state; `known` were imported before and are not changed."""

    queue: str
    imported: int
    known: int
    states: dict[str, int]


@operations.write(
    "queue import",
    scope="write",
    examples=(
        {
            "queue": "mail",
            "file": {"entries": [{"id": "a", "enqueuedAt": "2026-03-09T08:00:00Z", "status": "pending"}]},
        },
        {"queue": "mail", "file": [{"id": "c", "enqueuedAt": "2026-03-09T08:10:00Z"}], "dry_run": True},
    ),
)
def import_entries(context: OperationContext, _tx: Transaction, request: ImportQueueFile) -> ImportedQueue:
    """Import all entries of a queue file or none, with their order, attempts, leases and parked state."""
    now = context.now()
    queue = check_name(request.queue, field="queue")
    entries = decode_queue_file(request.file, field="file")
    register_queue(context, queue, now=now)
    result = import_queue(
        context.store,
        entries,
        namespace=context.namespace,
        queue=queue,
        ids=context.ids,
        by=context.by,
        now=now,
    )
    context.notify(result.facts)
    states = Counter(run.state.value for run in result.runs)
    return ImportedQueue(
        queue=queue,
        imported=len(result.runs),
        known=len(entries) - len(result.runs),
        states=dict(sorted(states.items())),
    )
