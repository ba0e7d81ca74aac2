"""Launches leased runs into their targets and gathers what comes back; no error of theirs gets past."""

from __future__ import annotations

import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial

from msgspec import Struct

from timewright.core.run import Cancelled, Failed, Outcome, Released, Run, TimedOut
from timewright.core.target import AnyTarget
from timewright.engine.briefing import launch_of
from timewright.engine.pace import Pace
from timewright.engine.sayings import Sayings
from timewright.ledger.lease import Lease
from timewright.ledger.settle import Answer
from timewright.ports import Store, Target, Work

SELF_FENCE_MARGIN = 1.0
BACKSTOP = 5.0

# Why we ended work ourselves; what it says to that is put right in `_honest`.
LOST = "lease lost"
NOT_RENEWED = "lease not renewed in time"
OVERDUE = "time limit reached"
STOPPING = "stopping"
GIVEN_BACK = "released at stop"


class Flown(Struct, gc=False):
    """A run under way in this process; it lets go of its work when that has ended, so no circle is left."""

    lease: Lease
    started_at: datetime
    overdue: float
    lease_ends: float
    length: float
    margin: float
    work: Work | None = None
    begun: bool = False
    begun_at: float = 0.0
    stopping: str = ""
    ended: bool = False
    outcome: Outcome | None = None


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
        self._lengths: dict[float, int] = {}
        self._kinds: dict[type, str] = {}
        self._answers: list[Answer] = []
        self._look_at = math.inf
        self._in_writing: list[list[Answer]] = []
        self._line: deque[Flown] = deque()
        self._begun = 0
        self._most = 0
        self._starts_waiting = False
        self._pace = Pace()
        self.ends = 0
        self.sayings = Sayings()

    def __len__(self) -> int:
        return len(self._flown)

    @property
    def shortest_lease(self) -> float | None:
        """The length of the shortest lease under way here, in seconds."""
        with self._lock:
            return min(self._lengths, default=None)

    def room(self, capacity: int) -> int:
        """How many more may be leased when so many may be under way; quick ones are taken ahead, and wait.

        No more than half of those at a time: the others run while the next are being leased.
        """
        ahead = self._pace.ahead
        return max(min(max(capacity, ahead) - len(self._flown), max(capacity, ahead // 2)), 0)

    @property
    def takes_ahead(self) -> bool:
        """Whether runs are known to end so quickly here that more are leased than may be under way."""
        return self._pace.ahead > self._most

    def launch(
        self, leases: Iterable[Lease], *, now: datetime, moment: float, most: int = sys.maxsize
    ) -> None:
        """Start the work of leases, or let it wait while `most` are under way; what fails is its outcome.

        `moment` is what the monotonic clock showed when `now` was read: the leases count from there, however
        long the store took to grant them.
        """
        taken = [_flown(lease, now=now, moment=moment) for lease in leases]
        fenced = min((flown.lease_ends - flown.margin for flown in taken), default=math.inf)
        starts: list[Flown] = []
        with self._lock:
            if taken and not self._flown:
                self._pace.begin(moment)
            self._look_at = min(self._look_at, fenced)
            self._most = most
            for flown in taken:
                run = flown.lease.run
                self._flown[run.id, run.fence] = flown
                self._lengths[flown.length] = self._lengths.get(flown.length, 0) + 1
                if self._begun >= most:
                    self._line.append(flown)
                else:
                    self._begins(flown)
                    starts.append(flown)
        for flown in starts:
            self._start(flown)

    def prepare(self, targets: Iterable[type[AnyTarget]]) -> None:
        """Have what these need built before the first of them starts; what fails says so at its launch."""
        for target in targets:
            with suppress(Exception):
                self._targets.get(self._kind(target))

    def take_answers(self) -> list[Answer]:
        """What has come back since the last time."""
        with self._lock:
            answers, self._answers = self._answers, []
            if answers:
                self._in_writing.append(answers)
        return answers

    def put_back(self, answers: list[Answer]) -> None:
        """Answers that could not be written yet; they are tried again."""
        with self._lock:
            self._answers[:0] = answers
            self._let_go_of(answers)

    def written(self, answers: list[Answer]) -> None:
        """Answers that the store has taken."""
        with self._lock:
            self._let_go_of(answers)

    def when_answered(self, wake: Callable[[], None]) -> None:
        """Call this, from any thread, whenever something comes back."""
        self._wake = wake

    def knows(self, run: Run) -> bool:
        """Whether this lease is under way here, or has ended and is not written yet."""
        with self._lock:
            lease = (run.id, run.fence)
            return lease in self._flown or any(
                (answer.run.id, answer.run.fence) == lease
                for answers in (self._answers, *self._in_writing)
                for answer in answers
            )

    @property
    def has_answers(self) -> bool:
        """Whether something has come back that is not written yet."""
        return bool(self._answers)

    @property
    def is_crowded(self) -> bool:
        """Whether some wait here for others to end."""
        return bool(self._line)

    @property
    def answered(self) -> int:
        """How many have come back that are not written yet."""
        return len(self._answers)

    @property
    def unwritten(self) -> int:
        """How many have come back that the store has not taken, those included that it is being given."""
        with self._lock:
            return len(self._answers) + sum(map(len, self._in_writing))

    def under_way(self) -> list[Flown]:
        """Every run that has not ended here; first those that wait, so that whoever ends all starts none."""
        with self._lock:
            return sorted(self._flown.values(), key=lambda flown: flown.begun)

    def renewed(self, run_id: str, fence: int, *, ends: float) -> None:
        """A lease was prolonged on the store's word."""
        flown = self._flown.get((run_id, fence))
        if flown is not None:
            flown.lease_ends = ends
            with self._lock:
                self._look_at = -math.inf

    def keep_said(self, store: Store, *, now: datetime) -> None:
        """Write what work here has said since the last time, about once a second."""
        if self.sayings.is_due(self._monotonic()):
            self.sayings.write(store, self.under_way(), now=now)

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

    def stop_waiting(self) -> None:
        """Give back, uncharged, what was leased ahead and has not begun."""
        for flown in self.under_way():
            if not flown.begun:
                self._stop(flown, STOPPING)

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
                flown.work = None
            self._flown.clear()
            self._lengths.clear()
            self._line.clear()
            self._begun = 0
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
        for flown in self.under_way():
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

    def _let_go_of(self, answers: list[Answer]) -> None:
        """They are no longer being written; under the lock."""
        self._in_writing = [others for others in self._in_writing if others is not answers]

    def _begins(self, flown: Flown) -> None:
        """From here on its time limit counts; under the lock."""
        terms = flown.lease.terms.lease
        limit = terms.time_limit.total_seconds() + terms.grace.total_seconds() + BACKSTOP
        flown.begun_at = self._monotonic()
        flown.overdue = flown.begun_at + limit
        flown.begun = True
        self._begun += 1
        self._look_at = min(self._look_at, flown.overdue)

    def _start(self, flown: Flown) -> None:
        try:
            self._begin(flown)
        except Exception as error:  # noqa: BLE001  the boundary: nothing a target does may stop the tick
            self._done(flown, Failed(error=f"{type(error).__name__}: {error}"))

    def _take_waiting(self) -> Flown | None:
        with self._lock:
            return self._next_waiting()

    def _next_waiting(self) -> Flown | None:
        """The next that may begin, whom the caller starts; under the lock."""
        self._starts_waiting = False
        while self._line and self._begun < self._most:
            flown = self._line.popleft()
            if not (flown.ended or flown.stopping):
                self._begins(flown)
                self._starts_waiting = True
                return flown
        return None

    def _begin(self, flown: Flown) -> None:
        kind = self._kind(type(flown.lease.terms.target))
        target = self._targets.get(kind)
        if target is None:
            self._done(flown, Failed(error=f"this process has no {kind} target", unresolved=True))
            return
        work = target.launch(launch_of(flown.lease), partial(self._done, flown))
        flown.work = work
        if flown.ended:
            # It was quicker than we: what it said is heard now, and then the two are apart again.
            self.sayings.end(flown, work, flown.outcome)
            flown.work = None
            return
        if flown.stopping:
            # Somebody wanted it to end while it was still being started.
            work.stop(flown.stopping)

    def _kind(self, target: type[AnyTarget]) -> str:
        """The tag of a kind of target; asked of the kind itself once, because that is slow."""
        kind = self._kinds.get(target)
        if kind is None:
            kind = self._kinds[target] = str(target.__struct_config__.tag)
        return kind

    def _stop(self, flown: Flown, reason: str) -> None:
        with self._lock:
            if flown.stopping or flown.ended:
                return
            flown.stopping = reason
            work, waits = flown.work, not flown.begun
        if waits:
            self._done(flown, Cancelled(reason=reason))
        elif work is not None:
            try:
                work.stop(reason)
            except Exception as error:  # noqa: BLE001  the boundary, as in launch
                self._done(flown, Failed(error=f"could not be stopped: {type(error).__name__}: {error}"))

    def _done(self, flown: Flown, outcome: Outcome) -> None:
        run = flown.lease.run
        if flown.work is not None and not flown.ended:
            self.sayings.end(flown, flown.work, outcome)
        with self._lock:
            if flown.ended:
                return
            flown.ended = True
            self.ends += 1
            flown.outcome = outcome
            flown.work = None  # it knows us as we know it: apart, both are gone at once
            self._flown.pop((run.id, run.fence), None)
            left = self._lengths.pop(flown.length, 1) - 1
            if left:
                self._lengths[flown.length] = left
            said = _honest(outcome, flown) if flown.stopping else outcome
            self._answers.append(Answer(run=run, outcome=said, started_at=flown.started_at))
            if flown.begun:
                self._begun -= 1
                self._pace.ended(moment=self._monotonic(), began=flown.begun_at, most=self._most)
            # Whoever waited for this starts on this thread, on one at a time: a start may end at once.
            waited = None if self._starts_waiting else self._next_waiting()
        self._wake()
        while waited is not None:
            self._start(waited)
            waited = self._take_waiting()


def begins_at(run: Run, *, now: datetime) -> datetime:
    """When the attempt of a leased run begins: its lease may be dated after the clock was read."""
    return max(now, run.leased_at or now)


def _flown(lease: Lease, *, now: datetime, moment: float) -> Flown:
    run, length = lease.run, lease.terms.lease.length.total_seconds()
    assert run.lease_until is not None
    return Flown(
        lease=lease,
        started_at=begins_at(run, now=now),
        overdue=math.inf,
        lease_ends=moment + (run.lease_until - now).total_seconds(),
        length=length,
        margin=min(SELF_FENCE_MARGIN, length / 6),
    )


def _honest(outcome: Outcome, flown: Flown) -> Outcome:
    """Work that we ended ourselves was not cancelled by anyone: it says what we ended it for."""
    if not isinstance(outcome, Cancelled):
        return outcome
    if flown.stopping in (LOST, NOT_RENEWED):
        return Failed(error=flown.stopping)
    if flown.stopping == OVERDUE:
        return TimedOut()
    return Released(reason=GIVEN_BACK) if flown.stopping == STOPPING else outcome
