"""Our end of the line to a worker subprocess: messages out without waiting, messages in as they come."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress

from timewright.targets.messages import BrokenFrame, Frames, FromWorker, from_worker
from timewright.targets.watch import Watch

_PIECE = 256 * 1024
# Whoever writes without end is heard in turns; what one who is gone has left behind is heard to its end.
_TURN = 4
_REST = 64


class Link:
    """A socket that never blocks the watch; everything happens on the watch's thread."""

    def __init__(
        self,
        watch: Watch,
        end: socket.socket,
        *,
        on_message: Callable[[FromWorker], None],
        on_nonsense: Callable[[str], None],
        on_hang_up: Callable[[], None],
    ) -> None:
        self._watch = watch
        self._end = end
        self._on_message = on_message
        self._on_nonsense = on_nonsense
        self._on_hang_up = on_hang_up
        self._frames = Frames()
        self._unsent = bytearray()
        end.setblocking(False)
        watch.when_readable(end.fileno(), self.attend)

    def send(self, message: bytes) -> None:
        """Send a frame, now or as soon as there is room for it."""
        self._unsent += message
        self._flush()

    def attend(self, *, pieces: int = _TURN) -> None:
        """Send what waits to be sent, and hear what was said; the rest of what is long has its next turn."""
        if self._unsent:
            self._flush()
        try:
            with suppress(BlockingIOError):
                for _ in range(pieces):
                    self._hear()
        except BrokenFrame as error:
            self._on_nonsense(str(error))
            self._hang_up()

    def close(self) -> None:
        """Hang up; what was said before is heard first."""
        self.attend(pieces=_REST)
        self._hang_up()

    def _flush(self) -> None:
        if self._end.fileno() < 0:
            return
        try:
            while self._unsent:
                del self._unsent[: self._end.send(self._unsent)]
        except BlockingIOError:
            self._watch.when_ready(self._end.fileno(), self.attend)
            return
        except OSError:
            self._unsent.clear()  # the other side is dying, and its end will be noticed
        self._watch.when_readable(self._end.fileno(), self.attend)

    def _hear(self) -> None:
        """Read once, and tell what is complete; BlockingIOError when there is nothing to read."""
        if self._end.fileno() < 0:
            return
        try:
            piece = self._end.recv(_PIECE)
        except BlockingIOError:
            raise
        except OSError:
            piece = b""
        for body in self._frames.feed(piece):
            self._on_message(from_worker(body))
        if not piece:
            self._hang_up()
            self._on_hang_up()

    def _hang_up(self) -> None:
        # A line whose other end is closed would be readable for ever.
        if self._end.fileno() >= 0:
            self._watch.forget(self._end.fileno())
            self._end.close()
