"""Writes answers together; one that no store can keep fails alone, and says why."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from timewright.core.facts import Fact
from timewright.core.run import Failed
from timewright.errors import StoreError
from timewright.ledger.settle import Answer, settle_answers
from timewright.ports import Store

LONGEST_TOLD = 500


def write_answers(store: Store, answers: Sequence[Answer], *, now: datetime) -> list[Fact]:
    """What became of them; where they cannot be kept together, each is tried alone."""
    try:
        return list(settle_answers(store, answers, now=now).facts)
    except Exception as error:
        if _is_the_store(error):
            raise
    return [fact for answer in answers for fact in _alone(store, answer, now=now)]


def _alone(store: Store, answer: Answer, *, now: datetime) -> Sequence[Fact]:
    try:
        return settle_answers(store, [answer], now=now).facts
    except Exception as error:
        if _is_the_store(error):
            raise
        told = f"its answer could not be kept: {type(error).__name__}: {str(error)[:LONGEST_TOLD]!a}"
    return settle_answers(store, [replace(answer, outcome=Failed(error=told))], now=now).facts


def _is_the_store(error: Exception) -> bool:
    """Whether it would meet every answer alike; a bare error of a store may be about what it was given."""
    return isinstance(error, StoreError) and type(error) is not StoreError
