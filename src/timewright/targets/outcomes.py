"""Turns what a function returned or raised into the outcome of its run, and reports the first one."""

from __future__ import annotations

import inspect
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from os import fspath
from types import AsyncGeneratorType, GeneratorType, TracebackType
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct

from timewright.core.moments import as_instant, format_instant
from timewright.core.run.run import Cancelled, Failed, Lost, Outcome, Released, Succeeded, TimedOut
from timewright.targets.context import OUTCOME_LABELS, Context, NotBefore, OutcomeLabel

if TYPE_CHECKING:
    from timewright.targets.artifacts.store import AttemptArtifacts
    from timewright.targets.call.registry import RegisteredFunction


MAX_RESULT_BYTES = 100_000
MAX_ERROR_CHARS = 2_000
MAX_TRACEBACK_CHARS = 8_000
MAX_EXCERPT_CHARS = 500
MAX_JSON_DEPTH = 64
_MAX_FRAMES = 30
_GENERATOR_TYPES = (GeneratorType, AsyncGeneratorType)
# Most functions return None: they share this one value.
SUCCEEDED = Succeeded()
_name_of = type.__dict__["__name__"].__get__  # a metaclass may override `__name__`


def call_function(
    registered: RegisteredFunction,
    context: Context | None,
    args: dict[str, Any],
    *,
    artifacts: AttemptArtifacts | None = None,
) -> Outcome:
    """Call the function on this thread. Never raises: an exception becomes a failed outcome."""
    try:
        if artifacts is not None:
            args = artifacts.load_results(args)
        value = registered.invoke(context, args)
        if value is not None and inspect.isawaitable(value):
            value = _run(value)
        return with_reports(outcome_from_value(value, artifacts), context, artifacts)
    except BaseException as error:  # noqa: BLE001 - boundary: SystemExit must end the run, not this process
        return with_reports(failure_from_exception(error), context, artifacts)


async def call_async_function(
    registered: RegisteredFunction,
    context: Context | None,
    args: dict[str, Any],
    *,
    artifacts: AttemptArtifacts | None = None,
) -> Outcome:
    """Call the function on the running loop. Raises only CancelledError, when this task was cancelled."""
    from asyncio import CancelledError, current_task

    try:
        if artifacts is not None:
            args = artifacts.load_results(args)
        value = registered.invoke(context, args)
        if inspect.isawaitable(value):
            value = await value
        return with_reports(outcome_from_value(value, artifacts), context, artifacts)
    except CancelledError as error:
        task = current_task()
        if task is not None and task.cancelling():
            raise
        return with_reports(failure_from_exception(error), context, artifacts)
    except BaseException as error:  # noqa: BLE001 - boundary: SystemExit would stop the loop for every run
        return with_reports(failure_from_exception(error), context, artifacts)


def outcome_from_value(value: Any, artifacts: AttemptArtifacts | None = None) -> Outcome:
    """Build the outcome of a function from its return value.

    A result over the limit becomes an artifact, or the run fails: a result is never cut.
    """
    if value is None:
        return SUCCEEDED
    if isinstance(value, NotBefore):
        at = as_instant(value.at)
        return Failed(error=f"the function asked to run again not before {format_instant(at)}", not_before=at)
    if isinstance(value, str) and value in OUTCOME_LABELS:
        return Succeeded(outcome_label=cast("OutcomeLabel", str(value)))
    if isinstance(value, _GENERATOR_TYPES):
        return failed(
            "the function returned a generator, which was not run; return a value instead of yielding"
        )
    result = _convert(value)
    if isinstance(result, LargeResult):
        return _outcome_from_large(result, artifacts)
    return Succeeded(result=result)


def _outcome_from_large(result: LargeResult, artifacts: AttemptArtifacts | None) -> Outcome:
    if result.reason:
        return Failed(error=result.reason, final=True)
    size = len(result.encoded)
    if artifacts is not None and artifacts.is_enabled:
        return Succeeded(result=artifacts.write_result(result.encoded))
    return Failed(
        error=f"the result has {size} bytes, and at most {MAX_RESULT_BYTES} are stored with a run;"
        " set artifacts to a folder or an object store, or return the address of the data",
        final=True,
    )


