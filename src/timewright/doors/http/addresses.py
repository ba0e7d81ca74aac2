"""Which addresses are this machine's own."""

from __future__ import annotations

import ipaddress
import socket

EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - compared with, never bound


def is_loopback(bind: str) -> bool:
    """Whether only this machine can connect to an address."""
    if bind == "localhost":
        return True
    try:
        return ipaddress.ip_address(bind).is_loopback
    except ValueError:
        return False


def own_addresses(bind: str) -> list[str]:
    """The addresses at which a server on this machine can be reached, as far as the system tells."""
    if is_loopback(bind):
        return []
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        found = []
    return sorted({bind, *EVERYWHERE, *(str(row[4][0]) for row in found)})
