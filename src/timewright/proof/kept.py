"""Kept, shown and given back: liveness, pruning, namespaces, sinks, growth, stops, client keys, previews."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from msgspec import Struct

from timewright.proof.checking import Seen, invariant
from timewright.proof.decided import next_planned
from timewright.proof.policy import REFUND_CAP
from timewright.proof.rows import Note, RunRow, ScheduleRow
from timewright.proof.spans import made_at, spelled
from timewright.proof.stretches import end_of
from timewright.proof.view import SETTLED, View

Broken = Iterator[tuple[str, tuple[Struct, ...]]]

MOST_SKIP_ROWS = 2_000
MOST_ATTEMPTS = 1_000
KILOBYTE = 1024
# An answer is kept as JSON text, in which a character may take six.
SPELLED = 6


@invariant("I27", "nothing is passed over", counts="waits")
def nothing_is_passed_over(view: View, seen: Seen) -> Broken:
    """Nothing that is due waits while later things of its kind are decided, leased or reclaimed."""
    late = view.now - 3 * view.grace
    at_work = [run for run in view.history.runs if late <= run.created_at <= view.now - view.grace]
    newest = max((run.planned_at for run in at_work if _on_time(run, view.grace)), default=0)
    leased = [at for run in view.history.runs if not run.handoff for _, at, *_ in view.leases(run)]
    granted = max((at for at in leased if at <= view.now - view.grace), default=0)
    for schedule in view.history.schedules:
        seen.count += 1
        wakes = schedule.wake_at if schedule.state == "active" else None
        if wakes is not None and wakes < late and newest > wakes + 3 * view.grace:
            yield f"{schedule.name} has waited since {spelled(wakes)} while others were decided", (schedule,)
    for run in view.history.runs:
        if run.state == "leased":
            seen.count += 1
            if run.lease_until is not None and run.lease_until < late and granted > late:
                yield (
                    f"the lease of run {run.id} ended at {spelled(run.lease_until)}, and nobody took it",
                    (run,),
                )
    yield from _starved(view, seen, late)


@invariant("I31", "pruning only forgets", counts="runs")
def pruning_only_forgets(view: View, seen: Seen) -> Broken:
    """What is gone was old and finished: no run that pruning has not reached is missing from its chain."""
    pruned = view.history.meta.get("pruned_to", "")
    floor = max(made_at(pruned) or 0, view.since)
    for run in view.history.runs:
        if run.previous and run.schedule_id:
            seen.count += 1
            if _is_lost(view, run.previous, pruned, floor):
                yield f"run {run.previous} is gone, and pruning had not reached it", (run,)
    for schedule in view.history.schedules:
        if schedule.last_run and _is_lost(view, schedule.last_run, pruned, floor):
            yield f"{schedule.name}: its last run {schedule.last_run} is gone", (schedule,)
    for note in view.notes.get("pruned", ()):
        seen.count += 1
        owner = view.schedules.get(note.about)
        if note.word not in SETTLED:
            yield f"run {note.subject} was pruned while it was {note.word}", (note,)
        if owner is not None and owner.cursor < note.value and not _is_past(view, owner, note):
            yield f"{owner.name}: its cursor stands before an instant that was pruned", (owner, note)


@invariant("I32", "a namespace is a wall", counts="runs")
def a_namespace_is_a_wall(view: View, seen: Seen) -> Broken:
    """Every row belongs to the namespace of what it hangs from, and to the one that was asked about."""
    asked = view.history.namespace
    for schedule in view.history.schedules:
        if asked is not None and schedule.namespace != asked:
            yield f"schedule {schedule.id} belongs to {schedule.namespace}, not {asked}", (schedule,)
    for run in view.history.runs:
        seen.count += 1
        owner = view.schedules.get(run.schedule_id)
        if owner is not None and owner.namespace != run.namespace:
            yield f"run {run.id} belongs to {run.namespace}, its schedule to {owner.namespace}", (run, owner)
        above = view.runs.get(run.parent)
        if above is not None and above.namespace != run.namespace:
            yield f"run {run.id} belongs to {run.namespace}, its parent to {above.namespace}", (run, above)
        if asked is not None and run.namespace != asked:
            yield f"run {run.id} belongs to {run.namespace}, not {asked}", (run,)
        for gate in run.gates:
            if gate.partition(":")[2].partition("/")[0] != run.namespace:
                yield f"run {run.id} of {run.namespace} stands under {gate}", (run,)


@invariant("I35", "effects carry their key", counts="effects")
def effects_carry_their_key(view: View, seen: Seen) -> Broken:
    """The effects of a run carry one key, are no more than its leases, and never go back behind a fence."""
    if view.history.effects is None:
        seen.missing = "not checked here: needs what targets saw, which only a simulation has"
        return
    keys: dict[str, str] = {}
    highest: dict[str, int] = {}
    attempts: defaultdict[str, set[int]] = defaultdict(set)
    for effect in sorted(view.history.effects, key=lambda effect: effect.at):
        seen.count += 1
        if keys.setdefault(effect.run_id, effect.key) != effect.key:
            yield f"run {effect.run_id} reached its target under two keys", (effect,)
        if effect.fenced and effect.applied and effect.fence < highest.get(effect.run_id, 0):
            yield f"a fenced sink took fence {effect.fence} of {effect.run_id} after a higher one", (effect,)
        if effect.applied:
            highest[effect.run_id] = max(highest.get(effect.run_id, 0), effect.fence)
        attempts[effect.run_id].add(effect.fence)
    for run_id, fences in attempts.items():
        run = view.runs.get(run_id)
        if run is not None and (len(fences) > run.fence or max(fences) > run.fence):
            yield f"run {run_id} had more effects than leases", (run,)


@invariant("I36", "growth is bounded", counts="rows")
def growth_is_bounded(view: View, seen: Seen) -> Broken:
    """One run keeps a bounded number of leases of bounded size, and one outage a bounded number of rows."""
    for run in view.history.runs:
        attempts = view.attempts.get(run.id, ())
        seen.count += 1 + len(attempts)
        restarts = len(view.restarts(run))
        if len(attempts) > (MOST_ATTEMPTS + REFUND_CAP) * (1 + restarts):
            yield f"run {run.id} has {len(attempts)} ended leases", (run,)
        cap = _answer_cap(view, run)
        for attempt in attempts:
            if cap is not None and attempt.size > cap:
                yield (
                    f"an answer of run {run.id} takes {attempt.size} bytes, and {cap} are allowed",
                    (attempt,),
                )
    skipped = Counter(
        (run.schedule_id, run.created_at)
        for run in view.history.runs
        if run.state == "skipped" and not run.lane and not run.dropped
    )
    for (schedule_id, at), count in skipped.items():
        if count > MOST_SKIP_ROWS:
            owner = view.schedules.get(schedule_id)
            said = f"{count} skips of {schedule_id} at {spelled(at)} have a row each instead of one"
            yield said, (owner,) if owner is not None else ()


@invariant("I37", "a stop gives back", counts="stops")
def a_stop_gives_everything_back(view: View, seen: Seen) -> Broken:
    """After a graceful stop an instance holds no lease."""
    if view.history.notes is None:
        seen.missing = "not checked here: needs to know when an instance stopped, which only a simulation has"
        return
    stops = {note.subject: note.at for note in view.notes.get("stopped", ())}
    seen.count += len(stops)
    for run in view.history.runs:
        for _, began, ended, attempt in view.leases(run):
            holder = attempt.holder if attempt is not None else run.holder
            at = stops.get(holder)
            if at is not None and began <= at and (ended is None or ended > at):
                yield f"{holder} stopped at {spelled(at)}, and still held run {run.id}", (run,)


@invariant("I39", "a client key is one run", counts="client keys")
def a_client_key_is_one_run(view: View, seen: Seen) -> Broken:
    """A run by hand with a client key is that key's one run, in a lane of its own."""
    owners: dict[str, str] = {}
    for name, run_id in view.history.meta.items():
        if not name.startswith("client:"):
            continue
        schedule_id = name.split(":", 2)[1]
        run = view.runs.get(run_id)
        if schedule_id not in view.schedules:
            continue
        seen.count += 1
        if run_id in owners:
            yield f"the client keys {owners[run_id]} and {name} name the same run", (run,) if run else ()
        owners[run_id] = name
        if run is not None and (run.schedule_id != schedule_id or not run.lane):
            yield f"the client key {name} names a run that is not its own", (run,)
    asked: dict[tuple[str, str], str] = {}
    for note in view.notes.get("asked", ()):
        seen.count += 1
        if note.word and asked.setdefault((note.about, note.word), note.subject) != note.subject:
            yield f"the client key {note.word} gave two runs", (note,)


