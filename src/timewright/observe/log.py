"""Facts become lines: one each, for people or for programs, on the standard error or any logger."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal, TextIO

from timewright.core import facts as told
from timewright.core.encoding import encode
from timewright.core.facts import Fact

Form = Literal["text", "json"]
Redact = Callable[[str], str]

LONGEST_VALUE = 500
LEVELS: Mapping[type[Fact], int] = {
    told.RunParked: logging.ERROR,
    told.ScheduleParked: logging.ERROR,
    told.RunFailed: logging.ERROR,
    told.RunWillRetry: logging.WARNING,
    told.LeaseLost: logging.WARNING,
    told.ProviderClosed: logging.WARNING,
    told.AnswerStale: logging.WARNING,
    told.ClockStepped: logging.WARNING,
    told.OccurrencesDropped: logging.WARNING,
    told.ScheduleMoved: logging.DEBUG,
    told.TickFinished: logging.DEBUG,
}


class FactLog:
    """An observer that writes one line per fact; what is below the level costs a comparison."""

    def __init__(self, logger: logging.Logger, *, redact: Redact | None = None) -> None:
        self._logger = logger
        self._redact = redact

    def note(self, fact: Fact) -> None:
        """Write one fact."""
        level = LEVELS.get(type(fact), logging.INFO)
        if not self._logger.isEnabledFor(level):
            return
        plain = _short({"fact": str(type(fact).__struct_config__.tag), **encode(fact)})
        if self._redact is not None:
            plain = {name: self._redact(v) if isinstance(v, str) else v for name, v in plain.items()}
        self._logger.log(level, "%s", plain["fact"], extra={"fact": plain})


class JsonLine(logging.Formatter):
    """A record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """The fact with its level; a record that is no fact has its message instead."""
        plain = getattr(record, "fact", None) or {"message": record.getMessage()}
        return json.dumps({"level": record.levelname.lower(), **plain}, default=str)


class TextLine(logging.Formatter):
    """A record as one line for people: when, how bad, what, and the rest as name=value."""

    def format(self, record: logging.LogRecord) -> str:
        """Instants as they are everywhere, values quoted where a blank would part them."""
        plain = dict(getattr(record, "fact", None) or {"fact": record.getMessage()})
        head = [str(plain.pop("at", "")), f"{record.levelname.lower():<7}", str(plain.pop("fact"))]
        if plain.get("namespace") == "default":
            del plain["namespace"]
        rest = [
            f"{name}={_spelled(value)}" for name, value in plain.items() if value not in ("", None, False)
        ]
        return " ".join(part for part in (*head, *rest) if part)


def new_logger(form: Form, *, level: str, stream: TextIO | None = None) -> logging.Logger:
    """A logger of our own that writes lines on the standard error; no other logger is touched."""
    logger = logging.Logger("timewright", level=level.upper())  # noqa: LOG001 - one for each instance
    handler = _Steadfast(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonLine() if form == "json" else TextLine())
    logger.addHandler(handler)
    return logger


class _Steadfast(logging.StreamHandler[TextIO]):
    """Writes, and where nobody reads any more goes on without a word."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the standard library's name
        pass


def _short(plain: dict[str, Any]) -> dict[str, Any]:
    """Long texts cut: a log is not where results are kept."""
    return {
        name: f"{value[:LONGEST_VALUE]}…" if isinstance(value, str) and len(value) > LONGEST_VALUE else value
        for name, value in plain.items()
    }


def _spelled(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    bare = text.isprintable() and not any(character in text for character in " \"'=")
    return text if bare else json.dumps(text)
