"""Named limits: concurrency limits that several schedules and queues share."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from timewright.core.input.decode import check_name
from timewright.core.schedule.schedule import named_limit_key
from timewright.ledger.lookups import LIMIT
from timewright.ledger.queues.policies import MAX_LIMIT, set_limit
from timewright.operations.context import OperationContext, in_transaction
from timewright.operations.pagination import paginate
from timewright.operations.registry import ListRequest, ObjectName, WriteRequest, operations
from timewright.ports import Page, Transaction


class SetLimit(WriteRequest, frozen=True, kw_only=True):
    """Which limit, and how many live leases it allows."""

    limit: ObjectName
    max: Annotated[int, Meta(ge=1, le=MAX_LIMIT)]


class LimitSummary(Struct, frozen=True, kw_only=True):
    """A named limit, and how much of it is used."""

    limit: str
    max: int
    in_flight: int
    available: int
    revision: int


class ListLimits(ListRequest, frozen=True, kw_only=True):
    """List the limits of the namespace."""


class LimitList(Struct, frozen=True, kw_only=True):
    """A page of limits, by name."""

    limits: tuple[LimitSummary, ...]
    cursor: str = ""


@operations.add("limit", "set", SetLimit, scope="write", examples=({"limit": "crm-api", "max": 5},))
def set_named_limit(context: OperationContext, request: SetLimit) -> LimitSummary:
    """Set how many live leases a named limit allows, effective at once."""
    now = context.now()
    name = check_name(request.limit, field="limit")

    def work(nested: OperationContext) -> LimitSummary:
        by = nested.actor_with_reason(request.reason)
        set_limit(nested.store, namespace=nested.namespace, name=name, capacity=request.max, by=by, now=now)
        (row,) = nested.store.read(lambda tx: _rows(tx, nested.namespace, [name]))
        return row

    return in_transaction(context, work)


@operations.add("limit", "list", ListLimits, scope="read", examples=({},))
def list_limits(context: OperationContext, request: ListLimits) -> LimitList:
    """List the named limits and how much of each is used."""

    def work(tx: Transaction) -> LimitList:
        rows = _rows(tx, context.namespace, None)

        def find(limit: int, place: str) -> Page:
            after = [row for row in rows if row.limit > place]
            return Page(tuple(after[:limit]), after[limit - 1].limit if len(after) > limit else "")

        page, cursor = paginate(context, request, find)
        return LimitList(limits=tuple(page), cursor=cursor)

    return context.store.read(work)


def _rows(tx: Transaction, namespace: str, names: list[str] | None) -> list[LimitSummary]:
    stored = tx.get_objects(LIMIT, namespace=namespace, names=names)
    usages = tx.get_limits(named_limit_key(namespace, row.name) for row in stored)
    rows = []
    for row in stored:
        usage = usages[named_limit_key(namespace, row.name)]
        capacity = msgspec.json.decode(row.body, type=dict[str, int])["capacity"]
        rows.append(
            LimitSummary(
                limit=row.name,
                max=capacity,
                in_flight=usage.held,
                available=usage.free,
                revision=row.revision,
            )
        )
    return rows
