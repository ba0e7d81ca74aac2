"""Who asks, and what that permits: scopes, the four roles that bundle them, and the caller as a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal, get_args

from msgspec import Struct

from timewright.errors import Forbidden

Scope = Literal["read", "trigger", "write", "hint", "admin", "secret"]
Role = Literal["viewer", "operator", "editor", "admin"]

EVERYTHING: frozenset[Scope] = frozenset(get_args(Scope))

ROLES: Mapping[Role, frozenset[Scope]] = MappingProxyType(
    {
        "viewer": frozenset({"read"}),
        "operator": frozenset({"read", "trigger", "hint"}),
        "editor": frozenset({"read", "trigger", "hint", "write"}),
        "admin": EVERYTHING,
    }
)


class Caller(Struct, frozen=True, kw_only=True):
    """Who asks, through what, with which scopes and in which namespaces; none named means all."""

    actor: str
    origin: str = "human"
    scopes: frozenset[Scope] = frozenset()
    namespaces: tuple[str, ...] = ()
    key: str = ""
    local: bool = False

    def may_enter(self, namespace: str) -> bool:
        """Whether a namespace is one of the caller's."""
        return not self.namespaces or namespace in self.namespaces

    def may_grant(self, scopes: Iterable[str], namespaces: Iterable[str]) -> bool:
        """Whether the caller has everything that shall be handed on; no namespace named means all."""
        wanted = tuple(namespaces)
        within = not self.namespaces or (bool(wanted) and set(wanted) <= set(self.namespaces))
        return set(scopes) <= self.scopes and within


LOCAL = Caller(actor="local", scopes=EVERYTHING, local=True)


def demand(caller: Caller, scope: Scope, *, of: str) -> None:
    """Refuse a caller who has not the scope that an operation asks for."""
    if scope in caller.scopes:
        return
    roles = [role for role, scopes in ROLES.items() if scope in scopes]
    raise Forbidden(
        f"{of} needs the scope {scope}",
        field="scope",
        value=scope,
        rule=f"{' or '.join(roles)} may; this key has {', '.join(sorted(caller.scopes)) or 'no scope'}",
        fix=f"a key made with: key create --role {roles[0]}",
    )
