"""Namespaces: whose things are whose, and how much each may ask for from outside."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from timewright.core.names import check_name
from timewright.core.vocabulary import decode
from timewright.errors import Conflict, Forbidden, InvalidInput
from timewright.ledger.key_shelf import EVERYWHERE
from timewright.ledger.namespaces import NAMESPACE, Namespace, all_namespaces, find_namespace, namespace_of
from timewright.operations.context import Context
from timewright.operations.find import no_such
from timewright.operations.pages import paged
from timewright.operations.registry import Listing, Request, Write, operations
from timewright.ports import Page, Stored, Transaction

DEFAULT = "default"
MOST_NAMESPACES = 10_000


class Create(Write, frozen=True, kw_only=True):
    """A namespace by its name, with what shall differ from the defaults."""

    spreads: ClassVar[tuple[str, type[Struct]]] = ("terms", Namespace)

    terms: dict[str, Any] = field(default_factory=dict)


class Set(Write, frozen=True, kw_only=True):
    """Which namespace by its name, and what shall change; the rest stays."""

    spreads: ClassVar[tuple[str, type[Struct]]] = ("terms", Namespace)

    terms: dict[str, Any] = field(default_factory=dict)


class Which(Request, frozen=True, kw_only=True):
    """Which namespace; without one, the one that is asked."""

    name: Annotated[str, Meta(max_length=64)] = ""


class List(Listing, frozen=True, kw_only=True):
    """Which namespaces: those that the caller may enter."""


class OneNamespace(Struct, frozen=True, kw_only=True):
    """A namespace and how much of it is used, counted no further than its quotas."""

    namespace: Namespace
    schedules: int
    waiting: int


class Namespaces(Struct, frozen=True, kw_only=True):
    """A page of namespaces, by name."""

    namespaces: tuple[Namespace, ...]
    cursor: str = ""


@operations.add("namespace", "create", Create, scope="admin", examples=({"name": "team-b", "schedules": 50},))
def create_namespace(context: Context, ask: Create) -> OneNamespace:
    """Set up a namespace with quotas of its own."""
    _check_all(context)
    wanted = _read(ask.terms, None)

    def work(tx: Transaction) -> OneNamespace:
        known = all_namespaces(tx)
        if wanted.name in {one.name for one in known}:
            raise Conflict(
                f"namespace {wanted.name} exists",
                field="name",
                value=wanted.name,
                rule="a namespace is set up once",
                fix=f"namespace set {wanted.name}",
            )
        if len(known) >= MOST_NAMESPACES:
            raise Conflict(
                f"there are {MOST_NAMESPACES} namespaces",
                field="name",
                value=wanted.name,
                rule=f"at most {MOST_NAMESPACES}",
                fix="use one that exists",
            )
        return _kept(tx, context, wanted, None, reason=ask.reason)

    return context.store.write(work)


@operations.add("namespace", "set", Set, scope="admin", examples=({"name": "team-a", "backlog": 500},))
def set_namespace(context: Context, ask: Set) -> OneNamespace:
    """Change what a namespace allows; it holds from this commit on."""
    _check_all(context)
    name = _named(ask.terms)

    def work(tx: Transaction) -> OneNamespace:
        old = _found(tx, context, name)
        return _kept(tx, context, _read(ask.terms, old), old, reason=ask.reason)

    return context.store.write(work)


@operations.add("namespace", "get", Which, scope="read", examples=({}, {"name": "team-a"}))
def get_namespace(context: Context, ask: Which) -> OneNamespace:
    """Show what a namespace allows, and how much of it is used."""
    return context.store.read(lambda tx: _used(tx, _found(tx, context, ask.name or context.namespace)))


@operations.add("namespace", "list", List, scope="read", examples=({},))
def list_namespaces(context: Context, ask: List) -> Namespaces:
    """List the namespaces that the caller may enter."""

    def work(tx: Transaction) -> Namespaces:
        known = {one.name: one for one in all_namespaces(tx)}
        own = {name: namespace_of(tx, name) for name in context.caller.namespaces or (DEFAULT,)}
        rows = [one for _, one in sorted({**own, **known}.items()) if context.caller.may_enter(one.name)]

        def find(limit: int, place: str) -> Page:
            after = [row for row in rows if row.name > place]
            return Page(tuple(after[:limit]), after[limit - 1].name if len(after) > limit else "")

        page, cursor = paged(context, ask, find)
        return Namespaces(namespaces=tuple(page), cursor=cursor)

    return context.store.read(work)


def _found(tx: Transaction, context: Context, name: str) -> Namespace:
    """A namespace that the caller may enter: set up, or its own, or the one everybody begins with."""
    found = find_namespace(tx, name) if context.caller.may_enter(name) else None
    if found is not None:
        return found
    if context.caller.may_enter(name) and name in (DEFAULT, context.namespace):
        return Namespace(name=name)
    known = [one.name for one in all_namespaces(tx) if context.caller.may_enter(one.name)]
    raise no_such("namespace", name, known, lister="namespace list", field="name")


def _kept(
    tx: Transaction, context: Context, wanted: Namespace, old: Namespace | None, *, reason: str
) -> OneNamespace:
    now, last = context.now(), old.revision if old is not None else 0
    kept = replace(wanted, revision=last + 1)
    body = msgspec.json.encode(kept)
    row = Stored(
        kind=NAMESPACE, namespace=EVERYWHERE, name=kept.name, revision=kept.revision, body=body, at=now
    )
    tx.put_objects([row], replaces={kept.name: last})
    entry = context.because(reason).entry(
        "namespace.set" if last else "namespace.create",
        namespace=kept.name,
        subject=kept.name,
        now=now,
        before=msgspec.json.encode(old).decode() if old is not None else "",
        after=body.decode(),
    )
    tx.add_audit([entry])
    return _used(tx, kept)


def _used(tx: Transaction, one: Namespace) -> OneNamespace:
    schedules, waiting = tx.count_namespace(
        one.name, most_schedules=one.schedules + 1, most_runs=one.backlog + 1
    )
    return OneNamespace(namespace=one, schedules=schedules, waiting=waiting)


def _read(given: dict[str, Any], old: Namespace | None) -> Namespace:
    if "revision" in given:
        raise InvalidInput(
            "revision is not set by hand",
            field="revision",
            value=given["revision"],
            rule="Timewright writes it",
            fix="leave it out",
        )
    read: Namespace = decode(given, Namespace, base=old)
    return replace(read, name=_named({"name": read.name}))


def _named(given: dict[str, Any]) -> str:
    name = check_name(given.get("name"), longest=64)
    if name == EVERYWHERE:
        raise InvalidInput(
            "* is not a name", field="name", value=name, rule="* stands for all namespaces", fix="team-a"
        )
    return name


def _check_all(context: Context) -> None:
    """Refuse a caller who is bound to namespaces: nobody raises the quotas that hold for them."""
    if context.caller.namespaces:
        raise Forbidden(
            "namespaces are set up by a key that opens all of them",
            field="scope",
            value=", ".join(context.caller.namespaces),
            rule="a key that is bound to namespaces does not set their quotas",
            fix="a key made with: key create --role admin --within '*'",
        )
