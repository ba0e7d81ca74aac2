"""Idempotency keys: a repeated request with the same key returns the answer of the first."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from timewright.core.moments import HOUR
from timewright.errors import Conflict, InvalidInput
from timewright.operations.context import OperationContext, in_transaction
from timewright.operations.quotas import EXTERNAL_OPERATIONS
from timewright.operations.registry import Operation
from timewright.ports import StoredObject, Transaction
from timewright.ports.objects import GLOBAL_NAMESPACE, STORED_ANSWER

RETENTION = timedelta(hours=24)
MAX_KEY_CHARS = 255

# The names of answers begin with a time of this length: so they rise, and the first ones are the oldest.
_PARTITION = timedelta(hours=6)
# Answers of these contain tokens and values that are never stored.
_NEVER_STORED = frozenset({"key", "secret"})


class _KeyClaimed(Exception):
    """Another request claimed the same key a moment ago."""


def run_once(
    context: OperationContext, operation: Operation[Any], payload: Mapping[str, Any], *, key: str
) -> tuple[dict[str, Any], bool]:
    """Perform a write, or return its stored answer for the same key; the second value tells which.

    The answer is stored in the transaction of the write itself, so one never exists without the other.
    """
    _check(key)
    if operation.noun in _NEVER_STORED or operation.name in EXTERNAL_OPERATIONS:
        return operation(context, payload), False
    name = _key_digest(context, key)
    request_digest = _digest([operation.name, payload])

    def work(nested: OperationContext) -> tuple[dict[str, Any], bool]:
        stored = nested.store.read(lambda tx: _find(tx, name, now=nested.now()))
        if stored is not None:
            return _stored_answer(stored, request_digest, key=key), True
        _store_answer(nested, name, {}, is_claim=True)
        answer = operation(nested, payload)
        _store_answer(nested, name, {"request": request_digest, "answer": answer})
        return answer, False

    for _ in range(2):
        try:
            return in_transaction(context, work)
        except _KeyClaimed:
            continue
    raise Conflict("another request is using this key right now", field="idempotency-key", fix="try again")


def claim_once(context: OperationContext, key: str, *, body: Mapping[str, Any] | None = None) -> bool:
    """Claim a key of this caller, with data; return False if it was claimed before, in any process."""
    if find_claim(context, key) is not None:
        return False
    try:
        _store_answer(context, _key_digest(context, key), body or {}, is_claim=True)
    except _KeyClaimed:
        return False
    return True


def find_claim(context: OperationContext, key: str) -> Mapping[str, Any] | None:
    """Return the data with which this caller claimed a key in the last 24 hours; None if it did not."""
    return context.store.read(lambda tx: _find(tx, _key_digest(context, key), now=context.now()))


def _check(key: str) -> None:
    if not 1 <= len(key) <= MAX_KEY_CHARS or not all("!" <= character <= "~" for character in key):
        raise InvalidInput(
            "the idempotency key is not valid",
            field="idempotency-key",
            value=key[:64],
            rule=f"1 to {MAX_KEY_CHARS} visible ASCII characters",
            fix="a UUID",
        )


def _find(tx: Transaction, digest: str, *, now: datetime) -> Mapping[str, Any] | None:
    names = [_row_name(digest, now - _PARTITION * i) for i in range(RETENTION // _PARTITION + 1)]
    rows = tx.get_objects(STORED_ANSWER, namespace=GLOBAL_NAMESPACE, names=names)
    if not rows:
        return None
    found: Mapping[str, Any] = msgspec.json.decode(max(rows, key=lambda row: row.name).body)
    return found


def _stored_answer(stored: Mapping[str, Any], request_digest: str, *, key: str) -> dict[str, Any]:
    if stored.get("request") != request_digest:
        raise InvalidInput(
            "the idempotency key was used for another request",
            field="idempotency-key",
            value=key,
            rule="a key belongs to one request for 24 hours",
            fix="use a new key for a new request",
        )
    answer: dict[str, Any] = stored["answer"]
    return answer


def _key_digest(context: OperationContext, key: str) -> str:
    return _digest([context.caller.key, context.caller.actor, context.namespace, key])


def _store_answer(
    context: OperationContext, digest: str, body: Mapping[str, Any], *, is_claim: bool = False
) -> None:
    now = context.now()
    name = _row_name(digest, now)
    row = StoredObject(
        kind=STORED_ANSWER,
        namespace=GLOBAL_NAMESPACE,
        name=name,
        body=msgspec.json.encode(body),
        at=now,
    )
    try:
        # Claim the key first, then store the answer: a concurrent request waits and then reads that answer.
        context.store.write(lambda tx: tx.put_objects([row], replaces={name: 0} if is_claim else None))
    except Conflict:
        raise _KeyClaimed from None


def _row_name(digest: str, at: datetime) -> str:
    return f"{at:%Y%m%d}{at.hour // (_PARTITION // HOUR)}-{digest}"


def _digest(parts: list[Any]) -> str:
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
