"""Ports for servers that want to be told theirs: free, and not taken by chance before the server has come."""

from __future__ import annotations

import os
import socket
from itertools import count

# Below those that the kernel hands out to whoever connects, on Linux from 32768; each process has its own.
_LOWEST, _MOST, _EACH = 16_000, 16_000, 40
_next = count(os.getpid() * _EACH)


def free_port() -> int:
    """A port of this machine that nobody listens on, and that this process does not give out again soon."""
    while True:
        port = _LOWEST + next(_next) % _MOST
        with socket.socket() as trying:
            # A connection that has just ended there is no hindrance to a server.
            trying.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trying.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
