"""Pages of lists, with an opaque cursor to the next page."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from timewright.core.input.encoding import encode
from timewright.errors import InvalidInput
from timewright.operations.context import OperationContext, check_may_block
from timewright.operations.registry import ListRequest
from timewright.ports import Page

Row = TypeVar("Row")
Find = Callable[[int, str], Page]

MAX_NON_BLOCKING_ROWS = 100
SCAN_STEP_ROWS = 200
MAX_SCAN_STEPS = 50
_CHECKSUM_CHARS = 12

_json = json.JSONEncoder(sort_keys=True).encode


def paginate(
    context: OperationContext,
    request: ListRequest,
    find: Find,
    *,
    matches: Callable[[Sequence[Any]], list[bool]] | None = None,
) -> tuple[Sequence[Any], str]:
    """Return the rows of one page and the cursor of the next; `find` takes a limit and a position.

    `matches` tells for each row whether it belongs to the list. If few do, a page may hold fewer rows than
    its limit and still have a cursor, because at most 50 steps of 200 rows are read.
    """
    if request.limit > MAX_NON_BLOCKING_ROWS:
        check_may_block(context)
    position = (
        decode_cursor(request.cursor, checksum=_list_checksum(context, request)) if request.cursor else ""
    )
    if matches is None:
        page = find(request.limit, position)
        rows: Sequence[Any] = page.rows
    else:
        rows, page = _filtered_page(context, find, matches, limit=request.limit, position=position)
    return rows, _encode_cursor(page.cursor, checksum=_list_checksum(context, request)) if page.cursor else ""


def paginate_rows(
    context: OperationContext, request: ListRequest, rows: Iterable[Row], *, key: Callable[[Row], str]
) -> tuple[Sequence[Row], str]:
    """Return one page of rows that are all in memory, in the order of `key`, and the cursor of the next."""
    ordered = sorted(rows, key=key)

    def find(limit: int, position: str) -> Page:
        after = [row for row in ordered if key(row) > position]
        return Page(tuple(after[:limit]), key(after[limit - 1]) if len(after) > limit else "")

    return paginate(context, request, find)


def _filtered_page(
    context: OperationContext,
    find: Find,
    fits: Callable[[Sequence[Any]], list[bool]],
    *,
    limit: int,
    position: str,
) -> tuple[Sequence[Any], Page]:
    found: list[Any] = []
    page, step = Page(()), limit
    for _ in range(MAX_SCAN_STEPS):
        page = find(step, position)
        matched = fits(page.rows)
        if step == limit and not found and all(matched) and (len(matched) == limit or not page.cursor):
            return page.rows, page
        matching = [i for i, fit in enumerate(matched) if fit]
        wanted = limit - len(found)
        if len(matching) >= wanted:
            last = matching[wanted - 1] + 1
            # Read the page again up to the last row that fits, so that its cursor starts right after it.
            page = find(last, position) if last < len(page.rows) else page
            return found + [page.rows[i] for i in matching[:wanted]], page
        found += [page.rows[i] for i in matching]
        position, step = page.cursor, SCAN_STEP_ROWS
        if not position:
            break
        check_may_block(context)
    return found, page


def _list_checksum(context: OperationContext, request: ListRequest) -> str:
    """Return a checksum of the list, its filters and the namespace, which a cursor is bound to."""
    text = f"[{_json(context.namespace)}, {_filters(request)}]"
    return hashlib.sha256(text.encode()).hexdigest()[:_CHECKSUM_CHARS]


def _filters(request: ListRequest) -> str:
    filters = {name: value for name, value in encode(request).items() if name not in ("limit", "cursor")}
    return f"{_json(f'{type(request).__module__}.{type(request).__name__}')}, {_json(filters)}"


def _encode_cursor(position: str, *, checksum: str) -> str:
    return base64.urlsafe_b64encode(f"{checksum}{position}".encode()).decode().rstrip("=")


def decode_cursor(cursor: str, *, checksum: str) -> str:
    """Return the position in a cursor; raises if the cursor belongs to another list."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        text = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError, ValueError):
        text = ""
    if text[:_CHECKSUM_CHARS] != checksum or not text[_CHECKSUM_CHARS:]:
        raise InvalidInput(
            "the cursor belongs to another list",
            field="cursor",
            value=cursor[:64],
            rule="use the cursor of the page before, with the same filters in the same namespace",
            fix="leave it out to start at the first page",
        )
    return text[_CHECKSUM_CHARS:]
