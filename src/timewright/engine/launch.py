"""Launches leased runs into their targets and gathers what comes back; no error of theirs gets past."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from msgspec import Struct

from timewright.core.calendars import occurrence_before
from timewright.core.run import Cancelled, Failed, Outcome, Released, Run, TimedOut, run_key
from timewright.core.schedule import Schedule
from timewright.core.triggers import Cron
from timewright.ledger.lease import Lease
from timewright.ledger.settle import Answer
from timewright.ports import Launch, Target, Work

SELF_FENCE_MARGIN = timedelta(seconds=1)
BACKSTOP = timedelta(seconds=5)

# Why we ended work ourselves; what it says to that is put right in `_honest`.
LOST = "lease lost"
NOT_RENEWED = "lease not renewed in time"
OVERDUE = "time limit reached"
STOPPING = "stopping"
GIVEN_BACK = "released at stop"


class Flown(Struct):
    """A run under way in this process."""

    lease: Lease
    started_at: datetime
    overdue: float
    lease_ends: float
    margin: float
    work: Work | None = None
    stopping: str = ""
    ended: bool = False


class Launcher:
    """Every run under way here: what was launched, what came back, and what must be stopped."""

    def __init__(
        self, targets: Mapping[str, Target], *, monotonic: Callable[[], float], wake: Callable[[], None]
    ) -> None:
        self._targets = targets
        self._monotonic = monotonic
        self._wake = wake
        self._lock = threading.Lock()
        self._flown: dict[tuple[str, int], Flown] = {}
        self._lengths: Counter[timedelta] = Counter()
        self._answers: list[Answer] = []
        self._look_at = math.inf

    def __len__(self) -> int:
        return len(self._flown)

    @property
    def shortest_lease(self) -> timedelta | None:
        """The length of the shortest lease under way here."""
        with self._lock:
            return min(self._lengths, default=None)

    def launch(self, lease: Lease, *, now: datetime, moment: float) -> None:
        """Start the work of a lease; whatever goes wrong is its outcome.

        `moment` is what the monotonic clock showed when `now` was read: the lease counts from there, however
        long the store took to grant it.
        """
        run, terms = lease.run, lease.terms.lease
        assert run.lease_until is not None
        flown = Flown(
            lease=lease,
            started_at=now,
            overdue=self._monotonic() + (terms.time_limit + terms.grace + BACKSTOP).total_seconds(),
            lease_ends=moment + (run.lease_until - now).total_seconds(),
            margin=min(SELF_FENCE_MARGIN, terms.length / 6).total_seconds(),
        )
        with self._lock:
            self._flown[run.id, run.fence] = flown
            self._lengths[terms.length] += 1
            self._look_at = min(self._look_at, flown.overdue, flown.lease_ends - flown.margin)
        try:
            self._begin(flown)
        except Exception as error:  # noqa: BLE001  the boundary: nothing a target does may stop the tick
            self._done(flown, Failed(error=f"{type(error).__name__}: {error}"))

    def take_answers(self) -> list[Answer]:
        """What has come back since the last time."""
        with self._lock:
            answers, self._answers = self._answers, []
        return answers

    def put_back(self, answers: list[Answer]) -> None:
        """Answers that could not be written yet; they are tried again."""
        with self._lock:
            self._answers[:0] = answers

    def knows(self, run: Run) -> bool:
        """Whether this lease is under way here, or has ended and is not written yet."""
        with self._lock:
            return (run.id, run.fence) in self._flown or any(
                (answer.run.id, answer.run.fence) == (run.id, run.fence) for answer in self._answers
            )

    @property
    def has_answers(self) -> bool:
        """Whether something has come back that is not written yet."""
        return bool(self._answers)

    def under_way(self) -> list[Flown]:
        """Every run that has not ended here."""
        with self._lock:
            return list(self._flown.values())

    def renewed(self, run_id: str, fence: int, *, ends: float) -> None:
        """A lease was prolonged on the store's word."""
        flown = self._flown.get((run_id, fence))
        if flown is not None:
            flown.lease_ends = ends
            with self._lock:
                self._look_at = -math.inf

    def stop(self, run_id: str, fence: int, *, reason: str) -> None:
        """Ask the work of a run to end."""
        flown = self._flown.get((run_id, fence))
        if flown is not None:
            self._stop(flown, reason)

    def forget(self, run_id: str, fence: int) -> None:
        """Its lease is lost: end the work, and let its answer go unheard."""
        flown = self._flown.get((run_id, fence))
        if flown is not None:
            self._stop(flown, LOST)

    def stop_all(self) -> None:
        """Ask everything to end, because we do; what ends for this reason is given back uncharged."""
        for flown in self.under_way():
            self._stop(flown, STOPPING)

    def let_go(self) -> list[Flown]:
        """Hear no more of what is under way; gives back what that was."""
        with self._lock:
            left = list(self._flown.values())
            for flown in left:
                flown.ended = True
            self._flown.clear()
            self._lengths.clear()
        return left

    def watch(self) -> float:
        """End what outlived its time limit (a backstop for targets), or its lease (so that none overlap).

        Gives back in how many seconds there may be something to end; until then, looking costs nothing.
        """
        moment = self._monotonic()
        with self._lock:
            if moment < self._look_at:
                return self._look_at - moment
            # Whatever is launched from here on says for itself when to look.
            self._look_at, look_at = math.inf, math.inf
            under_way = list(self._flown.values())
        for flown in under_way:
            fenced = flown.lease_ends - flown.margin
            if moment > flown.overdue:
                self._stop(flown, OVERDUE)
                self._done(flown, TimedOut())
            elif fenced <= moment:
                self._stop(flown, NOT_RENEWED)
                look_at = min(look_at, flown.overdue)
            else:
                look_at = min(look_at, flown.overdue, fenced)
        with self._lock:
            self._look_at = min(self._look_at, look_at)
            return self._look_at - moment

    def _begin(self, flown: Flown) -> None:
        kind = str(type(flown.lease.terms.target).__struct_config__.tag)
        target = self._targets.get(kind)
        if target is None:
            self._done(flown, Failed(error=f"this process has no {kind} target", unresolved=True))
            return
        flown.work = target.launch(_launch(flown.lease), lambda outcome: self._done(flown, outcome))
        if flown.stopping:
            # Somebody wanted it to end while it was still being started.
            flown.work.stop(flown.stopping)

    def _stop(self, flown: Flown, reason: str) -> None:
        if flown.stopping or flown.ended:
            return
        flown.stopping = reason
        if flown.work is not None:
            try:
                flown.work.stop(reason)
            except Exception as error:  # noqa: BLE001  the boundary, as in launch
                self._done(flown, Failed(error=f"could not be stopped: {type(error).__name__}: {error}"))

    def _done(self, flown: Flown, outcome: Outcome) -> None:
        run = flown.lease.run
        with self._lock:
            if flown.ended:
                return
            flown.ended = True
            self._flown.pop((run.id, run.fence), None)
            self._lengths -= Counter([flown.lease.terms.lease.length])
            self._answers.append(
                Answer(run=run, outcome=_honest(outcome, flown), started_at=flown.started_at)
            )
        self._wake()


