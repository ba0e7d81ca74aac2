"""A plain model of one schedule's life, written from the design alone; it uses only the cron engine.

Times are microseconds since the epoch. `Life` is driven by steps (`live_until`, `tick`) and by the requests
of a person or an agent. It keeps one `Row` per occurrence, as the store does, and the next planned instant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from timewright.core.recurrence.cron import Cron

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FOLD_ABOVE = 1000
LIVE = ("ready", "held", "leased")


def to_time(instant: datetime) -> int:
    """An instant as microseconds."""
    return (instant - EPOCH) // timedelta(microseconds=1)


def to_instant(time: int) -> datetime:
    """Microseconds as an instant."""
    return EPOCH + timedelta(microseconds=time)


class Instants(Protocol):
    """The instants of a trigger."""

    def after(self, time: int) -> int | None:
        """The first instant later than `time`."""
        ...


@dataclass(frozen=True)
class Grid:
    """`every`: anchor + k × interval; the anchor itself is an instant."""

    interval: int
    anchor: int

    def after(self, time: int) -> int | None:
        """The first grid point later than `time`, the anchor if it is ahead."""
        return self.anchor + max((time - self.anchor) // self.interval + 1, 0) * self.interval


@dataclass(frozen=True)
class CronInstants:
    """`cron`, answered by the cron engine."""

    cron: Cron

    def after(self, time: int) -> int | None:
        """The first instant of the expression later than `time`."""
        found = self.cron.next_after(to_instant(time))
        return None if found is None else to_time(found)


@dataclass(frozen=True)
class Single:
    """`once`; with no instant, `manual`."""

    at: int | None = None

    def after(self, time: int) -> int | None:
        """The instant if it is ahead."""
        return self.at if self.at is not None and self.at > time else None


@dataclass(frozen=True)
class Terms:
    """The policies of a schedule, with the defaults of the design."""

    trigger: Instants
    from_now: bool = False
    catch_up: str = "last"
    catch_up_limit: int = 100
    window: int | None = DAY
    grace: int = MINUTE
    spread_over: int = MINUTE
    overlap: str = "skip"
    queue_limit: int = 100
    max_attempts: int = 1
    backoff: tuple[int, ...] = tuple(min(2**n, 60) * SECOND for n in range(7))
    exhausted: str = "failed"
    stretch: bool = False
    ladder: tuple[int, ...] = ()
    disable_after: int | None = None
    adaptive: bool = False
    clamp_min: int | None = None
    clamp_max: int | None = None
    max_runs: int | None = None
    end_at: int | None = None
    ceiling: int | None = None


LADDER = (30 * SECOND, MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR)
PRESETS: dict[str, dict[str, object]] = {
    "": {},
    "routine": {"catch_up": "none", "window": None, "max_attempts": 3},
    "queue": {"overlap": "allow", "max_attempts": 3, "exhausted": "parked"},
    "adaptive": {"from_now": True, "window": None, "stretch": True, "adaptive": True},
    "desktop": {"window": None, "ladder": LADDER, "disable_after": 5},
    "workflow": {"catch_up": "none", "window": None, "max_attempts": 3, "backoff": (SECOND,)},
}


@dataclass
class Row:
    """One occurrence, or one run by hand."""

    planned: int
    state: str
    reason: str = ""
    by_hand: bool = False
    fire: int = 0
    started: int | None = None
    finished: int | None = None
    attempts: int = 0
    missed: int = 0
    last: int | None = None
    count: int = 0
    caught_up: bool = False


@dataclass
class Work:
    """One attempt under way."""

    row: Row
    ends: int
    succeeds: bool
    started: int


@dataclass
class Life:
    """What a schedule does from its creation on."""

    terms: Terms
    now: int
    script: list[tuple[bool, int]]
    rows: list[Row] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)
    cursor: int = 0
    fixed: int | None = None
    wish: int | None = None
    state: str = "active"
    failures: int = 0
    interval_hint: tuple[int, int] | None = None
    one_shot: tuple[int, int] | None = None
    paused_wishes: list[int] = field(default_factory=list)
    pauses: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    displaced: list[int] = field(default_factory=list)
    away_until: int = 0
    base: int = 0
    decided_at: int = 0
    edited_at: int = 0
    overflowed: bool = False

    def __post_init__(self) -> None:
        self.cursor = self.base = self.now
        self._plan_after(self.now, self.now)

    # ---- what is planned -------------------------------------------------------------------------------

    @property
    def next_at(self) -> int | None:
        """The next planned instant; while paused, the end of the pause."""
        if self.state != "active":
            return None
        if self.pauses:
            ends = [until for _, until in self.pauses.values()]
            return None if None in ends else max(until for until in ends if until is not None)
        return self._plan()

    def _plan(self) -> int | None:
        at = self.fixed if self.fixed is not None else self._trigger_after(self.cursor)
        return None if at is None or (self.terms.end_at is not None and at > self.terms.end_at) else at

    def _trigger_after(self, time: int) -> int | None:
        """The first instant of the trigger later than `time` that has no row yet."""
        taken = {row.planned for row in self.rows if not row.by_hand}
        at = self.terms.trigger.after(time)
        while at is not None and at in taken:
            at = self.terms.trigger.after(at)
        return at

    def _interval(self) -> int:
        """The interval of the trigger, doubled with every failure in a row up to 32 times."""
        assert isinstance(self.terms.trigger, Grid)
        doubled = min(self.failures, 5) if self.terms.stretch else 0
        return self.terms.trigger.interval << doubled

    def _plan_after(self, time: int, now: int, *, started: int | None = None, admitted: bool = True) -> None:
        """Decide the next instant after `time` (§3.8); `started` is the start of the run that was settled."""
        terms, self.fixed = self.terms, None
        self.cursor = max(self.cursor, time)
        counted_from = now if started is None else started
        hinted, self.decided_at = self.interval_hint, now
        if hinted is not None and hinted[1] > now:
            if terms.from_now and started is not None:  # ruling 3: from the start of that run, or its end
                self.base = started if started + self._interval() >= now else now
            at = counted_from + hinted[0]
            self.fixed = at if at >= now else now + hinted[0]
            self.wish = self.fixed
            if any(row.planned == self.fixed and row.reason == "by_hand" for row in self.rows):
                self._plan_after_skipped(self.fixed, hinted)
        elif terms.from_now:
            self.base = counted_from if counted_from + self._interval() >= now else now
            if self.base + self._interval() <= self.cursor:
                self.base = self.cursor
            self.fixed = self.base + self._interval()
        elif terms.stretch and self.failures and isinstance(terms.trigger, Grid):
            at = (time if started is None else started) + self._interval()
            self.fixed = at if at >= now or started is None else now + self._interval()
        self._keep_away()
        self._consider_one_shot(now)
        self._clamp(time if self.fixed is None else now)

    def _plan_after_skipped(self, at: int, hinted: tuple[int, int]) -> None:
        """Decide after an instant that a person skipped and that an interval hint asks for."""
        if hinted[1] > at:
            self.fixed = self.wish = at + hinted[0]
        else:  # the hint is over by then
            self.fixed = at + self._interval() if self.terms.from_now else None
            self.cursor = max(self.cursor, at)

    def _consider_one_shot(self, now: int) -> None:
        if self.one_shot is not None and self.one_shot[1] > now:
            at, plan = max(self.one_shot[0], now), self._plan()
            if plan is None or at < plan:
                self.fixed = self.wish = at

    def _clamp(self, time: int) -> None:
        plan, lowest, highest = self._plan(), self.terms.clamp_min, self.terms.clamp_max
        if plan is not None and lowest is not None and plan < time + lowest:
            if self.fixed is None:
                self.displaced = [at for at in self._between(time, time + lowest) if at < time + lowest]
            self.fixed = plan = time + lowest
        if plan is not None and highest is not None and plan > time + highest:
            self.fixed = time + highest

    def _between(self, after: int, until: int) -> Iterator[int]:
        """The open instants of the trigger in (after, until]."""
        at = self._trigger_after(after)
        while at is not None and at <= until:
            yield at
            at = self._trigger_after(at)

    # ---- time passes -----------------------------------------------------------------------------------

    def live_until(self, end: int) -> None:
        """Let time pass while an instance runs: whatever happens is seen at its instant."""
        self.tick()
        while (event := self._next_event()) is not None and event <= end:
            self.now = max(event, self.now)
            self.tick()
        self.now = end
        self.tick()

    def _next_event(self) -> int | None:
        hints = [hint[1] for hint in (self.interval_hint, self.one_shot) if hint is not None]
        ready = [row.fire for row in self.rows if row.state == "ready" and row.fire > self.now]
        times = [self.next_at, *hints, *ready, *(work.ends for work in self.works)]
        return min((time for time in times if time is not None and time > self.now), default=None)

    def tick(self) -> None:
        """Do everything that is due now, in the order of a pass: settle, admit, lease, launch."""
        while True:
            ended = [work for work in self.works if work.ends <= self.now]
            for work in ended:
                self._settle(work)
            admitted = self._admit()
            if not (self._launch() or ended or admitted):
                return

    # ---- admit -----------------------------------------------------------------------------------------

    def _admit(self) -> bool:
        if self.state != "active" or not self._end_pause():
            return False
        due = list(self._due())
        if due:
            self._decide_due(due)
        return bool(due)

    def _due(self) -> Iterator[int]:
        """The occurrences that are due now, each as if it had been planned in time."""
        while True:
            self._expire_hints()
            plan = self._plan()
            if plan is None or plan > self.now:
                return
            for at in self.displaced[:1]:
                folded = Row(at, "skipped", "clamped", finished=self.now, last=self.displaced[-1])
                self.rows.append(replace(folded, count=len(self.displaced)))
            self.displaced = []
            if self.one_shot is not None and self.one_shot[0] <= plan:
                self.one_shot = None
            expired = self._forget_expired(plan)
            yield plan
            self.base = self.now
            restarts = self.interval_hint is not None or self.terms.from_now or self._in_streak()
            if restarts and self.one_shot is not None and self.one_shot[0] <= self.now:
                self.one_shot = None
            if expired is not None and not self._in_streak():
                self._plan_after(max(expired - 1, plan), plan)
            else:
                self._plan_after(self.now if restarts else plan, self.now if restarts else plan)

    def _in_streak(self) -> bool:
        return self.failures > 0 and (self.terms.stretch or bool(self.terms.ladder))

    def _forget_expired(self, plan: int) -> int | None:
        """Drop an interval hint that ended after `plan` and before now; return its end."""
        hint = self.interval_hint
        if hint is None or hint[1] > self.now:
            return None
        self.interval_hint = None
        return None if self.terms.from_now else hint[1]

    def _expire_hints(self) -> None:
        """End the hints whose time is over before the next planned instant (ruling 22)."""
        for name in ("interval_hint", "one_shot"):
            hint, plan = getattr(self, name), self._plan()
            if hint is None or hint[1] > self.now or (plan is not None and plan < hint[1]):
                continue
            setattr(self, name, None)
            stood, ended = self._plan(), hint[1]
            if self.decided_at >= ended:
                continue
            if self.terms.from_now:
                said = self.base + self._interval()
                said = said if said >= ended else ended + self._interval()
                self.fixed = said if stood is None or said < stood else stood
                continue
            self.cursor = max(self.cursor, hint[1] - 1)
            open_at = self._trigger_after(self.cursor)
            if stood is None or (open_at is not None and open_at <= stood):
                self.fixed = None

    def _decide_due(self, due: list[int]) -> None:
        """Late, missed, caught up (§3.3)."""
        terms, now = self.terms, self.now
        newest = due[-1]
        late = now - newest <= terms.grace
        fresh = [
            at for at in due if (at == newest and late) or terms.window is None or now - at <= terms.window
        ]
        chosen = fresh if terms.catch_up in ("all", "spread") else fresh[-1:]
        chosen = [] if terms.catch_up == "none" else [at for at in chosen if at != newest or not late]
        chosen = [*chosen, newest] if late else chosen
        skipped = [at for at in due if at not in set(chosen)]
        self._skip(skipped, "missed")
        catching_up = any(at != newest or not late for at in chosen)
        fires = {at: at for at in chosen}
        if terms.catch_up == "spread":
            missed = [at for at in chosen if at != newest or not late]
            fires |= {at: now + terms.spread_over * n // (len(missed) + 1) for n, at in enumerate(missed, 1)}
        for at in chosen:
            row = Row(at, "ready", fire=fires[at])
            row.missed = len(skipped) if at == chosen[0] else 0
            row.caught_up = catching_up and terms.catch_up in ("all", "spread")
            self._enter(row)

    def _skip(self, instants: list[int], reason: str) -> None:
        if len(instants) > FOLD_ABOVE:
            row = Row(instants[0], "skipped", reason, finished=self.now, last=instants[-1])
            self.rows.append(replace(row, count=len(instants)))
            return
        self.rows.extend(Row(at, "skipped", reason, finished=self.now) for at in instants)

    def _enter(self, row: Row) -> None:
        """Overlap (§3.4): what a new run does while another is unfinished."""
        live = [other for other in self.rows if other.state in LIVE]
        overlap = self.terms.overlap
        self.rows.append(row)
        if not live or overlap == "allow":
            return
        if row.caught_up and overlap in ("skip", "replace"):
            row.state = "held"
            self.overflowed |= sum(other.state == "held" for other in self.rows) > self.terms.catch_up_limit
        elif overlap == "skip":
            row.state, row.reason, row.finished = "skipped", "overlap", self.now
        elif overlap == "queue":
            full = sum(other.state == "held" for other in live) >= self.terms.queue_limit
            self.overflowed |= full and row.caught_up
            row.state = "skipped" if full else "held"
            if full:
                row.reason, row.finished = "queue_full", self.now
        else:
            row.state = "held"
            backlog = any(other.state == "held" and other.caught_up for other in live)
            replaced = [
                other
                for other in live
                if not (other.caught_up or (backlog and other.by_hand) if other.state == "held" else backlog)
            ]
            for other in sorted(replaced, key=lambda other: other.state != "held"):
                self._cancel(other)  # held ones first: the end of another would release them

    def _cancel(self, row: Row) -> None:
        """Cancel a run for its successor; work that is under way stops at once."""
        if any(work.row is row and work.ends <= self.now for work in self.works):
            return
        row.reason = "superseded" if row.state == "held" else "replaced"
        row.state, row.finished = ("skipped" if row.state == "held" else "cancelled"), self.now
        self.works = [work for work in self.works if work.row is not row]
        self._release_held()

    # ---- lease, launch, settle -------------------------------------------------------------------------

    def _launch(self) -> bool:
        ready = [row for row in self.rows if row.state == "ready" and row.fire <= self.now]
        ready.sort(key=lambda row: row.fire)
        if self.terms.ceiling is not None:
            ready = ready[: max(self.terms.ceiling - len(self.works), 0)]
        for row in ready:
            succeeds, lasts = self.script.pop(0) if len(self.script) > 1 else self.script[0]
            row.state = "leased"
            row.started = self.now
            self.works.append(Work(row, self.now + lasts, succeeds, self.now))
        return bool(ready)

    def _settle(self, work: Work) -> None:
        self.works.remove(work)
        row, terms = work.row, self.terms
        if not work.succeeds:
            row.attempts += 1
            if row.attempts < terms.max_attempts:
                row.state = "ready"
                row.fire = self.now + terms.backoff[min(row.attempts, len(terms.backoff)) - 1]
                return
        row.state, row.finished = ("succeeded" if work.succeeds else terms.exhausted), self.now
        row.reason = "" if work.succeeds else "exhausted"
        self._release_held()
        plan = self._plan()
        moves = bool(terms.ladder) or terms.stretch
        disables = not work.succeeds and self.failures + 1 == terms.disable_after
        if moves and not (work.succeeds or terms.from_now or disables) and (plan or self.now + 1) <= self.now:
            self._admit()
        streak, self.failures = self.failures, 0 if work.succeeds else self.failures + 1
        if self.failures and terms.ladder:
            self.away_until = self.now + terms.ladder[min(self.failures, len(terms.ladder)) - 1]
        disabled = terms.disable_after is not None and self.failures >= terms.disable_after
        if disabled and "person" not in self.pauses:
            self.state = "parked"
            # Before the failure there is no occurrence with from-now alignment, also if it was seen late
            # (ruling 3), and none if a cadence was in force since an earlier failure (ruling 1).
            replaced = terms.from_now or (moves and streak)
            began = max(self.cursor, self.now) if replaced else self.cursor
            self.pauses.setdefault("disabled", (began, None))
        elif not row.by_hand:
            self._plan_after_settling(work, streak)

    def _plan_after_settling(self, work: Work, streak: int) -> None:
        """Rulings 3 and 23: settling moves the plan only for cadence, hints and from-now alignment."""
        terms, plan = self.terms, self._plan()
        if self.pauses and not terms.ladder:
            return
        hinted = self.interval_hint is not None and self.interval_hint[1] > self.now
        if terms.from_now or (hinted and (plan is None or plan > self.now)):
            self._plan_after(self.cursor, self.now, started=work.started)
        elif self.failures and terms.ladder:
            if not self.pauses:
                self.fixed, self.cursor = None, max(self.cursor, self.now)
                self._keep_away()
                self._consider_one_shot(self.now)
        elif self.failures and terms.stretch:
            self._plan_after(self.cursor, self.now, started=work.started)
        elif streak and (terms.ladder or terms.stretch):
            self.cursor = max(work.row.planned, self.edited_at)
            self.fixed = None
            self._consider_one_shot(self.now)

    def _keep_away(self) -> None:
        """The ladder: next = max(planned, finish + step)."""
        plan = self._plan()
        if self.failures and self.terms.ladder and plan is not None and plan < self.away_until:
            self.fixed = self.away_until

    def _release_held(self) -> None:
        held = [row for row in self.rows if row.state == "held"]
        if held and not any(row.state in ("ready", "leased") for row in self.rows):
            first = min(held, key=lambda row: row.planned)
            first.state, first.fire = "ready", max(first.fire, self.now)

    # ---- requests --------------------------------------------------------------------------------------

    def is_promised(self, request: str) -> bool:
        """Whether the design says what a request does now; stories leave out the others."""
        terms, streak = self.terms, self._in_streak()
        ahead = any(row.reason == "by_hand" and row.planned > self.now for row in self.rows)
        skipped = any(row.reason == "by_hand" for row in self.rows)
        hinted = self.interval_hint is not None or self.one_shot is not None
        if request == "run":
            backlog = terms.overlap == "replace" and terms.catch_up in ("all", "spread")
            again = any(row.by_hand and row.planned == self.now for row in self.rows)
            counted = bool(self.pauses) and (bool(terms.ladder) or terms.stretch)
            return not (again or backlog or counted or (streak and terms.disable_after))
        if request in ("pause", "pause_hint"):
            live = any(row.state in LIVE for row in self.rows)
            busy = live and (bool(terms.ladder) or terms.from_now)
            return not (busy or self.pauses or (ahead and (hinted or terms.from_now)))
        return {
            "skip": not ((streak or hinted) and any(row.state in LIVE for row in self.rows)),
            "interval": not self.pauses,
            "clear": not (hinted and "person" in self.pauses),
            "once": self.state == "active" and not (self.pauses and ahead),
            "edit": not (ahead or (self.pauses and (skipped or self.state == "parked")))
            and not (streak and self.works)
            and not (hinted and terms.from_now),
        }.get(request, True)

    def run_by_hand(self) -> None:
        """`schedule run`: never moves the next time (ruling 25)."""
        self._enter(Row(self.now, "ready", by_hand=True, fire=self.now))

    def skip(self) -> bool:
        """`schedule skip`: the next occurrence is decided and will not run."""
        plan = self._plan()
        if plan is None or self.state != "active" or self.pauses:
            return False
        self.rows.append(Row(plan, "skipped", "by_hand", finished=self.now))
        if self.one_shot is not None and self.one_shot[0] <= plan:
            self.one_shot = None
        self.base = plan
        if self.fixed is not None or self.interval_hint is not None:
            self._plan_after(plan, plan)
        else:
            self._consider_one_shot(self.now)
        self._keep_away()
        return True

    def edit(self, terms: Terms) -> None:
        """`schedule update`: the next occurrence is decided again, past decisions stay."""
        self.terms, self.edited_at = terms, self.now
        if not self.pauses:
            self.cursor = self.now
            self._decide_again()
        elif self._in_streak() and terms.ladder:
            self.fixed = None
            self._keep_away()

    def _decide_again(self) -> None:
        """Decide from now on what comes next, as after an edit or when hints were cleared."""
        started = self.base if self.terms.from_now else None
        self._plan_after(self.now, self.now, started=started)
        self._keep_away()

    def hint_interval(self, interval: int, ttl: int) -> None:
        """`hint interval`: nudges at once, only to an earlier instant."""
        if not self.terms.adaptive:
            return
        self.interval_hint = (interval, self.now + ttl)
        # Its end decides again, also behind what was skipped ahead (ruling 22).
        self.decided_at = min(self.decided_at, self.now)
        if not self.pauses:
            self._nudge(self._first_wish(interval))

    def _first_wish(self, interval: int) -> int:
        """One interval from now, or the next one that was not skipped by hand."""
        at = self.now + interval
        while any(row.planned == at and row.reason == "by_hand" for row in self.rows):
            at += interval
        return at

    def hint_once(self, at: int, ttl: int) -> None:
        """`hint once`."""
        if not self.terms.adaptive:
            return
        if any(row.planned == at and not row.by_hand for row in self.rows):
            return  # one row for one instant (§3.1): what was skipped by hand does not run
        self._record_paused_wish()
        self.one_shot = (at, self.now + ttl)
        hinted = self.interval_hint
        if hinted is not None and hinted[1] > self.now:
            at = min(at, self._first_wish(hinted[0]))  # both hints: the earlier (§3.8)
        self._nudge(at)

    def _record_paused_wish(self) -> None:
        """What a hint asked for and a pause suppressed has its row, whatever replaces the hint (ruling 2)."""
        hinted = self.interval_hint is not None and self.interval_hint[1] > self.now
        if self.one_shot is None or not self.pauses or hinted or self.terms.from_now:
            return
        begin = min(begin for begin, _ in self.pauses.values())
        if begin <= self.one_shot[0] <= self.now and self.one_shot[0] < self.one_shot[1]:
            self.paused_wishes.append(self.one_shot[0])

    def _nudge(self, at: int) -> None:
        lowest, highest = self.terms.clamp_min, self.terms.clamp_max
        at = max(at, self.now + lowest) if lowest is not None else at
        at = min(at, self.now + highest) if highest is not None else at
        plan = self._plan()
        if plan is None or at < plan:
            self.fixed = self.wish = at

    def clear_hints(self) -> None:
        """`hint clear`: the next occurrence is decided again without them."""
        hinted, self.interval_hint = self.interval_hint, None
        is_wish = hinted is not None or (self.fixed is not None and self.fixed == self.wish)
        self._record_paused_wish()
        self.one_shot = self.wish = None
        if "agent" in self.pauses:
            if hinted is not None:  # ruling 1: what it replaced until now is no occurrence
                self.interval_hint = (hinted[0], min(hinted[1], self.now))
            self.fixed = self.fixed if self.terms.from_now or self._in_streak() else None
            self._lift("agent")
            self.interval_hint = None
        elif is_wish and not self.pauses:  # a run by hand that failed does not move it (ruling 25)
            self._decide_again()

    def pause(self, until: int | None = None, *, hint: bool = False) -> None:
        """`schedule pause` of a person, or `hint pause` of an agent."""
        if self.state != "active" or (hint and not self.terms.adaptive):
            return
        author = "agent" if hint else "person"
        begin = min([self.now, *(begin for begin, _ in self.pauses.values())])
        self.pauses[author] = (begin, until)

    def resume(self) -> None:
        """`schedule resume`: forgives failures; what fell into the pause is skipped."""
        if self.pauses:
            self.fixed = None if self._in_streak() else self.fixed
            self.state, self.failures = "active", 0
            begin = min(begin for begin, _ in self.pauses.values())
            self.pauses = {"person": (begin, self.now)}
            self._admit()

    def _lift(self, author: str) -> None:
        if author in self.pauses:
            self.pauses[author] = (self.pauses[author][0], self.now)
            self._end_pause()

    def _end_pause(self) -> bool:
        """Whether no pause is in force; at its end the schedule is decided again (ruling 2)."""
        ends = [until for _, until in self.pauses.values()]
        if not ends:
            return True
        if any(until is None or until > self.now for until in ends):
            return False
        begin = min(begin for begin, _ in self.pauses.values())
        end = max(until for until in ends if until is not None)
        self.pauses = {}
        self._skip(sorted(self.paused_wishes), "paused")
        self.paused_wishes = []
        if self.terms.from_now:
            self.interval_hint, self.one_shot = (
                hint if hint is not None and hint[1] > end else None
                for hint in (self.interval_hint, self.one_shot)
            )
            if end == begin:
                self._decide_again()
            elif end > self.cursor:
                self.fixed = end
            return True
        hinted = self.interval_hint is not None and self.interval_hint[1] > self.now
        if self.one_shot and not hinted and begin <= self.one_shot[0] < min(end, self.one_shot[1]):
            self._skip([self.one_shot[0]], "paused")
            self.fixed = None if self.fixed == self.one_shot[0] else self.fixed
            self.one_shot = None
        if self.fixed is not None and begin <= self.fixed < end and self._in_streak():
            self._skip([self.fixed], "paused")
        if hinted:
            self._plan_after(end, end)
        else:
            expired = 0 if self.interval_hint is None else self.interval_hint[1]
            if not self._in_streak() or expired:  # ruling 2: at the end of a pause the trigger decides again
                self.fixed = None
            stood = self.fixed or 0
            after = max(self.cursor, begin, stood, expired - 1)
            self._skip([at for at in self._between(after, end) if at < end], "paused")
            self.fixed = self.fixed if self.fixed is not None and self.fixed >= end else None
            self.cursor = max(self.cursor, begin, end - 1, expired - 1)
            self._keep_away()
            self._consider_one_shot(end)
        return True
