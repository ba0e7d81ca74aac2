"""Invariants of schedule policies: overlap, catch-up, pauses, and the governor with its hints."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import groupby, pairwise
from typing import Any

from msgspec.structs import replace

from timewright.verification.checker import Coverage, Violations, invariant
from timewright.verification.invariants.governed import (
    check_counted_from_start,
    check_hint_ends,
    check_superseded,
)
from timewright.verification.invariants.progress import state_error
from timewright.verification.oracle.revision_spans import last_instant
from timewright.verification.oracle.schedule_policy import SchedulePolicy
from timewright.verification.oracle.times import DAY, MINUTE, SECOND, format_instant, parse_instant
from timewright.verification.rows import JsonObject, PauseRow, RunRow, ScheduleRow
from timewright.verification.view import NEVER, HistoryView

MAX_HINT_TTL_US = DAY
HINT_KINDS = ("interval", "one_shot")
# Occurrences skipped for these reasons are not missed, whatever the catch-up policy is.
NOT_MISSED_REASONS = frozenset({"paused", "excluded", "deadline", "by_hand", "clamped"})


@invariant("I62", "deadlines hold", unit="leases")
def nothing_is_leased_after_its_deadline(view: HistoryView, coverage: Coverage) -> Violations:
    """A run of a schedule with a deadline is leased at most that long after its planned instant."""
    for run in view.history.runs:
        policy = view.policy(run)
        if policy is None or policy.deadline is None:
            continue
        for _, began, _, _ in view.leases(run):
            coverage.count += 1
            # Under a limit, a lease may be dated later than the instant at which it was decided.
            if began - run.planned_at > policy.deadline + view.skew:
                late = format_instant(began)
                yield f"run {run.id} was leased at {late}, after its deadline", (run,)


@invariant("I21", "overlap policy holds", unit="runs")
def overlap_is_obeyed(view: HistoryView, coverage: Coverage) -> Violations:
    """Unless overlap is allowed, a schedule has one run in flight, and queued runs start in order."""
    for schedule_id, rows in view.runs_by_schedule.items():
        exclusive = [run for run in rows if run.exclusive and run.state != "skipped" and not view.resets(run)]
        coverage.count += len(exclusive)
        name = view.schedules[schedule_id].name if schedule_id in view.schedules else schedule_id
        periods = sorted(
            (period for run in exclusive if (period := _in_flight_period(view, run))), key=lambda f: f[:2]
        )
        for (_, ended, before), (began, _, run) in pairwise(periods):
            if began < ended:
                yield (
                    f"{name}: a run began at {format_instant(began)} while another was in flight",
                    (before, run),
                )
        yield from _check_queue_order(view, name, exclusive)
        yield from _check_skip_overlap(view, name, exclusive)


@invariant("I22", "catch-up policy holds", unit="occurrences")
def catch_up_is_obeyed(view: HistoryView, coverage: Coverage) -> Violations:
    """Missed occurrences run as the policy says: none, the newest, or each within limit and window."""
    for rows in view.occurrences.values():
        for (made, _), group in groupby(sorted(rows, key=_pass), key=_pass):
            decided = [run for run in group if run.planned_at <= made and not _is_not_missed(run)]
            policy = view.policy(decided[0]) if decided else None
            if policy is None:
                continue
            coverage.count += len(decided)
            yield from _check_catch_up(view, policy, decided, made)
            yield from check_superseded(policy, decided)


@invariant("I23", "pauses hold", unit="pauses")
def nothing_runs_during_a_pause(view: HistoryView, coverage: Coverage) -> Violations:
    """No occurrence runs whose instant lies in a pause, unless it was decided before the pause began.

    What was skipped because of a pause lies in one.
    """
    for run in (run for rows in view.occurrences.values() for run in rows if _is_skipped_as_paused(run)):
        coverage.count += 1
        if not (_is_in_pause(view, run, run.planned_at) and _is_in_pause(view, run, last_instant(run))):
            at = format_instant(run.planned_at)
            yield f"{at} was skipped as paused, but lies in no pause", (run,)
    for schedule_id, pauses in view.pauses.items():
        rows = view.occurrences.get(schedule_id, [])
        for pause, ended in pauses:
            coverage.count += 1
            for run in rows:
                inside = max(pause.at, pause.cursor + 1) <= run.planned_at < ended
                if inside and run.state != "skipped":
                    shown = f"{format_instant(pause.at)} to {format_instant(min(ended, view.now))}"
                    yield f"{format_instant(run.planned_at)} ran, but lies in a pause from {shown}", (run,)
    for schedule in view.history.schedules:
        for line in view.audit.get(schedule.id, ()):
            if line.action == "schedule.pause" and line.after not in ("", "paused"):
                at = format_instant(line.at)
                yield f"{schedule.id} was paused at {at}, but stayed {line.after}", (line,)
        error = state_error(view, schedule, view.policies.get((schedule.id, schedule.revision)))
        if error:
            yield f"{schedule.name} {error}", (schedule,)


def _is_skipped_as_paused(run: RunRow) -> bool:
    return run.state == "skipped" and run.reason == "paused"


def _is_in_pause(view: HistoryView, run: RunRow, at: int) -> bool:
    """Whether an instant of a schedule lies in a pause of its own or of a scope, or while it was parked."""
    schedule_id = run.schedule_id
    # A row that was skipped does not name the queue of its schedule.
    run = replace(run, queue=_body(view, run).get("queue") or "")
    spans = [(pause.at, ended) for pause, ended in view.pauses.get(schedule_id, ())]
    spans += [
        (pause.at, min(end for end in (pause.until, pause.ended_at, NEVER) if end is not None))
        for pause in view.history.pauses
        if _is_paused(view, pause, run)
    ]
    # What came due while it was parked is recorded by the resume.
    resumes = [line for line in view.audit.get(schedule_id, ()) if line.action == "schedule.resume"]
    parked = {line.at for line in resumes if line.before == "parked"}
    adjustments = view.adjustments.get(schedule_id, ())
    spans += [(row.cursor, row.at) for row in adjustments if row.kind == "resume" and row.at in parked]
    return any(began <= at < ended for began, ended in spans)


@invariant("I54", "nothing is leased under a pause", unit="pauses")
def nothing_is_leased_under_a_pause(view: HistoryView, coverage: Coverage) -> Violations:
    """From one second after a pause of a scope until its end, no run in the scope is leased.

    A lease is dated when it was asked for, which may be up to a minute before its commit. What runs outside
    and only reports here is not leased by an instance. Messages to channels are sent under a pause, except by
    a store that was restored or moved.
    """
    pauses = view.history.pauses
    all_leases = ((at, run) for run in view.history.runs for _, at, _ in view.lease_periods(run))
    leases = sorted(all_leases, key=_leased_at) if pauses else []
    for pause in pauses:
        coverage.count += 1
        ends = [at - MINUTE for at in (pause.until, pause.ended_at) if at is not None]
        first = bisect_right(leases, pause.at + SECOND, key=_leased_at)
        after = bisect_left(leases, min(ends, default=view.now), key=_leased_at)
        for at, run in leases[first:after]:
            if not run.holder.startswith("ping:") and _is_paused(view, pause, run):
                what = f"{pause.scope} {pause.name or pause.namespace}".strip()
                since = format_instant(pause.at)
                yield f"run {run.id} was leased at {format_instant(at)}, {what} was paused at {since}", (run,)


def _leased_at(lease: tuple[int, RunRow]) -> int:
    return lease[0]


def _is_paused(view: HistoryView, pause: PauseRow, run: RunRow) -> bool:
    """Whether a pause holds for a run: by its namespace, its queue, or the schedule of its outermost run."""
    is_message = run.queue.startswith("channel.")
    if is_message and pause.scope != "queue" and pause.origin not in ("restore", "move"):
        return False
    if pause.scope in ("installation", "namespace"):
        return pause.namespace in ("", run.namespace)
    if pause.namespace != run.namespace:
        return False
    if pause.scope == "queue":
        return run.queue == pause.name
    seen: set[str] = set()
    while run.parent and run.parent not in seen and run.parent in view.runs:
        seen.add(run.parent)
        run = view.runs[run.parent]
    return _body(view, run).get(pause.scope) == pause.name


def _body(view: HistoryView, run: RunRow) -> JsonObject:
    """The definition of a run's schedule under which it was created."""
    bodies = (row.body for row in view.revisions.get(run.schedule_id, ()) if row.revision == run.revision)
    return next(bodies, {})


