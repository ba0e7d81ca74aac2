"""The egress policy: requests may go to public addresses, and to those an administrator allows.

It checks the address that a socket is about to connect to, never the host name. So neither an odd spelling
nor DNS rebinding gets around it. URLs are parsed strictly: one that two parsers could read differently is
refused.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote

from msgspec import Struct

from timewright.core.input.input_errors import input_error
from timewright.settings import AllowedNetwork

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

MAX_URL_CHARS = 8192
MAX_HOST_CHARS = 253
DEFAULT_PORTS = {"http": 80, "https": 443}

_PARTS = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://([^/?]*)(.*)")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_CAPITALS = re.compile(r"[A-Z]+")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_AS_WRITTEN = "%/:?[]@!$&'()*+,;=-._~"


class EgressPolicy(Struct, frozen=True, kw_only=True):
    """The policy: denied networks, exceptions, and our own ports, which are always denied.

    `ports`, if given, are the only ports allowed on public addresses.
    """

    allow: tuple[AllowedNetwork, ...] = ()
    ports: frozenset[int] | None = None
    own_ports: frozenset[int] = frozenset()
    own_addresses: frozenset[str] = frozenset()

    @classmethod
    def local(cls, *, allow: Iterable[AllowedNetwork] = (), own_ports: Iterable[int] = ()) -> EgressPolicy:
        """The policy of a local scheduler: loopback addresses are allowed too."""
        here = (AllowedNetwork(cidr="127.0.0.1/32"), AllowedNetwork(cidr="::1/128"))
        return cls(allow=(*here, *allow), own_ports=frozenset(own_ports))

    def allows(self, address: str, *, to: Url) -> bool:
        """Whether a request to the URL may connect to the address."""
        ip = parse_ip(address)
        if ip is None or (self._is_own(ip, to) and to.path != HEALTH_PATH):
            return False
        if any(_covers(entry, ip, to) for entry in self.allow):
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


def _covers(rule: AllowedNetwork, address: IpAddress, to: Url) -> bool:
    """Whether a rule allows an address, reached by the host name and port of the URL."""
    named = rule.host is None or _normalize_host(rule.host) == _normalize_host(to.host)
    return named and rule.port in (None, to.port) and _is_inside(address, rule.cidr)


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


class Url(Struct, frozen=True, kw_only=True):
    """A parsed URL: an ASCII host without brackets, and the path with its query as sent."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def origin(self) -> tuple[str, str, int]:
        """The origin. A header with a secret is sent to one origin only."""
        return self.scheme, self.host, self.port

    @property
    def host_port(self) -> str:
        """The host and the port, for messages."""
        return f"{self._bracketed}:{self.port}"

    @property
    def text(self) -> str:
        """The full URL, without the default port."""
        port = "" if self.port == DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self._bracketed}{port}{self.path}"

    @property
    def _bracketed(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def parse_url(text: str, *, field: str = "target.url") -> Url:
    """Parse an http or https URL, or refuse it."""
    try:
        return _parse(text)
    except _UrlError as error:
        why, rule, fix = error.args
        raise input_error(field, redact_url(text), why, rule=rule, fix=fix) from None


def redact_url(text: str) -> str:
    """A URL for messages: without user, password and query."""
    return re.sub(r"//[^/?#]*@", "//…@", text[:MAX_URL_CHARS]).partition("?")[0]


class _UrlError(Exception):
    """Why a URL is refused, the rule, and a valid example."""

    def __init__(self, why: str, *, rule: str, fix: str = "https://example.com/hook") -> None:
        super().__init__(why, rule, fix)


def _parse(text: str) -> Url:
    if len(text) > MAX_URL_CHARS:
        raise _UrlError(f"has {len(text)} characters", rule=f"at most {MAX_URL_CHARS}")
    if not text.isprintable() or " " in text or "\\" in text:
        why = "contains a space, a backslash or a non-printable character"
        raise _UrlError(why, rule="printable characters without spaces and backslashes")
    if "#" in text:
        raise _UrlError("has a fragment", rule="remove the part from # on; it is never sent to a server")
    found = _PARTS.fullmatch(text)
    scheme = found[1].lower() if found else ""
    if found is None or scheme not in DEFAULT_PORTS:
        raise _UrlError("is not an http or https URL", rule="http://host/path or https://host/path")
    if "@" in found[2]:
        fix = "use an Authorization header: Bearer secret://name"
        raise _UrlError("contains a user name", rule="no user or password in a URL", fix=fix)
    host, port = _split_authority(found[2])
    path = quote(found[3], safe=_AS_WRITTEN)
    path = path if path.startswith("/") else f"/{path}"
    return Url(scheme=scheme, host=_parse_host(host), port=port or DEFAULT_PORTS[scheme], path=path)


def _split_authority(authority: str) -> tuple[str, int]:
    """The host and the port, 0 if there is none."""
    if authority.startswith("["):
        host, bracket, rest = authority.partition("]")
        host, colon, port = host + bracket, rest[:1], rest[1:]
    else:
        host, colon, port = authority.partition(":")
    if colon not in ("", ":") or (colon and (not _PORT.fullmatch(port) or int(port) > 65535)):
        raise _UrlError(f"has an invalid port {port[:20]!a}", rule="a port is a number from 1 to 65535")
    return host, int(port or 0)


def _parse_host(text: str) -> str:
    """The host in ASCII: an address in its canonical form, or a name."""
    if text.startswith("["):
        return _parse_ipv6(text)
    # Lower ASCII letters only: some other letters become ASCII when lowered, which changes the name.
    host = _to_ascii(_CAPITALS.sub(lambda found: found[0].lower(), text))
    labels = host.removesuffix(".").split(".")
    if len(host) > MAX_HOST_CHARS or not all(_LABEL.fullmatch(label) for label in labels):
        rule = f"labels of letters, digits and hyphens, at most 63 each and {MAX_HOST_CHARS} together"
        raise _UrlError("has an invalid host name", rule=rule)
    if _NUMBER.fullmatch(labels[-1]):
        _check_ipv4(host)
    return host


def _check_ipv4(host: str) -> None:
    """Refuse 127.1, 0177.0.0.1 and 2130706433, which resolvers accept as addresses."""
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        rule = "an IPv4 address is four numbers from 0 to 255, without leading zeros"
        raise _UrlError("has an IPv4 address in a non-standard form", rule=rule) from None


def _parse_ipv6(text: str) -> str:
    try:
        address = ipaddress.IPv6Address(text[1:-1]) if text.endswith("]") else None
    except ValueError:
        address = None
    if address is None or address.scope_id is not None:
        raise _UrlError("has an invalid IPv6 address", rule="[2001:db8::1], without a zone")
    return str(address)


def _to_ascii(host: str) -> str:
    """Encode an international host as IDNA. Refuse one that changes when it is decoded again."""
    if host.isascii():
        return host
    try:
        encoded = host.encode("idna").decode("ascii") if len(host) <= MAX_HOST_CHARS else ""
        decoded = encoded.encode("ascii").decode("idna")
    except UnicodeError:
        encoded = decoded = ""
    if not encoded or decoded != host:
        rule = "ASCII, or an international name that decodes to itself"
        raise _UrlError("has a host name that IDNA changes", rule=rule, fix="use its xn-- form")
    return encoded