def _honest(outcome: Outcome, flown: Flown) -> Outcome:
    """Work that we ended ourselves was not cancelled by anyone: it says what we ended it for."""
    if not isinstance(outcome, Cancelled):
        return outcome
    if flown.stopping in (LOST, NOT_RENEWED):
        return Failed(error=flown.stopping)
    if flown.stopping == OVERDUE:
        return TimedOut()
    return Released(reason=GIVEN_BACK) if flown.stopping == STOPPING else outcome


def _launch(lease: Lease) -> Launch:
    run, schedule = lease.run, lease.schedule
    return Launch(
        run_id=run.id,
        namespace=run.namespace,
        schedule_id=run.schedule_id,
        schedule_name=schedule.name if schedule is not None else "",
        target=lease.terms.target,
        key=run_key(run),
        fence=run.fence,
        attempt=run.attempts + 1,
        planned_at=run.planned_at,
        fire_at=run.fire_at,
        previous_at=_previous(run, schedule),
        next_at=schedule.trigger.next_after(run.planned_at) if schedule is not None else None,
        zone=schedule.trigger.zone if schedule is not None and isinstance(schedule.trigger, Cron) else "UTC",
        missed=run.missed,
        fired_by=run.fired_by,
        source=run.source.value,
        time_limit=lease.terms.lease.time_limit,
        grace=lease.terms.lease.grace,
        payload=run.payload,
        metadata=schedule.metadata if schedule is not None else {},
    )


def _previous(run: Run, schedule: Schedule | None) -> datetime | None:
    if schedule is None:
        return None
    found = occurrence_before(schedule.trigger, run.planned_at)
    return found.at if found is not None else None
