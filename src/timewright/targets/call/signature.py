"""The signature of a registered function: whether it takes the context, and its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from msgspec import Struct

from timewright.core.input.input_errors import input_error, show_value
from timewright.errors import InvalidInput
from timewright.targets.context import Context

_CONTEXT_NAMES = frozenset({"context", "ctx"})


class FunctionSignature(Struct, frozen=True, kw_only=True):
    """Which arguments a function takes, which are required, and whether it takes the context."""

    takes_context: bool = False
    parameters: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()
    accepts_any: bool = False

    def with_payload(self, args: dict[str, Any], payload: Any) -> dict[str, Any]:
        """The arguments of a run: fields of its payload that are parameters replace those of the schedule."""
        if not isinstance(payload, dict):
            return args
        return args | {name: payload[name] for name in payload if self.accepts_any or name in self.parameters}

    def payload_mismatch(self, payload: Any) -> str:
        """Explain why a payload cannot reach the function, as arguments or in the context; "" if it can."""
        if payload is None or self.takes_context:
            return ""
        if not isinstance(payload, dict):
            return "only a JSON object can become arguments"
        return self.mismatch(payload, more_later=True)

    def mismatch(self, args: dict[str, Any], *, more_later: bool = False) -> str:
        """Explain why these arguments do not fit; "" if they do. With `more_later`, some may be missing."""
        if self.required <= args.keys() <= self.parameters:
            return ""
        unknown = sorted(set(args) - self.parameters) if not self.accepts_any else []
        missing = sorted(self.required - set(args)) if not more_later else []
        if unknown:
            near = get_close_matches(unknown[0], self.parameters, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            return f"it does not take {', '.join(map(repr, unknown[:5]))}{hint}"
        if "self" in missing:
            return "it is an unbound method; register a bound method: app.schedule(…)(thing.method)"
        if missing:
            named = ", ".join(map(repr, missing[:5]))
            return f"it needs {named}; name the first parameter `context` to receive the run's context"
        return ""

    def check_args(self, name: str, args: dict[str, Any], *, field: str, more_later: bool = False) -> None:
        """Refuse arguments that do not fit the function `name`. With `more_later`, some may be missing."""
        why = self.mismatch(args, more_later=more_later)
        if why:
            named = ", ".join(f'"{parameter}": …' for parameter in sorted(self.parameters - {"self"})[:5])
            raise InvalidInput(
                f"{field} do not fit {name!r}: {why}",
                field=field,
                value=", ".join(sorted(args))[:64],
                rule="the arguments must match the parameters of the function",
                fix=f"args: {{{named}}}" if named else "define a function without parameters",
            )

    def check_payload(self, name: str, args: dict[str, Any], payload: Any) -> None:
        """Refuse a payload that the function `name` would not receive, or that leaves out arguments."""
        why = self.payload_mismatch(payload) or self.mismatch(self.with_payload(args, payload))
        if why:
            named = ", ".join(f'"{parameter}": …' for parameter in sorted(self.parameters)[:5])
            raise InvalidInput(
                f"the payload does not fit {name!r}: {why}",
                field="payload",
                value=show_value(payload),
                rule="the fields of the payload are arguments of the function",
                fix=f"payload: {{{named}}}"
                if named
                else "give the function a first parameter `context`, and read context.payload",
            )


def read_signature(function: Callable[..., Any]) -> FunctionSignature:
    """Read the signature of a function. Refuses generators and positional-only arguments."""
    if not callable(function):
        raise input_error(
            "function", function, "cannot be called", rule="a function", fix="register a function"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise input_error(
            "function",
            getattr(function, "__name__", "?"),
            "is a generator function: calling it runs nothing",
            rule="a function or an async function",
            fix="return a value instead of yielding",
        )
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return FunctionSignature(accepts_any=True)
    context = bool(parameters) and _wants_context(parameters[0])
    return _read_parameters(parameters[1:] if context else parameters, context=context)


def _read_parameters(parameters: list[inspect.Parameter], *, context: bool) -> FunctionSignature:
    by_name = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    positional_only = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY and p.default is p.empty]
    if positional_only:
        raise input_error(
            "function",
            positional_only[0],
            "is positional-only",
            rule="arguments are passed by name",
            fix="remove the / from its parameters",
        )
    return FunctionSignature(
        takes_context=context,
        parameters=frozenset(p.name for p in by_name),
        required=frozenset(p.name for p in by_name if p.default is p.empty),
        accepts_any=any(p.kind is p.VAR_KEYWORD for p in parameters),
    )


def _wants_context(first: inspect.Parameter) -> bool:
    if first.kind is first.POSITIONAL_ONLY:
        return True
    if first.kind is not first.POSITIONAL_OR_KEYWORD:
        return False
    annotation = first.annotation if isinstance(first.annotation, str) else ""
    return (
        first.name in _CONTEXT_NAMES
        or first.annotation is Context
        or annotation.split("|")[0].strip().split(".")[-1] == "Context"
    )


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it returns an awaitable; also for objects with an async `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - the method itself is inspected
    )
