"""A strict URL parser: it refuses every URL that two parsers could read differently."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import quote

from msgspec import Struct

from timewright.core.input.input_errors import input_error

MAX_URL_CHARS = 8192
MAX_HOST_CHARS = 253
DEFAULT_PORTS = {"http": 80, "https": 443}

_PARTS = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://([^/?]*)(.*)")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_CAPITALS = re.compile(r"[A-Z]+")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_AS_WRITTEN = "%/:?[]@!$&'()*+,;=-._~"


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
