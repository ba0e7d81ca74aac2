"""When the next tick runs: how long the loop sleeps, and what it reads meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from timewright.core.moments import ZERO
from timewright.core.policies.policies import sleep_until
from timewright.core.schedule.schedule import Schedule
from timewright.engine.constants import CHECK_INTERVAL, MAX_BUFFERED_ROWS, RECHECK_DELAY_S
from timewright.engine.store_clock import StoreClock
from timewright.engine.tick import Tick
from timewright.errors import UnreadableRow
from timewright.ports import Transaction
from timewright.ports.overview import PendingWork
from timewright.ports.schedules import DueSchedules

NOT_SLEEPING = datetime.max.replace(tzinfo=UTC)


class SleepPlan:
    """Decides how long the loop sleeps after a tick.

    `lead_time` is the store's: how long before an instant the tick decides a number of schedules.
    """

    def __init__(
        self,
        tick: Tick,
        clock: StoreClock,
        *,
        max_sleep: timedelta,
        lead_time: Callable[[int], timedelta] | None = None,
    ) -> None:
        self.max_sleep = max_sleep
        self.lead_time = lead_time
        # Written by the tick, read by the listener: one reference, and an old one only causes a wake-up.
        self.sleeps_until = NOT_SLEEPING
        self._tick = tick
        self._clock = clock
        self._preview: tuple[datetime, int] | None = None

    def on_awake(self) -> None:
        """The length of the next sleep is not known yet: until then, every external change wakes the tick."""
        self.sleeps_until = NOT_SLEEPING

    def is_too_long_for(self, work: PendingWork) -> bool:
        """Whether something that another process wrote is due before the sleep ends."""
        can_start = work.has_wakeable_schedules or (self._tick.launcher.free > 0 and work.has_ready_runs)
        now = self._clock.last_now + self._clock.elapsed()
        look_again_at = now + work.complete_in if work.complete_in is not None else None
        instants = (work.wake_at, work.lease_expires_at, look_again_at)
        return can_start or any(instant is not None and instant < self.sleeps_until for instant in instants)

    def commit_at(self, *, now: datetime) -> datetime | None:
        """The instant of the announced schedules, if it lies within the lead time."""
        due = self._tick.pending.announced_at
        return due if due is not None and ZERO < due - now <= self._lead(due) else None

    def seconds(self) -> float:
        """Seconds until something is due, or until a lease may expire, if that is a second or more."""
        ticked_at = self._clock.last_now
        work = self._tick.pending.latest(now=ticked_at)
        if work.has_wakeable_schedules:
            return RECHECK_DELAY_S
        wake_at = work.wake_at
        if wake_at is not None and wake_at <= ticked_at:
            return RECHECK_DELAY_S if self._tick.launcher.free else CHECK_INTERVAL.total_seconds()
        if wake_at is not None:
            self._read_ahead(wake_at, now=ticked_at)
        now = ticked_at + self._clock.elapsed()
        if wake_at is not None and wake_at == self._tick.pending.announced_at:
            wake_at -= self._lead(wake_at)
        max_sleep = self._clock.limit_sleep(work.complete_in or self.max_sleep)
        sleep = sleep_until(wake_at, now=now, max_sleep=max_sleep)
        if sleep >= CHECK_INTERVAL:
            lease_end = self._lease_end(work)
            if lease_end is not None:
                until_expiry = sleep_until(lease_end, now=now, max_sleep=self.max_sleep)
                sleep = min(sleep, max(until_expiry, CHECK_INTERVAL))
        if self._clock.is_frozen:
            sleep = max(sleep, timedelta(seconds=RECHECK_DELAY_S))
        self.sleeps_until = now + sleep
        return sleep.total_seconds()

    def _lead(self, due: datetime) -> timedelta:
        """How long before its instant a schedule is decided."""
        if self.lead_time is None or not self._tick.limits.admits_schedules:
            return ZERO
        instant, count = self._preview or (None, 0)
        return self.lead_time(min(count, self._tick.limits.ahead) if instant == due else 0)

    def _lease_end(self, work: PendingWork) -> datetime | None:
        """When the next lease may expire; queried if the last query left it out."""
        if work.includes_lease_end:
            return work.lease_expires_at
        return self._tick.pending.peek(now=self._clock.last_now).lease_expires_at

    def _read_ahead(self, wake_at: datetime, *, now: datetime) -> None:
        """Use the sleep to read the schedules that are due after it, and to build their targets, once."""
        if self._preview is not None and self._preview[0] == wake_at:
            return
        if timedelta(seconds=RECHECK_DELAY_S) <= wake_at - now <= self.max_sleep:
            schedules = self._tick.store.read(
                lambda tx: preload(tx, DueSchedules(until=wake_at, limit=MAX_BUFFERED_ROWS))
            )
            self._preview = (wake_at, len(schedules))
            if self._tick.launcher.is_open:
                self._tick.launcher.build_targets({type(schedule.target) for schedule in schedules})


def preload(tx: Transaction, which: DueSchedules) -> list[Schedule]:
    """Read definitions into the store's cache, so that admission is quicker; none if one is unreadable."""
    with suppress(UnreadableRow):
        return list(tx.get_revisions((one.id, one.revision) for one in tx.select(which)).values())
    return []
