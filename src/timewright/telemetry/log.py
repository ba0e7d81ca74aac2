"""Log facts, one line each, as text or JSON, and what needs attention to the logger `timewright`."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal, TextIO

from timewright.core import facts
from timewright.core.facts import Fact
from timewright.core.input.encoding import encode
from timewright.core.moments import format_instant
from timewright.core.run.run import HOLDER_DIED, LEASE_EXPIRED, Attempt, Reason
from timewright.errors import TimewrightError
from timewright.ports import Store
from timewright.ports.store import ScheduleNames

LogFormat = Literal["text", "json"]
Redact = Callable[[str], str]

MAX_VALUE_CHARS = 500
LEVELS: Mapping[type[Fact], int] = {
    facts.RunParked: logging.ERROR,
    facts.ScheduleParked: logging.ERROR,
    facts.RunFailed: logging.ERROR,
    facts.RunWillRetry: logging.WARNING,
    facts.LeaseLost: logging.WARNING,
    facts.ProviderClosed: logging.WARNING,
    facts.AnswerStale: logging.WARNING,
    facts.ClockStepped: logging.WARNING,
    facts.OccurrencesDropped: logging.WARNING,
    facts.ScheduleMoved: logging.DEBUG,
    facts.TickFinished: logging.DEBUG,
}

LOGGER = logging.getLogger("timewright")

Message = Callable[[Any], str]


class FactLog:
    """An observer that logs one line per fact. Facts below the level cost one comparison."""

    def __init__(
        self, logger: logging.Logger, *, names: ScheduleNames | None = None, redact: Redact = str
    ) -> None:
        self._logger = logger
        self._names = names
        self._redact = redact

    def notify(self, fact: Fact) -> None:
        """Log one fact."""
        level = LEVELS.get(type(fact), logging.INFO)
        if not self._logger.isEnabledFor(level):
            return
        fields = fact_fields(fact, names=self._names, redact=self._redact)
        try:
            self._logger.log(level, "%s", fields["fact"], extra={"fact": fields})
        except OverflowError:
            self._logger.handle(_new_record(self._logger.name, level, fields, at=fact.at))


def _new_record(logger: str, level: int, fields: dict[str, Any], *, at: datetime) -> logging.LogRecord:
    """Return a record without reading the clock, because Python cannot read one that shows the year 2999."""
    record = logging.LogRecord.__new__(logging.LogRecord)
    vars(record).update(name=logger, levelno=level, levelname=logging.getLevelName(level), fact=fields)
    vars(record).update(msg=fields["fact"], args=(), exc_info=None, exc_text=None, stack_info=None)
    vars(record).update(created=at.timestamp(), msecs=0.0, relativeCreated=0.0)
    return record


def fact_fields(fact: Fact, *, names: ScheduleNames | None, redact: Redact) -> dict[str, Any]:
    """The fields of a fact for a log record: the name of the schedule comes before its id."""
    fields: dict[str, Any] = {"fact": str(type(fact).__struct_config__.tag)}
    fields |= dict.fromkeys(("at", "namespace"))
    schedule = names(getattr(fact, "schedule_id", "")) if names is not None else ""
    fields |= {"schedule": schedule} if schedule else {}
    fields |= encode(fact)
    return {name: redact(v) if isinstance(v, str) else v for name, v in _truncate(fields).items()}


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Format the fact with its level; other records by their message."""
        fields = getattr(record, "fact", None) or {"message": record.getMessage()}
        return json.dumps({"level": record.levelname.lower(), **fields}, default=str)


class TextFormatter(logging.Formatter):
    """Formats a record as one line of text: time, level, fact, then name=value pairs."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record; values are quoted where a blank would split them."""
        fields = dict(getattr(record, "fact", None) or {"fact": record.getMessage()})
        head = [str(fields.pop("at", "")), f"{record.levelname.lower():<7}", str(fields.pop("fact"))]
        if fields.get("namespace") == "default":
            del fields["namespace"]
        rest = [
            f"{name}={_format_value(value)}"
            for name, value in fields.items()
            if value not in ("", None, False)
        ]
        return " ".join(part for part in (*head, *rest) if part)


def new_logger(log_format: LogFormat, *, level: str, stream: TextIO | None = None) -> logging.Logger:
    """A private logger that writes to standard error; no other logger is changed."""
    logger = logging.Logger("timewright", level=level.upper())  # noqa: LOG001 - one for each instance
    handler = SafeHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logger.addHandler(handler)
    return logger


