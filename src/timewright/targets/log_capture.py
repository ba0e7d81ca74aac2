"""Captures log records of functions that run in this process, for the output of their run."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from timewright.core.moments import format_instant

LogSink = Callable[[str], None]

# Tasks and `asyncio.to_thread` inherit it; a thread that a function starts itself does not.
CURRENT_LOG: ContextVar[LogSink | None] = ContextVar("timewright-current-log", default=None)


class RunLogger(logging.Logger):
    """A logger that can be called: `ctx.log("half way")` logs at INFO."""

    def __call__(self, message: object, *args: object) -> None:
        """Log a message at INFO."""
        self.info(message, *args, stacklevel=2)


def _run_log() -> RunLogger:
    # Change the class instead of wrapping it: `logging.getLogger("timewright.run")` must be the same object.
    log = logging.getLogger("timewright.run")
    log.__class__ = RunLogger
    assert isinstance(log, RunLogger)
    return log


# Records of this logger are captured from INFO on, whatever level the program configured.
RUN_LOGGER = _run_log()

_INSTALL_LOCK = threading.Lock()
_is_installed = False


def install_log_capture() -> None:
    """Capture every log record of runs from now on, once per process.

    Uses the record factory and not a root handler, because a root handler would disable
    `logging.basicConfig` and `logging.lastResort`, and miss loggers that do not propagate.
    """
    global _is_installed  # noqa: PLW0603 - a process has one record factory
    if _is_installed:
        return
    with _INSTALL_LOCK:
        if _is_installed:
            return
        _is_installed = True
        if RUN_LOGGER.level == logging.NOTSET:
            RUN_LOGGER.setLevel(logging.INFO)
        logging.setLogRecordFactory(_capturing(logging.getLogRecordFactory()))


def print_run_log() -> None:
    """Print records of the run logger to stderr, in a worker process whose output belongs to the run."""
    RUN_LOGGER.setLevel(logging.INFO)
    RUN_LOGGER.addHandler(_StderrHandler())
    RUN_LOGGER.propagate = False


class _StderrHandler(logging.Handler):
    """Prints each record as one line."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(format_record(record))


def _capturing(original: Callable[..., logging.LogRecord]) -> Callable[..., logging.LogRecord]:
    def make_record(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = original(*args, **kwargs)
        write = CURRENT_LOG.get()
        if write is not None:
            write(format_record(record))
        return record

    return make_record


def format_record(record: logging.LogRecord) -> str:
    """Format a record as time, level, logger and message, followed by its traceback."""
    at = format_instant(datetime.fromtimestamp(record.created, UTC).replace(microsecond=0))
    try:
        message = record.getMessage()
    except Exception:  # noqa: BLE001 - handlers report arguments that do not fit the format
        message = record.msg if type(record.msg) is str else object.__repr__(record.msg)
    name = "" if record.name == RUN_LOGGER.name else f"{record.name}: "
    trace = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
    return f"{at} {record.levelname} {name}{message}\n{trace}"
