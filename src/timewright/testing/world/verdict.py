"""One seed from beginning to end: what was seen, what was broken, and a hash of everything that happened."""

from __future__ import annotations

import gc
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.core.moments import from_micros, micros, spell_instant
from timewright.ids import TimedIds
from timewright.operations import Context
from timewright.operations.verify import gather
from timewright.proof.checking import GRACE, SKEW, check
from timewright.proof.report import Violation
from timewright.proof.rows import History
from timewright.testing.world.bases import Base
from timewright.testing.world.founding import new_world
from timewright.testing.world.run import World
from timewright.testing.world.workload import Scenario

MOST_SHOWN = 50
# A history only grows: to look through it again and again for what nobody holds any more finds little.
MANY_OBJECTS = 100_000

_STRANDED = """
SELECT h.id, h.schedule_id FROM runs h
WHERE h.state = 'held' AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.schedule_id = h.schedule_id
    AND r.alone = 1 AND r.state IN ('ready', 'leased'))
ORDER BY h.id
"""
# Ends that nobody decided although their instant has come, and occurrences that no end asked for.
_UNDECIDED = """
SELECT f.upstream_run, f.downstream FROM follow_ups f JOIN schedules s ON s.id = f.downstream
WHERE f.state = 'open' AND s.state = 'active' AND f.due_at < {before} ORDER BY f.upstream_run, f.downstream
"""
_UNASKED = """
SELECT r.id, r.schedule_id FROM runs r
WHERE r.lane = '' AND r.schedule_id IN (SELECT downstream FROM follow_ups)
    AND NOT EXISTS (SELECT 1 FROM meta WHERE name = 'pruned_to')
    AND NOT EXISTS (SELECT 1 FROM follow_ups f WHERE f.run_id = r.id)
    AND r.source = 'baseline-after' ORDER BY r.id
"""
_TABLES = {
    "runs": "SELECT * FROM runs ORDER BY id",
    "attempts": "SELECT * FROM attempts ORDER BY run_id, fence",
    "schedules": "SELECT * FROM schedules ORDER BY id",
    "audit": "SELECT * FROM audit ORDER BY seq",
}


class Result(Struct, frozen=True, kw_only=True):
    """What became of a world."""

    seed: int
    simulated: int
    cpu_seconds: float
    steps: int
    transactions: int
    executions: int
    stale_effects: int
    counts: dict[str, int]
    digest: str
    violations: tuple[Violation, ...] = ()
    last_facts: tuple[str, ...] = ()
    troubles: dict[str, int] = {}
    script_fired: bool = False

    @property
    def holds(self) -> bool:
        """Whether every promise was kept."""
        return not self.violations


def live(
    scenario: Scenario,
    base: Base,
    *,
    only: Iterable[str] = (),
    mutate: Callable[[World], None] | None = None,
    **options: Any,
) -> Result:
    """Run a world from its beginning to its end, and judge it."""
    began = time.process_time()
    world = new_world(scenario, base, **options)
    collected = gc.get_threshold()
    gc.set_threshold(MANY_OBJECTS, *collected[1:])
    try:
        if mutate is not None:
            mutate(world)
        world.run_until(scenario.start + scenario.length)
        history = history_of(world)
        skew = max(SKEW, world.longest_wait)
        report = check(history, now=micros(world.now()), only=only, skew=skew)
        violations = (
            *world.breaches,
            *stranded(world),
            *unfollowed(world),
            *(v for v in report.violations if not _is_excused(v, history, world)),
        )
        digest = digest_of(world)
        return Result(
            seed=scenario.seed,
            simulated=scenario.length,
            cpu_seconds=time.process_time() - began,
            steps=world.steps,
            transactions=world.transactions,
            executions=len(world.sinks.executions),
            stale_effects=world.sinks.stale,
            counts=dict(world.counts),
            digest=digest,
            violations=violations,
            last_facts=last_facts(world, violations) if violations else (),
            troubles=dict(world.troubles),
            script_fired=world.faults.fired,
        )
    finally:
        gc.set_threshold(*collected)
        base.close()


def history_of(world: World) -> History:
    """Everything the checker looks at, with what only a simulator knows."""
    context = Context(store=world.base.store_of_all(), ids=TimedIds(), tell=lambda facts: None)
    found = gather(context, everyone=True)
    return replace(found, effects=tuple(world.sinks.effects), notes=world.kept_notes())


def stranded(world: World) -> list[Violation]:
    """Held runs that wait for nobody: whoever was before them has ended, and nobody let them go."""
    said = "is held, and nothing of its schedule is under way"
    return [
        Violation(
            invariant="I27", message=f"run {run_id} {said}", rows=({"id": run_id, "schedule_id": owner},)
        )
        for run_id, owner in world.base.ask(_STRANDED)
    ]


def unfollowed(world: World) -> list[Violation]:
    """Ends that were passed on and are not decided exactly once, as the table of ends has them."""
    if not world.scenario.budgets:
        return []
    late = world.base.ask(_UNDECIDED.format(before=micros(world.now()) - GRACE))
    alone = world.base.ask(_UNASKED)
    said = [(i, owner, "ended, and what follows it was never decided") for i, owner in late]
    said += [(i, owner, "follows no end that was passed on") for i, owner in alone]
    return [
        Violation(invariant="I41", message=f"run {i} {what}", rows=({"id": i, "schedule_id": owner},))
        for i, owner, what in said
    ]


def _is_excused(violation: Violation, history: History, world: World) -> bool:
    """What only looks broken, because a row is dated by a clock that was read long before or was set.

    A lease that lives through a step of the store's clock looks longer than it was. A short wait of one lane
    is drawn out while another process stands still inside it: its tick cannot settle while its heartbeat goes
    on, and what it writes at last is dated before the wait.
    """
    if violation.invariant != "I17" or "longer than its work" not in violation.message:
        return False
    runs = {row.get("id") for row in violation.rows}
    leases = [a for a in history.attempts if a.run_id in runs]
    steps, waits = world.clock_steps, world.long_waits
    return any(
        a.leased_at <= before and after <= a.ended_at for a in leases for before, after in steps
    ) or any(a.leased_at <= after and before <= a.ended_at for a in leases for before, after in waits)


def digest_of(world: World) -> str:
    """A hash over every row, every fact and every effect."""
    digest = hashlib.sha256()
    for sql in _TABLES.values():
        digest.update(repr([tuple(row) for row in world.base.ask(sql)]).encode())
    digest.update(msgspec.json.encode(world.trace))
    digest.update(msgspec.json.encode(world.sinks.effects))
    return digest.hexdigest()


def last_facts(world: World, violations: Iterable[Violation]) -> tuple[str, ...]:
    """The last facts about the objects that a violation names."""
    named = {
        str(row[field])
        for violation in violations
        for row in violation.rows
        for field in ("id", "run_id", "schedule_id", "subject")
        if row.get(field)
    }
    found = [
        f"{spell_instant(from_micros(at))}  {who:<10} {type(fact).__name__} {_told(fact)}"
        for at, who, fact in world.trace
        if named & {getattr(fact, "run_id", ""), getattr(fact, "schedule_id", "")}
    ]
    return tuple(found[-MOST_SHOWN:])


def _told(fact: Struct) -> str:
    said = msgspec.to_builtins(fact)
    return " ".join(f"{key}={value}" for key, value in said.items() if key not in ("fact", "namespace", "at"))


def total(results: Iterable[Result]) -> Counter[str]:
    """The counters of many worlds together."""
    counts: Counter[str] = Counter()
    for result in results:
        counts.update(result.counts)
    return counts
