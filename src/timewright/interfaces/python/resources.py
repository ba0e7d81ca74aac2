"""Operations as methods: `app.schedules.pause("refresh")`, one resource per noun."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import Struct
from msgspec.structs import force_setattr

from timewright.errors import NotFound
from timewright.interfaces.http.routing import plural
from timewright.interfaces.python.signatures import docstring_of, signature_of
from timewright.operations import operations
from timewright.operations.registry import subject_of

if TYPE_CHECKING:
    from timewright.interfaces.python.resource_methods import AsyncTypedResources as _AsyncTyped
    from timewright.interfaces.python.resource_methods import TypedResources as _Typed
else:
    _Typed = _AsyncTyped = object


# One attribute for each noun; the clock is one thing.
PLURALS = {noun: plural(noun) for noun in sorted({one.noun.split()[0] for one in operations if one.noun})}
PLURALS["clock"] = "clock"


class UnknownMethod(NotFound, AttributeError):
    """An unknown method of a resource; also an AttributeError, so that `hasattr` works."""


class Resource:
    """The operations of one noun as methods: `app.schedules.pause("refresh", reason="maintenance")`."""

    def __init__(self, noun: str, call: Callable[..., Any]) -> None:
        self._noun = noun
        self._call = call

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        if verb.startswith("_"):
            # Python probes such names and expects AttributeError.
            raise AttributeError(verb)
        words = verb.rstrip("_")
        spaced = f"{self._noun} {words.replace('_', ' ')}"
        name = _names_of_operations().get(spaced, spaced)
        try:
            operation = operations[name]
        except NotFound as error:
            raise UnknownMethod(
                error.message, field=error.field, value=error.value, rule=error.rule, fix=error.fix
            ) from None
        subject = subject_of(operation)

        def method(*args: Any, **request: Any) -> Any:
            if args and (subject is None or len(args) > 1):
                takes = f"only {subject.field}" if subject is not None else "no argument"
                raise TypeError(f"{verb}() takes {takes} by position; pass the rest by keyword")
            if args and subject is not None and subject.field in request:
                raise TypeError(f"{verb}() got multiple values for argument {subject.field!r}")
            named = {subject.field: args[0]} if args and subject is not None else {}
            return self._call(name, **named, **request)

        method.__name__ = method.__qualname__ = verb
        method.__doc__ = docstring_of(name)
        method.__dict__["__signature__"] = signature_of(name)
        return method

    def __getitem__(self, _: object) -> NoReturn:
        """Answer `app.schedules["a"]` and `for one in app.schedules` with what to write."""
        plural = PLURALS[self._noun]
        calls = [f"app.{plural}.{verb}" for verb in ("list", "get") if verb in dir(self)]
        what = " and ".join(f"{call}(…)" if call.endswith("get") else f"{call}().{plural}" for call in calls)
        raise TypeError(f"app.{plural} is not a list or a mapping; write {what or 'one of its methods'}")

    def __dir__(self) -> list[str]:
        known = [operation.name.split() for operation in operations if operation.noun]
        return ["_".join(verb).replace("-", "_") for noun, *verb in known if noun == self._noun]

    def __repr__(self) -> str:
        return f"<{self._noun}: {', '.join(dir(self))}>"


@cache
def _names_of_operations() -> dict[str, str]:
    """The names of operations, by the name with spaces instead of hyphens."""
    return {one.name.replace("-", " "): one.name for one in operations}


class _AllResources:
    """One attribute per resource; its methods are forwarded to `call`."""

    def __init__(self, call: Callable[..., Any]) -> None:
        for noun, attribute in PLURALS.items():
            setattr(self, attribute, Resource(noun, call))


class Resources(_AllResources, _Typed):
    """The resources of a scheduler."""


class AsyncResources(_AllResources, _AsyncTyped):
    """The resources of an async scheduler."""


# The types of most fields of an answer.
_UNCHANGEABLE = frozenset({str, int, float, bool, type(None), datetime, timedelta})


def own_copy(value: Any) -> Any:
    """Return an answer with its own dicts and lists; parts that cannot change are shared.

    Answers contain cached records. Without the copy, a change of `answer.schedule.metadata` would change what
    the engine runs.
    """
    kind = type(value)
    if kind in _UNCHANGEABLE:
        return value
    if isinstance(value, Struct):
        return _copy_struct(value)
    if isinstance(value, dict):
        return {key: own_copy(one) for key, one in value.items()}
    if isinstance(value, list):
        return [own_copy(one) for one in value]
    if isinstance(value, tuple):
        copies = tuple(map(own_copy, value))
        return copies if any(one is not old for one, old in zip(copies, value, strict=True)) else value
    return value


def _copy_struct(value: Struct) -> Struct:
    """Return a copy if a field contains a dict or a list, else the value itself."""
    copied = None
    for name in value.__struct_fields__:
        found = getattr(value, name)
        if type(found) in _UNCHANGEABLE:
            continue
        own = own_copy(found)
        if own is not found:
            copied = copy(value) if copied is None else copied
            force_setattr(copied, name, own)
    return value if copied is None else copied
