"""Answers that are still true: kept until the store has another commit, or until time changes them."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from timewright.doors.http.replies import Reply
from timewright.ports.glimpse import Glimpses

MOST_KEPT = 4_096
MOST_BYTES = 16 * 1024 * 1024


# What an answer depends on beside what the store holds: the namespace, where we are mounted, path and query.
Asked = tuple[str, str, tuple[str, ...], str]


class Kept(Struct, frozen=True, gc=False):
    """An answer, what it was made of, until when it is true, and the stamp it was made after."""

    reply: Reply
    value: Struct
    until: datetime | None
    stamp: int


class Recent:
    """Answers of one store; kept by the loop's own thread, so it needs no lock.

    An answer is kept under a stamp of the store from before it was made, so one that was overtaken by a
    commit is kept under a stamp that never comes again. What it was made of may be the same after a commit,
    and then so is the answer.
    """

    def __init__(self, glimpses: Glimpses) -> None:
        self.glimpses = glimpses
        self._stamp = -1
        self._kept: dict[Asked, Kept] = {}
        self._bytes = 0

    def recall(self, asked: Asked) -> Reply | None:
        """The answer to a question that was asked before, if it is the same now."""
        kept = self._kept.get(asked)
        if kept is None and self._stamp != -1:
            return None
        self._stamp = self.glimpses.stamp()
        if kept is None or kept.stamp != self._stamp or self._is_over(kept):
            return None
        return kept.reply

    def same(self, asked: Asked, value: Struct) -> Reply | None:
        """The answer that was made of the same parts before; it is true again."""
        kept = self._kept.get(asked)
        if kept is None or not _is_same(kept.value, value):
            return None
        self._kept[asked] = Kept(kept.reply, value, kept.until, self._stamp)
        return kept.reply

    def keep(self, asked: Asked, reply: Reply, *, value: Struct, until: datetime | None) -> None:
        """Keep an answer that was made after `recall` was asked for it, until an instant or for good."""
        before = self._kept.pop(asked, None)
        self._bytes += reply.size - (before.reply.size if before is not None else 0)
        if len(self._kept) >= MOST_KEPT or self._bytes > MOST_BYTES:
            self._kept, self._bytes = {}, reply.size
        self._kept[asked] = Kept(reply, value, until, self._stamp)

    def _is_over(self, kept: Kept) -> bool:
        return kept.until is not None and self.glimpses.now() >= kept.until


def _is_same(one: Struct, other: Struct) -> bool:
    """Whether two values of one type hold the very same parts; texts need only be equal."""
    if one is other:
        return True
    pairs = ((getattr(one, name), getattr(other, name)) for name in one.__struct_fields__)
    return type(one) is type(other) and all(a is b or (type(a) is str and a == b) for a, b in pairs)
