"""The verdicts of due occurrences: those skipped in advance, displaced by the clamp, or started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from timewright.core.calendars import Calendar, allowed_after, occurrence_after
from timewright.core.policies.backoff import apply_jitter, occurrence_seed
from timewright.core.policies.policies import JitterSide, Offset
from timewright.core.recurrence.triggers import After, AnyOf, Every
from timewright.core.run.catch_up import CatchUpChoice, ChosenOccurrence, InFlightCounts, apply_overlap
from timewright.core.run.run import Reason
from timewright.core.run.verdicts import Drop, Fire, Hold, Replace, Skip, Verdict
from timewright.core.schedule.decision import Decision, Source
from timewright.core.schedule.due import BASELINE_SOURCES
from timewright.core.schedule.governor import (
    counts_from_last_start,
    counts_from_run,
    decide_pause,
    follows_trigger,
    is_in_streak,
    last_base,
    plan_next,
    pull_forward,
)
from timewright.core.schedule.instants import MAX_SCANNED, DisplacedInstants, DueInstants, list_occurrences
from timewright.core.schedule.pauses import Pauses, clear_pauses
from timewright.core.schedule.schedule import Schedule, ScheduleProgress

ALL_EXCLUDED = "calendars exclude every future occurrence"

_MICROSECOND = timedelta(microseconds=1)


def split_skipped(
    schedule: Schedule, due: DueInstants, *, pauses: Pauses, now: datetime
) -> tuple[list[datetime], list[Skip]]:
    """Split the due occurrences into those that may run and those skipped before catch-up is applied."""
    runnable: list[datetime] = []
    skips: list[Skip] = []
    for occurrence in due.occurrences:
        at, reason = occurrence.at, None
        if at in due.decided:
            continue
        if pauses.contains(at):
            reason = Reason.PAUSED
        elif occurrence.excluded:
            reason = Reason.EXCLUDED
        elif schedule.deadline is not None and now - at > schedule.deadline:
            reason = Reason.DEADLINE
        if reason is None:
            runnable.append(at)
        else:
            skips.append(Skip(planned_at=at, reason=reason, source=due.source_of(at)))
    return runnable, skips


def start_verdicts(
    schedule: Schedule,
    progress: ScheduleProgress,
    due: DueInstants,
    choice: CatchUpChoice,
    skips: Sequence[Skip],
    *,
    in_flight: InFlightCounts,
    calendars: Mapping[str, Calendar],
) -> list[Fire | Hold | Replace | Skip]:
    """Apply the overlap policy to the chosen occurrences, up to `max_runs`."""
    remaining = MAX_SCANNED if schedule.max_runs is None else schedule.max_runs - progress.runs
    missed = progress.missed + sum(skip.reason is Reason.MISSED for skip in skips)
    verdicts: list[Fire | Hold | Replace | Skip] = []
    for one, result in zip(
        choice.runs, apply_overlap(schedule, choice.runs, in_flight=in_flight), strict=True
    ):
        if isinstance(result, Reason):
            source = due.source_of(one.planned_at)
            verdicts.append(Skip(planned_at=one.planned_at, reason=result, source=source))
        elif remaining > 0:
            decided = due.decisions.get(one.planned_at)
            trail = due.trail if one.planned_at == progress.next_at else ()
            verdicts.append(
                result(
                    planned_at=one.planned_at,
                    fire_at=_fire_at(schedule, progress, one, calendars=calendars),
                    source=due.source_of(one.planned_at),
                    trail=trail if decided is None else decided.trail,
                    missed=missed,
                    fired_by=_fired_by(schedule, one.planned_at),
                )
            )
            remaining, missed = remaining - 1, 0
    return verdicts


def end_if_all_excluded(
    schedule: Schedule, decision: Decision, *, calendars: Mapping[str, Calendar]
) -> Decision:
    """Return a decision without an instant if calendars exclude every future occurrence.

    A calendar may have been edited since the schedule was created; without this check the schedule would skip
    forever. A schedule with `end_at` ends anyway, and each of its excluded instants gets its row.
    """
    if decision.at is None or schedule.end_at is not None or isinstance(schedule.trigger, After):
        return decision
    before = decision.at - _MICROSECOND
    if allowed_after(schedule.trigger, before, rule=schedule.calendar, calendars=calendars) is not None:
        return decision
    return decision.override(None, decision.source, why=ALL_EXCLUDED)


def displaced_drops(displaced: Iterable[DisplacedInstants], *, source: Source) -> list[Drop]:
    """Return one row for each group of instants that the clamp moved to one later instant."""
    return [
        Drop(
            planned_at=span.first,
            last_of=span.last,
            count=span.count,
            reason=Reason.CLAMPED,
            source=source,
        )
        for span in displaced
    ]


def _fired_by(schedule: Schedule, planned_at: datetime) -> tuple[int, ...]:
    return schedule.trigger.matching_positions(planned_at) if isinstance(schedule.trigger, AnyOf) else ()


def _fire_at(
    schedule: Schedule,
    progress: ScheduleProgress,
    one: ChosenOccurrence,
    *,
    calendars: Mapping[str, Calendar],
) -> datetime:
    """Return when it may start: the spread instant, or the planned one plus its jitter."""
    planned_at, trigger = one.planned_at, schedule.trigger
    if not schedule.jitter or one.fire_at != planned_at:
        return one.fire_at
    if isinstance(trigger, Every) and counts_from_last_start(schedule):
        before: datetime | None = planned_at + trigger.interval
    else:
        following = occurrence_after(trigger, planned_at, rule=schedule.calendar, calendars=calendars)
        before = None if following is None else following.at
    hint = progress.hints.interval if schedule.adaptive else None
    if hint is not None and planned_at < hint.expires_at:
        before = planned_at + hint.interval
    stable = schedule.offset is Offset.STABLE
    return apply_jitter(
        planned_at,
        within=schedule.jitter,
        both_sides=schedule.jitter_side is JitterSide.BOTH,
        seed=schedule.id if stable else occurrence_seed(schedule.id, planned_at),
        next_at=before,
    )


def is_kept_away(schedule: Schedule, progress: ScheduleProgress, *, now: datetime) -> bool:
    """Whether only a cadence after failures keeps the trigger from deciding."""
    return not follows_trigger(schedule, progress, now=now) and follows_trigger(
        schedule, replace(progress, failures=0), now=now
    )


def skipped_during_streak(
    schedule: Schedule, progress: ScheduleProgress, pauses: Pauses, *, calendars: Mapping[str, Calendar]
) -> tuple[tuple[Verdict, ...], Decision | None]:
    """Skip what a pause suppressed during a streak of failures: the next time, then the trigger's instants.

    Also returns the cadence's decision if it lies after the pause: then it stays. A streak may begin in the
    pause, by a run under way or by hand: the trigger decides before it.
    """
    begins = paused_from = max(progress.cursor, pauses.first_start - _MICROSECOND)
    last = pauses.last_end - _MICROSECOND
    unpaused = clear_pauses(progress)
    unpaused = replace(unpaused, hints=unpaused.hints.without_used(until=last))
    hint = unpaused.hints.interval
    if hint is not None and hint.created_at is not None and hint.created_at > begins:
        # It was made in the pause, and ended in it.
        unpaused = replace(unpaused, hints=replace(unpaused.hints, interval=None))
    # The cadence counts from the end of the last run, which may be long before the pause, or from an edit.
    ended = progress.last_finished_at or begins
    ended = max(ended, progress.replaced_after or ended)
    before: list[datetime] = []
    failing_since = progress.failing_since or begins
    if begins < failing_since < last:
        found = list_occurrences(schedule, begins, failing_since, calendars=calendars).occurrences
        before, begins = [occurrence.at for occurrence in found], ended
    ended = min(ended, begins)
    first = plan_next(schedule, replace(unpaused, cursor=ended), now=ended, calendars=calendars)
    if first.at is None or first.at <= begins:
        first = plan_next(schedule, replace(unpaused, cursor=begins), now=begins, calendars=calendars)
    # A run by hand that failed has not moved the next time that was decided before the pause (ruling 25).
    for stood in decide_pause(progress, until=None).trail[-1:]:
        if stood.at is not None and begins < stood.at <= last and stood.source in BASELINE_SOURCES:
            first = pull_forward(first, Decision(stood.at, stood.source))
    instants = list(before)
    if first.at is not None and first.at <= last:
        others = list_occurrences(schedule, first.at, last, calendars=calendars).occurrences
        instants += [first.at, *(occurrence.at for occurrence in others)]
    one_shot = progress.hints.one_shot if schedule.adaptive else None
    requested = [at for at in one_shot.instants if paused_from < at <= last] if one_shot is not None else []
    sources = dict.fromkeys(instants, first.source) | dict.fromkeys(requested, Source.AI_ONESHOT)
    skips = tuple(Skip(planned_at=at, reason=Reason.PAUSED, source=sources[at]) for at in sorted(sources))
    stays = first.at is not None and first.at > last and first.source in BASELINE_SOURCES
    return skips, first if stays else None


def skipped_after_run(
    schedule: Schedule, progress: ScheduleProgress, pauses: Pauses
) -> tuple[tuple[Verdict, ...], ScheduleProgress]:
    """Skip what came due in a pause after the end of the last run, if a hint decides what follows the pause.

    What came due while the hint was in force has no row, because the hint replaced it.
    """
    at = schedule.trigger.next_after(progress.last_finished_at or schedule.created_at)
    if at is None or not progress.cursor < at < pauses.last_end:
        return (), progress
    skip = Skip(planned_at=at, reason=Reason.PAUSED, source=Source.BASELINE_INTERVAL)
    return () if _is_hinted(schedule, progress, at) else (skip,), replace(progress, cursor=at)


def due_after_run(schedule: Schedule, progress: ScheduleProgress, pauses: Pauses) -> Decision | None:
    """Return the decision of the end of the last run, if that came due before a pause and has no row."""
    if not isinstance(schedule.trigger, After):
        return None
    at = schedule.trigger.next_after(progress.last_finished_at or schedule.created_at)
    if at is None or not progress.cursor < at < pauses.last_end or pauses.contains(at):
        return None
    return None if _is_hinted(schedule, progress, at) else Decision(at, Source.BASELINE_INTERVAL)


def _is_hinted(schedule: Schedule, progress: ScheduleProgress, at: datetime) -> bool:
    """Whether the interval hint was made before an instant, which it then replaced."""
    hint = progress.hints.interval if schedule.adaptive else None
    since = hint.began if hint is not None else None
    return since is not None and since < at


def skipped_before_hint(
    schedule: Schedule, progress: ScheduleProgress, pauses: Pauses, *, calendars: Mapping[str, Calendar]
) -> tuple[tuple[Verdict, ...], ScheduleProgress]:
    """Skip what a pause suppressed during a streak of failures before an interval hint was made in it.

    The progress goes on at the start of the hint, which replaced what comes after it.
    """
    hint = progress.hints.interval if schedule.adaptive else None
    since = hint.began if hint is not None else None
    is_in_pause = since is not None and max(progress.cursor, pauses.first_start) < since < pauses.last_end
    if since is None or not is_in_pause or counts_from_run(schedule) or not is_in_streak(schedule, progress):
        return (), progress
    until_hint = Pauses(((pauses.first_start, since + _MICROSECOND),))
    skips, _ = skipped_during_streak(schedule, progress, until_hint, calendars=calendars)
    return skips, replace(progress, cursor=since, hints=progress.hints.without_used(until=since))


def decide_without_expired(
    schedule: Schedule,
    progress: ScheduleProgress,
    due: DueInstants,
    *,
    now: datetime,
    calendars: Mapping[str, Calendar],
) -> Decision:
    """Decide again when a hint has expired: the earlier of what was decided and what the trigger says."""
    decision = Decision(progress.next_at, progress.source or Source.PAUSED, progress.trail)
    if due.following is not None:
        return due.following
    base, hint = last_base(schedule, progress), progress.hints.interval
    if base is not None and hint is not None:
        now = min(now, hint.expires_at)  # a late engine decides the same: the interval counts from the expiry
    proposal = plan_next(schedule, progress, now=now, base=base, calendars=calendars)
    return pull_forward(decision, proposal)


def restart_after(
    trigger: After, progress: ScheduleProgress, decision: Decision, *, now: datetime
) -> Decision:
    """Decide when a hint has expired and a pause has suppressed what followed the last run: from now on.

    Nothing is running whose end could set the next instant.
    """
    if decision.source is Source.BASELINE_INTERVAL or decision.at != progress.next_at:
        return decision
    return pull_forward(decision, Decision(trigger.next_after(now), Source.BASELINE_INTERVAL))