def failure_from_exception(error: BaseException) -> Failed:
    """Build a failed outcome: type and message as the error, the traceback as the result."""
    error_text = f"{_name_of(type(error))}: {_message_of(error)}".rstrip(": ")
    return Failed(
        error=to_storable_text(error_text, limit=MAX_ERROR_CHARS), result={"traceback": _trace(error)}
    )


class LargeResult(Struct, frozen=True):
    """A result that cannot be stored with its run: the JSON of one that is too long, or why not."""

    encoded: bytes
    reason: str = ""


def to_json_value(value: Any) -> Any:
    """Copy a value of a foreign system as JSON data; one over a limit is cut and marked. Never raises."""
    found = _convert(value)
    if not isinstance(found, LargeResult):
        return found
    head = found.encoded[:MAX_EXCERPT_CHARS].decode("utf-8", "ignore")
    return {"truncated": head, "bytes": len(found.encoded), "rule": found.reason or "at most 100 kB"}


def _convert(value: Any) -> Any:
    """Copy the value as JSON data, so that later changes by the function have no effect. Never raises.

    Returns a LargeResult if the data is over a limit.
    """
    try:
        encoded = msgspec.json.encode(value, enc_hook=_as_data)
        if len(encoded) <= MAX_RESULT_BYTES:
            plain = msgspec.json.decode(encoded)
            # Each level needs two bytes and one of "[" and "{": most results are accepted without a walk.
            if (
                len(encoded) <= 2 * MAX_JSON_DEPTH
                or encoded.count(b"[") + encoded.count(b"{") <= MAX_JSON_DEPTH
            ):
                return plain
            if is_within_depth(plain):
                return plain
            return LargeResult(
                encoded, f"the result is nested deeper than {MAX_JSON_DEPTH} levels; return flatter data"
            )
    except Exception:  # noqa: BLE001 - a function may return any object, and its methods may raise
        return {
            "unserialisable": to_storable_text(_repr_of(value), limit=MAX_EXCERPT_CHARS),
            "type": _name_of(type(value)),
        }
    return LargeResult(encoded)


def _as_data(value: Any) -> Any:
    """Convert objects that JSON does not know: pydantic models, NumPy arrays and scalars, paths."""
    kind = type(value)
    if callable(getattr(kind, "model_dump", None)):
        return value.model_dump(mode="json")
    if callable(getattr(kind, "tolist", None)):
        return value.tolist()
    return fspath(value)


def is_within_depth(value: Any) -> bool:
    """Whether a value is nested at most MAX_JSON_DEPTH levels. Stores refuse deeper ones."""
    level = [value]
    for _ in range(MAX_JSON_DEPTH):
        lists = [inner for one in level if isinstance(one, list) for inner in one]
        level = [inner for one in level if isinstance(one, dict) for inner in one.values()] + lists
        if not level:
            return True
    return False


def to_storable_text(text: str, *, limit: int) -> str:
    """Make text that every store accepts: no zero byte, no lone surrogate, at most `limit` characters."""
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


def with_result(outcome: Outcome, result: Any) -> Outcome:
    """Return the outcome with another result."""
    return msgspec.structs.replace(outcome, result=result)


def with_reports(
    outcome: Outcome, context: Context | None, artifacts: AttemptArtifacts | None = None
) -> Outcome:
    """Return the outcome with the cost, the state and the artifacts that the function reported."""
    if artifacts is not None and artifacts.written and not isinstance(outcome, Released):
        outcome = msgspec.structs.replace(outcome, artifacts=artifacts.written)
    if context is None:
        return outcome
    change = context.state_change if isinstance(outcome, Succeeded) else None
    if change is not None:
        data = to_json_value(change.value)
        if data != change.value:
            return failed("ctx.state is not JSON data, or is too large")
        outcome = msgspec.structs.replace(outcome, state=change)
    cost = context.spent
    return outcome if cost is None else msgspec.structs.replace(outcome, cost=cost)


