"""The output of running attempts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from msgspec import Struct


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
