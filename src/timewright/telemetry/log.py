"""Log facts, one line each, as text or JSON, to standard error or any logger."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal, TextIO

from timewright.core import facts
from timewright.core.facts import Fact
from timewright.core.input.encoding import encode
from timewright.ports.schedule_names import ScheduleNames

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
        self._logger.log(level, "%s", fields["fact"], extra={"fact": fields})


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
