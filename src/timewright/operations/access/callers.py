"""Callers, scopes, and the four roles that bundle scopes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal, get_args

from msgspec import Struct

from timewright.errors import Forbidden

Scope = Literal["read", "trigger", "write", "hint", "admin", "secret", "secret-use"]
AGENT_ORIGIN = "agent"
RUN_ORIGIN = "run"
Role = Literal["viewer", "operator", "editor", "admin"]

ALL_SCOPES: frozenset[Scope] = frozenset(get_args(Scope))

ROLES: Mapping[Role, frozenset[Scope]] = MappingProxyType(
    {
        "viewer": frozenset({"read"}),
        "operator": frozenset({"read", "trigger", "hint"}),
        "editor": frozenset({"read", "trigger", "hint", "write"}),
        "admin": ALL_SCOPES,
    }
)


class Caller(Struct, frozen=True, kw_only=True):
    """An authenticated caller: its name, origin, scopes and namespaces; no namespaces means all."""

    actor: str
    origin: str = "human"
    scopes: frozenset[Scope] = frozenset()
    namespaces: tuple[str, ...] = ()
    key: str = ""
    local: bool = False
    zone: str = ""
    own_schedule: str = ""
    """Set for the token of a run: the only schedule that the caller may change, and not in every way."""

    def can_access(self, namespace: str) -> bool:
        """Return whether the caller may access a namespace."""
        return not self.namespaces or namespace in self.namespaces

    def can_grant(self, scopes: Iterable[str], namespaces: Iterable[str]) -> bool:
        """Return whether the caller has all these scopes and namespaces itself; no namespaces means all."""
        wanted = tuple(namespaces)
        within = not self.namespaces or (bool(wanted) and set(wanted) <= set(self.namespaces))
        return set(scopes) <= self.scopes and within


LOCAL_CALLER = Caller(actor="local", scopes=ALL_SCOPES, local=True)


def require_scope(caller: Caller, scope: Scope, *, operation: str) -> None:
    """Raise Forbidden if the caller lacks the scope that an operation needs."""
    if scope in caller.scopes:
        return
    roles = [role for role, scopes in ROLES.items() if scope in scopes]
    raise Forbidden(
        f"{operation} needs the scope {scope}",
        field="scope",
        value=scope,
        rule=f"{' or '.join(roles)} may; this key has {', '.join(sorted(caller.scopes)) or 'no scope'}",
        fix=f"key create NAME with role: {roles[0]}",
    )


def require_all_namespaces(caller: Caller, *, operation: str) -> None:
    """Raise Forbidden for a key of some namespaces, because the operation binds all of them."""
    if caller.namespaces:
        raise Forbidden(
            f"{operation} needs a key with access to all namespaces",
            field="namespace",
            value=", ".join(caller.namespaces),
            rule=f"your key has access to {', '.join(caller.namespaces)}",
            fix="key create NAME with role: admin and within: '*'",
        )