class SafeHandler(logging.StreamHandler[TextIO]):
    """Ignores write errors: a closed standard error must not stop the scheduler."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the standard library's name
        pass


def _truncate(fields: dict[str, Any]) -> dict[str, Any]:
    """Truncate long values."""
    return {
        name: f"{value[:MAX_VALUE_CHARS]}…"
        if isinstance(value, str) and len(value) > MAX_VALUE_CHARS
        else value
        for name, value in fields.items()
    }


def _format_value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    bare = text.isprintable() and not any(character in text for character in " \"'=")
    return text if bare else json.dumps(text)


class ApplicationLog:
    """An observer for embedded schedulers: one record for each failure, parking, miss and lost lease.

    A failed attempt is logged with the traceback that is stored with it.
    """

    name = "the application's log"
    kinds: tuple[type[Fact], ...]

    def __init__(
        self,
        names: ScheduleNames,
        *,
        traceback_of: Callable[[str, int], str],
        redact: Redact = str,
    ) -> None:
        self.kinds = tuple(_MESSAGES)
        self._names = names
        self._traceback_of = traceback_of
        self._redact = redact

    def fold(self, batch: Sequence[Fact]) -> Sequence[Fact]:
        """Join what a schedule missed in one pass, so that an outage is one line, not thousands."""
        missed: dict[str, list[facts.RunSkipped]] = {}
        for fact in batch:
            if isinstance(fact, facts.RunSkipped) and fact.reason == Reason.MISSED:
                missed.setdefault(fact.schedule_id, []).append(fact)
        joined = {id(several[0]): _joined(several) for several in missed.values() if len(several) > 1}
        left_out = {id(one) for several in missed.values() for one in several[1:]}
        return [joined.get(id(fact), fact) for fact in batch if id(fact) not in left_out]

    def notify(self, fact: Fact) -> None:
        """Log one fact, if the logger is enabled for its level."""
        level = _level(fact)
        if level == logging.NOTSET or not LOGGER.isEnabledFor(level):
            return
        message = self._redact(f"{self._subject(fact)}{_MESSAGES[type(fact)](fact)}")
        fields = fact_fields(fact, names=self._names, redact=self._redact)
        record = LOGGER.makeRecord(
            LOGGER.name, level, __file__, 0, "%s", (_one_line(message),), None, extra={"fact": fields}
        )
        # Formatters append `exc_text` below the message, as they do for a raised exception.
        record.exc_text = self._traceback(fact) or None
        LOGGER.handle(record)

    def _subject(self, fact: Fact) -> str:
        """The schedule of a fact, else its queue, followed by a colon."""
        schedule_id, queue = getattr(fact, "schedule_id", ""), getattr(fact, "queue", "")
        subject = self._names(schedule_id) or schedule_id or (f"queue {queue}" if queue else "")
        return f"{subject}: " if subject else ""

    def _traceback(self, fact: Fact) -> str:
        if not isinstance(fact, facts.RunFailed | facts.RunWillRetry | facts.RunParked):
            return ""
        return self._redact(self._traceback_of(fact.run_id, fact.fence)).rstrip()


def log_outage(problem: str, *, redact: Redact = str) -> None:
    """Log that the store fails, or without a problem that it answers again."""
    if problem:
        LOGGER.error("the store fails, so nothing starts; retrying: %s", _one_line(redact(problem)))
    else:
        LOGGER.warning("the store answers again")


def _joined(several: Sequence[facts.RunSkipped]) -> Fact:
    first = several[0]
    return facts.OccurrencesDropped(
        at=first.at,
        namespace=first.namespace,
        run_id=first.run_id,
        schedule_id=first.schedule_id,
        planned_at=min(one.planned_at for one in several),
        last_of=max(one.planned_at for one in several),
        count=len(several),
        reason=first.reason,
        queue=first.queue,
    )


def stored_traceback(store: Store, run_id: str, fence: int) -> str:
    """The traceback of an ended attempt; empty if it has none or the store does not answer."""
    with suppress(TimewrightError):
        for attempt in store.read(lambda tx: tx.get_run_rows(Attempt, [run_id])).get(run_id, ()):
            if attempt.fence == fence and isinstance(attempt.result, dict):
                return str(attempt.result.get("traceback") or "")
    return ""


def _level(fact: Fact) -> int:
    """The level of a fact; NOTSET if it needs no attention, such as a skip that a policy asked for."""
    if isinstance(fact, facts.RunSkipped | facts.OccurrencesDropped):
        return logging.WARNING if fact.reason == Reason.MISSED else logging.NOTSET
    if isinstance(fact, facts.RunReleased):
        is_loss = fact.reason == Reason.LOST and fact.error not in (LEASE_EXPIRED, HOLDER_DIED)
        return logging.WARNING if is_loss or fact.reason == Reason.DEFERRED else logging.NOTSET
    failed = isinstance(fact, facts.RunFailed) or (isinstance(fact, facts.RunParked) and bool(fact.error))
    return logging.ERROR if failed else logging.WARNING


def _parked(fact: facts.RunParked) -> str:
    if not fact.error:
        return f"run {fact.run_id} is parked: {fact.reason}"
    return f"run {fact.run_id} failed at attempt {fact.attempts} and is parked: {fact.reason}: {fact.error}"


_MESSAGES: dict[type[Fact], Message] = {
    facts.RunFailed: lambda f: f"run {f.run_id} failed at attempt {f.attempts}: {f.error}",
    facts.RunWillRetry: lambda f: (
        f"run {f.run_id} failed at attempt {f.attempts}, retries at {format_instant(f.fire_at)}: {f.error}"
    ),
    facts.RunReleased: lambda f: f"run {f.run_id} is {f.reason} and starts again: {f.error}",
    facts.RunParked: _parked,
    facts.ScheduleParked: lambda f: f"the schedule is parked: {f.reason}",
    facts.RunSkipped: lambda f: f"missed {format_instant(f.planned_at)}",
    facts.OccurrencesDropped: lambda f: (
        f"missed {f.count} occurrences, {format_instant(f.planned_at)} to {format_instant(f.last_of)}"
    ),
    facts.NoInstance: lambda f: f"{f'run {f.run_id}' if f.run_id else 'it'} waits: {f.reason}",
    facts.LeaseLost: lambda f: f"run {f.run_id} lost its lease {f.fence}, held by {f.holder}",
    facts.ClockStepped: lambda f: f"the clock stepped by {f.by_seconds:+.3f} s, treated as {f.treated_as}",
    facts.FactsLost: lambda f: f"{f.listener} is too slow: {f.count} events were not delivered",
}


def _one_line(text: str) -> str:
    """Escape line breaks and control characters, so that no error text can forge a log line."""
    text = text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}…"
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )
