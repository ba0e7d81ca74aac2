"""One strict reader of URLs: what it accepts is what is connected to, and everything unclear is refused."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import quote

from msgspec import Struct

from timewright.core.refusals import refused

LONGEST_URL = 8192
LONGEST_HOST = 253
PORTS = {"http": 80, "https": 443}

_PARTS = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://([^/?]*)(.*)")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_CAPITALS = re.compile(r"[A-Z]+")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_AS_WRITTEN = "%/:?[]@!$&'()*+,;=-._~"


class Url(Struct, frozen=True, kw_only=True):
    """Where a request goes: an ASCII host without brackets, and the path with its query as it is sent."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def origin(self) -> tuple[str, str, int]:
        """Who answers there; a header with a secret belongs to one origin."""
        return self.scheme, self.host, self.port

    @property
    def place(self) -> str:
        """The host and the port, as a message names them."""
        return f"{self._bracketed}:{self.port}"

    @property
    def text(self) -> str:
        """The URL spelled in full, without the port where it goes without saying."""
        port = "" if self.port == PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self._bracketed}{port}{self.path}"

    @property
    def _bracketed(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def parse_url(text: str, *, field: str = "target.url") -> Url:
    """Read an http or https URL; anything two readers could understand differently is refused."""
    try:
        return _read(text)
    except _Unclear as unclear:
        why, rule, fix = unclear.args
        raise refused(field, shown_url(text), why, rule=rule, fix=fix) from None


def shown_url(text: str) -> str:
    """A URL as a message may show it: no user, no password, no query."""
    return re.sub(r"//[^/?#]*@", "//…@", text[:LONGEST_URL]).partition("?")[0]


class _Unclear(Exception):
    """Why a URL is refused, by which rule, and what to write."""

    def __init__(self, why: str, *, rule: str, fix: str = "https://example.com/hook") -> None:
        super().__init__(why, rule, fix)


def _read(text: str) -> Url:
    if len(text) > LONGEST_URL:
        raise _Unclear(f"has {len(text)} characters", rule=f"at most {LONGEST_URL}")
    if not text.isprintable() or " " in text or "\\" in text:
        why = "holds a space, a backslash or a character that cannot be printed"
        raise _Unclear(why, rule="printable characters, no blanks, no backslash")
    if "#" in text:
        raise _Unclear("has a fragment", rule="a fragment is never sent to a server")
    found = _PARTS.fullmatch(text)
    scheme = found[1].lower() if found else ""
    if found is None or scheme not in PORTS:
        raise _Unclear("is not an http or https URL", rule="http://host/path or https://host/path")
    if "@" in found[2]:
        fix = "an Authorization header that names a secret: Bearer secret://name"
        raise _Unclear("holds a user name", rule="no user or password in a URL", fix=fix)
    host, port = _split_authority(found[2])
    path = quote(found[3], safe=_AS_WRITTEN)
    path = path if path.startswith("/") else f"/{path}"
    return Url(scheme=scheme, host=_host(host), port=port or PORTS[scheme], path=path)


def _split_authority(authority: str) -> tuple[str, int]:
    """The host and the port, 0 when none is written."""
    if authority.startswith("["):
        host, bracket, rest = authority.partition("]")
        host, colon, port = host + bracket, rest[:1], rest[1:]
    else:
        host, colon, port = authority.partition(":")
    if colon not in ("", ":") or (colon and (not _PORT.fullmatch(port) or int(port) > 65535)):
        raise _Unclear(f"has no port {port[:20]!a}", rule="a port is a number from 1 to 65535")
    return host, int(port or 0)


def _host(written: str) -> str:
    """The host in ASCII: an address in its one plain spelling, or a name."""
    if written.startswith("["):
        return _ipv6(written)
    # Letters beyond ASCII are not lowered: some of them become ASCII, and the name another one.
    host = _ascii(_CAPITALS.sub(lambda found: found[0].lower(), written))
    labels = host.removesuffix(".").split(".")
    if len(host) > LONGEST_HOST or not all(_LABEL.fullmatch(label) for label in labels):
        rule = f"labels of letters, digits and hyphens, at most 63 each and {LONGEST_HOST} together"
        raise _Unclear("has no host that could be a name", rule=rule)
    if _NUMBER.fullmatch(labels[-1]):
        _check_ipv4(host)
    return host


def _check_ipv4(host: str) -> None:
    """A resolver reads 127.1, 0177.0.0.1 and 2130706433 as addresses; we read four plain numbers."""
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        rule = "an IPv4 address is four numbers from 0 to 255, without leading zeros"
        raise _Unclear("has an address in an odd spelling", rule=rule) from None


def _ipv6(written: str) -> str:
    try:
        address = ipaddress.IPv6Address(written[1:-1]) if written.endswith("]") else None
    except ValueError:
        address = None
    if address is None or address.scope_id is not None:
        raise _Unclear("has no plain IPv6 address in brackets", rule="[2001:db8::1], without a zone")
    return str(address)


def _ascii(host: str) -> str:
    """The host as it is looked up; letters that would become other letters on the way are refused."""
    if host.isascii():
        return host
    try:
        spelled = host.encode("idna").decode("ascii") if len(host) <= LONGEST_HOST else ""
        back = spelled.encode("ascii").decode("idna")
    except UnicodeError:
        spelled = back = ""
    if not spelled or back != host:
        rule = "ASCII, or an international name that survives being translated there and back"
        raise _Unclear("has a host in letters that change", rule=rule, fix="its xn-- spelling")
    return spelled
