"""The context of a function call: facts of its run, cancellation, and special results."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Mapping
from copy import deepcopy
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from msgspec import Struct

from timewright.clocks import SystemClock
from timewright.core.moments import ZERO, as_instant
from timewright.core.run.run import Artifact, StateChange
from timewright.errors import InvalidInput
from timewright.ports.attempt_output import WorkReport
from timewright.targets.reports import RUN_LOGGER, Reports, RunLogger

if TYPE_CHECKING:
    from timewright.ports import Launch
    from timewright.targets.artifacts.store import AttemptArtifacts
    from timewright.targets.secret_references import RunTokens

OutcomeLabel = Literal["useful", "noop", "skipped"]

USEFUL: OutcomeLabel = "useful"
NOOP: OutcomeLabel = "noop"
SKIPPED: OutcomeLabel = "skipped"
OUTCOME_LABELS: tuple[OutcomeLabel, ...] = (USEFUL, NOOP, SKIPPED)

_UNREAD: Any = object()
_monotonic = SystemClock().monotonic
_CANCEL_LOCK = threading.Lock()


class NotBefore(Struct, frozen=True):
    """Returned by a function that cannot do its work yet: retry, but not before this instant."""

    at: datetime

    def __post_init__(self) -> None:
        as_instant(self.at, field="not_before")


class Later(NotBefore, frozen=True):
    """Returned by a function whose work is not due yet: run it again at this instant, without an attempt."""


class Cancellation:
    """True from the moment the run was asked to stop. Thread-safe."""

    __slots__ = ("_event", "_is_set", "reason")

    def __init__(self) -> None:
        self.reason = ""
        self._is_set = False
        self._event: threading.Event | None = None

    def set(self, reason: str) -> None:
        """Ask the function to stop. The first reason is kept."""
        with _CANCEL_LOCK:
            if self._is_set:
                return
            self.reason = reason
            self._is_set = True
            if self._event is not None:
                self._event.set()

    def is_set(self) -> bool:
        """Whether the run was asked to stop."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Wait up to `timeout` seconds; returns whether the run was asked to stop."""
        with _CANCEL_LOCK:
            # Created on first use, because most functions never wait.
            if self._event is None:
                self._event = threading.Event()
            if self._is_set:
                self._event.set()
        return self._event.wait(timeout)

    def __bool__(self) -> bool:
        return self._is_set


class RunInfo(Struct, frozen=True, kw_only=True):
    """The facts of a run as plain values, for functions, worker processes and environment variables."""

    run_id: str
    namespace: str
    schedule_id: str
    schedule_name: str
    key: str
    fence: int
    attempt: int
    planned_at: datetime
    fire_at: datetime
    previous_at: datetime | None = None
    next_at: datetime | None = None
    zone: str = "UTC"
    missed: int = 0
    fired_by: tuple[int, ...] = ()
    source: str = ""
    time_limit: timedelta | None = None
    payload: Any = None
    metadata: Mapping[str, Any] = {}
    traceparent: str = ""
    keeps_state: bool = False
    state: Any = None
    state_version: int = 0
    previous: Mapping[str, Any] | None = None
    checkpoint: Any = None
    token: str = ""

    @classmethod
    def from_launch(cls, launch: Launch, *, token: str = "") -> RunInfo:
        """Read the facts from a launch."""
        return RunInfo(**dict(zip(_NAMES, _values(launch), strict=True)), token=token)


_NAMES = tuple(name for name in RunInfo.__struct_fields__ if name != "token")
_values = attrgetter(*_NAMES)


def _fact(name: str, doc: str) -> Any:
    """A read-only attribute of the context: the fact of its run with this name."""
    return property(attrgetter(f"_facts.{name}"), doc=doc)


