"""The non-blocking connection to a worker process."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress

from timewright.targets.call.messages import FrameDecoder, FromWorker, InvalidFrame, decode_from_worker
from timewright.targets.io_thread import IoThread

_READ_BYTES = 256 * 1024
# Limit reads per event, so that one worker cannot starve others; read up to 16 MiB when it has exited.
_READS_PER_EVENT = 4
_READS_ON_CLOSE = 64


class WorkerConnection:
    """A socket that sends and receives messages without blocking. All methods run on the I/O thread."""

    def __init__(
        self,
        io_thread: IoThread,
        sock: socket.socket,
        *,
        on_message: Callable[[FromWorker], None],
        on_invalid_frame: Callable[[str], None],
        on_disconnect: Callable[[], None],
    ) -> None:
        self._io_thread = io_thread
        self._sock = sock
        self._on_message = on_message
        self._on_invalid_frame = on_invalid_frame
        self._on_disconnect = on_disconnect
        self._frames = FrameDecoder()
        self._unsent = bytearray()
        sock.setblocking(False)
        io_thread.watch_readable(sock.fileno(), self.exchange)

    def send(self, message: bytes) -> None:
        """Send a frame, now or as soon as the socket accepts it."""
        self._unsent += message
        self._flush()

    def exchange(self, *, reads: int = _READS_PER_EVENT) -> None:
        """Send queued bytes and read messages, at most `reads` times."""
        if self._unsent:
            self._flush()
        try:
            with suppress(BlockingIOError):
                for _ in range(reads):
                    self._receive()
        except InvalidFrame as error:
            self._on_invalid_frame(str(error))
            self._close_socket()

    def close(self) -> None:
        """Read what the worker has sent, then close the connection."""
        self.exchange(reads=_READS_ON_CLOSE)
        self._close_socket()

    def _flush(self) -> None:
        if self._sock.fileno() < 0:
            return
        try:
            while self._unsent:
                del self._unsent[: self._sock.send(self._unsent)]
        except BlockingIOError:
            self._io_thread.watch_ready(self._sock.fileno(), self.exchange)
            return
        except OSError:
            self._unsent.clear()  # the worker is exiting; its end is noticed elsewhere
        self._io_thread.watch_readable(self._sock.fileno(), self.exchange)

    def _receive(self) -> None:
        """Read once and handle complete messages. Raises BlockingIOError if there is nothing to read."""
        if self._sock.fileno() < 0:
            return
        try:
            data = self._sock.recv(_READ_BYTES)
        except BlockingIOError:
            raise
        except OSError:
            data = b""
        for body in self._frames.feed(data):
            self._on_message(decode_from_worker(body))
        if not data:
            self._close_socket()
            self._on_disconnect()

    def _close_socket(self) -> None:
        # A socket whose peer is closed stays readable, so stop watching it.
        if self._sock.fileno() >= 0:
            self._io_thread.unwatch(self._sock.fileno())
            self._sock.close()
