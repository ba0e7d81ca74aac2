"""What attempts report and leave behind: output, progress, checkpoints and files."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, BinaryIO, Protocol

from msgspec import Struct

from timewright.core.run.run import Artifact


class OutputExcerpt(Struct, frozen=True, kw_only=True):
    """The head and tail of an output in UTF-8. `size` counts all its bytes, including those left out.

    The tail begins at byte `tail_offset` of the text; 0 means that nothing was left out.
    """

    text: str
    size: int
    tail_offset: int = 0

    def redacted(self, redact: Callable[[str], str]) -> OutputExcerpt:
        """Return a copy with `redact` applied to the text; offsets are adjusted."""
        whole = self.text.encode()
        head, tail = (
            redact(part.decode()) for part in (whole[: self.tail_offset], whole[self.tail_offset :])
        )
        grown = len((head + tail).encode()) - len(whole)
        return OutputExcerpt(text=head + tail, size=self.size + grown, tail_offset=len(head.encode()))

    def text_after(self, offset: int) -> str:
        """Return the text from a byte offset on. Bytes that were left out are replaced by a note."""
        whole = self.text.encode()
        if not self.tail_offset:
            return whole[offset:].decode(errors="ignore")
        tail = len(whole) - self.tail_offset
        missing = self.size - tail - offset
        if missing <= 0:
            return whole[len(whole) - max(self.size - offset, 0) :].decode(errors="ignore")
        return f"… {missing} bytes left out …\n{whole[self.tail_offset :].decode(errors='ignore')}"


def read_output(work: object) -> OutputExcerpt | None:
    """Return the output of work so far, if its target captures output and there is any."""
    read: Callable[[], OutputExcerpt | None] | None = getattr(work, "read_output", None)
    return read() if read is not None else None


class AttemptOutput(Struct, frozen=True, kw_only=True):
    """The output of one attempt at an instant, as written by the instance that runs it."""

    run_id: str
    fence: int
    number: int
    at: datetime
    excerpt: OutputExcerpt


MAX_CHECKPOINT_BYTES = 16_384
MAX_NOTE_CHARS = 200


class WorkReport(Struct, frozen=True, kw_only=True):
    """What work reported last: how much is done (0 to 1), where it is, and its checkpoint as JSON data."""

    fraction: float | None = None
    note: str = ""
    checkpoint: Any = None


class RunProgress(WorkReport, frozen=True, kw_only=True):
    """What the newest attempt of a run reported, as written by the holder of its lease."""

    run_id: str
    fence: int
    at: datetime


def read_report(work: object) -> WorkReport | None:
    """Return what work reported so far, if its target can report and it did."""
    read: Callable[[], WorkReport | None] | None = getattr(work, "read_report", None)
    return read() if read is not None else None


class ArtifactReader(Protocol):
    """Reads the files of artifacts."""

    @property
    def location(self) -> str:
        """The folder or the URL of the object store."""
        ...

    def open(self, artifact: Artifact, *, namespace: str) -> BinaryIO:
        """Open an artifact for reading; raises NotFound if its file is not there."""
        ...

    def check(self, artifact: Artifact, *, namespace: str) -> str:
        """What is wrong with the file of an artifact; "" if it is as it was written."""
        ...
