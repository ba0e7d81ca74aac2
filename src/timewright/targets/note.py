"""A target that launches nothing: a note is its own result."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from timewright.core.run import Failed, Outcome, Succeeded
from timewright.core.target import Note
from timewright.ports import Launch, Work
from timewright.targets.once import ENDED


class NoteTarget:
    """Answers with the text of the note: a reminder, or the first step of something."""

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> Work:
        """Answer at once."""
        if isinstance(launch.target, Note):
            done(Succeeded(result=launch.target.text))
        else:
            done(Failed(error=f"a {type(launch.target).__name__} is not a note", final=True))
        return ENDED

    def close(self, *, grace: timedelta) -> None:
        """Nothing is ever under way."""
