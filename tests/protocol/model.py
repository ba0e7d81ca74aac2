"""An explicit-state model of the protocol: cursor, unique key, lease, fence, limit and pause.

Two schedules have an occurrence at every tick of a small clock. `LIMITED` shares a limit of one lease, runs
every missed occurrence, allows overlap and has priority. `EXCLUSIVE` runs the newest missed one, and skips
while a run is in flight. Instances have one slot each, may act on a clock reading that is one tick old, and
may crash. A crash inside a transaction undoes it. The answer to a commit may be lost, whether the commit was
applied or not.

Every action is one transaction of the ledger and is named after the function that does it. `explore` visits
every state and checks the promises in each of them and on each transition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

LIMITED, EXCLUSIVE = 0, 1
LIMIT = 1
LEASE_TICKS = 1
BACKOFF_TICKS = 1
MAX_ATTEMPTS = 2
MAX_LOSSES = 1

READY, LEASED, SUCCEEDED, FAILED, PARKED, SKIPPED = (
    "ready",
    "leased",
    "succeeded",
    "failed",
    "parked",
    "skipped",
)
IN_FLIGHT = (READY, LEASED)
NEVER = -1


class Row(NamedTuple):
    """One run: its schedule and instant (the unique key), and what happened to it."""

    schedule: int
    planned: int
    state: str
    fire: int
    fence: int = 0
    attempts: int = 0
    losses: int = 0
    until: int = NEVER


class Progress(NamedTuple):
    """A schedule: all instants up to the cursor are decided."""

    cursor: int = 0
    paused_at: int = NEVER


class Token(NamedTuple):
    """What an instance remembers of a lease."""

    schedule: int
    planned: int
    fence: int


class State(NamedTuple):
    """The store, the memory of each instance, and how many faults may still happen."""

    now: int
    schedules: tuple[Progress, ...]
    rows: tuple[Row, ...] = ()
    memory: tuple[tuple[Token, ...], ...] = ()
    crashes: int = 0
    lost_answers: int = 0


class Action(NamedTuple):
    """One step. `fault` is "", "crash", or a lost answer: the commit was "applied" or "dropped"."""

    name: str
    instance: int = NEVER
    schedule: int = NEVER
    lag: int = 0
    token: Token | None = None
    success: bool = False
    fault: str = ""


class Size(NamedTuple):
    """How large a model is: the last tick, and how many of everything."""

    ticks: int = 3
    schedules: tuple[int, ...] = (LIMITED, EXCLUSIVE)
    instances: int = 2
    crashes: int = 1
    lost_answers: int = 1


class BrokenPromise(Exception):
    """A promise does not hold; the message says which, after which actions."""


class Protocol:
    """The protocol, with the mistakes that `mistakes` names."""

    def __init__(self, size: Size, mistakes: Iterable[str] = ()) -> None:
        self.size = size
        self.mistakes = frozenset(mistakes)

    def initial(self) -> State:
        size = self.size
        return State(
            now=0,
            schedules=(Progress(), Progress()),
            memory=((),) * size.instances,
            crashes=size.crashes,
            lost_answers=size.lost_answers,
        )

    def actions(self, state: State) -> Iterator[Action]:
        """Every action that is possible in a state. Instances with equal memory are interchangeable."""
        if state.now < self.size.ticks:
            yield Action("tick")
        lags = (0, 1) if state.now else (0,)
        for lag in lags:
            yield Action("reclaim", lag=lag)
        for schedule in self.size.schedules:
            progress = state.schedules[schedule]
            yield Action("pause" if progress.paused_at == NEVER else "resume", schedule=schedule)
            if (
                progress.paused_at == NEVER
                and progress.cursor + 1 > state.now
                and progress.cursor < self.size.ticks
            ):
                yield Action("skip_next", schedule=schedule)
        seen: set[tuple[Token, ...]] = set()
        for instance, tokens in enumerate(state.memory):
            if tokens in seen:
                continue
            seen.add(tokens)
            for lag in lags:
                yield from self._with_faults(state, Action("admit_due", instance, lag=lag))
                if not tokens:
                    yield from self._with_faults(state, Action("lease_ready", instance, lag=lag))
            for token in tokens:
                yield Action("renew_leases", instance, token=token)
                for success in (True, False):
                    yield from self._with_faults(
                        state, Action("settle_results", instance, token=token, success=success)
                    )
            if tokens and state.crashes:
                yield Action("crash", instance)

    def _with_faults(self, state: State, action: Action) -> Iterator[Action]:
        yield action
        if state.crashes:
            yield action._replace(fault="crash")
        if state.lost_answers:
            yield action._replace(fault="applied")
            yield action._replace(fault="dropped")

    def apply(self, state: State, action: Action) -> State:
        """The state after an action."""
        after: State
        if action.fault == "crash":
            after = self._crashed_in_transaction(state, action)
        else:
            after = getattr(self, action.name)(state, action)
            if action.fault:
                after = self._answer_lost(state, after, action)
        return after._replace(memory=tuple(sorted(after.memory)))

    def tick(self, state: State, action: Action) -> State:
        return state._replace(now=state.now + 1)

    def crash(self, state: State, action: Action) -> State:
        return _remember(state, action.instance, ())._replace(crashes=state.crashes - 1)

    def _crashed_in_transaction(self, state: State, action: Action) -> State:
        """An uncommitted transaction changes nothing."""
        crashed = self.crash(state, action)
        if action.name == "admit_due":
            committed = self.admit_due(state, action)
            if "cursor before rows" in self.mistakes:
                crashed = crashed._replace(schedules=committed.schedules)
            if "rows before cursor" in self.mistakes:
                crashed = crashed._replace(rows=committed.rows)
        return crashed

    def _answer_lost(self, before: State, after: State, action: Action) -> State:
        """The ledger reads the store to learn whether its commit was applied; it writes results again."""
        lost = before.lost_answers - 1
        if action.name == "settle_results":
            again = self.settle_results(before if action.fault == "dropped" else after, action)
            return again._replace(lost_answers=lost)
        if action.fault == "dropped":
            return before._replace(lost_answers=lost)
        if "lost leases are not looked up" in self.mistakes:
            after = after._replace(memory=before.memory)
        return after._replace(lost_answers=lost)

    def admit_due(self, state: State, action: Action) -> State:
        """Decide the due instants: rows and cursor in one transaction; a free slot takes the run at once."""
        now = state.now - action.lag + ("admitted early" in self.mistakes)
        due = [
            number
            for number in self.size.schedules
            if (state.schedules[number].paused_at == NEVER or "pause ignored" in self.mistakes)
            and state.schedules[number].cursor < now
        ]
        # With more due than slots, the runs are leased by priority instead.
        free = len(due) == 1 and not state.memory[action.instance]
        if free:
            now = max(now, state.now)
        for schedule in due:
            state = self._decide(state, schedule, now=now, holder=action.instance if free else NEVER)
        return state

    def _decide(
        self, state: State, schedule: int, *, now: int, holder: int = NEVER, resumed_from: int = NEVER
    ) -> State:
        """Give every instant after the cursor a row, up to `now`."""
        progress, rows = state.schedules[schedule], list(state.rows)
        instants = range(progress.cursor + 1, now + 1)
        paused = [k for k in instants if resumed_from != NEVER and resumed_from <= k < now]
        if "paused instants run" in self.mistakes:
            paused = []
        run = [k for k in instants if k not in paused]
        busy = any(row.schedule == schedule and row.state in IN_FLIGHT for row in rows)
        if schedule == EXCLUSIVE and "overlap ignored" not in self.mistakes:
            run = [] if busy else run[-1:]
        for k in instants:
            if (
                any((row.schedule, row.planned) == (schedule, k) for row in rows)
                and "no unique key" not in self.mistakes
            ):
                continue
            row = Row(schedule, k, READY if k in run else SKIPPED, fire=k)
            if row.state == READY and schedule == EXCLUSIVE and holder != NEVER and not state.memory[holder]:
                row = row._replace(state=LEASED, fence=1, until=now + LEASE_TICKS)
                state = _remember(state, holder, (Token(schedule, k, 1),))
            rows.append(row)
        cursor = max(progress.cursor, now + ("cursor goes too far" in self.mistakes))
        return _put(state, schedule, Progress(cursor))._replace(rows=tuple(sorted(rows)))

    def lease_ready(self, state: State, action: Action) -> State:
        """Lease the best ready run whose limit is free; a limited lease begins at the store's own time."""
        now = state.now - action.lag
        held = [row for row in state.rows if row.schedule == LIMITED and row.state == LEASED]
        if "expired leases hold no limit" in self.mistakes:
            held = [row for row in held if row.until > state.now]
        full = len(held) >= LIMIT and "limit ignored" not in self.mistakes
        ready = [
            row
            for row in state.rows
            if row.state == READY and row.fire <= now and not (full and row.schedule == LIMITED)
        ]
        if not ready:
            return state
        row = ready[0]
        begins = state.now if row.schedule == LIMITED else now
        leased = row._replace(
            state=LEASED,
            fence=row.fence + ("fence stands still" not in self.mistakes),
            until=begins + LEASE_TICKS,
        )
        token = Token(row.schedule, row.planned, leased.fence)
        return _remember(_change(state, row, leased), action.instance, (token,))

    def renew_leases(self, state: State, action: Action) -> State:
        """Prolong a lease that is still held; its holder stops work on a lost one."""
        row = _held(state, action.token, fence_matters="renewed without fence" not in self.mistakes)
        if row is None:
            return _remember(state, action.instance, ())
        return _change(state, row, row._replace(until=max(row.until, state.now + LEASE_TICKS)))

    def settle_results(self, state: State, action: Action) -> State:
        """Write an outcome if the lease is still held; a stale one changes nothing."""
        row = _held(state, action.token, fence_matters="settled without fence" not in self.mistakes)
        if row is None and "settled twice" in self.mistakes:
            row = next((r for r in state.rows if r[:2] == (action.token or ())[:2]), None)
        state = _remember(state, action.instance, ())
        if row is None:
            return state
        ended = row._replace(until=NEVER)
        if action.success:
            return _change(state, row, ended._replace(state=SUCCEEDED))
        attempts = row.attempts + ("attempts not counted" not in self.mistakes)
        if attempts >= MAX_ATTEMPTS:
            return _change(state, row, ended._replace(state=FAILED, attempts=attempts))
        retry = ended._replace(state=READY, attempts=attempts, fire=state.now + BACKOFF_TICKS)
        return _change(state, row, retry)

    def reclaim(self, state: State, action: Action) -> State:
        """End the leases that have expired; each is a loss."""
        now = state.now - action.lag
        limit = now + ("live leases reclaimed" in self.mistakes)
        for row in state.rows:
            if row.state == LEASED and row.until <= limit:
                losses = row.losses + ("losses not counted" not in self.mistakes)
                ended = row._replace(losses=losses, until=NEVER)
                lost = losses > MAX_LOSSES
                after = (
                    ended._replace(state=PARKED)
                    if lost
                    else ended._replace(state=READY, fire=max(row.fire, now))
                )
                state = _change(state, row, after)
        return state

    def pause(self, state: State, action: Action) -> State:
        progress = state.schedules[action.schedule]
        return _put(state, action.schedule, progress._replace(paused_at=state.now))

    def resume(self, state: State, action: Action) -> State:
        """Skip the instants of the pause, and decide the others that are due."""
        began = state.schedules[action.schedule].paused_at
        return self._decide(state, action.schedule, now=state.now, resumed_from=began)

    def skip_next(self, state: State, action: Action) -> State:
        """Write the row of the next instant as skipped, and move the cursor to it."""
        at = state.schedules[action.schedule].cursor + 1
        rows = (*state.rows, Row(action.schedule, at, SKIPPED, fire=at))
        return _put(state, action.schedule, Progress(at))._replace(rows=tuple(sorted(rows)))


