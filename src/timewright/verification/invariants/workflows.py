"""Invariants of workflows: the order of steps, and answers to steps that wait."""

from __future__ import annotations

from collections import Counter, defaultdict

from timewright.verification.checker import Coverage, Violations, invariant
from timewright.verification.oracle.times import format_instant
from timewright.verification.rows import JsonObject, RunRow
from timewright.verification.view import HistoryView

ENDED = frozenset({"succeeded", "failed", "skipped", "cancelled"})
WAIT_HOLDER = "wait"


@invariant("I58", "a step starts after what it needs", unit="steps")
def a_step_starts_after_its_needs(view: HistoryView, coverage: Coverage) -> Violations:
    """When a step gets a run, all runs of the steps that it needs have ended."""
    specs = _specs(view)
    is_complete = view.history.since is None and not view.history.cut
    runs: defaultdict[tuple[str, str], list[RunRow]] = defaultdict(list)
    for run in view.history.runs:
        if run.parent and run.workflow:
            runs[run.parent, _step_name(run)].append(run)
    for (parent, name), own in runs.items():
        spec = specs.get((own[0].namespace, own[0].workflow))
        if spec is None or parent not in view.runs:
            continue
        coverage.count += len(own)
        first = min(own, key=lambda run: run.created_at)
        for need in spec.get(name, {}).get("needs", ()):
            needed = runs.get((parent, need), [])
            if not needed and is_complete and spec.get(need, {}).get("each") is None:
                yield f"step {name} of {parent} got a run, but {need}, which it needs, has none", (first,)
            for one in needed:
                # A retry runs a failed step again, after others have followed it.
                is_early = one.state not in ENDED or (one.finished_at or 0) > first.created_at
                if is_early and not view.resets(one) and one.created_at <= first.created_at:
                    at = format_instant(first.created_at)
                    yield f"step {name} of {parent} got a run at {at}, before {need} had ended", (first, one)


@invariant("I59", "an answer is taken once", unit="answers")
def an_answer_is_taken_once(view: HistoryView, coverage: Coverage) -> Violations:
    """A step that waits ends once, without an attempt; in a simulation, one answer to it is accepted."""
    for run_id, attempts in view.attempts.items():
        waited = [attempt for attempt in attempts if attempt.holder == WAIT_HOLDER]
        coverage.count += bool(waited)
        if len(waited) > 1:
            yield f"run {run_id} waited and ended {len(waited)} times", tuple(waited)
        if any(attempt.charged for attempt in waited if attempt.outcome == "succeeded"):
            yield f"the wait of run {run_id} was charged as an attempt", tuple(waited)
    accepted = Counter(event.subject for event in view.events.get("answered", ()))
    for run_id, count in accepted.items():
        if count > 1:
            yield f"{count} answers to run {run_id} were accepted", ()


def _specs(view: HistoryView) -> dict[tuple[str, str], dict[str, JsonObject]]:
    """The steps by name of every stored version, by namespace and `name@version`."""
    found: dict[tuple[str, str], dict[str, JsonObject]] = {}
    for row in view.history.objects:
        if row.kind == "workflow_version":
            steps = row.body.get("spec", {}).get("steps", ())
            found[row.namespace, row.name] = {step["name"]: step for step in steps}
    return found


def _step_name(run: RunRow) -> str:
    """The name of a step from the dedupe scope `PARENT/STEP[ITEM]~ROUND`."""
    return run.dedupe_scope.partition("/")[2].partition("~")[0].partition("[")[0]
