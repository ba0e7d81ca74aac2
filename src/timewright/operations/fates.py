"""Where a run stands or how it ended, in sentences: what it waits for, who holds it, what it died of."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from timewright.core.leasing import Gate
from timewright.core.moments import ZERO, spell_duration, spell_instant
from timewright.core.run import Reason, Run, RunState
from timewright.ledger.shelf import terms_for
from timewright.operations.deferrals import tell_deferred
from timewright.operations.dependencies import tell_unmet, tell_waiting
from timewright.operations.reasons import (
    SOURCES,
    Remedy,
    Story,
    Told,
    last_change,
    remedy,
    said_by,
    update,
    who_is_there,
)


def tell_run(story: Story) -> Told:
    """Why a run was planned, and where it stands or how it ended."""
    told = tell_waiting(story) or tell_unmet(story) or _FATES[story.run.state](story)
    return Told(because=(*_planned(story.run), *told.because), policy=told.policy, remedies=told.remedies)


def _planned(run: Run) -> list[str]:
    because = [f"it was planned because {SOURCES[run.source]}"]
    for lost in run.trail:
        when = spell_instant(lost.at) if lost.at is not None else "nothing further"
        because.append(f"over {when} ({lost.source.value}): {lost.why}")
    if run.missed:
        because.append(f"{run.missed} before it were missed, and it was told so")
    return because


def _ready(story: Story) -> Told:
    run, now = story.run, story.now
    deferred = tell_deferred(run, now=now)
    if deferred is not None:
        return deferred
    if run.fire_at > now:
        why = "backoff after a failed attempt" if run.attempts else "jitter, spread or the time it was given"
        return Told(
            because=(f"it may start at {spell_instant(run.fire_at)}: {why}",), policy=("jitter", "retry")
        )
    if story.closed and run.queue:
        return Told(because=(f"nothing is leased from queues: {story.closed}",), policy=("queue",))
    gates = story.tx.read_gates(run.gates) if run.gates else {}
    full = {name: gate for name, gate in gates.items() if not gate.free}
    if full:
        return Told(
            because=tuple(_full(name, gate) for name, gate in full.items()),
            policy=("queue", "limits"),
            remedies=tuple(_wider(name, gate) for name, gate in full.items()),
        )
    taker = f"someone who leases from queue {run.queue}" if run.handoff else "an engine"
    waited = spell_duration(max(now - run.fire_at, ZERO))
    taking = remedy("queue lease", ("queue", run.queue)) if run.handoff and run.queue else who_is_there()
    return Told(because=(f"it has waited {waited} for {taker}; is one running?",), remedies=(taking,))


def _full(name: str, gate: Gate) -> str:
    kind, named = _gate_of(name)
    return f"it waits for a place: {kind} {named} admits {gate.limit} and has {gate.held} under way"


def _wider(name: str, gate: Gate) -> Remedy:
    kind, named = _gate_of(name)
    if kind == "queue":
        return remedy("queue policy set", (kind, named), max_concurrent=gate.limit + 1)
    return remedy("limit set", (kind, named), most=gate.limit + 1)


def _gate_of(name: str) -> tuple[str, str]:
    """The queue or the limit behind a gate; whose it is needs not be said to those who may ask."""
    kind, _, path = name.partition(":")
    return kind, path.partition("/")[2]


def _held(story: Story) -> Told:
    before = [run for run in story.tx.live_runs([story.run.schedule_id]) if run.id != story.run.id]
    ahead = [run for run in before if run.state is not RunState.HELD] or before[:1]
    names = ", ".join(f"{run.id} ({run.state.value})" for run in ahead) or "a run that is just ending"
    return Told(because=(f"it waits until this is settled: {names}",), policy=("overlap", "queue_limit"))


def _leased(story: Story) -> Told:
    run = story.run
    began = spell_instant(run.leased_at) if run.leased_at else "some time ago"
    until = spell_instant(run.lease_until) if run.lease_until else "its end"
    because = [f"{run.holder or 'someone'} has worked on it since {began}, and holds it until {until}"]
    if run.lease_until is not None and run.lease_until <= story.now:
        because.append("that lease is over; whoever looks next takes it back and counts an attempt")
    if run.cancel_at is not None:
        because.append(f"it was asked to stop at {spell_instant(run.cancel_at)}: {run.reason}")
    return Told(because=tuple(because), policy=("lease",), remedies=(remedy("run cancel", ("run", run.id)),))


def _succeeded(story: Story) -> Told:
    run = story.run
    because = []
    if run.started_at is not None and run.finished_at is not None:
        took = spell_duration(max(run.finished_at - run.started_at, ZERO))
        late = spell_duration(max(run.started_at - run.planned_at, ZERO))
        because.append(f"it started {late} after its planned time and took {took}")
    if run.attempts:
        because.append(f"{run.attempts} attempts had failed before")
    if run.word:
        because.append(f"its handler called it {run.word}")
    return Told(because=tuple(because))


def _failed(story: Story) -> Told:
    run = story.run
    because = [f"{_used(story)}; the last one ended with: {run.error or 'no message'}"]
    if run.reason == Reason.UNRESOLVED:
        because.append("its target does not resolve, so the schedule is parked")
    remedies = [remedy("run retry", ("run", run.id))]
    if story.schedule is not None:
        remedies.append(update(story.schedule, max_attempts=story.schedule.retry.max_attempts + 2))
    return Told(because=tuple(because), policy=("retry",), remedies=tuple(remedies))


def _parked(story: Story) -> Told:
    run = story.run
    because = [f"{_used(story)}; {run.error or 'no message was kept'}", "parked is never selected again"]
    if run.reason == Reason.UNKNOWN:
        because = ["its lease ended without an answer, and at_most_once asks a person what happened"]
    policy = ("delivery", "retry")
    return Told(because=tuple(because), policy=policy, remedies=(remedy("run reset", ("run", run.id)),))


def _cancelled(story: Story) -> Told:
    run = story.run
    if run.reason == Reason.REPLACED:
        return Told(because=("a newer occurrence replaced it",), policy=("overlap",))
    line = last_change(story.tx, run.namespace, run.id, "run.cancel", by=story.now)
    said = said_by(line) if line is not None else f": {run.reason}"
    return Told(because=(f"it was cancelled{said}",), remedies=(remedy("run retry", ("run", run.id)),))


def _used(story: Story) -> str:
    most = terms_for(story.tx, [story.run])[story.run.id].terms.retry.max_attempts
    return f"{story.run.attempts} of {most} attempts were used"


_FATES: Mapping[RunState, Callable[[Story], Told]] = {
    RunState.READY: _ready,
    RunState.HELD: _held,
    RunState.LEASED: _leased,
    RunState.SUCCEEDED: _succeeded,
    RunState.FAILED: _failed,
    RunState.PARKED: _parked,
    RunState.CANCELLED: _cancelled,
}
