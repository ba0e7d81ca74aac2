"""Targets that launch nothing: a note is its own result, and a handoff waits for someone outside."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from timewright.core.run import Failed, Outcome, Released, Succeeded
from timewright.core.target import Handoff, Note
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


class HandoffTarget:
    """Gives back what was not meant for us: such a run is leased, and answered, from outside."""

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> Work:
        """Release it at once, so that it costs no attempt."""
        if isinstance(launch.target, Handoff):
            done(Released(reason="waits to be leased from outside"))
        else:
            done(Failed(error=f"a {type(launch.target).__name__} is not a handoff", final=True))
        return ENDED

    def close(self, *, grace: timedelta) -> None:
        """Nothing is ever under way."""
