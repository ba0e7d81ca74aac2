"""Lists in pages: where the next one begins, as a text nobody needs to understand."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from timewright.core.encoding import encode
from timewright.errors import InvalidInput
from timewright.operations.at_once import may_take_long
from timewright.operations.context import Context
from timewright.operations.identity import once_for_each
from timewright.operations.registry import Listing
from timewright.ports import Page

Row = TypeVar("Row")
Find = Callable[[int, str], Page]

FEW = 100
STEP = 200
MOST_STEPS = 50
_MARK = 12

_spell = json.JSONEncoder(sort_keys=True).encode


def paged(
    context: Context,
    ask: Listing,
    find: Find,
    *,
    fits: Callable[[Sequence[Any]], list[bool]] | None = None,
) -> tuple[Sequence[Any], str]:
    """The rows of one page and the cursor of the next; `find` takes a limit and a place.

    `fits` says of each row whether it belongs to the list. Where few do, a page may hold fewer rows than its
    limit and still have a cursor: what was looked at is bounded. Where all do, they are the page's own.
    """
    if ask.limit > FEW:
        may_take_long(context)
    place = _opened(ask.cursor, mark=_mark(context, ask)) if ask.cursor else ""
    if fits is None:
        page = find(ask.limit, place)
        rows: Sequence[Any] = page.rows
    else:
        rows, page = _sifted(context, find, fits, limit=ask.limit, place=place)
    return rows, _sealed(page.cursor, mark=_mark(context, ask)) if page.cursor else ""


def _sifted(
    context: Context, find: Find, fits: Callable[[Sequence[Any]], list[bool]], *, limit: int, place: str
) -> tuple[Sequence[Any], Page]:
    found: list[Any] = []
    page, step = Page(()), limit
    for _ in range(MOST_STEPS):
        page = find(step, place)
        fitting = fits(page.rows)
        if step == limit and not found and all(fitting) and (len(fitting) == limit or not page.cursor):
            return page.rows, page
        places = [i for i, fit in enumerate(fitting) if fit]
        wanted = limit - len(found)
        if len(places) >= wanted:
            last = places[wanted - 1] + 1
            # The same page up to the row that fills the list, so that its cursor begins right behind it.
            page = find(last, place) if last < len(page.rows) else page
            return found + [page.rows[i] for i in places[:wanted]], page
        found += [page.rows[i] for i in places]
        place, step = page.cursor, STEP
        if not place:
            break
        may_take_long(context)
    return found, page


def _mark(context: Context, ask: Listing) -> str:
    """What a cursor belongs to: one list, under one filter, in one namespace."""
    spelled = f"[{_spell(context.namespace)}, {_filters(ask)}]"
    return hashlib.sha256(spelled.encode()).hexdigest()[:_MARK]


@partial(once_for_each, most=256)
def _filters(ask: Listing) -> str:
    filters = {name: value for name, value in encode(ask).items() if name not in ("limit", "cursor")}
    return f"{_spell(f'{type(ask).__module__}.{type(ask).__name__}')}, {_spell(filters)}"


def _sealed(place: str, *, mark: str) -> str:
    return base64.urlsafe_b64encode(f"{mark}{place}".encode()).decode().rstrip("=")


def _opened(cursor: str, *, mark: str) -> str:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        text = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError, ValueError):
        text = ""
    if text[:_MARK] != mark or not text[_MARK:]:
        raise InvalidInput(
            "cursor does not belong to this list",
            field="cursor",
            value=cursor[:64],
            rule="the cursor of the page before, with the same filters in the same namespace",
            fix="leave it out to begin again",
        )
    return text[_MARK:]
