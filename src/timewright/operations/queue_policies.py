"""The policy each queue stands under; one that nobody set is the cautious one."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Literal

from msgspec import Struct, field

from timewright.core.policies import QueuePolicy
from timewright.core.vocabulary import check_name, decode
from timewright.ledger.policy import set_queue_policy
from timewright.ledger.shelf import QUEUE, queue_policy
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


class Policy(Struct, frozen=True, kw_only=True):
    """The policy a queue stands under, and whether someone set it or it is the cautious default."""

    queue: str
    source: Literal["set", "default"]
    policy: QueuePolicy


@operations.add("queue policy", "show", PolicyShow, scope="read", examples=({"queue": "mail"},))
def show_policy(context: Context, ask: PolicyShow) -> Policy:
    """Show the policy a queue stands under; one that nobody set is the cautious one."""
    return context.store.read(lambda tx: _policy(tx, context.namespace, ask.queue))


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

    def work(inside: Context) -> Policy:
        before = inside.store.read(lambda tx: _policy(tx, inside.namespace, queue)).policy
        set_queue_policy(
            inside.store,
            namespace=inside.namespace,
            queue=queue,
            policy=decode(ask.policy, QueuePolicy, base=before),
            by=inside.because(ask.reason),
            now=now,
        )
        return inside.store.read(lambda tx: _policy(tx, inside.namespace, queue))

    return together(context, work)


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


def _policy(tx: Transaction, namespace: str, queue: str) -> Policy:
    is_set = bool(tx.get_objects(QUEUE, namespace=namespace, names=[queue]))
    policy = queue_policy(tx, namespace, queue)
    return Policy(queue=queue, source="set" if is_set else "default", policy=policy)