@invariant("I24", "decisions follow their source", unit="decisions")
def recorded_decisions_follow_their_source(view: HistoryView, coverage: Coverage) -> Violations:
    """A recorded decision beats its rejected candidates by the governor's rules, and respects the clamps."""
    for schedule in view.history.schedules:
        if schedule.next_at is not None and schedule.trail:
            coverage.count += 1
            error = _decision_error(schedule.next_at, schedule.source, schedule.trail, after=schedule.cursor)
            if error:
                yield f"{schedule.name}: {error}", (schedule,)
        rows = view.occurrences.get(schedule.id, [])
        after = 0
        for run in rows:
            coverage.count += bool(run.trail)
            error = _decision_error(run.planned_at, run.source, run.trail, after=after) if run.trail else ""
            if error:
                yield f"{schedule.name}: {error}", (run,)
            after = last_instant(run)
        yield from _check_clamps(view, schedule, rows)
        yield from check_counted_from_start(view, rows)


@invariant("I25", "hints expire", unit="hints")
def hints_expire(view: HistoryView, coverage: Coverage) -> Violations:
    """Every hint has an actor and an end within the limit, and affects only schedules that accept hints."""
    for schedule in view.history.schedules:
        yield from check_hint_ends(view, schedule)
        for kind, hint in schedule.hints.items():
            if isinstance(hint, dict):
                coverage.count += 1
                error = _hint_error(kind, hint)
                if error:
                    yield f"{schedule.name}: {error}", (schedule,)
    for rows in view.occurrences.values():
        for run in rows:
            if run.source in ("ai-interval", "ai-oneshot"):
                coverage.count += 1
                policy = view.policy(run)
                hints = [x for x in view.adjustments.get(run.schedule_id, ()) if x.kind in HINT_KINDS]
                if policy is not None and not policy.adaptive:
                    yield f"run {run.id} was planned by a hint, but its schedule accepts none", (run,)
                elif not any(hint.at <= run.created_at for hint in hints):
                    yield f"run {run.id} was planned by a hint, but none was given before", (run,)


