"""Where requests may go: public addresses, and what an admin has written down besides.

The question is asked of the address about to be connected to, never of a name, so neither a spelling nor a
name that changes its answer gets around it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated

from msgspec import Meta, Struct

from timewright.core.refusals import refused
from timewright.targets.urls import Url

Port = Annotated[int, Meta(ge=1, le=65535)]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Everything that is not a public host, and every form in which IPv6 can carry an IPv4 address.
DENIED = (
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "::/96",
    "::1/128",
    "::ffff:0:0/96",
    "::ffff:0:0:0/96",
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "100::/64",
    "2001::/23",
    "2001:db8::/32",
    "2002::/16",
    "3fff::/20",
    "5f00::/16",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
)
HEALTH = "/healthz"

_LOOPBACK = ("127.0.0.0/8", "::1/128")
_MOST_NAMED = 4


class Allow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An exception an admin has written: these addresses, for one host and port or for all."""

    cidr: str
    host: str | None = None
    port: Port | None = None

    def __post_init__(self) -> None:
        try:
            _network(self.cidr)
        except ValueError as error:
            raise refused(
                "egress.allow.cidr",
                self.cidr,
                f"is not a network: {error}",
                rule="an address and a prefix with no bits beyond it",
                fix="10.20.0.0/16, or 10.20.30.40/32 for one address",
            ) from None

    def covers(self, address: Address, *, host: str, port: int) -> bool:
        """Whether the exception is about that address, reached by that name and port."""
        named = self.host is None or _plain(self.host) == _plain(host)
        return named and self.port in (None, port) and _inside(address, self.cidr)


class Egress(Struct, frozen=True, kw_only=True):
    """The policy: the deny table, what is excepted from it, and our own doors, which stay closed.

    `ports`, if given, are the only ones a public address may be called on.
    """

    allow: tuple[Allow, ...] = ()
    ports: frozenset[int] | None = None
    own_ports: frozenset[int] = frozenset()
    own_addresses: frozenset[str] = frozenset()

    @classmethod
    def local(cls, *, allow: Iterable[Allow] = (), own_ports: Iterable[int] = ()) -> Egress:
        """The policy of a scheduler that listens on loopback: this machine may be called too."""
        here = (Allow(cidr="127.0.0.1/32"), Allow(cidr="::1/128"))
        return cls(allow=(*here, *allow), own_ports=frozenset(own_ports))

    def allows(self, address: str, *, to: Url) -> bool:
        """Whether that address may be connected to for that URL."""
        where = parse_address(address)
        if where is None or (self._is_own(where, to) and to.path != HEALTH):
            return False
        if any(entry.covers(where, host=to.host, port=to.port) for entry in self.allow):
            return True
        return not is_denied(where) and (self.ports is None or to.port in self.ports)

    def refusal(self, addresses: Iterable[str], *, to: Url) -> str:
        """Why none of those addresses may be connected to, and what to do about it."""
        found = list(addresses)
        parsed = [where for where in map(parse_address, found) if where is not None]
        if any(self._is_own(where, to) for where in parsed):
            return f"blocked by egress policy: {to.place} is Timewright's own port, open at {HEALTH} only"
        named = ", ".join(found[:_MOST_NAMED]) + (" and more" if len(found) > _MOST_NAMED else "")
        arrow = to.host if found == [to.host] else f"{to.host} → {named}"
        if any(not is_denied(where) for where in parsed):
            return f"blocked by egress policy: {arrow}, port {to.port}; allow it with egress.ports"
        return f"blocked by egress policy: {arrow}; allow it with egress.allow"

    def _is_own(self, address: Address, to: Url) -> bool:
        here = str(address) in self.own_addresses or any(_inside(address, part) for part in _LOOPBACK)
        return here and to.port in self.own_ports


def is_denied(address: Address) -> bool:
    """Whether an address lies in the deny table."""
    return any(_inside(address, network) for network in DENIED)


@lru_cache(maxsize=4096)
def parse_address(text: str) -> Address | None:
    """The address that a socket names, without its zone."""
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None


@lru_cache(maxsize=1024)
def _network(cidr: str) -> Network:
    return ipaddress.ip_network(cidr)


def _inside(address: Address, cidr: str) -> bool:
    return address in _network(cidr)


def _plain(host: str) -> str:
    return host.lower().removesuffix(".")
