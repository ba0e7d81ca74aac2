"""What a function did, as an outcome: its value, its word, its wish for later, or how it failed."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Awaitable
from os import fspath
from types import AsyncGeneratorType, GeneratorType, TracebackType
from typing import TYPE_CHECKING, Any, cast

import msgspec

from timewright.core.moments import as_instant, spell_instant
from timewright.core.run import Cancelled, Failed, Outcome, Released, Succeeded, TimedOut
from timewright.targets.context import WORDS, Context, NotBefore, Word

if TYPE_CHECKING:
    from timewright.targets.registry import Registered

LONGEST_RESULT = 100_000
LONGEST_ERROR = 2_000
LONGEST_TRACE = 8_000
LONGEST_SHOWN = 500
DEEPEST = 64
_FRAMES = 30
_UNRUN = (GeneratorType, AsyncGeneratorType)
# What most functions answer.
DONE = Succeeded()
_name_of = type.__dict__["__name__"].__get__  # a metaclass may put anything in its place


def perform(registered: Registered, context: Context | None, args: dict[str, Any]) -> Outcome:
    """Call the function here and now; whatever it does, this gives back an outcome."""
    try:
        value = registered.invoke(context, args)
        if value is not None and inspect.isawaitable(value):
            value = _run(value)
        return with_cost(outcome_of(value), context)
    except BaseException as error:  # noqa: BLE001 - the boundary: SystemExit and its like end the run, not us
        return with_cost(failure(error), context)


async def perform_async(registered: Registered, context: Context | None, args: dict[str, Any]) -> Outcome:
    """The same on a loop; being cancelled is all that passes through."""
    from asyncio import CancelledError, current_task

    try:
        value = registered.invoke(context, args)
        if inspect.isawaitable(value):
            value = await value
        return with_cost(outcome_of(value), context)
    except CancelledError as error:
        task = current_task()
        if task is not None and task.cancelling():
            raise
        return with_cost(failure(error), context)
    except BaseException as error:  # noqa: BLE001 - the boundary: SystemExit would end the loop for everyone
        return with_cost(failure(error), context)


def outcome_of(value: Any) -> Outcome:
    """Turn what a function gave back into an outcome."""
    if value is None:
        return DONE
    if isinstance(value, NotBefore):
        at = as_instant(value.at)
        return Failed(error=f"asked to be run not before {spell_instant(at)}", not_before=at)
    if isinstance(value, str) and value in WORDS:
        return Succeeded(word=cast("Word", str(value)))
    if isinstance(value, _UNRUN):
        return failed("it gave back a generator, of which nothing has run; return a value, do not yield it")
    return Succeeded(result=plain_result(value))


def failure(error: BaseException) -> Failed:
    """What was raised, in a line, with the last steps that led there."""
    told = f"{_name_of(type(error))}: {_said(error)}".rstrip(": ")
    return Failed(error=plain_text(told, limit=LONGEST_ERROR), result={"traceback": _trace(error)})


def plain_result(value: Any) -> Any:
    """The value as plain JSON, cut off from the function that may still change it; never raises."""
    try:
        encoded = msgspec.json.encode(value, enc_hook=_as_data)
        limit = {"limit_bytes": LONGEST_RESULT}
        if len(encoded) <= LONGEST_RESULT:
            plain = msgspec.json.decode(encoded)
            # Each level takes two bytes, and one of two signs: most results need not be looked through.
            if len(encoded) <= 2 * DEEPEST or encoded.count(b"[") + encoded.count(b"{") <= DEEPEST:
                return plain
            if is_shallow(plain):
                return plain
            limit = {"limit_depth": DEEPEST}
    except Exception:  # noqa: BLE001 - any object at all may come back, and any of its methods may raise
        return {
            "unserialisable": plain_text(_shown(value), limit=LONGEST_SHOWN),
            "type": _name_of(type(value)),
        }
    head = encoded[:LONGEST_SHOWN].decode("utf-8", "ignore")
    return {"truncated": head, "bytes": len(encoded), **limit}


def _as_data(value: Any) -> Any:
    """What JSON has no word for and knows how it is written: models, arrays and their numbers, paths."""
    kind = type(value)
    if callable(getattr(kind, "model_dump", None)):
        return value.model_dump(mode="json")
    if callable(getattr(kind, "tolist", None)):
        return value.tolist()
    return fspath(value)


def is_shallow(value: Any) -> bool:
    """Whether what was read can be written again: a store gives up on what is nested without end."""
    level = [value]
    for _ in range(DEEPEST):
        lists = [inner for one in level if isinstance(one, list) for inner in one]
        level = [inner for one in level if isinstance(one, dict) for inner in one.values()] + lists
        if not level:
            return True
    return False


def plain_text(text: str, *, limit: int) -> str:
    """Text that every store can keep: no zero byte, no half character, not longer than that."""
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


def with_result(outcome: Outcome, result: Any) -> Outcome:
    """The same outcome with another result."""
    return msgspec.structs.replace(outcome, result=result)


def with_cost(outcome: Outcome, context: Context | None) -> Outcome:
    """The same outcome with what the function said it cost."""
    cost = context.spent.cost if context is not None else None
    return outcome if cost is None else msgspec.structs.replace(outcome, cost=cost)


def with_output(outcome: Outcome, output: str) -> Outcome:
    """The same outcome, with what was printed in its result's `output`."""
    if not output:
        return outcome
    result = outcome.result
    if result is None:
        return with_result(outcome, {"output": output})
    if isinstance(result, dict) and "output" not in result:
        return with_result(outcome, {**result, "output": output})
    return with_result(outcome, {"value": result, "output": output})


def failed(error: str) -> Failed:
    """A failure in words of our own."""
    return Failed(error=plain_text(error, limit=LONGEST_ERROR))


def reason_of(verdict: Outcome) -> str:
    """Why work is ended, as its function is told."""
    return str(getattr(verdict, "reason", "") or getattr(verdict, "error", ""))


def timed_out(seconds: float) -> TimedOut:
    """The outcome of work that took longer than it may."""
    return TimedOut(error=f"time limit of {seconds:g} s reached")


def cancelled(reason: str) -> Cancelled:
    """The outcome of work that was asked to stop."""
    return Cancelled(reason=reason)


def closing() -> Released:
    """The outcome of work that is still under way when its target closes: nobody has failed."""
    return Released(reason="the target is closing")


def _run(value: Awaitable[Any]) -> Any:
    import asyncio

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


def _said(error: BaseException) -> str:
    try:
        return str.__str__(str(error))  # a text of a kind of its own may refuse to be used as one
    except BaseException as second:  # noqa: BLE001 - an error that cannot even be shown is still an error
        return f"(its text cannot be shown: {_name_of(type(second))})"


def _shown(value: Any) -> str:
    try:
        return str.__str__(ascii(value))
    except BaseException as error:  # noqa: BLE001 - a value may refuse to be shown in any way it likes
        return f"(cannot be shown: {_name_of(type(error))})"


def _below_us(steps: TracebackType | None) -> TracebackType | None:
    """The steps of a traceback from the user's own code on."""
    first = steps
    while steps is not None and steps.tb_frame.f_globals.get("__name__", "").startswith(
        "timewright.targets."
    ):
        steps = steps.tb_next
    return steps or first


def _trace(error: BaseException) -> str:
    try:
        lines = traceback.format_exception(type(error), error, _below_us(error.__traceback__), limit=-_FRAMES)
    except BaseException as second:  # noqa: BLE001 - see _said
        return f"(no traceback: {_name_of(type(second))})"
    return plain_text("".join(lines)[-LONGEST_TRACE:], limit=LONGEST_TRACE)