def broken_in(state: State, size: Size) -> str | None:
    """The first promise that does not hold in a state."""
    keys = {(row.schedule, row.planned) for row in state.rows}
    if len(keys) < len(state.rows):
        return "an occurrence has one row"
    for schedule, progress in enumerate(state.schedules):
        if any((schedule, k) not in keys for k in range(1, progress.cursor + 1)):
            return "every instant up to the cursor has a row"
    in_flight = [row for row in state.rows if row.state in IN_FLIGHT]
    leased = [row for row in in_flight if row.state == LEASED]
    if any(row.planned > state.now for row in in_flight):
        return "nothing is admitted early"
    if sum(row.schedule == EXCLUSIVE for row in in_flight) > 1:
        return "without overlap, one run is in flight"
    if sum(row.schedule == LIMITED for row in leased) > LIMIT:
        return "a limit is never exceeded"
    for row in state.rows:
        if row.fence != row.attempts + row.losses + (row.state in (LEASED, SUCCEEDED)):
            return "every lease ends once, as a success, an attempt or a loss"
        if row.attempts > MAX_ATTEMPTS or row.losses > MAX_LOSSES + 1:
            return "attempts and losses are bounded"
    return _broken_for_holders(state, leased, size)


def _broken_for_holders(state: State, leased: list[Row], size: Size) -> str | None:
    tokens = [token for memory in state.memory for token in memory]
    if len(set(tokens)) < len(tokens):
        return "a lease has one holder"
    if state.crashes == size.crashes:
        held = {token[:2] for token in tokens}
        if any(row.until > state.now and row[:2] not in held for row in leased):
            return "without a crash, a live lease has a holder that knows it"
    return None


