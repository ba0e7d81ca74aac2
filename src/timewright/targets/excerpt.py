"""The head and the tail of an output of any length, in bounded memory."""

from __future__ import annotations

import codecs
import threading
from typing import Protocol

from timewright.ports.said import Spoken

_CONTINUES = range(0x80, 0xC0)  # a byte of UTF-8 that is never the first of its character


class Hiding(Protocol):
    """Takes secrets out of bytes, whole ones and those that were cut in two."""

    def hide(self, data: bytes) -> bytes:
        """The bytes without secrets."""
        ...

    def hide_end(self, data: bytes) -> bytes:
        """The bytes without the first letters of a secret at their end."""
        ...

    def hide_start(self, data: bytes) -> bytes:
        """The bytes without the last letters of a secret at their start."""
        ...


class Excerpt:
    """Keeps the first and the last bytes it is fed, and counts the rest; one feeds it, others may look."""

    def __init__(self, limit_bytes: int) -> None:
        self.size = 0
        self._lock = threading.Lock()
        self._head_limit = limit_bytes // 2
        self._tail_limit = limit_bytes - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()

    def feed(self, piece: bytes) -> None:
        """Take the next bytes."""
        with self._lock:
            self.size += len(piece)
            room = self._head_limit - len(self._head)
            if room > 0:
                self._head += piece[:room]
                piece = piece[room:]
            if piece:
                self._tail += piece[-self._tail_limit :]
                # Cut rarely: the tail may grow to four times what is kept, and each cut moves it once.
                if len(self._tail) > 4 * self._tail_limit:
                    del self._tail[: -self._tail_limit]

    @property
    def left_out(self) -> int:
        """How many bytes between head and tail were not kept."""
        return self.size - len(self._head) - min(len(self._tail), self._tail_limit)

    def spoken(self, hiding: Hiding | None = None) -> Spoken:
        """What is kept while more may come: half a character or half a secret at the end waits for more."""
        with self._lock:
            head, tail = bytes(self._head), bytes(self._tail[-self._tail_limit :])
            left_out = self.left_out
        if not left_out:
            whole = _told(head + tail, hiding)
            return Spoken(text=whole, size=len(whole.encode()))
        start = next((i for i, byte in enumerate(tail[:4]) if byte not in _CONTINUES), 0)
        rest = tail[start:] if hiding is None else hiding.hide_start(tail[start:])
        first, last = _told(head, hiding), _told(rest, hiding)
        before = f"{first}\n… {left_out} bytes left out …\n"
        size = len(first.encode()) + left_out + len(last.encode())
        return Spoken(text=before + last, size=size, cut=len(before.encode()))

    def text(self) -> str:
        """What was kept, with a line in the middle that says how much was not."""
        tail = bytes(self._tail[-self._tail_limit :])
        if not self.left_out:
            return (bytes(self._head) + tail).decode("utf-8", "replace")
        start = next((i for i, byte in enumerate(tail[:4]) if byte not in _CONTINUES), 0)
        # Not told that the input is over, the decoder holds back a character that was cut in two.
        head = codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(self._head))
        return f"{head}\n… {self.left_out} bytes left out …\n{tail[start:].decode('utf-8', 'replace')}"


def _told(data: bytes, hiding: Hiding | None) -> str:
    if hiding is not None:
        data = hiding.hide_end(hiding.hide(data))
    return codecs.getincrementaldecoder("utf-8")("replace").decode(data).replace("\0", "\ufffd")
