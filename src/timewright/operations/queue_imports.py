"""Taking over a queue that another program kept in a file."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec import Struct

from timewright.core.queue_file import decode_queue_file
from timewright.core.vocabulary import check_name
from timewright.ledger.queue_import import import_queue
from timewright.operations.context import Context, together
from timewright.operations.queue_policies import keep_queue
from timewright.operations.registry import Named, Write, operations


class Import(Write, frozen=True, kw_only=True):
    """Into which queue, and what the file says: its entries, as a list or as the file has them."""

    queue: Named
    file: Any


class Imported(Struct, frozen=True, kw_only=True):
    """How many entries are new here and in which states; `known` were imported before and are left alone."""

    queue: str
    imported: int
    known: int
    states: dict[str, int]


@operations.add(
    "queue",
    "import",
    Import,
    scope="write",
    examples=(
        {
            "queue": "mail",
            "file": {"entries": [{"id": "a", "enqueuedAt": "2026-03-09T08:00:00Z", "status": "pending"}]},
        },
        {"queue": "mail", "file": [{"id": "c", "enqueuedAt": "2026-03-09T08:10:00Z"}], "dry_run": True},
    ),
)
def import_entries(context: Context, ask: Import) -> Imported:
    """Take over the entries of a queue file, all or none: same order, attempts, leases and park."""
    now = context.now()
    queue = check_name(ask.queue, field="queue")
    entries = decode_queue_file(ask.file, field="file")

    def work(inside: Context) -> Imported:
        keep_queue(inside, queue, now=now)
        made = import_queue(
            inside.store,
            entries,
            namespace=inside.namespace,
            queue=queue,
            ids=inside.ids,
            by=inside.because(ask.reason),
            now=now,
        )
        inside.tell(made.facts)
        states = Counter(run.state.value for run in made.runs)
        return Imported(
            queue=queue,
            imported=len(made.runs),
            known=len(entries) - len(made.runs),
            states=dict(sorted(states.items())),
        )

    return together(context, work)
