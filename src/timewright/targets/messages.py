"""What a worker subprocess and its owner say to each other: JSON, each message after its length."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from timewright.core.run import Outcome
from timewright.targets.context import Facts

LONGEST_MESSAGE = 64 * 1024 * 1024
_LENGTH = struct.Struct(">I")


class Start(Struct, frozen=True, tag="start"):
    """The first message to a worker: where modules are found, and which to import at once."""

    path: tuple[str, ...]
    preload: tuple[str, ...] = ()
    python_path: str | None = None


class Job(Struct, frozen=True, kw_only=True, tag="job"):
    """One call to make: the function by its name and by where to import it, and the facts of its run."""

    number: int
    name: str
    reference: str
    args: dict[str, Any]
    facts: Facts


class Stop(Struct, frozen=True, tag="stop"):
    """Tell the function of this job that nobody waits for it any more."""

    number: int
    reason: str


class Started(Struct, frozen=True, tag="started"):
    """The function was found and is called now; from here on it must not be called again for this job."""

    number: int


class Answer(Struct, frozen=True, tag="answer"):
    """How the job ended, and whether the worker is as it was before."""

    number: int
    outcome: Outcome
    is_clean: bool = True


ToWorker = Start | Job | Stop
FromWorker = Started | Answer

_encoder = msgspec.json.Encoder()
_to_worker: msgspec.json.Decoder[ToWorker] = msgspec.json.Decoder(ToWorker)
_from_worker: msgspec.json.Decoder[FromWorker] = msgspec.json.Decoder(FromWorker)


class BrokenFrame(Exception):
    """Bytes that are no message of ours."""


def frame(message: ToWorker | FromWorker) -> bytes:
    """A message with its length before it."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Bytes in, messages out, wherever the bytes were cut."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Take the next bytes; gives the bodies that are complete."""
        self._buffer += piece
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > LONGEST_MESSAGE:
                raise BrokenFrame(f"a message of {length} bytes")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield body


def to_worker(body: bytes) -> ToWorker:
    """Read a message as the worker."""
    return _to_worker.decode(body)


def from_worker(body: bytes) -> FromWorker:
    """Read a message as the owner of the worker; what is not one of ours is BrokenFrame."""
    try:
        return _from_worker.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenFrame(str(error)) from None
