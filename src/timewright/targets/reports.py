"""What work reports while it runs: progress, checkpoint, cost, log records, and output in bounded memory."""

from __future__ import annotations

import codecs
import logging
import sys
import threading
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from timewright.core.budgets.costs import (
    MAX_CURRENCY_LENGTH,
    Cost,
    add_costs,
    is_currency,
    parse_money,
    parse_tokens,
)
from timewright.core.moments import format_instant
from timewright.errors import InvalidInput
from timewright.ports.attempt_output import MAX_CHECKPOINT_BYTES, MAX_NOTE_CHARS, OutputExcerpt, WorkReport

if TYPE_CHECKING:
    from timewright.targets.secret_references import RevealedSecrets

LogSink = Callable[[str], None]

# Tasks and `asyncio.to_thread` inherit it; a thread that a function starts itself does not.
CURRENT_LOG: ContextVar[LogSink | None] = ContextVar("timewright-current-log", default=None)

# How much of the output of work is kept, where the target says nothing else.
OUTPUT_BYTES = 64 * 1024
_OMITTED = "\n… {} bytes left out …\n"
_CONTINUATION_BYTES = range(0x80, 0xC0)  # never the first byte of a UTF-8 character


class Reports:
    """The reports of one call; `on_report` gets each new one."""

    __slots__ = ("_on_report", "_report", "spent")

    def __init__(self, on_report: Callable[[WorkReport], None] | None) -> None:
        self.spent: Cost | None = None
        self._report: WorkReport | None = None
        self._on_report = on_report

    def progress(self, fraction: float | None = None, note: str = "") -> None:
        """Report how much of the work is done, from 0 to 1, and where it is: `ctx.progress(0.4, "page 12")`.

        Call it as often as you like: the last report is written about once a second.
        """
        report = WorkReport(
            fraction=_check_progress(fraction), note=str(note)[:MAX_NOTE_CHARS], checkpoint=self._checkpoint
        )
        # A tenth of a percent is the finest step that is shown.
        before = self._report
        is_shown = (
            before is None
            or report.note != before.note
            or _shown_fraction(report.fraction) != _shown_fraction(before.fraction)
        )
        if is_shown:
            self._set_report(report)

    def checkpoint(self, value: Any) -> None:
        """Keep JSON data for the next attempt of this run, which finds it in `last_checkpoint`.

        It is written about once a second and before the attempt ends; a process that is killed with its
        machine loses at most the last second. A lost lease writes nothing.
        """
        data = check_checkpoint(value)
        before = self._report or WorkReport()
        self._set_report(WorkReport(fraction=before.fraction, note=before.note, checkpoint=data))

    @property
    def report(self) -> WorkReport | None:
        """What the function reported last; None if it reported nothing."""
        return self._report

    @property
    def _checkpoint(self) -> Any:
        return self._report.checkpoint if self._report is not None else None

    def _set_report(self, report: WorkReport) -> None:
        self._report = report
        if self._on_report is not None:
            self._on_report(report)

    def cost(
        self, *, tokens: int | None = None, money: str | float | Decimal | None = None, currency: str = ""
    ) -> None:
        """Report the cost of the work. Repeated calls add up; budgets are charged with the sum."""
        for field, value, read in (
            ("tokens", tokens, parse_tokens(tokens)),
            ("money", money, parse_money(money)),
        ):
            if value is not None and read is None:
                raise InvalidInput(
                    f"{field} {value!r} is not a cost",
                    field=field,
                    value=str(value)[:40],
                    rule="a number of at least 0; tokens are integers",
                    fix=f"context.cost({field}={'1200' if field == 'tokens' else repr('0.02')})",
                )
        if not is_currency(currency):
            raise InvalidInput(
                f"currency {str(currency)[:40]!a} is not a currency name",
                field="currency",
                value=str(currency)[:40],
                rule=f"printable text of at most {MAX_CURRENCY_LENGTH} characters",
                fix="context.cost(money='0.02', currency='EUR')",
            )
        reported = Cost(tokens=parse_tokens(tokens), money=parse_money(money), currency=currency)
        self.spent = add_costs(self.spent, reported)