def with_output(outcome: Outcome, output: str) -> Outcome:
    """Return the outcome with the printed text in the `output` of its result."""
    if not output:
        return outcome
    result = outcome.result
    if result is None:
        return with_result(outcome, {"output": output})
    if isinstance(result, dict) and "output" not in result:
        return with_result(outcome, {**result, "output": output})
    return with_result(outcome, {"value": result, "output": output})


def lost(error: str) -> Lost:
    """The outcome of work whose process was killed from outside; it is a loss, not a failure of the work."""
    return Lost(error=to_storable_text(error, limit=MAX_ERROR_CHARS))


def failed(error: str, *, unknown: bool = False) -> Failed:
    """Build a failed outcome from an error message; `unknown` if the work may have been done."""
    return Failed(error=to_storable_text(error, limit=MAX_ERROR_CHARS), unknown=unknown)


def stop_reason(outcome: Outcome) -> str:
    """The reason given to the function when its run ends with this outcome."""
    return str(getattr(outcome, "reason", "") or getattr(outcome, "error", ""))


def timed_out(seconds: float) -> TimedOut:
    """The outcome of work that reached its time limit."""
    return TimedOut(error=f"time limit of {seconds:g} s reached")


def thread_timed_out(seconds: float) -> TimedOut:
    """The same for a function on a thread, which ended later because it could not be killed."""
    return TimedOut(
        error=f"time limit of {seconds:g} s reached; a function on a thread cannot be killed, so its run"
        ' ended when it returned; use isolation="process" for a hard stop'
    )


def cancelled(reason: str) -> Cancelled:
    """The outcome of work that was asked to stop."""
    return Cancelled(reason=reason)


def released_on_close() -> Released:
    """The outcome of work that is still running when its target closes; it costs no attempt."""
    return Released(reason="the target is closing")


def _run(value: Awaitable[Any]) -> Any:
    import asyncio

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


def _message_of(error: BaseException) -> str:
    try:
        return str.__str__(str(error))  # a subclass of str may override its methods
    except BaseException as second:  # noqa: BLE001 - `__str__` of an exception may raise
        return f"(its message cannot be read: {_name_of(type(second))})"


def _repr_of(value: Any) -> str:
    try:
        return str.__str__(ascii(value))
    except BaseException as error:  # noqa: BLE001 - `__repr__` may raise anything
        return f"(cannot be shown: {_name_of(type(error))})"


def _skip_our_frames(steps: TracebackType | None) -> TracebackType | None:
    """Drop the leading frames of this package, so that a traceback starts in the user's code."""
    first = steps
    while steps is not None and steps.tb_frame.f_globals.get("__name__", "").startswith(
        "timewright.targets."
    ):
        steps = steps.tb_next
    return steps or first


def _trace(error: BaseException) -> str:
    try:
        lines = traceback.format_exception(
            type(error), error, _skip_our_frames(error.__traceback__), limit=-_MAX_FRAMES
        )
    except BaseException as second:  # noqa: BLE001 - see _message_of
        return f"(no traceback: {_name_of(type(second))})"
    return to_storable_text("".join(lines)[-MAX_TRACEBACK_CHARS:], limit=MAX_TRACEBACK_CHARS)


def run_safely(callback: Callable[[], object]) -> None:
    """Run the callback. An exception goes to `threading.excepthook` and does not end the thread."""
    try:
        callback()
    except BaseException:  # noqa: BLE001 - boundary: one bad callback must not end a shared thread
        with suppress(BaseException):  # a user's hook may raise too
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))


class FirstResult:
    """Calls `done` with the first outcome. Returns whether this call was the first; never raises."""

    __slots__ = ("_done", "_first", "is_set")

    def __init__(self, done: Callable[[Outcome], object]) -> None:
        self._done = done
        self._first = threading.Lock()
        self.is_set = False
        """Whether an outcome was reported."""

    def __call__(self, outcome: Outcome) -> bool:
        if not self._first.acquire(blocking=False):
            return False
        self.is_set = True
        run_safely(lambda: self._done(outcome))  # an error in `done` is not a failure of the work
        return True


class FinishedWork:
    """Work that has already reported its outcome."""

    def stop(self, reason: str) -> None:
        """Do nothing: the work has finished."""


FINISHED_WORK = FinishedWork()
