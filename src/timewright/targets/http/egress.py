"""The egress policy: requests may go to public addresses, and to those an administrator allows.

It checks the address that a socket is about to connect to, never the host name. So neither an odd spelling
nor DNS rebinding gets around it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated

from msgspec import Meta, Struct

from timewright.core.input.input_errors import input_error
from timewright.targets.http.urls import Url

Port = Annotated[int, Meta(ge=1, le=65535)]
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

# All networks without public hosts, and all IPv6 networks that embed an IPv4 address.
DENIED_NETWORKS = (
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
HEALTH_PATH = "/healthz"

_LOOPBACK = ("127.0.0.0/8", "::1/128")
_MAX_LISTED = 4


class AllowRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An exception for a network, optionally limited to one host name and port."""

    cidr: str
    host: str | None = None
    port: Port | None = None

    def __post_init__(self) -> None:
        try:
            _network(self.cidr)
        except ValueError as error:
            raise input_error(
                "egress.allow.cidr",
                self.cidr,
                f"is not a network: {error}",
                rule="an address and a prefix length, with all host bits zero",
                fix="10.20.0.0/16, or 10.20.30.40/32 for one address",
            ) from None

    def covers(self, address: IpAddress, *, host: str, port: int) -> bool:
        """Whether the rule applies to the address, reached by this host name and port."""
        named = self.host is None or _normalize_host(self.host) == _normalize_host(host)
        return named and self.port in (None, port) and _is_inside(address, self.cidr)


class EgressPolicy(Struct, frozen=True, kw_only=True):
    """The policy: denied networks, exceptions, and our own ports, which are always denied.

    `ports`, if given, are the only ports allowed on public addresses.
    """

    allow: tuple[AllowRule, ...] = ()
    ports: frozenset[int] | None = None
    own_ports: frozenset[int] = frozenset()
    own_addresses: frozenset[str] = frozenset()

    @classmethod
    def local(cls, *, allow: Iterable[AllowRule] = (), own_ports: Iterable[int] = ()) -> EgressPolicy:
        """The policy of a local scheduler: loopback addresses are allowed too."""
        here = (AllowRule(cidr="127.0.0.1/32"), AllowRule(cidr="::1/128"))
        return cls(allow=(*here, *allow), own_ports=frozenset(own_ports))

    def allows(self, address: str, *, to: Url) -> bool:
        """Whether a request to the URL may connect to the address."""
        ip = parse_ip(address)
        if ip is None or (self._is_own(ip, to) and to.path != HEALTH_PATH):
            return False
        if any(entry.covers(ip, host=to.host, port=to.port) for entry in self.allow):
            return True
        return not is_denied(ip) and (self.ports is None or to.port in self.ports)

    def refusal_message(self, addresses: Iterable[str], *, to: Url) -> str:
        """Explain why none of the addresses is allowed, and which setting would allow it."""
        found = list(addresses)
        parsed = [ip for ip in map(parse_ip, found) if ip is not None]
        if any(self._is_own(ip, to) for ip in parsed):
            return f"blocked by egress policy: {to.host_port} is our own port, allowed for {HEALTH_PATH} only"
        named = ", ".join(found[:_MAX_LISTED]) + (" and more" if len(found) > _MAX_LISTED else "")
        arrow = to.host if found == [to.host] else f"{to.host} → {named}"
        if any(not is_denied(ip) for ip in parsed):
            return f"blocked by egress policy: {arrow}, port {to.port}; allow it with egress.ports"
        return f"blocked by egress policy: {arrow}; allow it with egress.allow"

    def _is_own(self, address: IpAddress, to: Url) -> bool:
        here = str(address) in self.own_addresses or any(_is_inside(address, part) for part in _LOOPBACK)
        return here and to.port in self.own_ports


def is_denied(address: IpAddress) -> bool:
    """Whether an address is in a denied network."""
    return any(_is_inside(address, network) for network in DENIED_NETWORKS)


@lru_cache(maxsize=4096)
def parse_ip(text: str) -> IpAddress | None:
    """Parse an address as sockets report it, without its IPv6 zone; None if it is invalid."""
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None


@lru_cache(maxsize=1024)
def _network(cidr: str) -> IpNetwork:
    return ipaddress.ip_network(cidr)


def _is_inside(address: IpAddress, cidr: str) -> bool:
    return address in _network(cidr)


def _normalize_host(host: str) -> str:
    return host.lower().removesuffix(".")