def broken_by(before: State, action: Action, after: State) -> str | None:
    """The first promise that a transition breaks."""
    if any(new.cursor < old.cursor for old, new in zip(before.schedules, after.schedules, strict=True)):
        return "the cursor never falls"
    if before.rows == after.rows:
        return None
    now = {row[:2]: row for row in after.rows}
    for row in before.rows:
        new = now.get(row[:2])
        if new is None:
            return "a row is never removed"
        if new == row:
            continue
        if row.state not in IN_FLIGHT:
            return "a finished run never changes"
        if new.fence - row.fence != (row.state == READY and new.state == LEASED):
            return "the fence rises by one with each lease and never falls"
        if action.token is not None and row.fence != action.token.fence:
            return "a stale answer changes nothing"
        if action.name == "reclaim" and row.until > before.now:
            return "a live lease is not taken away"
    return _broken_by_new_rows(before, action, after)


def _broken_by_new_rows(before: State, action: Action, after: State) -> str | None:
    known = {row[:2] for row in before.rows}
    for row in after.rows:
        if row[:2] in known:
            continue
        paused_at = before.schedules[row.schedule].paused_at
        if paused_at != NEVER and paused_at <= row.planned < before.now and row.state != SKIPPED:
            return "an instant of a pause is skipped"
        if paused_at != NEVER and action.name != "resume":
            return "a paused schedule admits nothing"
    return None


