"""Named limits: ceilings that span schedules and queues."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from timewright.core.schedule import limit_gate
from timewright.core.vocabulary import check_name
from timewright.ledger.policy import MOST_LEASES, set_limit
from timewright.ledger.shelf import LIMIT
from timewright.operations.context import Context, together
from timewright.operations.pages import paged
from timewright.operations.registry import Listing, Named, Write, operations
from timewright.ports import Page, Transaction


class Set(Write, frozen=True, kw_only=True):
    """Which limit, and how many live leases it admits."""

    limit: Named
    most: Annotated[int, Meta(ge=1, le=MOST_LEASES)]


class LimitRow(Struct, frozen=True, kw_only=True):
    """A named limit, and how full it is."""

    limit: str
    most: int
    in_flight: int
    available: int
    revision: int


class List(Listing, frozen=True, kw_only=True):
    """Which limits: all of the namespace."""


class Limits(Struct, frozen=True, kw_only=True):
    """A page of limits, by name."""

    limits: tuple[LimitRow, ...]
    cursor: str = ""


@operations.add("limit", "set", Set, scope="write", examples=({"limit": "crm-api", "most": 5},))
def set_named_limit(context: Context, ask: Set) -> LimitRow:
    """Set how many live leases a named limit admits; it holds from this commit on."""
    now = context.now()
    name = check_name(ask.limit, field="limit")

    def work(inside: Context) -> LimitRow:
        by = inside.because(ask.reason)
        set_limit(inside.store, namespace=inside.namespace, name=name, most=ask.most, by=by, now=now)
        (row,) = inside.store.read(lambda tx: _rows(tx, inside.namespace, [name]))
        return row

    return together(context, work)


@operations.add("limit", "list", List, scope="read", examples=({},))
def list_limits(context: Context, ask: List) -> Limits:
    """List the named limits and how full each is."""

    def work(tx: Transaction) -> Limits:
        rows = _rows(tx, context.namespace, None)

        def find(limit: int, place: str) -> Page:
            after = [row for row in rows if row.limit > place]
            return Page(tuple(after[:limit]), after[limit - 1].limit if len(after) > limit else "")

        page, cursor = paged(context, ask, find)
        return Limits(limits=tuple(page), cursor=cursor)

    return context.store.read(work)


def _rows(tx: Transaction, namespace: str, names: list[str] | None) -> list[LimitRow]:
    stored = tx.get_objects(LIMIT, namespace=namespace, names=names)
    gates = tx.read_gates(limit_gate(namespace, row.name) for row in stored)
    rows = []
    for row in stored:
        gate = gates[limit_gate(namespace, row.name)]
        most = msgspec.json.decode(row.body, type=dict[str, int])["most"]
        rows.append(
            LimitRow(
                limit=row.name, most=most, in_flight=gate.held, available=gate.free, revision=row.revision
            )
        )
    return rows
