"""What work says while it runs, and what a store keeps of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct


class Spoken(Struct, frozen=True, kw_only=True):
    """The head and the tail of what was said so far, in UTF-8: `size` counts all of it, left out or not.

    The tail begins at the byte `cut` of the text; 0 says that nothing was left out.
    """

    text: str
    size: int
    cut: int = 0

    def hidden(self, hide: Callable[[str], str]) -> Spoken:
        """The same with something taken out of its text; places are counted in what is left."""
        whole = self.text.encode()
        head, tail = (hide(part.decode()) for part in (whole[: self.cut], whole[self.cut :]))
        grown = len((head + tail).encode()) - len(whole)
        return Spoken(text=head + tail, size=self.size + grown, cut=len(head.encode()))

    def after(self, place: int) -> str:
        """What was said from a place on, as far as it is kept; what is left out before it is said so."""
        whole = self.text.encode()
        if not self.cut:
            return whole[place:].decode(errors="ignore")
        kept = len(whole) - self.cut
        missing = self.size - kept - place
        if missing <= 0:
            return whole[len(whole) - max(self.size - place, 0) :].decode(errors="ignore")
        return f"… {missing} bytes left out …\n{whole[self.cut :].decode(errors='ignore')}"


def said_by(work: object) -> Spoken | None:
    """What work has said so far, if it is of the kind that can tell and has said anything."""
    tell: Callable[[], Spoken | None] | None = getattr(work, "said", None)
    return tell() if tell is not None else None


class Said(Struct, frozen=True, kw_only=True):
    """What one attempt has said, as the instance that runs it told the store at an instant."""

    run_id: str
    fence: int
    number: int
    at: datetime
    spoken: Spoken


class SaidVerbs(Protocol):
    """Verbs for what attempts say; each takes and gives back many rows."""

    def put_said(self, rows: Sequence[Said]) -> None:
        """Write what attempts have said so far, in place of what they had said before."""
        ...

    def get_said(self, run_ids: Iterable[str]) -> dict[str, tuple[Said, ...]]:
        """What the attempts of runs have said, oldest first."""
        ...

    def drop_said(self, attempts: Sequence[tuple[str, int]]) -> None:
        """Forget what attempts have said, each by its run and fence: their ends tell it."""
        ...
