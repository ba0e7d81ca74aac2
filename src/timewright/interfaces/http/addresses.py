"""Wildcard addresses, and the own addresses of a server."""

from __future__ import annotations

import socket

from timewright.settings import is_loopback

WILDCARD_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104 - compared with, never bound


def own_addresses(bind: str) -> list[str]:
    """Return the addresses of this machine that a server bound to `bind` is reachable at."""
    if is_loopback(bind):
        return []
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        found = []
    return sorted({bind, *WILDCARD_ADDRESSES, *(str(row[4][0]) for row in found)})