def _is_not_missed(run: RunRow) -> bool:
    return run.state == "skipped" and run.reason in NOT_MISSED_REASONS


def _pass(run: RunRow) -> tuple[int, int]:
    """Group key of one admission pass under one revision."""
    return run.created_at, run.revision


def _in_flight_period(view: HistoryView, run: RunRow) -> tuple[int, int, RunRow] | None:
    """From the first lease until the end of the last one, or until now while it is unfinished."""
    periods = list(view.lease_periods(run))
    if not periods or periods[0][0] != 1 or run.state == "held":
        return None
    began = periods[0][1]
    if run.state in ("ready", "leased"):
        return began, max(began, view.now - view.skew), run
    return began, max((ended for _, _, ended in periods if ended is not None), default=began), run


def _check_queue_order(view: HistoryView, name: str, exclusive: list[RunRow]) -> Violations:
    queued = [run for run in exclusive if not run.dedupe_scope and _overlap(view, run) == "queue"]
    leased = [(at, run.planned_at, run) for run in queued if (at := view.first_lease(run)) is not None]
    first = sorted(leased, key=lambda one: one[:2])
    for (before_at, _, before), (at, _, run) in pairwise(first):
        if run.planned_at < before.planned_at and before_at < at - view.skew and run.created_at < before_at:
            yield (
                f"{name}: {format_instant(before.planned_at)} ran before {format_instant(run.planned_at)}",
                (before, run),
            )


def _check_skip_overlap(view: HistoryView, name: str, exclusive: list[RunRow]) -> Violations:
    """Under `skip`, nothing is admitted while another run is unfinished; caught-up runs wait in sequence."""
    latest: tuple[int, RunRow] | None = None
    for run in exclusive:
        policy = view.policy(run)
        if (
            run.dedupe_scope
            or policy is None
            or policy.overlap != "skip"
            or policy.catch_up in ("all", "spread")
        ):
            latest = None
            continue
        if latest is not None and latest[0] > run.created_at + view.skew and latest[1].id != run.id:
            message = f"{name}: admitted at {format_instant(run.created_at)} while another was unfinished"
            yield message, (latest[1], run)
        ends = run.finished_at if run.state not in ("ready", "leased", "held") else view.now
        ended = ends if ends is not None else run.created_at
        if latest is None or ended > latest[0]:
            latest = (ended, run)


def _overlap(view: HistoryView, run: RunRow) -> str:
    policy = view.policy(run)
    return policy.overlap if policy is not None else ""


