"""Run one simulation and check it: violations, counts, and a hash of everything that happened."""

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

from tests.simulation.model.backends import StoreBackend
from tests.simulation.model.setup import new_simulation
from tests.simulation.model.simulation import Simulation, SimulationStalledError
from tests.simulation.workload.scenarios import Scenario
from timewright.core.moments import format_instant, from_micros, to_micros
from timewright.ids import TimedIds
from timewright.operations import OperationContext
from timewright.operations.health.verify import read_history
from timewright.verification.checker import DEFAULT_GRACE_US, DEFAULT_SKEW_US, Violation, check
from timewright.verification.rows import History

MAX_FACTS_SHOWN = 50
# A history only grows, so frequent garbage collection would find little.
GC_THRESHOLD = 100_000

_STRANDED = """
SELECT h.id, h.schedule_id FROM runs h
WHERE h.state = 'held' AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.schedule_id = h.schedule_id
    AND r.exclusive = 1 AND r.state IN ('ready', 'leased'))
ORDER BY h.id
"""
# Follow-ups that are due but undecided, and occurrences without a follow-up.
_UNDECIDED = """
SELECT f.upstream_run, f.downstream FROM follow_ups f JOIN schedules s ON s.id = f.downstream
WHERE f.state = 'open' AND s.state = 'active' AND f.due_at < {before} ORDER BY f.upstream_run, f.downstream
"""
_WITHOUT_FOLLOW_UP = """
SELECT r.id, r.schedule_id FROM runs r
WHERE r.dedupe_scope = '' AND r.schedule_id IN (SELECT downstream FROM follow_ups)
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


class SimulationResult(Struct, frozen=True, kw_only=True):
    """The result of a simulation."""

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
    errors: dict[str, int] = {}
    has_crashed: bool = False

    @property
    def holds(self) -> bool:
        """Whether there is no violation."""
        return not self.violations


def simulate(
    scenario: Scenario,
    base: StoreBackend,
    *,
    only: Iterable[str] = (),
    mutate: Callable[[Simulation], None] | None = None,
    find_more: Callable[[Simulation], list[Violation]] = lambda _: [],
    **options: Any,
) -> SimulationResult:
    """Run a simulation to its end and check it."""
    began = time.process_time()
    sim = new_simulation(scenario, base, **options)
    collected = gc.get_threshold()
    gc.set_threshold(GC_THRESHOLD, *collected[1:])
    try:
        if mutate is not None:
            mutate(sim)
        try:
            sim.run_until(scenario.start + scenario.length)
        except SimulationStalledError as error:
            sim.violations.append(Violation(invariant="stalled", message=str(error)))
        history = build_history(sim)
        skew = max(DEFAULT_SKEW_US, sim.max_wait)
        report = check(history, now=to_micros(sim.now()), only=only, skew=skew)
        violations = (
            *sim.violations,
            *find_stranded_runs(sim),
            *find_unfollowed_ends(sim),
            *find_more(sim),
            *(v for v in report.violations if not _is_excused(v, history, sim)),
        )
        digest = compute_digest(sim)
        return SimulationResult(
            seed=scenario.seed,
            simulated=scenario.length,
            cpu_seconds=time.process_time() - began,
            steps=sim.steps,
            transactions=sim.transactions,
            executions=len(sim.sinks.executions),
            stale_effects=sim.sinks.stale_count,
            counts=dict(sim.counts),
            digest=digest,
            violations=violations,
            last_facts=last_facts(sim, violations) if violations else (),
            errors=dict(sim.errors),
            has_crashed=sim.faults.has_crashed,
        )
    finally:
        gc.set_threshold(*collected)
        base.close()


def build_history(sim: Simulation) -> History:
    """Everything the checker reads, with the events of the simulation."""
    context = OperationContext(store=sim.backend.shared_store(), ids=TimedIds(), notify=lambda facts: None)
    found = read_history(context, all_namespaces=True)
    return replace(found, effects=tuple(sim.sinks.effects), events=sim.effective_events())


def find_stranded_runs(sim: Simulation) -> list[Violation]:
    """Held runs whose predecessors have all ended, but that were not released."""
    message = "is held, but no other run of its schedule is unfinished"
    return [
        Violation(
            invariant="I27", message=f"run {run_id} {message}", rows=({"id": run_id, "schedule_id": owner},)
        )
        for run_id, owner in sim.backend.query(_STRANDED)
    ]


def find_unfollowed_ends(sim: Simulation) -> list[Violation]:
    """Follow-ups that are not decided exactly once."""
    if not sim.scenario.budgets:
        return []
    late = sim.backend.query(_UNDECIDED.format(before=to_micros(sim.now()) - DEFAULT_GRACE_US))
    alone = sim.backend.query(_WITHOUT_FOLLOW_UP)
    found = [(i, owner, "ended, but its follow-up was never decided") for i, owner in late]
    found += [(i, owner, "is a follow-up without an end") for i, owner in alone]
    return [
        Violation(invariant="I41", message=f"run {i} {what}", rows=({"id": i, "schedule_id": owner},))
        for i, owner, what in found
    ]


def _is_excused(violation: Violation, history: History, sim: Simulation) -> bool:
    """Whether a violation is only apparent, because a row is dated by a clock that was read earlier or
    stepped.

    A lease that spans a step of the store's clock looks longer than it was. A short wait of one slot is
    prolonged while another process is suspended inside it: its tick cannot settle while its heartbeat
    continues, and what it writes at last is dated before the wait.
    """
    if violation.invariant != "I17" or "longer than its work" not in violation.message:
        return False
    runs = {row.get("id") for row in violation.rows}
    leases = [(a.leased_at, a.ended_at) for a in history.attempts if a.run_id in runs]
    # A lease under way has no attempt yet.
    now = to_micros(sim.now())
    leases += [(run.leased_at, now) for run in history.runs if run.id in runs and run.leased_at is not None]
    steps, waits = sim.clock_steps, sim.long_waits
    return any(
        began <= before and after <= ended for began, ended in leases for before, after in steps
    ) or any(began <= after and before <= ended for began, ended in leases for before, after in waits)


def compute_digest(sim: Simulation) -> str:
    """A hash of all rows, facts and effects."""
    digest = hashlib.sha256()
    for sql in _TABLES.values():
        digest.update(repr([tuple(row) for row in sim.backend.query(sql)]).encode())
    digest.update(msgspec.json.encode(sim.trace))
    digest.update(msgspec.json.encode(sim.sinks.effects))
    return digest.hexdigest()


def last_facts(sim: Simulation, violations: Iterable[Violation]) -> tuple[str, ...]:
    """The last facts about the rows of the violations."""
    named = {
        str(row[field])
        for violation in violations
        for row in violation.rows
        for field in ("id", "run_id", "schedule_id", "subject")
        if row.get(field)
    }
    found = [
        f"{format_instant(from_micros(at))}  {who:<10} {type(fact).__name__} {_format_fact(fact)}"
        for at, who, fact in sim.trace
        if named & {getattr(fact, "run_id", ""), getattr(fact, "schedule_id", "")}
    ]
    return tuple(found[-MAX_FACTS_SHOWN:])


def _format_fact(fact: Struct) -> str:
    fields = msgspec.to_builtins(fact)
    return " ".join(
        f"{key}={value}" for key, value in fields.items() if key not in ("fact", "namespace", "at")
    )


def sum_counts(results: Iterable[SimulationResult]) -> Counter[str]:
    """The sum of the counts of many simulations."""
    counts: Counter[str] = Counter()
    for result in results:
        counts.update(result.counts)
    return counts
