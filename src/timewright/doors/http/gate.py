"""Before anything else: whether a request was meant for us, and not made by a page from elsewhere."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from functools import lru_cache

from msgspec import Struct

from timewright.doors.http.problems import Refused

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")

# A name, its port and what lies between them.
_LONGEST = 262
_JUDGED = frozenset({b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode"})

_AUTHORITY = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9_]([a-z0-9_.-]{0,252}[a-z0-9_])?\.?)(:([0-9]{1,5}))?")
_ORIGIN = re.compile(r"(https?)://([^/?#@\s]+)")
_PORTS = {"http": 80, "https": 443}


class Gate(Struct, frozen=True, kw_only=True):
    """The names we answer to; when open, also every address, because a name is what gets rebound."""

    names: frozenset[str] = frozenset(LOOPBACK)
    open: bool = False

    def check(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Refuse a request for another host, or one that a page of another origin has sent."""
        found: dict[bytes, list[str]] = {}
        for name, value in headers:
            if name in _JUDGED:
                found.setdefault(name, []).append(value.decode("latin-1"))
        host = _only(found.get(b"host", []))
        if host is None or not self.answers_to(host):
            raise Refused(
                421,
                "wrong_host",
                "this is not a host we answer to",
                field="host",
                value=(host or "")[:255],
                rule=f"one of: {', '.join(sorted(self.names))}",
                fix="the address that `up` has printed, or: timewright up --host that.name",
            )
        if len(found) > 1:
            self._check_origin(found, host)

    def answers_to(self, authority: str) -> bool:
        """Whether a Host header names us."""
        parsed = parse_authority(authority)
        return parsed is not None and (parsed[0] in self.names or (self.open and _is_address(parsed[0])))

    def _check_origin(self, found: dict[bytes, list[str]], host: str) -> None:
        origins = found.get(b"origin", [])
        cross = found.get(b"sec-fetch-site", ["none"])[0] in ("cross-site", "same-site")
        navigates = found.get(b"sec-fetch-mode", [""])[0] == "navigate"
        same = not origins or (len(origins) == 1 and _is_same(origins[0], host))
        if not same or (cross and not navigates):
            raise Refused(
                403,
                "wrong_origin",
                "a page from elsewhere may not ask",
                field="origin",
                value=origins[0][:255] if origins else "",
                rule="the same origin, or none",
                fix="ask from a program, or from a page of ours",
            )


def parse_authority(text: str) -> tuple[str, int | None] | None:
    """Host and port of `host:port`, in lower case and without a last dot; nothing for what is neither."""
    return _parsed(text) if len(text) <= _LONGEST else None


@lru_cache(maxsize=256)
def _parsed(text: str) -> tuple[str, int | None] | None:
    match = _AUTHORITY.fullmatch(text.lower())
    if match is None:
        return None
    port = int(match[4]) if match[4] else None
    if port is not None and not 1 <= port <= 65535:
        return None
    return match[1].removesuffix("."), port


def _is_same(origin: str, host: str) -> bool:
    match = _ORIGIN.fullmatch(origin.lower())
    theirs = parse_authority(match[2]) if match is not None else None
    ours = parse_authority(host)
    if match is None or theirs is None or ours is None:
        return False
    usual = _PORTS[match[1]]
    return (theirs[0], theirs[1] or usual) == (ours[0], ours[1] or usual)


def _is_address(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return not address.is_unspecified


def _only(values: list[str]) -> str | None:
    return values[0] if len(values) == 1 else None
