"""The messages between a worker process and the scheduler: JSON, prefixed with the length."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from timewright.core.run.run import Outcome
from timewright.targets.context import RunInfo

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_LENGTH = struct.Struct(">I")


class WorkerSetup(Struct, frozen=True, tag="start"):
    """The first message to a worker: its sys.path, and the modules to import early."""

    path: tuple[str, ...]
    preload: tuple[str, ...] = ()
    python_path: str | None = None


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


class JobResult(Struct, frozen=True, tag="answer"):
    """The outcome of a job, and whether the worker process could be restored to its state before."""

    number: int
    outcome: Outcome
    is_clean: bool = True


ToWorker = WorkerSetup | WorkerJob | StopJob
FromWorker = JobStarted | JobResult

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
