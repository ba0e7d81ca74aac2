"""Import a queue that another program stored in a file."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec import Struct

from timewright.core.input.decode import check_name
from timewright.core.input.queue_file import decode_queue_file
from timewright.ledger.queues.queue_import import import_queue
from timewright.operations.context import OperationContext
from timewright.operations.queues.policies import register_queue
from timewright.operations.registry import ObjectName, WriteRequest, operations
from timewright.ports import Transaction


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
        by=context.actor_with_reason(request.reason),
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