@invariant("I40", "preview equals practice", counts="previews")
def preview_equals_practice(view: View, seen: Seen) -> Broken:
    """The next instant that is shown is the next one of the plan, and what was shown is what was decided."""
    for schedule in view.history.schedules:
        policy = view.policies.get((schedule.id, schedule.revision))
        if policy is None or policy.governed or policy.rolls or not _is_planned(schedule):
            continue
        seen.count += 1
        expected = next_planned(view, schedule, policy)
        if expected is not None and schedule.next_at != expected:
            said = f"{schedule.name} shows {spelled(schedule.next_at)} as its next time"
            yield f"{said}, and its plan says {spelled(expected)}", (schedule,)
    for note in view.notes.get("shown", ()):
        seen.count += 1
        rows = [row for row in view.occurrences.get(note.subject, ()) if row.revision == note.fence]
        decided = sorted(row.planned_at for row in rows if row.planned_at > note.at)
        gaps = any(row.last_of is not None and end_of(row) > note.at for row in rows)
        both = list(zip(note.values, decided, strict=False))
        if not gaps and any(shown != at for shown, at in both):
            yield f"{note.subject}: other instants were shown than were decided", (note,)


def _on_time(run: RunRow, grace: int) -> bool:
    return bool(run.schedule_id) and not run.lane and run.created_at - run.planned_at <= grace


