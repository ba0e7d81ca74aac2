"""The policy each queue stands under; one that nobody set is the cautious one."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Literal

from msgspec import Struct, field

from timewright.core.decoding import check_size
from timewright.core.policies import QueuePolicy
from timewright.core.vocabulary import check_name, decode
from timewright.errors import InvalidInput, NotAllowed
from timewright.ledger.policy import set_queue_policy
from timewright.ledger.policy_file import policies_in
from timewright.ledger.shelf import QUEUE, queue_policies, queue_policy
from timewright.operations.context import Context, together
from timewright.operations.registry import Named, Request, Write, operations
from timewright.ports import Stored, Transaction

# A queue is known from its first entry on, also while nobody has set a policy for it.
KNOWN = "queue_name"


class PolicyShow(Request, frozen=True, kw_only=True):
    """Whose policy."""

    queue: Named


class PolicySet(Write, frozen=True, kw_only=True):
    """The fields of a queue's policy to change; what is left out stays."""

    spreads: ClassVar[tuple[str, type[Struct]]] = ("policy", QueuePolicy)

    queue: Named
    policy: dict[str, Any] = field(default_factory=dict)


class PolicyCheck(Request, frozen=True, kw_only=True):
    """What a policy file says."""

    file: Any


class Difference(Struct, frozen=True, kw_only=True):
    """What the file says of a queue, and what is in force, if that is not the same."""

    queue: str
    change: Literal["same", "different"]
    policy: QueuePolicy
    in_force: QueuePolicy | None


class Differences(Struct, frozen=True, kw_only=True):
    """The queues that a policy file names, each with what it would change."""

    queues: tuple[Difference, ...]


class Policy(Struct, frozen=True, kw_only=True):
    """The policy a queue stands under: someone set it, the policy file says it, or it is the cautious one."""

    queue: str
    source: Literal["set", "file", "default"]
    policy: QueuePolicy


@operations.add("queue policy", "show", PolicyShow, scope="read", examples=({"queue": "mail"},))
def show_policy(context: Context, ask: PolicyShow) -> Policy:
    """Show the policy a queue stands under; one that nobody set is the cautious one."""
    return context.store.read(lambda tx: _policy(tx, context, ask.queue))


@operations.add(
    "queue policy",
    "set",
    PolicySet,
    scope="write",
    examples=(
        {"queue": "mail", "max_concurrent": 5, "lease": "2m"},
        {"queue": "mail", "backoff": {"base": "0.5s"}},
    ),
)
def set_policy(context: Context, ask: PolicySet) -> Policy:
    """Change the policy of a queue; its ceiling holds from this commit on."""
    now = context.now()
    queue = check_name(ask.queue, field="queue")
    _refuse_if_filed(context, queue)

    def work(inside: Context) -> Policy:
        before = inside.store.read(lambda tx: _policy(tx, inside, queue)).policy
        set_queue_policy(
            inside.store,
            namespace=inside.namespace,
            queue=queue,
            policy=decode(ask.policy, QueuePolicy, base=before),
            by=inside.because(ask.reason),
            now=now,
        )
        return inside.store.read(lambda tx: _policy(tx, inside, queue))

    return together(context, work)


@operations.add(
    "queue policy",
    "check",
    PolicyCheck,
    scope="read",
    examples=({"file": {"mail": {"max_concurrent": 5}, "reports": {"max_attempts": 1}}},),
)
def check_policies(context: Context, ask: PolicyCheck) -> Differences:
    """Read a policy file and show what it would change, without keeping it."""
    said = _said(ask.file)

    def work(tx: Transaction) -> Differences:
        kept = queue_policies(tx, [(context.namespace, name) for name in said])
        found = [(name, policy, kept.get((context.namespace, name))) for name, policy in sorted(said.items())]
        return Differences(queues=tuple(_difference(*one) for one in found))

    return context.store.read(work)


def _said(file: Any) -> dict[str, QueuePolicy]:
    check_size(file, "file")
    try:
        return policies_in(file)
    except InvalidInput as error:
        field = f"file.{error.field}" if error.field else "file"
        raise type(error)(
            error.message, field=field, value=error.value, rule=error.rule, fix=error.fix
        ) from None


def _difference(queue: str, policy: QueuePolicy, kept: QueuePolicy | None) -> Difference:
    same = policy == kept
    return Difference(
        queue=queue,
        change="same" if same else "different",
        policy=policy,
        in_force=None if same else kept,
    )


def queue_names(tx: Transaction, namespace: str) -> list[str]:
    """The queues of a namespace that someone has put something into or set a policy for, by name."""
    rows = (row for kind in (KNOWN, QUEUE) for row in tx.get_objects(kind, namespace=namespace))
    return sorted({row.name for row in rows})


def keep_queue(context: Context, queue: str, *, now: datetime) -> None:
    """Remember that a queue exists, so that it is listed; its policy is the cautious one until one is set."""

    def work(tx: Transaction) -> None:
        if not tx.get_objects(KNOWN, namespace=context.namespace, names=[queue]):
            tx.put_objects([Stored(kind=KNOWN, namespace=context.namespace, name=queue, body=b"{}", at=now)])

    context.store.write(work)


def _refuse_if_filed(context: Context, queue: str) -> None:
    """What a file says is said there alone, so that whoever reads it knows what is in force."""
    file = context.policies()
    if file is not None:
        file.check()
    if file is not None and queue in file.policies:
        raise NotAllowed(
            f"the policy of queue {queue} is kept in {file.path}",
            field="queue",
            value=queue,
            rule="what the policy file says is changed in the policy file",
            fix=f"edit {file.path}: it is read again within a second",
        )


def _policy(tx: Transaction, context: Context, queue: str) -> Policy:
    is_set = bool(tx.get_objects(QUEUE, namespace=context.namespace, names=[queue]))
    policy = queue_policy(tx, context.namespace, queue)
    file = context.policies()
    is_filed = file is not None and file.policies.get(queue) == policy
    return Policy(queue=queue, source="file" if is_filed else "set" if is_set else "default", policy=policy)
