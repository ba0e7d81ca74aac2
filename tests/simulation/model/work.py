"""Simulated work: succeeds, fails, hangs, or ignores cancellation, in the process or on another machine."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tests.simulation.model.clocks import NEVER, SECOND
from tests.simulation.model.effects import Execution
from tests.simulation.workload.dependencies import draw_cost
from timewright.core.run.run import Cancelled, Failed, Outcome, Succeeded, TimedOut
from timewright.core.target import Call
from timewright.ports import Launch
from timewright.ports.attempt_output import OutputExcerpt

if TYPE_CHECKING:
    from tests.simulation.model.actors import SimulatedInstance
    from tests.simulation.model.seeded_random import SeededRandom
    from tests.simulation.model.simulation import Simulation

CRASHING_PREFIX = "poison"
# Work that answers with a version, which rises every 50 seconds.
WATCHING_PREFIX = "watch"
VERSION_US = 50 * SECOND
LINE_INTERVAL_US = 5 * SECOND
MAX_THREAD_US = 600 * SECOND


class WorkPlan(Struct, frozen=True, kw_only=True):
    """How one execution ends, after how long, where it runs, and whether it obeys cancellation."""

    outcome: Outcome
    duration_us: int
    remote: bool = False
    on_thread: bool = False
    heeds_stop: bool = True
    kills: bool = False
    writes_output: bool = False


def draw_work(sim: Simulation, key: str, fence: int, *, name: str = "", is_call: bool = False) -> WorkPlan:
    """Draw a plan from the run and its fence alone, so that other draws do not change it.

    A call runs on a thread of its process, where nobody can kill it.
    """
    rng = sim.rng.fork(f"work {key} {fence}")
    plan = _draw_plan(sim, rng, name=name)
    if name.startswith(WATCHING_PREFIX) and isinstance(plan.outcome, Succeeded):
        version = (sim.time.at - sim.scenario.start) // VERSION_US
        answer = Succeeded(result={"version": version})
        plan = replace(plan, outcome=answer, duration_us=plan.duration_us // 4)
    if is_call:
        lasts = min(plan.duration_us, MAX_THREAD_US)
        plan = replace(plan, remote=False, on_thread=True, duration_us=lasts)
    if not sim.scenario.budgets:
        return plan
    return replace(plan, outcome=replace(plan.outcome, cost=draw_cost(rng)), writes_output=rng.happens(0.3))


def _draw_plan(sim: Simulation, rng: SeededRandom, *, name: str) -> WorkPlan:
    if sim.faults_are_over:
        return WorkPlan(outcome=Succeeded(), duration_us=rng.random_micros(0.1, 2))
    lasts = rng.random_micros(0.05, 1) if rng.happens(0.5) else int(rng.expovariate(1 / 40) * SECOND)
    if name.startswith(CRASHING_PREFIX):
        return WorkPlan(outcome=Succeeded(), duration_us=lasts, kills=rng.happens(0.7))
    remote, heeds = rng.happens(0.4), rng.happens(0.9)
    draw = rng.random()
    outcome: Outcome = Succeeded(outcome_label="useful")
    if draw < 0.12:
        outcome = Failed(error="it failed")
    elif draw < 0.14:
        later = sim.now() + timedelta(seconds=rng.uniform(-60, 600))
        outcome = Failed(error="come back later", not_before=later)
    elif draw < 0.15:
        outcome = Failed(error="never", final=True)
    elif draw < 0.19:
        lasts = 3600 * SECOND
    return WorkPlan(outcome=outcome, duration_us=lasts, remote=remote, heeds_stop=heeds)


class SimulatedWork:
    """One launch under way."""

    def __init__(
        self, target: SimulatedTarget, launch: Launch, plan: WorkPlan, done: Callable[[Outcome], None]
    ) -> None:
        self._target = target
        self._sim = target.engine.sim
        self._done = done
        self._grace = int(launch.grace.total_seconds() * SECOND)
        self._stopped: Outcome | None = None
        self.must_return = plan.on_thread
        self.plan = plan
        self.over = False
        sim = self._sim
        limit = int(launch.time_limit.total_seconds() * SECOND) if launch.time_limit is not None else NEVER
        in_time = plan.duration_us <= limit
        self.execution = sim.sinks.begin(
            Execution(
                run_id=launch.run_id,
                key=launch.key,
                fence=launch.fence,
                holder=target.holder,
                began=sim.time.at,
            )
        )
        self._record("work began")
        outcome = plan.outcome if in_time else TimedOut()
        wait = plan.duration_us if plan.on_thread else min(plan.duration_us, limit)
        self._end_in(wait, outcome, completed=in_time)

    def read_output(self) -> OutputExcerpt | None:
        """One line of output for every few seconds of work."""
        if not self.plan.writes_output:
            return None
        execution, now = self.execution, self._sim.time.at
        text = "a line\n" * (1 + ((execution.ended or now) - execution.began) // LINE_INTERVAL_US)
        return OutputExcerpt(text=text, size=len(text))

    def stop(self, reason: str) -> None:
        """End within the grace; work that ignores it is killed when the grace ends, but not on a thread."""
        outcome = Cancelled(reason=reason)
        if self.plan.on_thread:
            self._stopped = self._stopped or outcome
            if not self.plan.heeds_stop:
                return
        rng = self._sim.rng.fork(f"stop {self.execution.key} {self.execution.fence}")
        wait = rng.randrange(self._grace + 1) if self.plan.heeds_stop else self._grace
        self._end_in(wait, outcome, completed=False)

    def _end_in(self, wait: int, outcome: Outcome, *, completed: bool) -> None:
        sim, engine = self._sim, self._target.engine
        if self.plan.remote:
            # Remote work has its effect whatever happens to this process.
            sim.schedule(sim.time.at + wait, lambda: self._end_execution(completed=completed))
        sim.schedule(
            sim.time.at + wait, lambda: self._finish(outcome, completed=completed), actor=engine, slot="work"
        )

    def _end_execution(self, *, completed: bool) -> None:
        if self.execution.ended is None:
            self._record("work ended")
        self._sim.sinks.end(self.execution, at=self._sim.time.at, completed=completed)

    def _record(self, kind: str) -> None:
        """Record when work inside the process begins and ends."""
        if not self.plan.remote:
            one = self.execution
            self._sim.record_event(kind, one.run_id, detail=one.holder, fence=one.fence)

    def end_with_process(self) -> None:
        """End with the process, without an effect."""
        self._end_execution(completed=False)

    def _finish(self, outcome: Outcome, *, completed: bool) -> None:
        if self.over:
            return
        if self.plan.kills:
            self._sim.count("killed by its own work")
            self._target.engine.crash()
            return
        self._end_execution(completed=completed and not isinstance(outcome, TimedOut))
        output = self.read_output()
        if output is not None:
            self._sim.output_sizes[self.execution.run_id, self.execution.fence] = output.size
        self.over = True
        self._target.under_way.discard(self)
        self._done(self._stopped or outcome)


class SimulatedTarget:
    """A target for every kind."""

    def __init__(self, engine: SimulatedInstance, holder: str) -> None:
        self.engine = engine
        self.holder = holder
        self.under_way: set[SimulatedWork] = set()

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> SimulatedWork:
        """Launch work; crash points lie before and after."""
        sim = self.engine.sim
        sim.faults.pass_point(self.engine, "launch before")
        is_call = isinstance(launch.target, Call)
        plan = draw_work(sim, launch.key, launch.fence, name=launch.schedule_name, is_call=is_call)
        work = SimulatedWork(self, launch, plan, done)
        self.under_way.add(work)
        sim.faults.pass_point(self.engine, "launch after")
        return work

    def on_exit(self) -> None:
        """End the work inside the process."""
        for work in self.under_way:
            if not work.plan.remote:
                work.end_with_process()
        self.under_way = set()

    def close(self, *, grace: timedelta) -> None:
        """Nothing to close."""
