"""The note target: its text is the result of the run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from timewright.core.run.run import Failed, Outcome, Succeeded
from timewright.core.target import Note
from timewright.ports import Launch, RunHandle
from timewright.targets.outcomes import FINISHED_WORK


class NoteTarget:
    """Succeeds immediately with the text of the note."""

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> RunHandle:
        """Report the outcome before returning."""
        if isinstance(launch.target, Note):
            done(Succeeded(result=launch.target.text))
        else:
            done(Failed(error=f"a {type(launch.target).__name__} is not a note", final=True))
        return FINISHED_WORK

    def close(self, *, grace: timedelta) -> None:
        """Do nothing: a note never runs in the background."""
