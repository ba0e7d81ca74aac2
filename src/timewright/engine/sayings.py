"""Gathers what work under way says, so that whoever looks at its run can read it as it comes."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from timewright.core.run import Outcome
from timewright.ports import Store, Transaction
from timewright.ports.said import Said, Spoken, said_by

if TYPE_CHECKING:
    from timewright.engine.launch import Flown

EVERY_SECONDS = 1.0
# How many attempts may have ended whose last words are not written yet; beyond that the oldest are let go.
MOST_WAITING = 10_000

Lease = tuple[str, int]


class News(Struct, frozen=True, kw_only=True):
    """What is to be written: words that are new, and those that the end of their attempt tells itself."""

    said: dict[Lease, Said] = {}
    told: tuple[Lease, ...] = ()


class Sayings:
    """What was said by work of this process, and how much of it the store has."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sizes: dict[Lease, int] = {}
        self._last: dict[Lease, tuple[Flown, Spoken]] = {}
        self._ended: list[Lease] = []
        self._told: tuple[Lease, ...] = ()
        self._next_at = 0.0

    def end(self, flown: Flown, work: object, outcome: Outcome | None) -> None:
        """Work is over: its last words are kept, unless its result has them."""
        lease = (flown.lease.run.id, flown.lease.run.fence)
        result = getattr(outcome, "result", None)
        if isinstance(result, dict) and "output" in result:
            with self._lock:
                if lease in self._sizes:
                    self._ended.append(lease)
            return
        spoken = said_by(work)
        if spoken is not None:
            with self._lock:
                self._last[lease] = (flown, spoken)
                if len(self._last) > MOST_WAITING:
                    del self._last[next(iter(self._last))]

    def is_due(self, moment: float) -> bool:
        """Whether a second has passed since somebody asked last and was told yes."""
        if moment < self._next_at:
            return False
        self._next_at = moment + EVERY_SECONDS
        return True

    def write(self, store: Store, under_way: Iterable[Flown], *, now: datetime) -> None:
        """Write what is new; what the store does not take is tried again with the next."""
        news = self._news(under_way, now=now)

        def work(tx: Transaction) -> None:
            tx.put_said(list(news.said.values()))
            tx.drop_said(news.told)

        if news.said or news.told:
            store.write(work)
        self._written(news)

    def write_last(self, store: Store, *, now: datetime) -> None:
        """Write the last words of work that is over, if there are any."""
        if self._last:
            self.write(store, (), now=now)

    def _news(self, under_way: Iterable[Flown], *, now: datetime) -> News:
        said = {}
        for flown in under_way:
            lease, spoken = (flown.lease.run.id, flown.lease.run.fence), said_by(flown.work)
            if spoken is not None and spoken.size != self._sizes.get(lease):
                said[lease] = _said(flown, spoken, now=now)
        with self._lock:
            for lease in said:
                self._sizes.setdefault(lease, -1)
            said |= {lease: _said(flown, spoken, now=now) for lease, (flown, spoken) in self._last.items()}
        return News(said=said, told=self._told)

    def _written(self, news: News) -> None:
        with self._lock:
            for lease, row in news.said.items():
                if self._last.get(lease, (None, None))[1] is row.spoken:
                    del self._last[lease]
                    self._sizes.pop(lease, None)
                elif lease in self._sizes:
                    self._sizes[lease] = row.spoken.size
            # A round later: by then the end of the attempt is written, and whoever looks finds one of both.
            self._told, self._ended = tuple(self._ended), []
            for lease in self._told:
                self._sizes.pop(lease, None)


def _said(flown: Flown, spoken: Spoken, *, now: datetime) -> Said:
    run = flown.lease.run
    return Said(run_id=run.id, fence=run.fence, number=run.attempts + 1, at=now, spoken=spoken)
