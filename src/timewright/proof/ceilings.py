"""A ceiling is a ceiling: live leases under a gate, at every instant that left a row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from heapq import heappop, heappush

from msgspec import Struct

from timewright.proof.checking import Seen, invariant
from timewright.proof.rows import RunRow
from timewright.proof.spans import span, spelled
from timewright.proof.view import View, read_plain

Broken = Iterator[tuple[str, tuple[Struct, ...]]]

CAUTIOUS = 1


@invariant("I14", "a ceiling is a ceiling", counts="grants")
def no_grant_beyond_a_ceiling(view: View, seen: Seen) -> Broken:
    """At every grant the live leases under a gate, the new one included, are no more than it allowed then."""
    leases: defaultdict[str, list[tuple[int, int, RunRow]]] = defaultdict(list)
    for run in view.history.runs:
        if run.gates and not run.lane.startswith("import:"):
            for _, began, ended in view.spells(run):
                for gate in set(run.gates):
                    leases[gate].append((began, 2**62 if ended is None else ended, run))
    for gate, granted in leases.items():
        limits = _Limits(view, gate)
        live: list[tuple[int, str, RunRow]] = []
        # Where the clock is held, one that is over already may have begun at the same instant as the next.
        for began, end, run in sorted(granted, key=lambda one: (*one[:2], one[2].id)):
            seen.count += 1
            while live and live[0][0] <= began:
                heappop(live)
            heappush(live, (end, run.id, run))
            most = limits.at(began)
            if len(live) > most:
                said = f"{gate}: {len(live)} live leases at {spelled(began)}, and {most} are allowed"
                yield said, tuple(one for _, _, one in live)
    yield from _counted(view, seen)


@invariant("I15", "holds are leases", counts="holds")
def a_hold_is_a_live_lease(view: View, seen: Seen) -> Broken:
    """A gate holds a run with a fence if, and only if, the run is leased with that fence."""
    held = {(hold.gate, hold.run_id): hold for hold in view.history.holds}
    for hold in view.history.holds:
        seen.count += 1
        run = view.runs.get(hold.run_id)
        fits = run is not None and run.state == "leased" and run.fence == hold.fence
        if run is None or not fits or hold.gate not in run.gates:
            said = f"{hold.gate} holds {hold.run_id} with fence {hold.fence}, which is no live lease of it"
            yield said, (hold, *((run,) if run is not None else ()))
    for run in view.history.runs:
        if run.state == "leased":
            for gate in run.gates:
                if (gate, run.id) not in held:
                    yield f"run {run.id} is leased, and {gate} does not hold it", (run,)


@invariant("I28", "ageing ends the wait", counts="grants")
def waiting_ends(view: View, seen: Seen) -> Broken:
    """In a queue that ages, the one that waited longest is not passed over by one that is less urgent."""
    ageing = {
        (row.namespace, row.name): span(row.body["ageing"])
        for row in view.history.objects
        if row.kind == "queue" and row.body.get("ageing")
    }
    if not ageing:
        seen.missing = "not checked here: needs a queue that ages"
        return
    for pair, step in ageing.items():
        runs = [r for r in view.history.runs if (r.namespace, r.queue) == pair and not view.restarts(r)]
        yield from _passed_over(view, seen, runs, step)


class _Limits:
    """How many leases a gate allowed, and when; read from the lines that changed it."""

    def __init__(self, view: View, gate: str) -> None:
        kind, _, path = gate.partition(":")
        namespace, _, name = path.partition("/")
        self._skew = view.skew
        self._lines = [
            line
            for line in view.audit.get(name, ())
            if line.action == f"{kind}.put" and line.namespace == namespace
        ]
        self._field = "most" if kind == "limit" else "max_concurrent"
        self._now = next((row.most for row in view.history.gates if row.gate == gate), CAUTIOUS)

    def at(self, moment: int) -> int:
        """The limit then; where it changed just then, the larger of the two."""
        near = [line for line in self._lines if abs(line.at - moment) <= self._skew]
        candidates = [self._said(line.after) for line in near] + [self._said(line.before) for line in near]
        return max([self._in_force(moment), *candidates])

    def _in_force(self, moment: int) -> int:
        before = [line for line in self._lines if line.at <= moment]
        if before:
            return self._said(before[-1].after)
        return self._said(self._lines[0].before) if self._lines else self._now

    def _said(self, text: str) -> int:
        said = read_plain(text) or {}
        return int(said.get(self._field, CAUTIOUS))


def _counted(view: View, seen: Seen) -> Broken:
    for note in view.notes.get("held", ()):
        seen.count += 1
        # A limit that was lowered is above its count only until leases end; then the simulator says so.
        if note.value > note.most and not note.word:
            yield f"{note.subject}: {note.value} live leases, and {note.most} are allowed", (note,)


def _passed_over(view: View, seen: Seen, runs: list[RunRow], step: int) -> Broken:
    firsts = {run.id: view.first_lease(run) for run in runs}
    arrivals = sorted(runs, key=lambda run: run.created_at)
    waiting: list[tuple[int, str, RunRow]] = []
    place = 0
    granted = [(began, run) for run in runs if (began := firsts[run.id]) is not None]
    for began, run in sorted(granted, key=lambda one: (one[0], one[1].id)):
        seen.count += 1
        while place < len(arrivals) and arrivals[place].created_at < began - view.skew:
            heappush(waiting, (arrivals[place].planned_at, arrivals[place].id, arrivals[place]))
            place += 1
        while waiting and _is_gone(waiting[0][2], firsts, began + view.skew):
            heappop(waiting)
        if waiting:
            oldest = waiting[0][2]
            same = oldest.gates == run.gates and oldest.handoff == run.handoff and oldest.fire_at <= began
            if same and _urgency(oldest, began, step) + 1 < _urgency(run, began, step):
                yield f"run {oldest.id} waited longest, and {run.id} was leased before it", (oldest, run)


def _is_gone(run: RunRow, firsts: dict[str, int | None], moment: int) -> bool:
    leased = firsts[run.id]
    return (leased is not None and leased <= moment) or (
        run.state not in ("ready", "leased") and leased is None
    )


def _urgency(run: RunRow, moment: int, step: int) -> int:
    return run.priority - max(moment - run.planned_at, 0) // step
