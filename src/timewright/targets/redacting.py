"""Wraps a target and removes secrets from its output and outcomes, before they are recorded."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

from msgspec.structs import replace

from timewright.core.run.run import Outcome
from timewright.ports import Launch, RunHandle, Target, must_return
from timewright.ports.attempt_output import OutputExcerpt, WorkReport, read_output, read_report
from timewright.targets.outcomes import SUCCEEDED


class Redactor(Protocol):
    """Removes secrets from text and data."""

    def redact_text(self, text: str) -> str:
        """Return the text without secrets."""
        ...

    def redact_data(self, data: Any) -> Any:
        """Return the data without secrets."""
        ...


class RedactingTarget:
    """Delegates to another target and redacts its output and outcomes."""

    def __init__(self, target: Target, redactor: Redactor) -> None:
        self._target = target
        self._redactor = redactor

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> RunHandle:
        """Start the work with redacted output and outcome."""
        work = self._target.launch(launch, lambda outcome: done(self._redacted(outcome)))
        return _RedactingWork(work, self._redactor) if hasattr(work, "read_output") else work

    def close(self, *, grace: timedelta) -> None:
        """Close the target."""
        self._target.close(grace=grace)

    def _redacted(self, outcome: Outcome) -> Outcome:
        if outcome is SUCCEEDED:
            return outcome
        fields: dict[str, Any] = {}
        error, result = getattr(outcome, "error", ""), getattr(outcome, "result", None)
        if error:
            fields["error"] = self._redactor.redact_text(error)
        if result is not None:
            fields["result"] = self._redactor.redact_data(result)
        return replace(outcome, **fields) if fields else outcome


class _RedactingWork:
    """Work with redacted output."""

    def __init__(self, work: RunHandle, redactor: Redactor) -> None:
        self._work = work
        self._redactor = redactor
        self.must_return = must_return(work)

    def stop(self, reason: str) -> None:
        """Stop the work."""
        self._work.stop(reason)

    def read_output(self) -> OutputExcerpt | None:
        """The output so far, without secrets."""
        excerpt = read_output(self._work)
        return excerpt.redacted(self._redactor.redact_text) if excerpt is not None else None

    def read_report(self) -> WorkReport | None:
        """The last report, without secrets."""
        report = read_report(self._work)
        if report is None:
            return None
        note, checkpoint = self._redactor.redact_text(report.note), report.checkpoint
        if checkpoint is not None:
            checkpoint = self._redactor.redact_data(checkpoint)
        return replace(report, note=note, checkpoint=checkpoint)
