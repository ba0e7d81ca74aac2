"""Answers that are still true: kept until the store has another commit, or until time changes them."""

from __future__ import annotations

from datetime import datetime

from timewright.doors.http.replies import Reply
from timewright.ports.glimpse import Glimpses

MOST_KEPT = 4_096
MOST_BYTES = 16 * 1024 * 1024


# What an answer depends on beside what the store holds: the namespace, where we are mounted, path and query.
Asked = tuple[str, str, tuple[str, ...], str]


class Recent:
    """Answers of one store; kept by the loop's own thread, so it needs no lock.

    The stamp of the store is read before an answer is made, so one that was overtaken by a commit is kept
    under a stamp that never comes again.
    """

    def __init__(self, glimpses: Glimpses) -> None:
        self.glimpses = glimpses
        self._stamp = -1
        self._kept: dict[Asked, tuple[Reply, datetime | None]] = {}
        self._bytes = 0

    def recall(self, asked: Asked) -> Reply | None:
        """The answer to a question that was asked before, if it is the same now."""
        stamp = self.glimpses.stamp()
        if stamp != self._stamp:
            self._stamp = stamp
            self._forget()
            return None
        kept = self._kept.get(asked)
        if kept is None or (kept[1] is not None and self.glimpses.now() >= kept[1]):
            return None
        return kept[0]

    def keep(self, asked: Asked, reply: Reply, *, until: datetime | None) -> None:
        """Keep an answer that was made after `recall` was asked for it, until an instant or for good."""
        if len(self._kept) >= MOST_KEPT or self._bytes + reply.size > MOST_BYTES:
            self._forget()
        self._kept[asked] = (reply, until)
        self._bytes += reply.size

    def _forget(self) -> None:
        self._kept, self._bytes = {}, 0