def _check_catch_up(
    view: HistoryView, policy: SchedulePolicy, decided: list[RunRow], made: int
) -> Violations:
    ordered = sorted(decided, key=lambda run: run.planned_at)
    newest = ordered[-1]
    late = made - last_instant(newest) <= policy.grace
    missed = [run for run in ordered if run.state != "skipped" and not (run is newest and late)]
    if not policy.follows_trigger or policy.adaptive or policy.cadence != "none" or not missed:
        return
    if policy.catch_up == "none":
        yield f"{len(missed)} missed occurrences ran, but catch_up is none", tuple(missed)
    elif policy.catch_up == "last" and (len(missed) > 1 or missed[0] is not newest):
        yield "catch_up is last, but older missed occurrences ran", tuple(missed)
    elif policy.overlap != "allow" and len(missed) > _max_caught_up(view, policy, made):
        yield f"{len(missed)} were caught up at once, but the limit is {policy.catch_up_limit}", tuple(missed)
    window = policy.catch_up_window
    for run in missed:
        if window is not None and run.planned_at < made - window:
            yield f"{format_instant(run.planned_at)} ran, but is older than its catch_up_window", (run,)


def _max_caught_up(view: HistoryView, policy: SchedulePolicy, made: int) -> int:
    """How many missed occurrences may be admitted at one instant: the limit, which counts the held ones.

    If no run was live before, the first of them is live and not held, so a second pass may admit one more.
    """
    schedule_id = policy.schedule_id
    runs = view.runs_by_schedule.get(schedule_id, ())
    was_live = any(
        run.exclusive and run.created_at < made and (run.finished_at is None or run.finished_at > made)
        for run in runs
        if run.state != "skipped"
    )
    return policy.catch_up_limit * view.admission_passes(schedule_id, made) + (not was_live)


def _decision_error(at: int, source: str, trail: tuple[JsonObject, ...], *, after: int) -> str:
    """Describe what is wrong with a decision, given its rejected candidates; empty if nothing is.

    Candidates up to `after` were decided before and could not win.
    """
    losers = [(lost, str(one.get("source", ""))) for one in trail if (lost := _instant(one.get("at")))]
    if source == "clamped-min" and losers and all(lost > at for lost, _ in losers):
        return f"{format_instant(at)} was moved later by a clamp, but no candidate was earlier"
    if source == "clamped-max" and losers and all(lost < at for lost, _ in losers):
        return f"{format_instant(at)} was moved earlier by a clamp, but no candidate was later"
    # A hinted interval replaces the baseline, and a cadence replaces it by a later one: only the last of them
    # lost to the hinted instant.
    rival = "ai-interval" if any(name == "ai-interval" for _, name in losers) else "baseline"
    for lost in [lost for lost, name in losers if name.startswith(rival)][-1:]:
        if source == "ai-oneshot" and after < lost <= at:
            return f"a hint for {format_instant(at)} was preferred to the earlier {format_instant(lost)}"
    return ""


def _check_clamps(view: HistoryView, schedule: ScheduleRow, rows: list[RunRow]) -> Violations:
    kept = [row for row in rows if row.reason != "clamped"]
    for before, run in pairwise(kept):
        policy = view.policy(run)
        if policy is None or not policy.clamp_min or before.revision != run.revision:
            continue
        # What was skipped ahead had its row before a hint asked for an instant just before it.
        was_skipped_first = run.reason == "by_hand" and run.created_at <= before.created_at
        is_exempt = before.reason == "by_hand" or run.source == "paused" or was_skipped_first
        # With jitter to both sides, an occurrence may have been admitted before its instant.
        base = min(last_instant(before), before.created_at)
        if not is_exempt and run.planned_at < base + policy.clamp_min - view.skew:
            yield (
                f"{schedule.name}: {format_instant(run.planned_at)} is closer than its clamp allows",
                (before, run),
            )


def _hint_error(kind: str, hint: JsonObject) -> str:
    if not hint.get("actor"):
        return f"the {kind} hint has no actor"
    created, ends = _instant(hint.get("created_at")), _instant(hint.get("expires_at") or hint.get("until"))
    if ends is None:
        return f"the {kind} hint has no end"
    if created is None:
        return ""
    if kind != "pause" and ends <= created:
        return f"the {kind} hint ended before it began"
    if kind != "pause" and ends - created > MAX_HINT_TTL_US:
        return f"the {kind} hint lasts longer than a day"
    return ""


def _instant(text: Any) -> int | None:
    return parse_instant(text) if isinstance(text, str) else None
