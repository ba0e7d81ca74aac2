"""A target whose outcome tells no secret: whatever work repeats is hidden before anyone records it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

from msgspec.structs import replace

from timewright.core.run import Outcome
from timewright.ports import Launch, Target, Work
from timewright.ports.said import Spoken, said_by
from timewright.targets.answers import DONE


class Hiding(Protocol):
    """Takes secrets out of texts, and out of data."""

    def text(self, text: str) -> str:
        """A text without secrets."""
        ...

    def data(self, data: Any) -> Any:
        """Data without secrets."""
        ...


class Discreet:
    """Hands on every launch, and hides what is secret in its outcome."""

    def __init__(self, target: Target, hiding: Hiding) -> None:
        self._target = target
        self._hiding = hiding

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> Work:
        """Start the work; what it says and its outcome are told without secrets."""
        work = self._target.launch(launch, lambda outcome: done(self._hidden(outcome)))
        return _DiscreetWork(work, self._hiding) if hasattr(work, "said") else work

    def close(self, *, grace: timedelta) -> None:
        """Close the target."""
        self._target.close(grace=grace)

    def _hidden(self, outcome: Outcome) -> Outcome:
        if outcome is DONE:
            return outcome
        fields: dict[str, Any] = {}
        error, result = getattr(outcome, "error", ""), getattr(outcome, "result", None)
        if error:
            fields["error"] = self._hiding.text(error)
        if result is not None:
            fields["result"] = self._hiding.data(result)
        return replace(outcome, **fields) if fields else outcome


class _DiscreetWork:
    """Work whose words are told without secrets."""

    def __init__(self, work: Work, hiding: Hiding) -> None:
        self._work = work
        self._hiding = hiding

    def stop(self, reason: str) -> None:
        """Ask it to end."""
        self._work.stop(reason)

    def said(self) -> Spoken | None:
        """What it has said so far, without secrets."""
        spoken = said_by(self._work)
        return spoken.hidden(self._hiding.text) if spoken is not None else None
