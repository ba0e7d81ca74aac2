"""Invariants of isolation: namespaces, idempotency keys of effects, client keys, and who may run what."""

from __future__ import annotations

from collections import defaultdict

from timewright.verification.checker import Coverage, Violations, invariant
from timewright.verification.rows import JsonObject
from timewright.verification.view import HistoryView, Lease


@invariant("I32", "namespaces are isolated", unit="runs")
def namespaces_are_isolated(view: HistoryView, coverage: Coverage) -> Violations:
    """Every row is in the namespace of its parent row, and in the namespace that was checked."""
    checked_namespace = view.history.namespace
    for schedule in view.history.schedules:
        if checked_namespace is not None and schedule.namespace != checked_namespace:
            yield (
                f"schedule {schedule.id} belongs to {schedule.namespace}, not {checked_namespace}",
                (schedule,),
            )
    for run in view.history.runs:
        coverage.count += 1
        owner = view.schedules.get(run.schedule_id)
        if owner is not None and owner.namespace != run.namespace:
            yield f"run {run.id} belongs to {run.namespace}, its schedule to {owner.namespace}", (run, owner)
        parent = view.runs.get(run.parent)
        if parent is not None and parent.namespace != run.namespace:
            yield f"run {run.id} belongs to {run.namespace}, its parent to {parent.namespace}", (run, parent)
        if checked_namespace is not None and run.namespace != checked_namespace:
            yield f"run {run.id} belongs to {run.namespace}, not {checked_namespace}", (run,)
        for key in run.limit_keys:
            if key.partition(":")[2].partition("/")[0] != run.namespace:
                yield f"run {run.id} of {run.namespace} is counted by {key}", (run,)


@invariant("I35", "effects carry one key", unit="effects")
def effects_carry_one_key(view: HistoryView, coverage: Coverage) -> Violations:
    """The effects of a run carry one key, do not exceed its leases, and never go back to a lower fence."""
    if view.history.effects is None:
        coverage.not_checked_because = "not checked here: needs the effects of a simulation"
        return
    keys: dict[str, str] = {}
    highest: dict[str, int] = {}
    attempts: defaultdict[str, set[int]] = defaultdict(set)
    for effect in sorted(view.history.effects, key=lambda effect: effect.at):
        coverage.count += 1
        if keys.setdefault(effect.run_id, effect.key) != effect.key:
            yield f"run {effect.run_id} reached its target under two keys", (effect,)
        if effect.fenced and effect.applied and effect.fence < highest.get(effect.run_id, 0):
            yield (
                f"a fenced receiver accepted fence {effect.fence} of {effect.run_id} after a higher one",
                (effect,),
            )
        if effect.applied:
            highest[effect.run_id] = max(highest.get(effect.run_id, 0), effect.fence)
        attempts[effect.run_id].add(effect.fence)
    for run_id, fences in attempts.items():
        run = view.runs.get(run_id)
        if run is not None and (len(fences) > run.fence or max(fences) > run.fence):
            yield f"run {run_id} had more effects than leases", (run,)


@invariant("I39", "a client key is one run", unit="client keys")
def a_client_key_is_one_run(view: HistoryView, coverage: Coverage) -> Violations:
    """A client key names exactly one manual run, which has its own dedupe scope."""
    owners: dict[str, str] = {}
    for name, run_id in view.history.meta.items():
        if not name.startswith("client:"):
            continue
        schedule_id = name.split(":", 2)[1]
        run = view.runs.get(run_id)
        if schedule_id not in view.schedules:
            continue
        coverage.count += 1
        if run_id in owners:
            yield f"the client keys {owners[run_id]} and {name} name the same run", (run,) if run else ()
        owners[run_id] = name
        if run is not None and (run.schedule_id != schedule_id or not run.dedupe_scope):
            yield f"the client key {name} names a run of another schedule or an occurrence", (run,)
    runs_by_key: dict[tuple[str, str], str] = {}
    for event in view.events.get("manual", ()):
        coverage.count += 1
        if (
            event.detail
            and runs_by_key.setdefault((event.schedule_id, event.detail), event.subject) != event.subject
        ):
            yield f"the client key {event.detail} created two runs", (event,)


@invariant("I46", "runs are leased where they can run", unit="leases by instances")
def runs_are_leased_where_they_can_run(view: HistoryView, coverage: Coverage) -> Violations:
    """An instance holds a lease only of a run whose function, queue, labels, command and broker it offers."""
    offers = {row.name: row.body for row in view.history.objects if row.kind == "offer"}
    instances = {
        row.name: offers[offer]
        for row in view.history.objects
        if row.kind == "instance" and isinstance(offer := row.body.get("offer"), str) and offer in offers
    }
    for run in view.history.runs:
        if run.handoff:
            continue
        holders = {attempt.holder for attempt in view.attempts.get(run.id, ())}
        for holder in sorted(holders | ({run.holder} if run.state == "leased" else set())):
            offer = instances.get(holder)
            if offer is None:
                continue
            coverage.count += 1
            missing = [need for need in run.needs if not _is_offered(need, offer)]
            queues = offer.get("queues")
            if queues is not None and not run.queue:
                missing.append("no queue")
            if missing:
                yield f"instance {holder} leased run {run.id} without {', '.join(missing)}", (run,)


@invariant("I65", "a run's token is its own", unit="acts of runs")
def a_token_acts_for_its_own_schedule(view: HistoryView, coverage: Coverage) -> Violations:
    """What the token of a run changed is the schedule of that run, while the run was leased."""
    for line in view.history.audit:
        run = view.runs.get(line.actor.removeprefix("run ")) if line.origin == "run" else None
        if run is None:
            continue
        coverage.count += 1
        if line.subject != run.schedule_id:
            yield f"the token of run {run.id} changed {line.subject}", (line, run)
        elif not any(_covers(view, lease, line.at) for lease in view.leases(run)):
            yield f"the token of run {run.id} was used while it was not leased", (line, run)


@invariant("I66", "progress is of the attempt", unit="reports")
def progress_has_the_fence_of_its_attempt(view: HistoryView, coverage: Coverage) -> Violations:
    """Progress and checkpoints carry the fence of an attempt of the run, and were reported during it."""
    for one in view.history.progress:
        run = view.runs.get(one.run_id)
        if run is None:
            continue
        coverage.count += 1
        lease = next((lease for lease in view.leases(run) if lease[0] == one.fence), None)
        if lease is None:
            yield f"progress of run {run.id} has the fence {one.fence} of no attempt", (one, run)
        elif not _covers(view, lease, one.at):
            yield (
                f"progress of run {run.id} was reported when attempt {one.fence} was not running",
                (one, run),
            )


def _covers(view: HistoryView, lease: Lease, at: int) -> bool:
    """Whether a lease held at an instant, as far as two clock readings may differ."""
    _, began, ended, _ = lease
    return began - view.skew <= at and (ended is None or at <= ended + view.skew)


def _is_offered(need: str, offer: JsonObject) -> bool:
    """Whether an offer names a need; a list that it leaves out means everything, but of labels nothing."""
    kind, _, value = need.partition(":")
    if kind == "label":
        return value in offer.get("labels", ())
    if kind == "shell":
        allowed = offer.get("programs", True)
        if isinstance(allowed, bool):
            return allowed
        return value in allowed or (value.startswith("/") and value[: value.rfind("/") + 1] in allowed)
    lists = {"call": "functions", "queue": "queues", "publish": "brokers"}
    named = offer.get(lists[kind]) if kind in lists else None
    return named is None or value in named
