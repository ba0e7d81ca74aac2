"""Free ports for servers that need a port number in advance."""

from __future__ import annotations

import os
import socket
from itertools import count

# Below the ephemeral ports (Linux: from 32768), which the kernel may assign meanwhile; each process has its
# own range.
_LOWEST, _MOST, _EACH = 16_000, 16_000, 40
_next = count(os.getpid() * _EACH)


def free_port() -> int:
    """A free port that this process does not hand out again soon."""
    while True:
        port = _LOWEST + next(_next) % _MOST
        with socket.socket() as trying:
            # A recently closed connection on the port does not hinder a server.
            trying.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trying.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
