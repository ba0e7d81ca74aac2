"""Namespaces: separate tenants, each with its own quotas for remote callers."""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from timewright.core.input.decode import decode
from timewright.core.input.input_errors import check_name
from timewright.errors import Conflict, InvalidInput
from timewright.ledger.records.namespaces import (
    NAMESPACE,
    Namespace,
    find_namespace,
    read_namespace,
    read_namespaces,
)
from timewright.operations.access.callers import require_all_namespaces
from timewright.operations.context import OperationContext
from timewright.operations.lookup import not_found
from timewright.operations.pagination import paginate_rows
from timewright.operations.registry import ListRequest, OperationRequest, WriteRequest, operations
from timewright.ports import StoredObject, Transaction
from timewright.ports.objects import GLOBAL_NAMESPACE
from timewright.ports.overview import QuotaUse

DEFAULT_NAMESPACE = "default"
MAX_NAMESPACES = 10_000


class CreateNamespace(WriteRequest, frozen=True, kw_only=True):
    """A new namespace, with the settings that differ from the defaults."""

    flattens: ClassVar[tuple[str, type[Struct]]] = ("settings", Namespace)

    settings: dict[str, Any] = field(default_factory=dict)


class SetNamespace(WriteRequest, frozen=True, kw_only=True):
    """Which namespace, and which settings to change; the others stay."""

    flattens: ClassVar[tuple[str, type[Struct]]] = ("settings", Namespace)

    settings: dict[str, Any] = field(default_factory=dict)


class GetNamespace(OperationRequest, frozen=True, kw_only=True):
    """Which namespace; the default is the current one."""

    name: Annotated[str, Meta(max_length=64)] = ""


class ListNamespaces(ListRequest, frozen=True, kw_only=True):
    """List the namespaces that the caller may access."""


class NamespaceDetail(Struct, frozen=True, kw_only=True):
    """A namespace and how much of its quotas is used; counting stops at the quota."""

    namespace: Namespace
    schedules: int
    waiting: int


class NamespaceList(Struct, frozen=True, kw_only=True):
    """A page of namespaces, by name."""

    namespaces: tuple[Namespace, ...]
    cursor: str = ""


@operations.write("namespace create", scope="admin", examples=({"name": "team-b", "schedules": 50},))
def create_namespace(context: OperationContext, tx: Transaction, request: CreateNamespace) -> NamespaceDetail:
    """Create a namespace with its own quotas."""
    # A key of some namespaces could raise its own quotas.
    require_all_namespaces(context.caller, operation="namespace create")
    wanted = _parse(request.settings, None)
    known = read_namespaces(tx)
    if wanted.name in {one.name for one in known}:
        raise Conflict(
            f"namespace {wanted.name} already exists",
            field="name",
            value=wanted.name,
            rule="the names of namespaces are unique",
            fix=f"namespace set {wanted.name}",
        )
    if len(known) >= MAX_NAMESPACES:
        raise Conflict(
            f"there are {MAX_NAMESPACES} namespaces",
            field="name",
            value=wanted.name,
            rule=f"at most {MAX_NAMESPACES}",
            fix="use an existing one",
        )
    return _save(tx, context, wanted, None)


@operations.write("namespace set", scope="admin", examples=({"name": "team-a", "backlog": 500},))
def set_namespace(context: OperationContext, tx: Transaction, request: SetNamespace) -> NamespaceDetail:
    """Change the quotas of a namespace, effective at once."""
    require_all_namespaces(context.caller, operation="namespace set")
    old = _require_namespace(tx, context, _parse_name(request.settings))
    return _save(tx, context, _parse(request.settings, old), old)


@operations.read("namespace get", scope="read", examples=({}, {"name": "team-a"}))
def get_namespace(context: OperationContext, tx: Transaction, request: GetNamespace) -> NamespaceDetail:
    """Show the quotas of a namespace and how much of them is used."""
    return _with_usage(tx, _require_namespace(tx, context, request.name or context.namespace))


@operations.read("namespace list", scope="read", examples=({},))
def list_namespaces(context: OperationContext, tx: Transaction, request: ListNamespaces) -> NamespaceList:
    """List the namespaces that the caller may access."""
    known = {one.name: one for one in read_namespaces(tx)}
    own = {name: read_namespace(tx, name) for name in context.caller.namespaces or (DEFAULT_NAMESPACE,)}
    rows = [one for one in {**own, **known}.values() if context.caller.can_access(one.name)]
    page, cursor = paginate_rows(context, request, rows, key=attrgetter("name"))
    return NamespaceList(namespaces=tuple(page), cursor=cursor)


def _require_namespace(tx: Transaction, context: OperationContext, name: str) -> Namespace:
    """Return a namespace that the caller may access; `default` and the current one need not be created."""
    found = find_namespace(tx, name) if context.caller.can_access(name) else None
    if found is not None:
        return found
    if context.caller.can_access(name) and name in (DEFAULT_NAMESPACE, context.namespace):
        return Namespace(name=name)
    known = [one.name for one in read_namespaces(tx) if context.caller.can_access(one.name)]
    error = not_found("namespace", name, known, list_command="namespace list", field="name")
    error.rule = "a namespace that exists and that the caller may access"
    if context.caller.can_access(name) and not (error.fix or "").startswith("did you mean"):
        error.fix = f"create it first: timewright namespace create {name}"
    raise error


def _save(
    tx: Transaction, context: OperationContext, wanted: Namespace, old: Namespace | None
) -> NamespaceDetail:
    now, last = context.now(), old.revision if old is not None else 0
    saved = replace(wanted, revision=last + 1)
    body = msgspec.json.encode(saved)
    row = StoredObject(
        kind=NAMESPACE,
        namespace=GLOBAL_NAMESPACE,
        name=saved.name,
        revision=saved.revision,
        body=body,
        at=now,
    )
    tx.put_objects([row], replaces={saved.name: last})
    entry = context.by.audit_entry(
        "namespace.set" if last else "namespace.create",
        namespace=saved.name,
        subject=saved.name,
        now=now,
        before=msgspec.json.encode(old).decode() if old is not None else "",
        after=body.decode(),
    )
    tx.add_audit([entry])
    return _with_usage(tx, saved)


def _with_usage(tx: Transaction, one: Namespace) -> NamespaceDetail:
    use = QuotaUse(namespace=one.name, max_schedules=one.schedules + 1, max_runs=one.backlog + 1)
    counts = tx.count(use)
    return NamespaceDetail(namespace=one, schedules=counts["schedules"], waiting=counts["runs"])


def _parse(given: dict[str, Any], old: Namespace | None) -> Namespace:
    if "revision" in given:
        raise InvalidInput(
            "revision cannot be set",
            field="revision",
            value=given["revision"],
            rule="Timewright writes it",
            fix="leave it out",
        )
    read: Namespace = decode(given, Namespace, base=old)
    return replace(read, name=_parse_name({"name": read.name}))


def _parse_name(given: dict[str, Any]) -> str:
    name = check_name(given.get("name"), max_length=64)
    if name == GLOBAL_NAMESPACE:
        raise InvalidInput(
            "* is not a name", field="name", value=name, rule="* means all namespaces", fix="team-a"
        )
    return name
