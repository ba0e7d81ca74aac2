"""Search everything by a part of its name, tag, error or id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from timewright.ledger.workflow_runs.records import WORKFLOW, read_header
from timewright.operations.context import OperationContext
from timewright.operations.lookup import names_by_id, readable_schedules
from timewright.operations.queues.policies import list_queue_names
from timewright.operations.registry import OperationRequest, operations
from timewright.ports import Transaction
from timewright.ports.overview import SearchHit, TextSearch

MAX_RUNS_READ = 5000
MAX_MATCH_CHARS = 200


class Search(OperationRequest, frozen=True, kw_only=True):
    """A part of a name, a tag, an error or an id, in any case; and how many of each kind are listed."""

    text: Annotated[str, Meta(min_length=1, max_length=200)]
    limit: Annotated[int, Meta(ge=1, le=50)] = 8


class Found(Struct, frozen=True, kw_only=True):
    """One thing that was found: its kind, its name or id, its state, and the text that matched."""

    kind: str
    name: str
    id: str = ""
    state: str = ""
    match: str = ""


class SearchResult(Struct, frozen=True, kw_only=True):
    """What was found: schedules, queues and workflows by name, then runs, newest first.

    Errors and ids are looked for in the newest 5000 failed runs and in the newest 5000 runs.
    """

    found: tuple[Found, ...]


@operations.read("search", scope="read", examples=({"text": "report"}, {"text": "timeout"}))
def search_everything(context: OperationContext, tx: Transaction, request: Search) -> SearchResult:
    """Find schedules, queues, workflows and runs by a part of a name, a tag, an error or an id."""
    text = request.text.strip()
    if not text:
        return SearchResult(found=())
    hits = tx.select(
        TextSearch(namespace=context.namespace, text=text, limit=request.limit, max_rows=MAX_RUNS_READ)
    )
    names = names_by_id(tx, {hit.name for hit in hits if hit.kind == "run" and hit.name})
    return SearchResult(
        found=(
            *_schedules(tx, hits, text.lower())[: request.limit],
            *_named(tx, context.namespace, text.lower(), limit=request.limit),
            *(_run(hit, names.get(hit.name, "")) for hit in hits if hit.kind == "run"),
        )
    )


def _schedules(tx: Transaction, hits: Sequence[SearchHit], text: str) -> list[Found]:
    """Schedules by name first, then those with the text in a tag."""
    by_name = {hit.id: _schedule(hit) for hit in hits if hit.kind == "schedule"}
    maybe = [hit for hit in hits if hit.kind == "tagged" and hit.id not in by_name]
    records = readable_schedules(tx, [hit.id for hit in maybe]) if maybe else {}
    tags = {i: [tag for tag in one.schedule.tags if text in tag.lower()] for i, one in records.items()}
    return [
        *by_name.values(),
        *(_schedule(hit, f"tag {tags[hit.id][0]}") for hit in maybe if tags.get(hit.id)),
    ]


def _schedule(hit: SearchHit, match: str = "") -> Found:
    return Found(kind="schedule", name=hit.name, id=hit.id, state=hit.state, match=match)


def _run(hit: SearchHit, schedule: str) -> Found:
    return Found(kind="run", name=schedule, id=hit.id, state=hit.state, match=hit.error[:MAX_MATCH_CHARS])


def _named(tx: Transaction, namespace: str, text: str, *, limit: int) -> list[Found]:
    """Queues and workflows, which are few."""
    queues = [Found(kind="queue", name=one) for one in list_queue_names(tx, namespace) if text in one.lower()]
    workflows = [
        Found(kind="workflow", name=row.name)
        for row in tx.get_objects(WORKFLOW, namespace=namespace)
        if text in row.name.lower() and not read_header(row).deleted
    ]
    return [*queues[:limit], *workflows[:limit]]
