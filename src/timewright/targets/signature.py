"""How a function wants to be called: read from its signature once, when it is registered."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from msgspec import Struct

from timewright.core.refusals import refused
from timewright.targets.context import Context

_CONTEXT_NAMES = frozenset({"context", "ctx"})


class Takes(Struct, frozen=True, kw_only=True):
    """What a function can be given: the context or not, which arguments, which of them it must have."""

    context: bool = False
    names: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()
    others: bool = False

    def misfit(self, args: dict[str, Any]) -> str:
        """Why these arguments do not fit, in words; "" when they do."""
        if self.required <= args.keys() <= self.names:
            return ""
        unknown = sorted(set(args) - self.names) if not self.others else []
        missing = sorted(self.required - set(args))
        if unknown:
            near = get_close_matches(unknown[0], self.names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            return f"it does not take {', '.join(map(repr, unknown[:5]))}{hint}"
        if "self" in missing:
            return "it is a method without its object; give the method of one: app.schedule(…)(thing.method)"
        if missing:
            named = ", ".join(map(repr, missing[:5]))
            return f"it needs {named}; name its first parameter `context` if it should be told about the run"
        return ""


def takes_of(function: Callable[..., Any]) -> Takes:
    """Read a signature once: which parameter gets the context, and which are arguments."""
    if not callable(function):
        raise refused("function", function, "cannot be called", rule="a function", fix="register a function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise refused(
            "function",
            getattr(function, "__name__", "?"),
            "is a generator: calling it would run nothing",
            rule="a function or an async function",
            fix="return a value instead of yielding",
        )
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return Takes(others=True)
    context = bool(parameters) and _wants_context(parameters[0])
    return _takes_arguments(parameters[1:] if context else parameters, context=context)


def _takes_arguments(parameters: list[inspect.Parameter], *, context: bool) -> Takes:
    by_name = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    nameless = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY and p.default is p.empty]
    if nameless:
        raise refused(
            "function",
            nameless[0],
            "can only be given by position",
            rule="arguments are given by name",
            fix="remove the / from its parameters",
        )
    return Takes(
        context=context,
        names=frozenset(p.name for p in by_name),
        required=frozenset(p.name for p in by_name if p.default is p.empty),
        others=any(p.kind is p.VAR_KEYWORD for p in parameters),
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
    """Whether calling it gives something to await; also for objects with an async call."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - the method itself is looked at
    )
