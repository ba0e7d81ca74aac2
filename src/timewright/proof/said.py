"""What work says is kept: whoever sees that an attempt is over finds all that it said."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from timewright.proof.checking import Seen, invariant
from timewright.proof.view import View

Broken = Iterator[tuple[str, tuple[Struct, ...]]]


@invariant("I45", "last words come first", counts="ends of what spoke")
def last_words_come_before_the_end(view: View, seen: Seen) -> Broken:
    """When the end of an attempt is written, everything that it said is written already."""
    if view.history.notes is None:
        seen.missing = "not checked here: needs the notes of a simulation"
        return
    for note in view.notes.get("said", ()):
        seen.count += 1
        if note.value < note.most:
            said = f"run {note.subject}, fence {note.fence}, ended, and {note.value} of {note.most} bytes"
            yield f"{said} that it said were there", (note,)
