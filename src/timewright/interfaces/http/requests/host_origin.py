"""Checks Host and Origin, against DNS rebinding and cross-site requests; lists own addresses."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from functools import lru_cache

from msgspec import Struct

from timewright.interfaces.http.problems import HttpProblem
from timewright.settings import is_loopback

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")

# 255 characters of a name, a colon, five digits of a port and a final dot.
_MAX_AUTHORITY_LENGTH = 262
_CHECKED_HEADERS = frozenset({b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode"})

_AUTHORITY = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9_]([a-z0-9_.-]{0,252}[a-z0-9_])?\.?)(:([0-9]{1,5}))?")
_ORIGIN = re.compile(r"(https?)://([^/?#@\s]+)")
_DEFAULT_PORTS = {"http": 80, "https": 443}

WILDCARD_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104 - compared with, never bound


class HostOriginCheck(Struct, frozen=True, kw_only=True):
    """Allowed host names. `allow_any_address` also allows IP addresses: DNS rebinding needs a name."""

    allowed_hosts: frozenset[str] = frozenset(LOOPBACK)
    allow_any_address: bool = False

    def check(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raise if the request is for another host, or was sent by a page of another origin."""
        found: dict[bytes, list[str]] = {}
        for name, value in headers:
            if name in _CHECKED_HEADERS:
                found.setdefault(name, []).append(value.decode("latin-1"))
        host = _only(found.get(b"host", []))
        if host is None or not self.allows_host(host):
            raise HttpProblem(
                421,
                "wrong_host",
                "host not allowed",
                field="host",
                value=(host or "")[:255],
                rule=f"one of: {', '.join(sorted(self.allowed_hosts))}",
                fix="use the address that `timewright up` prints, or add the name: timewright up --host NAME",
            )
        if len(found) > 1:
            self._check_origin(found, host)

    def allows_host(self, authority: str) -> bool:
        """Whether a Host header is allowed."""
        parsed = parse_authority(authority)
        return parsed is not None and (
            parsed[0] in self.allowed_hosts or (self.allow_any_address and _is_address(parsed[0]))
        )

    def _check_origin(self, found: dict[bytes, list[str]], host: str) -> None:
        origins = found.get(b"origin", [])
        cross = found.get(b"sec-fetch-site", ["none"])[0] in ("cross-site", "same-site")
        navigates = found.get(b"sec-fetch-mode", [""])[0] == "navigate"
        same = not origins or (len(origins) == 1 and _is_same_origin(origins[0], host))
        if not same or (cross and not navigates):
            raise HttpProblem(
                403,
                "wrong_origin",
                "cross-origin requests are not allowed",
                field="origin",
                value=origins[0][:255] if origins else "",
                rule="the same origin, or none",
                fix="send the request from a program or from the dashboard",
            )


def parse_authority(text: str) -> tuple[str, int | None] | None:
    """Parse `host:port` into a lower-case host without a final dot and a port; None if it is invalid."""
    return _parse(text) if len(text) <= _MAX_AUTHORITY_LENGTH else None


@lru_cache(maxsize=256)
def _parse(text: str) -> tuple[str, int | None] | None:
    match = _AUTHORITY.fullmatch(text.lower())
    if match is None:
        return None
    port = int(match[4]) if match[4] else None
    if port is not None and not 1 <= port <= 65535:
        return None
    return match[1].removesuffix("."), port


def _is_same_origin(origin: str, host: str) -> bool:
    match = _ORIGIN.fullmatch(origin.lower())
    theirs = parse_authority(match[2]) if match is not None else None
    ours = parse_authority(host)
    if match is None or theirs is None or ours is None:
        return False
    default_port = _DEFAULT_PORTS[match[1]]
    return (theirs[0], theirs[1] or default_port) == (ours[0], ours[1] or default_port)


def _is_address(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return not address.is_unspecified


def _only(values: list[str]) -> str | None:
    return values[0] if len(values) == 1 else None


def own_addresses(bind: str) -> list[str]:
    """Return the addresses of this machine that a server bound to `bind` is reachable at."""
    if is_loopback(bind):
        return []
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        found = []
    return sorted({bind, *WILDCARD_ADDRESSES, *(str(row[4][0]) for row in found)})