class Context(Reports):
    """What a function can learn about its run: its facts, whether it was cancelled, how much time is left.

    Facts are read from the launch on access, because most functions use one or two and some are computed.
    """

    __slots__ = ("_artifacts", "_cancelled", "_deadline", "_facts", "_run_tokens", "_state")

    run_id: str = _fact("run_id", "The id of the run.")
    namespace: str = _fact("namespace", "The namespace of the run.")
    schedule_id: str = _fact("schedule_id", "The id of the schedule; empty for a run without one.")
    schedule_name: str = _fact("schedule_name", "The name of the schedule.")
    key: str = _fact("key", "The idempotency key: unique to the occurrence, the same for all its attempts.")
    fence: int = _fact("fence", "The fencing token: larger than that of every earlier lease of the run.")
    attempt: int = _fact("attempt", "The number of this attempt, starting at 1.")
    planned_at: datetime = _fact("planned_at", "The planned instant of the occurrence.")
    fire_at: datetime = _fact("fire_at", "The earliest instant at which the run could start.")
    previous_at: datetime | None = _fact("previous_at", "The previous planned instant.")
    next_at: datetime | None = _fact("next_at", "The next planned instant.")
    zone: str = _fact("zone", "The time zone of the trigger.")
    missed: int = _fact("missed", "How many occurrences were missed before this one.")
    fired_by: tuple[int, ...] = _fact(
        "fired_by", "The indexes of the parts of a composed trigger that fired."
    )
    source: str = _fact("source", "What planned the run.")
    time_limit: timedelta | None = _fact("time_limit", "The time limit of the attempt; None without one.")
    payload: Any = _fact("payload", "The payload of the run.")
    metadata: Mapping[str, Any] = _fact("metadata", "The metadata of the schedule.")
    traceparent: str = _fact("traceparent", "The W3C trace context; empty without one.")

    def __init__(
        self,
        facts: RunInfo | Launch,
        *,
        cancelled: Cancellation,
        on_report: Callable[[WorkReport], None] | None = None,
        run_tokens: RunTokens | None = None,
        artifacts: AttemptArtifacts | None = None,
    ) -> None:
        """Create the context of a call that starts now; `on_report` gets every report of the function."""
        super().__init__(on_report)
        self._facts = facts
        self._cancelled = cancelled
        self._run_tokens = run_tokens
        self._artifacts = artifacts
        self._state: Any = _UNREAD
        limit = facts.time_limit.total_seconds() if facts.time_limit is not None else math.inf
        self._deadline = _monotonic() + limit

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self._facts, name)!r}" for name in _NAMES)
        return f"Context({fields}, cancelled={bool(self.cancelled)})"

    @property
    def previous(self) -> Mapping[str, Any] | None:
        """The last run of the schedule that succeeded: `run_id`, `planned_at`, `finished_at` and `result`.

        None for the first one, and for a schedule without `keep_state`.
        """
        return self._facts.previous

    @property
    def state(self) -> Any:
        """What the schedule keeps between its runs: JSON data, an empty dictionary at first.

        Change it or assign another value. It is written with the success of the run; if another run has
        changed it meanwhile, this run fails instead. The schedule needs `keep_state=True`.
        """
        if not self._facts.keeps_state:
            raise InvalidInput(
                "the schedule keeps no state",
                field="keep_state",
                value=False,
                rule="only a schedule with keep_state has ctx.state",
                fix="keep_state=True",
            )
        if self._state is _UNREAD:
            self._state = {} if self._facts.state is None else deepcopy(self._facts.state)
        return self._state

    @state.setter
    def state(self, value: Any) -> None:
        _ = self.state
        self._state = value

    @property
    def state_change(self) -> StateChange | None:
        """The new state, if the function changed it."""
        if self._state is _UNREAD or self._state == self._facts.state:
            return None
        if self._facts.state is None and self._state == {}:
            return None
        return StateChange(value=self._state, version=self._facts.state_version)

    @property
    def token(self) -> str:
        """The token of this attempt: an API key that may pause, finish or snooze its own schedule.

        It may also set the schedule's state. It ends with the attempt, at most an hour after it was read.
        """
        if self._run_tokens is not None:
            return self._run_tokens(self._facts.run_id, self._facts.fence)
        return self._facts.token if isinstance(self._facts, RunInfo) else ""

    @property
    def last_checkpoint(self) -> Any:
        """The newest checkpoint of an earlier attempt of this run; None if there is none."""
        return deepcopy(self._facts.checkpoint)

    @property
    def cancelled(self) -> Cancellation:
        """Whether the run was asked to stop; also waits for that."""
        return self._cancelled

    @property
    def deadline(self) -> float:
        """When the time limit is reached, on the monotonic clock."""
        return self._deadline

    def artifact(
        self,
        name: str,
        data: Any = None,
        *,
        path: str | os.PathLike[str] | None = None,
        type: str = "",  # noqa: A002 - the word that users expect
    ) -> Artifact:
        """Write bytes, text, JSON data or a file beside the store, and return a reference to it.

        Return the reference, so that a later step can read it. It is kept also if the function fails.
        """
        return self._require_artifacts().write(name, data, path=path, media_type=type)

    def open_artifact(self, reference: Artifact | Mapping[str, Any]) -> BinaryIO:
        """Open an artifact of an earlier run or step for reading."""
        return self._require_artifacts().open(reference)

    def read_artifact(self, reference: Artifact | Mapping[str, Any]) -> bytes:
        """Read a whole artifact, at most 64 MiB, and check its digest."""
        return self._require_artifacts().read(reference)

    def _require_artifacts(self) -> AttemptArtifacts:
        if self._artifacts is None:
            from timewright.targets.artifacts.store import AttemptArtifacts

            self._artifacts = AttemptArtifacts(None, self._facts)
        return self._artifacts

    @property
    def log(self) -> RunLogger:
        """The logger of the run: records from INFO on appear in its output while it runs.

        It can be called like a function: `ctx.log("half way")`.
        """
        return RUN_LOGGER

    @property
    def remaining(self) -> timedelta:
        """The time left until the time limit; never negative."""
        if math.isinf(self._deadline):
            return timedelta.max
        return max(ZERO, timedelta(seconds=self._deadline - _monotonic()))