def _starved(view: View, seen: Seen, late: int) -> Broken:
    """A ready run that no ceiling stops, while a later one of its line was leased."""
    counted = Counter(hold.gate for hold in view.history.holds)
    full = {row.gate for row in view.history.gates if counted[row.gate] >= row.most}
    newest: dict[tuple[tuple[str, ...], int], int] = {}
    for run in view.history.runs:
        began = view.first_lease(run) if not run.handoff else None
        if began is not None and late <= began <= view.now - view.grace:
            line = (run.gates, run.priority)
            newest[line] = max(newest.get(line, 0), run.planned_at)
    for run in view.history.runs:
        if run.state == "ready" and not run.handoff:
            seen.count += 1
            stuck = run.fire_at < late and not full.intersection(run.gates)
            if stuck and newest.get((run.gates, run.priority), 0) > run.fire_at + 3 * view.grace:
                yield (
                    f"run {run.id} is ready since {spelled(run.fire_at)} while later ones were leased",
                    (run,),
                )


def _is_past(view: View, owner: ScheduleRow, note: Note) -> bool:
    """Whether nothing can make it due again: its schedule is archived, or it was left out and is over."""
    by_hand = note.value in view.left_out.get(owner.id, ())
    return owner.state == "archived" or (by_hand and note.at >= note.value)


def _is_lost(view: View, run_id: str, pruned: str, floor: int) -> bool:
    if run_id in view.runs or run_id <= pruned:
        return False
    made = made_at(run_id)
    return made is not None and made > floor


def _answer_cap(view: View, run: RunRow) -> int | None:
    policy = view.policy(run) if run.schedule_id else None
    if policy is None or policy.target.get("kind") != "http":
        return None
    return (int(policy.target.get("max_response_kb", 100)) * SPELLED + 64) * KILOBYTE


def _is_planned(schedule: ScheduleRow) -> bool:
    by_trigger = schedule.source.startswith("baseline") and not schedule.hints
    return schedule.state == "active" and schedule.next_at is not None and by_trigger
