"""Which instants may follow from what is recorded, where the trigger alone does not say so.

A hint, a cadence and an interval from the last run all count from something that has a row. So the next
occurrence is at most one interval, hint or step later, and lies exactly there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cached_property

from timewright.verification.oracle.instant_sets import MAX_LOOKAHEAD_US
from timewright.verification.oracle.recorded_times import STREAKS, RecordedTimes
from timewright.verification.oracle.revision_spans import last_instant
from timewright.verification.oracle.schedule_policy import SchedulePolicy
from timewright.verification.oracle.times import parse_duration
from timewright.verification.rows import AdjustmentRow, RunRow
from timewright.verification.view import NEVER, HistoryView

# Adjustments that decide nothing up to the time of the request.
_UNDECIDING = ("one_shot", "interval", "skip", "move")


class DecisionTimes(RecordedTimes):
    """Which instants may follow from what is recorded of a schedule."""

    def long_gaps(self) -> Iterator[tuple[int, int]]:
        """Gaps that no decision explains: the last occurrence before, or the creation, and the next one."""
        if self._was_reset or not any(_is_governed(policy) for _, policy in self._policies):
            return
        before = made = self._policies[0][1].created_at
        for row in self._rows:
            # What is admitted early was decided before its instant. A hint may precede what was skipped, and
            # one for a single instant stands beside what else was decided.
            until = min(row.planned_at, row.created_at)
            is_bound = row.reason != "by_hand" and (row.source != "ai-oneshot" or self._is_from_now)
            is_checked = before > self._floor and is_bound
            latest = self._latest_after(before, made=made, until=until, by=row.created_at, run=row)
            if is_checked and row.planned_at > latest:
                yield before, row.planned_at
            before, made = max(before, last_instant(row)), max(made, row.created_at)
        schedule, now = self._schedule, self._view.now
        is_decided = schedule.state == "active" and schedule.source != "paused" and before > self._floor
        if schedule.next_at is None or not is_decided or (schedule.wake_at or 0) <= now:
            return
        until = min(schedule.next_at, now + 1)
        # Behind what was skipped ahead by hand, a hint in force now may have decided, which is over by then.
        ends = (before, min(before, now))
        latest = max(self._latest_after(since, made=made, until=until, by=now) for since in ends)
        if schedule.next_at > latest:
            yield before, schedule.next_at

    def stray_cursors(self) -> Iterator[int]:
        """Cursors, now or at an adjustment, at which nothing was decided."""
        # A clamp also moves what is carried to the next pass, and has no row for it yet.
        if self._floor or any(policy.clamp_min or policy.clamp_max for _, policy in self._policies):
            return
        schedule = self._schedule
        # A pause moves the cursor up to an instant that is decided only at its end, or never after a resume.
        known = self._decided_to | {
            row.cursor for row in self._adjustments if row.kind == "resume" or self._is_paused(row.at)
        }
        # The last run that max_runs allows ends a backlog, whose other instants are passed over.
        allowed = [policy.max_runs for _, policy in self._policies if policy.max_runs]
        is_used_up = any(schedule.runs >= most for most in allowed)
        last = max(map(last_instant, self._rows), default=0) if is_used_up else NEVER
        kept = self._kept_by_cadence()
        undecided = self._undecided_pause_ends() if self._is_from_now else set()
        cursors = {(row.cursor, row.at) for row in self._adjustments} | {(schedule.cursor, self._view.now)}
        for cursor, at in sorted(cursors):
            is_carried = cursor > last or cursor in kept or self._may_be_planned(cursor + 1)
            around = known if cursor <= at + self._view.skew else self._decided_ahead
            is_known = cursor not in undecided and around.intersection((cursor - 1, cursor, cursor + 1))
            if not is_carried and not is_known:
                yield cursor

    @cached_property
    def _decided_to(self) -> set[int]:
        """Every instant up to which a schedule may be decided because of what is recorded there."""
        marks = {
            at for made, policy in self._policies for at in (made, policy.created_at, policy.start_at) if at
        }
        marks.update(at for row in self._rows for at in (row.planned_at, row.last_of) if at)
        # Before a hint replaces the trigger in a pause, what came due until then is decided.
        marks.update(
            row.at
            for row in self._adjustments
            if row.kind not in _UNDECIDING or (row.kind == "interval" and self._is_paused(row.at))
        )
        marks.update(end for _, end in self._pauses)
        marks.update(end for _, end, _ in self._hints)
        # A failure disables the schedule at its end, also one by hand; a reset run keeps its attempts.
        ended = (one for run in self._runs for one in self._view.attempts.get(run.id, ()))
        marks.update(one.ended_at for one in ended if one.outcome != "succeeded")
        return marks

    @cached_property
    def _decided_ahead(self) -> set[int]:
        """Instants at which a cursor may lie that is ahead of the clock."""
        ahead = {*self._decided_at, *self._view.skipped_by_hand.get(self._schedule.id, ())}
        ahead.update(row.last_of for row in self._rows if row.last_of)
        return ahead.union(policy.start_at for _, policy in self._policies if policy.start_at)

    def _may_be_planned(self, at: int) -> bool:
        """Whether an instant could be the next one: decided later, or replaced by an edit or a pause."""
        sources = ("baseline", "ai-interval", "ai-oneshot")
        is_next = at == self._schedule.next_at
        return is_next or any(
            self._explains(at, one, policy) for _, policy in self._policies for one in sources
        )

    def _undecided_pause_ends(self) -> set[int]:
        """The ends of the schedule's own pauses at which nothing else is recorded.

        With `align: now` an occurrence is due at the very end of a pause, so that only its row moves the
        cursor there.
        """
        ends = {row.until for row in self._adjustments if row.kind in ("pause", "hint_pause") and row.until}
        recorded = {row.at for row in self._adjustments} | {at for at, _ in self._policies}
        recorded.update(line.at for line in self._view.audit.get(self._schedule.id, ()))
        recorded.update(at for row in self._rows for at in (row.planned_at, row.last_of) if at)
        return ends - recorded - set(self._run_times)

    def _kept_by_cadence(self) -> set[int]:
        """The cursors of streaks that a success by hand ended, just before the instant of the cadence.

        That instant stays, but is not decided if the schedule is archived or fails again before it.
        """
        policies = [policy for _, policy in self._policies]
        recovered = (row.cursor for row in self._adjustments if row.kind == "recovered")
        return {at for at in recovered if any(self._is_step_after_end(at + 1, one) for one in policies)}

    def _is_paused(self, at: int) -> bool:
        return any(began < at <= ended for began, ended in self._pauses)

    def explains(self, run: RunRow, policy: SchedulePolicy) -> bool:
        """Whether an instant lies an interval, a hint or no time at all after something that is recorded."""
        return bool(self._floor) or self._was_reset or self._explains(run.planned_at, run.source, policy)

    def explains_next(self, policy: SchedulePolicy) -> bool:
        """Whether the next time follows from what is recorded, as the instant of every occurrence does."""
        at = self._schedule.next_at
        if at is None or self._floor or self._was_reset:
            return True
        return self._explains(at, self._schedule.source, policy)

    def _explains(self, at: int, source: str, policy: SchedulePolicy) -> bool:
        if at == policy.start_at:
            return True
        if source in ("paused", "ai-oneshot"):
            # A hint for an instant that has passed asks for the present one.
            happened = self._times.union(self._changes)
            return at in happened or any(row.planned_at == at for row in self._one_shots)
        if source == "ai-interval":
            return self._is_hinted(at)
        return not source.startswith("baseline") or self._is_by_trigger(at, policy)

    def _is_by_trigger(self, at: int, policy: SchedulePolicy) -> bool:
        """Whether the trigger has an instant, or puts it there because of runs and their failures."""
        plan = None if policy.aligned_to_now else self._view.planned_instants(policy)
        if plan is not None and plan.has(at):
            return True
        if self._is_step_after_end(at, policy):
            return True
        return policy.trigger["kind"] == "every" and self._is_interval_after(at, policy)

    @cached_property
    def _one_shots(self) -> list[AdjustmentRow]:
        return [row for row in self._adjustments if row.kind == "one_shot"]

    def _is_hinted(self, at: int) -> bool:
        """Whether an instant lies one hinted interval after something that is recorded.

        It counts from the start of a run that began before it, or from what was decided ahead of its instant.
        """
        wishes = ((began, ended, at - wish) for began, ended, wish in self._hints)
        known = ((began, ended, base) for began, ended, base in wishes if base in self._known)
        return any(
            began <= at and min(base, self._decided_at.get(base, base)) <= ended
            for began, ended, base in known
        )

    def _is_step_after_end(self, at: int, policy: SchedulePolicy) -> bool:
        """Whether an instant lies one step of the policy's ladder after the end of a run that failed."""
        if policy.cadence != "ladder":
            return False
        ends = ((count, at - step) for count, step in enumerate(policy.cadence_steps, 1))
        return any(end in self._ends and count <= self._failures(end, end) for count, end in ends)

    def _is_interval_after(self, at: int, policy: SchedulePolicy) -> bool:
        """Whether an instant lies one interval, stretched by failures, after what it may count from."""
        interval = parse_duration(policy.trigger["interval"])
        counts = range(0 if policy.aligned_to_now else 1, policy.cadence_doublings + 1)
        bases = ((count, at - (interval << count)) for count in counts)
        return any(
            base in self._bases and count <= self._failures(min(base, self._decided_at.get(base, base)), at)
            for count, base in bases
        )

    @cached_property
    def _is_from_now(self) -> bool:
        return all(policy.aligned_to_now for _, policy in self._policies)

    def _keeps_due(self, at: int) -> bool:
        """Whether what is due stays due at a change; with `align: now`, the end of a run replaces it."""
        if self._is_from_now:
            # Only a request was certainly made then; an instance may have been late for anything else.
            is_request = at in self._requests or any(row.at == at for row in self._adjustments)
            return is_request and not self._ends & {at, at - 1}
        return all(policy.follows_trigger and policy.cadence == "none" for _, policy in self._policies)

    def _latest_after(self, before: int, *, made: int, until: int, by: int, run: RunRow | None = None) -> int:
        """The latest instant that may follow `before`, whose row was `made` then, by what happened since.

        It was decided by `by`: a backlog is decided under the edits that came before that. The end of a `run`
        decided nothing about the run itself. A hint that is made or expires puts nothing off (ruling 22).
        """
        streaks = [row for row in self._adjustments if row.kind in STREAKS and row.at <= until]
        streaks = [row for row in streaks if run is None or row.planned_at != run.planned_at]
        happened = {row.at for row in streaks}
        # A success by hand ends a streak of failures, but what the cadence decided stands.
        happened.update(row.cursor for row in streaks if row.kind == "recovered")
        # An instant may also be decided at the very end of a run that was planned before it.
        happened.update({until} & (self._late_ends | self._changes))
        first, last = bisect_right(self._decisions, before), bisect_left(self._decisions, until)
        times = sorted({*self._decisions[first:last], *(at for at in happened if at > before)})
        bases = [before]
        for at in times if self._hints or self._is_from_now else times[-1:]:
            stood = self._decided_between(bases, at) if made < at else None
            # A hint decides just after it was made, but its interval counts from then.
            if stood is not None and stood - 1 <= at and self._keeps_due(at):
                return stood + self._view.skew
            bases = [*bases, at] if stood is not None and at in self._nudges else [at]
        since, latest = bases[-1], min(self._latest_decided(at, by=by) for at in bases)
        for began, ended in self._pauses:
            if began <= latest and ended > since:
                since, latest = ended, max(latest, self._latest_decided(ended, by=by))
        return latest + self._view.skew

    def _decided_between(self, bases: list[int], until: int) -> int | None:
        """The latest instant that was decided at the last of `bases`; None if a pause left it undecided."""
        latest = min(self._latest_decided(at, by=until - 1) for at in bases)
        is_open = any(began <= latest and ended >= bases[-1] for began, ended in self._pauses)
        return None if is_open else latest

    def _latest_decided(self, since: int, *, by: int) -> int:
        """The latest instant that may follow `since` under the policies in force from then until `by`.

        An edit keeps the instant that was due before it as the start of the new plan. What is admitted before
        its instant follows from one that may lie after a later edit.
        """
        in_force = max(bisect_right([at for at, _ in self._policies], min(since, by)) - 1, 0)
        latest = self._latest_under(self._policies[in_force][1], since)
        for at, policy in self._policies[in_force + 1 :]:
            if at <= by:
                latest = self._latest_under(policy, latest)
        return latest

    def _latest_under(self, policy: SchedulePolicy, since: int) -> int:
        """The latest instant that may be decided at `since` under a policy."""
        if since >= NEVER:
            return NEVER
        # What is due when a hint replaces another is decided under the one before.
        expiries = {row.until for row in self._adjustments if row.kind == "interval"}
        replaced = self._hint_starts - expiries
        hints = ((began, end + (end in replaced), wish) for began, end, wish in self._hints)
        # An edit at the very instant of a hint may have come after it.
        last = since + (since in self._replans)
        wished = [wish for began, end, wish in hints if began < last and since < end and policy.adaptive]
        start = policy.start_at or 0
        if wished:
            return max(since + max(*wished, policy.clamp_min), start)
        failures = self._failures(since, since)
        step = policy.cadence_steps[min(failures, len(policy.cadence_steps)) - 1] if failures else 0
        stretched = interval = 0
        if policy.trigger["kind"] == "every":
            interval = parse_duration(policy.trigger["interval"])
            stretched = (interval << min(failures, policy.cadence_doublings)) - interval
        if policy.aligned_to_now:
            return max(since + max(interval + stretched, step, policy.clamp_min), start)
        plan, first = self._view.planned_instants(policy), max(since + stretched, start - 1)
        at = plan.first_after(first, until=first + MAX_LOOKAHEAD_US) if plan is not None else None
        return NEVER if at is None else max(at, since + max(step, policy.clamp_min))


def decision_times(view: HistoryView, schedule_id: str) -> DecisionTimes | None:
    """What a schedule was decided from; None if its trigger has no instants of its own."""
    schedule = view.schedules.get(schedule_id)
    times = DecisionTimes(view, schedule) if schedule is not None else None
    return times if times is not None and times.is_complete else None


def _is_governed(policy: SchedulePolicy) -> bool:
    return policy.aligned_to_now or policy.adaptive or policy.cadence != "none"
