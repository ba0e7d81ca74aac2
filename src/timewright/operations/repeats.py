"""The same request twice: with a key of the caller's, the second gives the answer of the first."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from timewright.errors import Conflict, InvalidInput
from timewright.operations.context import Context, together
from timewright.operations.quotas import OUTSIDE
from timewright.operations.registry import Operation
from timewright.ports import Stored, Transaction

KEPT_FOR = timedelta(hours=24)
LONGEST_KEY = 255

# Kept by parts of a day, so that what is over can be found without looking at all.
_PART = timedelta(hours=6)
_KIND = "repeat-"
_FORGOTTEN_AFTER = timedelta(days=32)
_MOST_FORGOTTEN = 500
# Their answers hold what is shown once and kept nowhere.
_NEVER_KEPT = frozenset({"key", "secret"})


class _Taken(Exception):
    """Another has claimed the same key a moment ago."""


def once(
    context: Context, operation: Operation[Any], payload: Mapping[str, Any], *, key: str
) -> tuple[dict[str, Any], bool]:
    """Perform a write, or give back what it answered to the same key before; says which of the two.

    The answer is kept in the transaction of the write itself: there is never the one without the other.
    """
    _check(key)
    if operation.noun in _NEVER_KEPT or operation.name in OUTSIDE:
        return operation(context, payload), False
    name = _digest([context.caller.key, context.caller.actor, context.namespace, key])
    asked = _digest([operation.name, payload])

    def work(inside: Context) -> tuple[dict[str, Any], bool]:
        before = inside.store.read(lambda tx: _find(tx, name, now=inside.now()))
        if before is not None:
            return _same(before, asked, key=key), True
        _keep(inside, name, {})
        answer = operation(inside, payload)
        _keep(inside, name, {"asked": asked, "answer": answer})
        return answer, False

    for _ in range(2):
        try:
            return together(context, work)
        except _Taken:
            continue
    raise Conflict("the same key is being used by another request", field="idempotency-key", fix="try again")


class Broom:
    """Removes answers that were kept for long enough, now and then, by whoever keeps new ones."""

    def __init__(self) -> None:
        self._next: datetime | None = None
        self._guard = threading.Lock()

    def sweep(self, context: Context) -> None:
        """Sweep if it is time to; more often while there is more than one sweep takes."""
        now = context.now()
        with self._guard:
            if self._next is not None and now < self._next:
                return
            self._next = now + _PART
        if not forget(context):
            self._next = now


def forget(context: Context) -> bool:
    """Remove what was kept for long enough, a bounded part of it; says whether nothing is left to remove."""
    oldest = context.now() - KEPT_FOR - _PART
    parts = [_kind(oldest - _PART * i) for i in range(_FORGOTTEN_AFTER // _PART)]

    def work(tx: Transaction) -> bool:
        left = _MOST_FORGOTTEN
        for kind in parts:
            for row in tx.get_objects(kind)[:left]:
                tx.delete_object(kind, namespace=row.namespace, name=row.name)
                left -= 1
            if left <= 0:
                return False
        return True

    return context.store.write(work)


def _check(key: str) -> None:
    if not 1 <= len(key) <= LONGEST_KEY or not all("!" <= character <= "~" for character in key):
        raise InvalidInput(
            "this is not a key for repeats",
            field="idempotency-key",
            value=key[:64],
            rule=f"1 to {LONGEST_KEY} visible ASCII characters",
            fix="a UUID",
        )


def _find(tx: Transaction, name: str, *, now: datetime) -> Mapping[str, Any] | None:
    for i in range(KEPT_FOR // _PART + 1):
        for row in tx.get_objects(_kind(now - _PART * i), names=[name]):
            found: Mapping[str, Any] = msgspec.json.decode(row.body)
            return found
    return None


def _same(before: Mapping[str, Any], asked: str, *, key: str) -> dict[str, Any]:
    if before.get("asked") != asked:
        raise InvalidInput(
            "this key was used for another request",
            field="idempotency-key",
            value=key,
            rule="one key for one request, for a day",
            fix="a new key for a new request",
        )
    answer: dict[str, Any] = before["answer"]
    return answer


def _keep(context: Context, name: str, body: Mapping[str, Any]) -> None:
    row = Stored(
        kind=_kind(context.now()),
        namespace=context.namespace,
        name=name,
        body=msgspec.json.encode(body),
        at=context.now(),
    )
    try:
        # First claimed, then filled: of two at once, one waits for the other and then reads its answer.
        context.store.write(lambda tx: tx.put_objects([row], replaces=None if body else {name: 0}))
    except Conflict:
        raise _Taken from None


def _kind(moment: datetime) -> str:
    return f"{_KIND}{moment:%Y%m%d}{moment.hour // (_PART // timedelta(hours=1))}"


def _digest(parts: list[Any]) -> str:
    spelled = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(spelled.encode("utf-8", "surrogatepass")).hexdigest()
