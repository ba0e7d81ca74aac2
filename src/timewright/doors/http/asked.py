"""From an HTTP request to the plain data an operation is asked with: path, query and a strict JSON body."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from msgspec import Struct
from msgspec import inspect as mi

from timewright.core.spellings import snake
from timewright.doors.http.places import NOBODY, Place
from timewright.doors.http.problems import Refused
from timewright.errors import InvalidInput

LARGEST_BODY = 4 * 1024 * 1024
LONGEST_QUERY = 16 * 1024
MOST_PARAMETERS = 200
JSON_TYPE = re.compile(r"application/json\s*(;\s*charset\s*=\s*\"?utf-8\"?\s*)?", re.IGNORECASE)

_WHOLE = re.compile(r"-?[0-9]{1,19}")
_DECIMAL = re.compile(r"-?[0-9]{1,19}(\.[0-9]{1,19})?")
_TRUTH = {"true": True, "false": False}
# Of a write's request, these may also stand in its query.
_ALSO_IN_QUERY = frozenset({"dry_run", "reason"})


def payload_from(
    place: Place, *, path: Mapping[str, str], query: str, body: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What is asked; what the path says may be said again, but not otherwise."""
    asked = read_query(query, place)
    if place.takes == "body":
        for name in asked.keys() - _ALSO_IN_QUERY:
            raise InvalidInput(
                f"{name} stands in the query",
                field=name,
                rule="what is written is said in a JSON body; only dry_run and reason may stand in the query",
                fix=f'{{"{name}": …}} in the body',
            )
    for part in (body or {}, _named(place, path)):
        for name, value in part.items():
            if asked.setdefault(name, value) != value:
                raise InvalidInput(
                    f"{name} is said twice, and not the same",
                    field=name,
                    value=asked[name],
                    rule="path, query and body agree",
                    fix=f"{name} in one place only",
                )
    return asked


def read_query(query: str, place: Place) -> dict[str, Any]:
    """The fields in a query, each read as its type asks; what cannot be is left to be refused."""
    if not query:
        return {}
    request: type[Struct] = place.operation.request
    ways = _ways(request)
    found: dict[str, list[str]] = {}
    for name, value in split_query(query):
        found.setdefault(name, []).append(value)
    return {name: _read(name, texts, _way_of(name, ways)) for name, texts in found.items()}


def split_query(query: str) -> Sequence[tuple[str, str]]:
    """The names and values of a query; one that is not UTF-8, or too long, is refused."""
    if len(query) > LONGEST_QUERY:
        raise Refused(414, "uri_too_long", "the query is too long", rule=f"at most {LONGEST_QUERY} bytes")
    try:
        return parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=MOST_PARAMETERS)
    except ValueError:
        raise Refused(
            400,
            "invalid_query",
            "the query cannot be read",
            rule=f"UTF-8, percent-encoded, at most {MOST_PARAMETERS} parameters",
            fix="name=value&other=value",
        ) from None


def read_body(raw: bytes, content_type: str | None) -> dict[str, Any]:
    """A JSON object, read strictly: no other type, no key twice, no number that is none."""
    if not raw and content_type is None:
        return {}
    if content_type is None or JSON_TYPE.fullmatch(content_type.strip()) is None:
        raise Refused(
            415,
            "unsupported_media_type",
            "the body is not JSON",
            headers={"accept-post": "application/json"},
            field="content-type",
            rule="application/json, in UTF-8",
            fix="Content-Type: application/json",
        )
    try:
        data = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_once,
            parse_constant=_no_number,
            parse_float=_finite,
        )
    except (ValueError, RecursionError) as error:
        why = "it is nested too deep" if isinstance(error, RecursionError) else str(error)[:200]
        raise Refused(
            400,
            "invalid_json",
            f"the body cannot be read: {why}",
            rule="one JSON object in UTF-8, without a key twice",
            fix='{"name": "nightly-report"}',
        ) from None
    if not isinstance(data, dict):
        raise InvalidInput("the body is not an object", rule="a JSON object with fields", fix="{}")
    return data


def _named(place: Place, path: Mapping[str, str]) -> dict[str, str]:
    if not place.subject or (place.leaves_out and path[place.subject] == NOBODY):
        return {}
    return {place.subject: path[place.subject]}


class _Way(NamedTuple):
    """How the text of a field is read, by what its type allows; of a field nobody knows little is known."""

    several: bool = False
    nothing: bool = False
    whole: bool = False
    decimal: bool = False
    truth: bool = True
    data: bool = True


_UNKNOWN = _Way()


def _way_of(name: str, ways: Mapping[str, _Way]) -> _Way:
    return ways.get(name) or ways.get(snake(name), _UNKNOWN)


@cache
def _ways(request: Any) -> dict[str, _Way]:
    """How the fields of a request are read, and those of the model it spreads."""
    spreads: tuple[str, type[Struct]] | None = request.spreads
    found: dict[str, _Way] = {}
    for model in (spreads[1] if spreads is not None else None, request):
        info = mi.type_info(model) if model is not None else None
        if isinstance(info, mi.StructType):
            found |= {field.encode_name: _way(field.type) for field in info.fields}
    return found


def _way(kind: mi.Type) -> _Way:
    kinds = kind.types if isinstance(kind, mi.UnionType) else (kind,)

    def has(*types: type[mi.Type]) -> bool:
        return any(isinstance(one, types) for one in kinds)

    return _Way(
        several=has(mi.VarTupleType, mi.ListType),
        nothing=has(mi.NoneType),
        whole=has(mi.IntType),
        decimal=has(mi.FloatType),
        truth=has(mi.BoolType),
        data=not all(isinstance(one, mi.StrType) for one in kinds),
    )


def _read(name: str, texts: list[str], way: _Way) -> Any:
    if len(texts) > 1 and not way.several:
        raise InvalidInput(
            f"{name} stands in the query {len(texts)} times",
            field=name,
            value=texts[1],
            rule="once, unless it is a list",
            fix=f"one {name}",
        )
    if way.several and not texts[0].startswith("["):
        return texts
    return _value(texts[0], way, timed=name.endswith("_ms"))


def _value(text: str, way: _Way, *, timed: bool) -> Any:
    if text == "null" and way.nothing:
        return None
    if (timed or way.whole) and _WHOLE.fullmatch(text):
        return int(text)
    if way.decimal and _DECIMAL.fullmatch(text):
        return float(text)
    if way.truth and text in _TRUTH:
        return _TRUTH[text]
    if way.data and text[:1] in ("{", "["):
        return _data(text)
    return text


def _data(text: str) -> Any:
    """A mapping or a list inside a query; what is not JSON stays text."""
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError):
        return text


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(f"{twice[:64]!r} stands there twice")
    return found


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:32]} is too large")
    return number
