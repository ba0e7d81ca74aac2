"""The connection between a worker process and the scheduler: JSON messages, prefixed with the length."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from timewright.core.run.run import Outcome
from timewright.ports.attempt_output import WorkReport
from timewright.targets.context import RunInfo

if TYPE_CHECKING:
    from timewright.targets.io_thread import IoThread

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_LENGTH = struct.Struct(">I")

_READ_BYTES = 256 * 1024
# Limit reads per event, so that one worker cannot starve others; read up to 16 MiB when it has exited.
_READS_PER_EVENT = 4
_READS_ON_CLOSE = 64


class WorkerSetup(Struct, frozen=True, tag="start"):
    """The first message to a worker: its sys.path, and the modules to import early."""

    path: tuple[str, ...]
    preload: tuple[str, ...] = ()
    python_path: str | None = None
    artifacts: str = ""
    """The folder or URL for artifacts; empty means that there is none."""


class WorkerJob(Struct, frozen=True, kw_only=True, tag="job"):
    """One call: the function name, where to import it, its arguments and the facts of its run."""

    number: int
    name: str
    reference: str
    args: dict[str, Any]
    info: RunInfo


class StopJob(Struct, frozen=True, tag="stop"):
    """Ask the function of this job to stop."""

    number: int
    reason: str


class JobStarted(Struct, frozen=True, tag="started"):
    """The function is called now. From here on the job must not be given to another worker."""

    number: int


class JobReport(Struct, frozen=True, tag="report"):
    """What the function of a job reported last."""

    number: int
    report: WorkReport


class JobResult(Struct, frozen=True, tag="answer"):
    """The outcome of a job, and whether the worker process could be restored to its state before."""

    number: int
    outcome: Outcome
    is_clean: bool = True


ToWorker = WorkerSetup | WorkerJob | StopJob
FromWorker = JobStarted | JobReport | JobResult

_encoder = msgspec.json.Encoder()
_to_worker: msgspec.json.Decoder[ToWorker] = msgspec.json.Decoder(ToWorker)
_from_worker: msgspec.json.Decoder[FromWorker] = msgspec.json.Decoder(FromWorker)


class InvalidFrame(Exception):
    """The bytes are not a valid message."""


def encode_frame(message: ToWorker | FromWorker) -> bytes:
    """Encode a message with its length prefix."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class FrameDecoder:
    """Splits a byte stream into message bodies."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add bytes; yields the complete bodies."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > MAX_MESSAGE_BYTES:
                raise InvalidFrame(f"a message of {length} bytes")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield body


def decode_for_worker(body: bytes) -> ToWorker:
    """Decode a message in the worker."""
    return _to_worker.decode(body)


def decode_from_worker(body: bytes) -> FromWorker:
    """Decode a message from a worker. Raises InvalidFrame if it is not valid."""
    try:
        return _from_worker.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidFrame(str(error)) from None


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