class Explored(NamedTuple):
    """What `explore` visited."""

    states: int
    transitions: int
    complete: bool


def explore(protocol: Protocol, *, max_states: int = 10**9) -> Explored:
    """Visit every state, breadth first, up to a number of states; raise BrokenPromise for the first fault."""
    start = protocol.initial()
    came_from: dict[State, tuple[State, Action] | None] = {start: None}
    waiting = deque([start])
    transitions = 0
    while waiting and len(came_from) < max_states:
        state = waiting.popleft()
        for action in protocol.actions(state):
            after = protocol.apply(state, action)
            transitions += 1
            broken = broken_by(state, action, after)
            is_new = after not in came_from
            if is_new:
                broken = broken or broken_in(after, protocol.size)
            if broken:
                steps = [*trace_to(state, came_from), action]
                raise BrokenPromise(f"{broken}: " + ", ".join(_describe(step) for step in steps))
            if is_new:
                came_from[after] = (state, action)
                waiting.append(after)
    return Explored(len(came_from), transitions, not waiting)


def trace_to(state: State, came_from: dict[State, tuple[State, Action] | None]) -> list[Action]:
    """The actions that lead to a state."""
    steps: list[Action] = []
    step = came_from[state]
    while step is not None:
        steps.append(step[1])
        step = came_from[step[0]]
    return steps[::-1]


def _describe(action: Action) -> str:
    default = Action(action.name)
    fields = [f"{n}={v}" for n, v, d in zip(action._fields, action, default, strict=True) if v != d]
    return f"{action.name}({' '.join(fields)})"


def _held(state: State, token: Token | None, *, fence_matters: bool) -> Row | None:
    """The leased row of a token, if its lease is still the token's."""
    assert token is not None
    for row in state.rows:
        if row[:2] == token[:2] and row.state == LEASED and (row.fence == token.fence or not fence_matters):
            return row
    return None


def _change(state: State, before: Row, after: Row) -> State:
    return state._replace(rows=tuple(after if row == before else row for row in state.rows))


def _put(state: State, schedule: int, progress: Progress) -> State:
    schedules = list(state.schedules)
    schedules[schedule] = progress
    return state._replace(schedules=tuple(schedules))


def _remember(state: State, instance: int, tokens: tuple[Token, ...]) -> State:
    memory = list(state.memory)
    memory[instance] = tokens
    return state._replace(memory=tuple(memory))
