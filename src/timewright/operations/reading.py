"""Plain data into a request: its own fields, and those of the model it spreads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from unicodedata import normalize

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.decoding import check_size, names_of
from timewright.core.refusals import unknown
from timewright.core.spellings import ALIASES, snake
from timewright.core.vocabulary import decode
from timewright.errors import TimewrightError, UnknownField

R = TypeVar("R", bound=Struct)

_NAMES = frozenset(
    {"schedule", "queue", "group", "calendar", "workflow", "limit", "tag", "key", "secret", "namespace"}
)


def read_request(payload: Mapping[str, Any], request: type[R]) -> R:
    """Read what was asked; a field nobody knows is refused with the nearest one that is."""
    try:
        asked = _read(payload, request)
    except TimewrightError as error:
        raise _discreet(error, getattr(request, "hides", ())) from None
    names = {name: getattr(asked, name) for name in _NAMES & set(request.__struct_fields__)}
    # Two spellings of one text are one name, here as where names are written.
    composed = {name: normalize("NFC", text) for name, text in names.items() if isinstance(text, str)}
    return replace(asked, **composed)


def _discreet(error: TimewrightError, hidden: Sequence[str]) -> TimewrightError:
    """The same refusal, without the value of a field that holds a secret."""
    field = error.field or ""
    if field.partition(".")[0] not in hidden:
        return error
    return type(error)(f"{field} cannot be used", field=field, rule=error.rule, fix=error.fix)


def _read(payload: Mapping[str, Any], request: type[R]) -> R:
    spreads: tuple[str, type[Struct]] | None = getattr(request, "spreads", None)
    if spreads is None or not isinstance(payload, Mapping):
        return decode(payload, request)
    check_size(payload)
    field, model = spreads
    own = {name for name in request.__struct_fields__ if name != field}
    asked = {key: value for key, value in payload.items() if _is_own(key, own)}
    rest = {key: value for key, value in payload.items() if key not in asked}
    for key in rest:
        _check_known(key, own, model)
    # The model's fields are read later, over what is there already, and are handed on as they were written.
    return replace(decode({**asked, field: {}}, request), **{field: rest})


def _is_own(key: Any, own: set[str]) -> bool:
    return isinstance(key, str) and (snake(key) in own or snake(key).removesuffix("_ms") in own)


def _check_known(key: Any, own: set[str], model: type[Struct]) -> None:
    try:
        names_of({key: None}, model)
    except UnknownField:
        known = {*own, *model.__struct_encode_fields__}
        raise unknown("", key, known, also=ALIASES.get(model, {})) from None
