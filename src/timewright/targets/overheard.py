"""What a function logs while it is called in this process, heard for the run it is called for."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from timewright.core.moments import spell_instant

Ear = Callable[[str], None]

# Tasks and `asyncio.to_thread` take it along; a thread that a function starts by itself does not.
EAR: ContextVar[Ear | None] = ContextVar("timewright-ear", default=None)


class RunLog(logging.Logger):
    """A logger that may also be called: `ctx.log("half way")` is a line at INFO."""

    def __call__(self, message: object, *args: object) -> None:
        """Say how it goes."""
        self.info(message, *args, stacklevel=2)


def _run_log() -> RunLog:
    # By its class and not by a wrapper: it is the one logger of that name for everyone, handlers included.
    log = logging.getLogger("timewright.run")
    log.__class__ = RunLog
    assert isinstance(log, RunLog)
    return log


# Where a function logs that wants to be heard whatever the levels of the program are.
RUN_LOG = _run_log()

_LISTENING = threading.Lock()
_listens = False


def listen() -> None:
    """From now on hear every record that is made for a run; once for the whole process.

    The factory of records is asked to tell, not a handler: a handler at the root would keep
    `logging.basicConfig` and the words of last resort from working, and miss loggers that do not propagate.
    """
    global _listens  # noqa: PLW0603 - a process has one factory of records, and so one of these
    if _listens:
        return
    with _LISTENING:
        if _listens:
            return
        _listens = True
        if RUN_LOG.level == logging.NOTSET:
            RUN_LOG.setLevel(logging.INFO)
        logging.setLogRecordFactory(_telling(logging.getLogRecordFactory()))


def show_run_log() -> None:
    """Print what is said there on the standard error, in a process whose output is the run's."""
    RUN_LOG.setLevel(logging.INFO)
    RUN_LOG.addHandler(_Lines())
    RUN_LOG.propagate = False


class _Lines(logging.Handler):
    """Prints each record as its line."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(line_of(record))


def _telling(make: Callable[..., logging.LogRecord]) -> Callable[..., logging.LogRecord]:
    def told(*args: Any, **more: Any) -> logging.LogRecord:
        record = make(*args, **more)
        ear = EAR.get()
        if ear is not None:
            ear(line_of(record))
        return record

    return told


def line_of(record: logging.LogRecord) -> str:
    """When, how bad, who and what, and below it the steps of an exception."""
    at = spell_instant(datetime.fromtimestamp(record.created, UTC).replace(microsecond=0))
    try:
        message = record.getMessage()
    except Exception:  # noqa: BLE001 - arguments that do not fit are the handlers' to complain about
        message = record.msg if type(record.msg) is str else object.__repr__(record.msg)
    name = "" if record.name == RUN_LOG.name else f"{record.name}: "
    steps = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
    return f"{at} {record.levelname} {name}{message}\n{steps}"