def check_checkpoint(value: Any) -> Any:
    """Return a copy of a checkpoint; raises InvalidInput if it is not JSON data, or is too large."""
    try:
        encoded = msgspec.json.encode(value)
        data = msgspec.json.decode(encoded)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        encoded, data = b"", None
    if value is None or data != value:
        raise InvalidInput(
            "the checkpoint is not JSON data",
            field="checkpoint",
            value=type(value).__name__,
            rule="dictionaries with text keys, lists, texts, numbers, true, false",
            fix='ctx.checkpoint({"page": 12})',
        )
    if len(encoded) > MAX_CHECKPOINT_BYTES:
        raise InvalidInput(
            f"the checkpoint has {len(encoded)} bytes",
            field="checkpoint",
            value=len(encoded),
            rule=f"at most {MAX_CHECKPOINT_BYTES} bytes as JSON",
            fix="store the data elsewhere, and keep in the checkpoint where it is",
        )
    return data


def _check_progress(fraction: float | None) -> float | None:
    """Return the fraction; raise if it is not a number from 0 to 1."""
    if fraction is None:
        return None
    is_number = isinstance(fraction, int | float) and not isinstance(fraction, bool)
    if not is_number or not 0.0 <= fraction <= 1.0:
        raise InvalidInput(
            f"progress {str(fraction)[:40]} is not a fraction",
            field="progress",
            value=str(fraction)[:40],
            rule="a number from 0 to 1, or None",
            fix='ctx.progress(0.4, "page 12")',
        )
    return float(fraction)


def _shown_fraction(fraction: float | None) -> float | None:
    return None if fraction is None else round(fraction, 3)


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


class HeadTailBuffer:
    """Keeps half of its limit from the start and half from the end. One thread feeds it, any may read."""

    def __init__(self, limit_bytes: int = OUTPUT_BYTES) -> None:
        self.size = 0
        self._lock = threading.Lock()
        self._head_limit = limit_bytes // 2
        self._tail_limit = limit_bytes - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()

    def feed(self, data: bytes) -> None:
        """Add the next bytes."""
        with self._lock:
            self.size += len(data)
            free = self._head_limit - len(self._head)
            if free > 0:
                self._head += data[:free]
                data = data[free:]
            if data:
                self._tail += data[-self._tail_limit :]
                # Trim at four times the limit only, because each trim copies the tail.
                if len(self._tail) > 4 * self._tail_limit:
                    del self._tail[: -self._tail_limit]

    @property
    def omitted_bytes(self) -> int:
        """How many bytes between head and tail were dropped."""
        return self.size - len(self._head) - min(len(self._tail), self._tail_limit)

    def snapshot(self, secrets: RevealedSecrets | None = None) -> OutputExcerpt:
        """The text so far. A partial character or secret at the end is held back until the rest arrives."""
        head, tail, omitted = self._parts()
        first = _decode(head, secrets).replace("\0", "\ufffd")
        if not omitted:
            return OutputExcerpt(text=first, size=len(first.encode()))
        last = _decode(_without_cut_secret(tail, secrets), secrets).replace("\0", "\ufffd")
        before = first + _OMITTED.format(omitted)
        size = len(first.encode()) + omitted + len(last.encode())
        return OutputExcerpt(text=before + last, size=size, tail_offset=len(before.encode()))

    def text(self, secrets: RevealedSecrets | None = None) -> str:
        """The final text. A line in the middle states how many bytes were dropped."""
        head, tail, omitted = self._parts()
        end = _without_cut_secret(tail, secrets) if omitted else head
        last = (end if secrets is None else secrets.redact(end)).decode("utf-8", "replace")
        return _decode(head, secrets) + _OMITTED.format(omitted) + last if omitted else last

    def _parts(self) -> tuple[bytes, bytes, int]:
        """The head, the tail from its first whole character on, and how many bytes were dropped between.

        If none were dropped, the head is everything.
        """
        with self._lock:
            head, tail = bytes(self._head), bytes(self._tail[-self._tail_limit :])
            omitted = self.omitted_bytes
        if not omitted:
            return head + tail, b"", 0
        start = next((i for i, byte in enumerate(tail[:4]) if byte not in _CONTINUATION_BYTES), 0)
        return head, tail[start:], omitted


def _without_cut_secret(tail: bytes, secrets: RevealedSecrets | None) -> bytes:
    return tail if secrets is None else secrets.drop_partial_start(tail)


def _decode(data: bytes, secrets: RevealedSecrets | None) -> str:
    """The text without secrets. A secret or a character that is cut at the end is dropped."""
    if secrets is not None:
        data = secrets.drop_partial_end(secrets.redact(data))
    # An incremental decoder without final=True drops a character that was cut in two.
    return codecs.getincrementaldecoder("utf-8")("replace").decode(data)
