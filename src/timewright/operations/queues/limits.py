"""Named limits: how many runs at a time and how quickly, shared by schedules, queues and steps."""

from __future__ import annotations

from datetime import datetime
from operator import attrgetter
from typing import Annotated

from msgspec import Meta, Struct, field

from timewright.core.input.input_errors import check_name
from timewright.core.policies.limits import (
    KEY_MARK,
    LIMIT,
    MAX_LIMIT,
    KeyExpression,
    Limit,
    RateText,
    Weights,
    decode_limit,
    named_limit_key,
)
from timewright.ledger.queues.limits import remove_limit, set_limit
from timewright.operations.context import OperationContext
from timewright.operations.lookup import find_object
from timewright.operations.pagination import paginate_rows
from timewright.operations.registry import (
    ListRequest,
    ObjectName,
    OperationRequest,
    WriteRequest,
    answer_from,
    operations,
)
from timewright.ports import StoredObject, Transaction
from timewright.ports.overview import LimitHolds
from timewright.ports.runs import LimitKeys

MAX_KEYS_SHOWN = 100


class SetLimit(WriteRequest, frozen=True, kw_only=True):
    """Which limit, and what it allows: `max_running`, `rate` or both, for all its runs or for each key.

    `key` is an expression over the run, such as `payload.tenant`. Fields that are not given are removed.
    """

    limit: ObjectName
    max_running: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] | None = None
    key: KeyExpression = ""
    rate: RateText = ""
    weights: Weights = field(default_factory=dict)


class GetLimit(OperationRequest, frozen=True, kw_only=True):
    """Which limit."""

    limit: ObjectName


class DeleteLimit(WriteRequest, frozen=True, kw_only=True):
    """Which limit to delete."""

    limit: ObjectName


class DeletedLimit(Struct, frozen=True, kw_only=True):
    """The limit that was deleted."""

    limit: str


class LimitSummary(Struct, frozen=True, kw_only=True):
    """A named limit, and how much of it is used; of a limit with a key, by all its values together."""

    limit: str
    allows: str
    """In words: `2 at a time, 10/s, per payload.tenant`."""
    max_running: int | None = None
    key: str = ""
    rate: str = ""
    weights: dict[str, int] = field(default_factory=dict)
    in_flight: int
    available: int | None = None
    revision: int


class LimitKeyUse(Struct, frozen=True, kw_only=True):
    """How much of a limit one value of its key uses, and from when its rate allows the next start."""

    key: str
    in_flight: int
    available: int
    free_from: datetime | None = None


class LimitDetail(LimitSummary, frozen=True, kw_only=True):
    """A named limit with the values of its key that hold or used it lately."""

    keys: tuple[LimitKeyUse, ...] = ()


class ListLimits(ListRequest, frozen=True, kw_only=True):
    """List the limits of the namespace."""


class LimitList(Struct, frozen=True, kw_only=True):
    """A page of limits, by name."""

    limits: tuple[LimitSummary, ...]
    cursor: str = ""


@operations.write(
    "limit set",
    scope="write",
    examples=(
        {"limit": "crm-api", "max_running": 5},
        {"limit": "crm", "key": "payload.tenant", "max_running": 2, "rate": "10/s burst 20"},
    ),
)
def set_named_limit(context: OperationContext, tx: Transaction, request: SetLimit) -> LimitSummary:
    """Set what a named limit allows, effective at once."""
    now = context.now()
    limit = answer_from(Limit, request, name=check_name(request.limit, field="limit"))
    set_limit(context.store, limit, namespace=context.namespace, by=context.by, now=now)
    return _summarize(tx, find_object(tx, LIMIT, context.namespace, limit.name))


@operations.read("limit get", scope="read", examples=({"limit": "crm-api"},))
def get_limit(context: OperationContext, tx: Transaction, request: GetLimit) -> LimitDetail:
    """Show a named limit, and how much of it each value of its key uses."""
    summary = _summarize(tx, find_object(tx, LIMIT, context.namespace, request.limit))
    limit_key = named_limit_key(context.namespace, request.limit)
    keys = tx.get_limits(tx.select(LimitKeys(limit_key, MAX_KEYS_SHOWN)))
    now = context.now()
    uses = tuple(
        LimitKeyUse(
            key=key.partition(KEY_MARK)[2],
            in_flight=usage.held,
            available=usage.startable(now=now),
            free_from=usage.closed_until(now=now),
        )
        for key, usage in keys.items()
    )
    return answer_from(LimitDetail, summary, keys=uses)


@operations.write("limit delete", scope="write", examples=({"limit": "crm-api"},))
def delete_named_limit(context: OperationContext, tx: Transaction, request: DeleteLimit) -> DeletedLimit:
    """Delete a named limit; runs that still name it start one at a time."""
    name = request.limit
    find_object(tx, LIMIT, context.namespace, name)
    remove_limit(tx, name, namespace=context.namespace, by=context.by, now=context.now())
    return DeletedLimit(limit=name)


@operations.read("limit list", scope="read", examples=({},))
def list_limits(context: OperationContext, tx: Transaction, request: ListLimits) -> LimitList:
    """List the named limits and how much of each is used."""
    rows = tx.get_objects(LIMIT, namespace=context.namespace)
    page, cursor = paginate_rows(context, request, rows, key=attrgetter("name"))
    return LimitList(limits=tuple(_summarize(tx, row) for row in page), cursor=cursor)


def _summarize(tx: Transaction, row: StoredObject) -> LimitSummary:
    limit, key = decode_limit(row.body), named_limit_key(row.namespace, row.name)
    held = tx.get_limits([key])[key].held
    if limit.is_grouped:
        held += tx.count(LimitHolds(key))["leases"]
    counts_all = limit.max_running is not None and not limit.key
    return answer_from(
        LimitSummary,
        limit,
        limit=row.name,
        allows=str(limit),
        in_flight=held,
        available=max(limit.capacity - held, 0) if counts_all else None,
        revision=row.revision,
    )
