"""Loopback, wildcard and own addresses."""

from __future__ import annotations

import ipaddress
import socket

WILDCARD_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104 - compared with, never bound


def is_loopback(bind: str) -> bool:
    """Whether only this machine can connect to the address."""
    if bind == "localhost":
        return True
    try:
        return ipaddress.ip_address(bind).is_loopback
    except ValueError:
        return False


def own_addresses(bind: str) -> list[str]:
    """Return the addresses of this machine that a server bound to `bind` is reachable at."""
    if is_loopback(bind):
        return []
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        found = []
    return sorted({bind, *WILDCARD_ADDRESSES, *(str(row[4][0]) for row in found)})
