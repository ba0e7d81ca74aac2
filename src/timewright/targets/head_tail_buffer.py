"""Keeps the first and last bytes of an output of any length, in bounded memory."""

from __future__ import annotations

import codecs
import threading
from typing import Protocol

from timewright.ports.attempt_output import OutputExcerpt

_CONTINUATION_BYTES = range(0x80, 0xC0)  # never the first byte of a UTF-8 character


class SecretRemover(Protocol):
    """Removes secrets from bytes, whole ones and those truncated at an end."""

    def redact(self, data: bytes) -> bytes:
        """Replace whole secrets."""
        ...

    def drop_partial_end(self, data: bytes) -> bytes:
        """Remove the beginning of a secret at the end."""
        ...

    def drop_partial_start(self, data: bytes) -> bytes:
        """Remove the end of a secret at the start."""
        ...


class HeadTailBuffer:
    """Keeps half of its limit from the start and half from the end. One thread feeds it, any may read."""

    def __init__(self, limit_bytes: int) -> None:
        self.size = 0
        self._lock = threading.Lock()
        self._head_limit = limit_bytes // 2
        self._tail_limit = limit_bytes - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()

    def feed(self, data: bytes) -> None:
        """Add the next bytes."""
        with self._lock:
            self.size += len(data)
            free = self._head_limit - len(self._head)
            if free > 0:
                self._head += data[:free]
                data = data[free:]
            if data:
                self._tail += data[-self._tail_limit :]
                # Trim at four times the limit only, because each trim copies the tail.
                if len(self._tail) > 4 * self._tail_limit:
                    del self._tail[: -self._tail_limit]

    @property
    def omitted_bytes(self) -> int:
        """How many bytes between head and tail were dropped."""
        return self.size - len(self._head) - min(len(self._tail), self._tail_limit)

    def snapshot(self, remover: SecretRemover | None = None) -> OutputExcerpt:
        """The text so far. A partial character or secret at the end is held back until the rest arrives."""
        with self._lock:
            head, tail = bytes(self._head), bytes(self._tail[-self._tail_limit :])
            omitted = self.omitted_bytes
        if not omitted:
            whole = _decode(head + tail, remover)
            return OutputExcerpt(text=whole, size=len(whole.encode()))
        start = next((i for i, byte in enumerate(tail[:4]) if byte not in _CONTINUATION_BYTES), 0)
        rest = tail[start:] if remover is None else remover.drop_partial_start(tail[start:])
        first, last = _decode(head, remover), _decode(rest, remover)
        before = f"{first}\n… {omitted} bytes left out …\n"
        size = len(first.encode()) + omitted + len(last.encode())
        return OutputExcerpt(text=before + last, size=size, tail_offset=len(before.encode()))

    def text(self) -> str:
        """The final text. A line in the middle states how many bytes were dropped."""
        tail = bytes(self._tail[-self._tail_limit :])
        if not self.omitted_bytes:
            return (bytes(self._head) + tail).decode("utf-8", "replace")
        start = next((i for i, byte in enumerate(tail[:4]) if byte not in _CONTINUATION_BYTES), 0)
        # An incremental decoder without final=True drops a character that was cut in two.
        head = codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(self._head))
        return f"{head}\n… {self.omitted_bytes} bytes left out …\n{tail[start:].decode('utf-8', 'replace')}"


def _decode(data: bytes, hiding: SecretRemover | None) -> str:
    if hiding is not None:
        data = hiding.drop_partial_end(hiding.redact(data))
    return codecs.getincrementaldecoder("utf-8")("replace").decode(data).replace("\0", "\ufffd")
