"""What a tick asks a store before it writes: what there is to do, and when there will be more."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

from msgspec import Struct

from timewright.core.moments import ZERO
from timewright.core.run import Run


class Outlook(Struct, frozen=True, kw_only=True):
    """What waits in a store for an engine, and the first instants at which something may.

    What costs more to know is looked at only when it is asked for.
    """

    due: datetime | None = None
    """When a schedule is to be decided."""
    asleep: datetime | None = None
    """When a run may start that waits for its instant."""
    ready: bool = False
    """Whether a run waits for nothing but a taker."""
    asked: tuple[Run, ...] = ()
    """The runs of the holder that were asked to stop."""
    has_ends: bool = False
    """Whether the ends of leases were asked for."""
    lease_end: datetime | None = None
    """When a live lease may be over, if that was asked for."""
    freeable: bool = False
    """Whether a held run waits for nobody any more, if that was asked for."""

    @property
    def wake_at(self) -> datetime | None:
        """The first instant at which anything may be due."""
        due, asleep = self.due, self.asleep
        if due is None or asleep is None:
            return due or asleep
        return min(due, asleep)

    def is_due(self, *, now: datetime) -> bool:
        """Whether a schedule is to be decided."""
        return self.due is not None and self.due <= now

    def waits(self, *, now: datetime) -> bool:
        """Whether a run may be there to be leased."""
        return self.ready or (self.asleep is not None and self.asleep <= now)

    def is_over(self, *, now: datetime) -> bool:
        """Whether a lease has ended, as far as that was looked at."""
        return self.lease_end is not None and self.lease_end <= now


class OutlookVerbs(Protocol):
    """The one question before a tick writes."""

    def outlook(
        self,
        *,
        holder: str,
        shard: tuple[int, int] | None = (1, 1),
        patience: timedelta = ZERO,
        ends: bool = False,
        held: bool = False,
    ) -> Outlook:
        """What there is to do for a holder, which serves a shard as `next_wake` says; writes nothing."""
        ...
