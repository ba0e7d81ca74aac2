"""Ruled by policy: overlap, catch-up, pauses, the Governor and its hints."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import Any

from msgspec import Struct

from timewright.proof.checking import Seen, invariant
from timewright.proof.policy import Policy
from timewright.proof.rows import Plain, RunRow, ScheduleRow
from timewright.proof.spans import DAY, instant, spelled
from timewright.proof.stretches import end_of
from timewright.proof.view import View

Broken = Iterator[tuple[str, tuple[Struct, ...]]]

LONGEST_TTL = DAY
# What may not run whatever the catch-up policy says is neither late nor missed.
OUTSIDE = frozenset({"paused", "excluded", "deadline", "by_hand"})


@invariant("I21", "overlap is obeyed", counts="runs")
def overlap_is_obeyed(view: View, seen: Seen) -> Broken:
    """Unless overlap is allowed a schedule has one run in flight, and queued ones start in their order."""
    for schedule_id, rows in view.of_schedule.items():
        alone = [run for run in rows if run.alone and run.state != "skipped" and not view.restarts(run)]
        seen.count += len(alone)
        name = view.schedules[schedule_id].name if schedule_id in view.schedules else schedule_id
        flights = sorted((flight for run in alone if (flight := _flight(view, run))), key=lambda f: f[:2])
        for (_, ended, before), (began, _, run) in pairwise(flights):
            if began < ended:
                yield f"{name}: a run began at {spelled(began)} while another was in flight", (before, run)
        yield from _out_of_order(view, name, alone)
        yield from _beside_another(view, name, alone)


@invariant("I22", "catch-up is obeyed", counts="occurrences")
def catch_up_is_obeyed(view: View, seen: Seen) -> Broken:
    """Of the missed none runs, or the newest, or each up to the limit: as the policy says; none too old."""
    for rows in view.occurrences.values():
        for (made, _), group in groupby(sorted(rows, key=_pass), key=_pass):
            decided = [run for run in group if run.planned_at <= made and not _is_outside(run)]
            policy = view.policy(decided[0]) if decided else None
            if policy is None:
                continue
            seen.count += len(decided)
            yield from _caught_up(policy, decided, made, passes=view.passes(decided[0].schedule_id, made))


@invariant("I23", "a pause is a pause", counts="pauses")
def nothing_runs_inside_a_pause(view: View, seen: Seen) -> Broken:
    """No occurrence runs whose instant lies between a pause and the resume that ended it."""
    for schedule_id, pauses in view.pauses.items():
        rows = view.occurrences.get(schedule_id, [])
        held_back = [end_of(row) for row in rows if row.state == "skipped" and row.reason == "paused"]
        for began, ended in pauses:
            seen.count += 1
            last = max((at for at in held_back if began <= at < ended), default=0)
            for run in rows:
                inside = run.state != "skipped" and began <= run.planned_at < ended
                # What jitter to both sides let run before the pause began was decided before it, too.
                late = run.created_at >= began and run.planned_at < last
                if inside and (late or began < run.created_at < ended):
                    said = f"{spelled(run.planned_at)} ran, and lies in a pause from {spelled(began)}"
                    yield f"{said} to {spelled(ended)}", (run,)
    for schedule_id in view.schedules:
        for line in view.audit.get(schedule_id, ()):
            if line.action == "schedule.pause" and line.after not in ("", "paused"):
                yield f"{schedule_id} was paused at {spelled(line.at)}, and stayed {line.after}", (line,)


@invariant("I24", "decisions replay", counts="decisions")
def decisions_are_what_they_say(view: View, seen: Seen) -> Broken:
    """A recorded decision is what its source says: it beat its losers by the rule, and lies in its clamps."""
    for schedule in view.history.schedules:
        if schedule.next_at is not None and schedule.trail:
            seen.count += 1
            wrong = _why_not_that(schedule.next_at, schedule.source, schedule.trail, after=schedule.cursor)
            if wrong:
                yield f"{schedule.name}: {wrong}", (schedule,)
        rows = view.occurrences.get(schedule.id, [])
        after = 0
        for run in rows:
            seen.count += bool(run.trail)
            wrong = _why_not_that(run.planned_at, run.source, run.trail, after=after) if run.trail else ""
            if wrong:
                yield f"{schedule.name}: {wrong}", (run,)
            after = end_of(run)
        yield from _too_near(view, schedule, rows)


@invariant("I25", "hints expire", counts="hints")
def hints_expire(view: View, seen: Seen) -> Broken:
    """Every hint has an actor and an end within its limit, and moves only schedules that take hints."""
    for schedule in view.history.schedules:
        for kind, hint in schedule.hints.items():
            if isinstance(hint, dict):
                seen.count += 1
                wrong = _why_no_hint(kind, hint)
                if wrong:
                    yield f"{schedule.name}: {wrong}", (schedule,)
    for rows in view.occurrences.values():
        for run in rows:
            if run.source in ("ai-interval", "ai-oneshot"):
                seen.count += 1
                policy = view.policy(run)
                wished = [x for x in view.audit.get(run.schedule_id, ()) if x.action == "schedule.hint"]
                if policy is not None and not policy.adaptive:
                    yield f"run {run.id} was planned by a hint, and its schedule takes none", (run,)
                elif wished and not any(line.at <= run.created_at for line in wished):
                    yield f"run {run.id} was planned by a hint that nobody gave before", (run,)


def _is_outside(run: RunRow) -> bool:
    return run.state == "skipped" and run.reason in OUTSIDE


def _pass(run: RunRow) -> tuple[int, int]:
    """What was decided together: in one pass, under one revision."""
    return run.created_at, run.revision


def _flight(view: View, run: RunRow) -> tuple[int, int, RunRow] | None:
    """From its first lease until it was over, or until now while it is not."""
    spells = list(view.spells(run))
    if not spells or spells[0][0] != 1 or run.state == "held":
        return None
    began = spells[0][1]
    if run.state in ("ready", "leased"):
        return began, max(began, view.now - view.skew), run
    return began, max((ended for _, _, ended in spells if ended is not None), default=began), run


def _out_of_order(view: View, name: str, alone: list[RunRow]) -> Broken:
    queued = [run for run in alone if not run.lane and _overlap(view, run) == "queue"]
    first = sorted((at, run.planned_at, run) for run in queued if (at := view.first_lease(run)) is not None)
    for (before_at, _, before), (at, _, run) in pairwise(first):
        if run.planned_at < before.planned_at and before_at < at - view.skew and run.created_at < before_at:
            yield (
                f"{name}: {spelled(before.planned_at)} started before {spelled(run.planned_at)}",
                (before, run),
            )


def _beside_another(view: View, name: str, alone: list[RunRow]) -> Broken:
    """Under skip nothing is even admitted while another is unfinished; caught-up ones wait in sequence."""
    latest: tuple[int, RunRow] | None = None
    for run in alone:
        policy = view.policy(run)
        if run.lane or policy is None or policy.overlap != "skip" or policy.catch_up in ("all", "spread"):
            latest = None
            continue
        if latest is not None and latest[0] > run.created_at + view.skew and latest[1].id != run.id:
            said = f"{name}: admitted at {spelled(run.created_at)} while another was unfinished"
            yield said, (latest[1], run)
        ends = run.finished_at if run.state not in ("ready", "leased", "held") else view.now
        ended = ends if ends is not None else run.created_at
        if latest is None or ended > latest[0]:
            latest = (ended, run)


def _overlap(view: View, run: RunRow) -> str:
    policy = view.policy(run)
    return policy.overlap if policy is not None else ""


def _caught_up(policy: Policy, decided: list[RunRow], made: int, *, passes: int) -> Broken:
    ordered = sorted(decided, key=lambda run: run.planned_at)
    newest = ordered[-1]
    late = made - end_of(newest) <= policy.grace
    missed = [run for run in ordered if run.state != "skipped" and not (run is newest and late)]
    if policy.governed or not missed:
        return
    if policy.catch_up == "none":
        yield f"{len(missed)} missed occurrences ran, and catch_up is none", tuple(missed)
    elif policy.catch_up == "last" and (len(missed) > 1 or missed[0] is not newest):
        yield "catch_up is last, and others than the newest missed occurrence ran", tuple(missed)
    elif policy.overlap != "allow" and len(missed) > policy.catch_up_limit * passes:
        yield f"{len(missed)} were caught up at once, and the limit is {policy.catch_up_limit}", tuple(missed)
    window = policy.catch_up_window
    for run in missed:
        if window is not None and run.planned_at < made - window:
            yield f"{spelled(run.planned_at)} ran, and is older than its catch_up_window", (run,)


def _why_not_that(at: int, source: str, trail: tuple[Plain, ...], *, after: int) -> str:
    """What is wrong with a decision, seen from the candidates that lost to it.

    Up to `after` everything was decided before, so that nothing there could win.
    """
    losers = [(lost, str(one.get("source", ""))) for one in trail if (lost := _instant(one.get("at")))]
    if source == "clamped-min" and losers and all(lost > at for lost, _ in losers):
        return f"{spelled(at)} was moved later by a clamp, and nothing nearer was asked for"
    if source == "clamped-max" and losers and all(lost < at for lost, _ in losers):
        return f"{spelled(at)} was moved nearer by a clamp, and nothing later was asked for"
    # A wished interval takes the place of the baseline: what lost to it did not lose to a wished instant.
    rival = "ai-interval" if any(name == "ai-interval" for _, name in losers) else "baseline"
    for lost, name in losers:
        if source == "ai-oneshot" and name.startswith(rival) and after < lost <= at:
            return f"a hint for {spelled(at)} beat an earlier {spelled(lost)}"
    return ""


def _too_near(view: View, schedule: ScheduleRow, rows: list[RunRow]) -> Broken:
    for before, run in pairwise(rows):
        policy = view.policy(run)
        if policy is None or not policy.clamp_min or before.revision != run.revision:
            continue
        seen_by_hand = before.reason == "by_hand" or run.source == "paused"
        if not seen_by_hand and run.planned_at < before.created_at + policy.clamp_min - view.skew:
            yield f"{schedule.name}: {spelled(run.planned_at)} is nearer than its clamp allows", (before, run)


def _why_no_hint(kind: str, hint: Plain) -> str:
    if not hint.get("actor"):
        return f"the {kind} hint has no actor"
    created, ends = _instant(hint.get("created_at")), _instant(hint.get("expires_at") or hint.get("until"))
    if ends is None:
        return f"the {kind} hint has no end"
    if created is None:
        return ""
    if kind != "pause" and ends <= created:
        return f"the {kind} hint ended before it began"
    if kind != "pause" and ends - created > LONGEST_TTL:
        return f"the {kind} hint lasts longer than a day"
    return ""


def _instant(text: Any) -> int | None:
    return instant(text) if isinstance(text, str) else None
