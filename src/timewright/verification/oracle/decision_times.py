"""Which instants may follow from what is recorded, where the trigger alone does not say so.

A hint, a cadence and an interval from the last run all count from something that has a row. So the next
occurrence is at most one interval, hint or step later, and lies exactly there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cached_property
from itertools import groupby
from operator import itemgetter

from timewright.verification.oracle.instant_sets import MAX_LOOKAHEAD_US
from timewright.verification.oracle.revision_spans import history_starts_at, last_instant
from timewright.verification.oracle.schedule_policy import SchedulePolicy
from timewright.verification.oracle.times import parse_duration
from timewright.verification.rows import AdjustmentRow, RunRow, ScheduleRow
from timewright.verification.view import NEVER, HistoryView

# More than any cadence counts.
MAX_FAILURES = 1_000

# Requests that decide nothing: a run by hand never moves the next time.
_BY_HAND = ("schedule.run", "schedule.backfill")
# Adjustments that decide nothing up to the time of the request.
_UNDECIDING = ("one_shot", "interval", "skip", "move")
# How much later than its instant a row may be dated that was decided ahead of it.
COMMIT_DELAY_US = 1_000
_STREAKS = ("failing", "recovered")
# Adjustments from which no interval counts.
_ONLY_ASKED = ("one_shot", "pause", "hint_pause", "skip", "move")


class DecisionTimes:
    """When a schedule was decided, and which instants may follow from that."""

    def __init__(self, view: HistoryView, schedule: ScheduleRow) -> None:
        self._view, self._schedule = view, schedule
        self._floor = history_starts_at(view, schedule)
        self._rows = view.occurrences.get(schedule.id, [])
        self._runs = view.runs_by_schedule.get(schedule.id, [])
        self._adjustments = view.adjustments.get(schedule.id, [])
        revisions = view.revisions.get(schedule.id, [])
        policies = [(row.at, view.policies[schedule.id, row.revision]) for row in revisions]
        self._policies = [(at, policy) for at, policy in policies if policy is not None and _is_known(policy)]
        self.is_complete = bool(policies) and len(self._policies) == len(policies)
        # A run that was reset no longer has the times from which the next one was decided.
        self._was_reset = any(map(view.resets, self._runs))
        hints = [row for row in self._adjustments if row.kind == "interval"]
        ends = [ended for _, ended in view.interval_hints.get(schedule.id, ())]
        self._failing = view.streaks.get(schedule.id, [])
        self._hints = [(row.at, ended, row.interval or 0) for row, ended in zip(hints, ends, strict=True)]
        pauses = [(row.at, ended) for row, ended in view.pauses.get(schedule.id, ())]
        pauses += [
            (pause.at, pause.ended_at or pause.until or NEVER)
            for pause in view.history.pauses
            if pause.scope == "installation" or pause.namespace == schedule.namespace
        ]
        # Nothing is decided while a schedule is parked, from its cursor to the resume.
        pauses += [(row.cursor, row.at) for row in self._adjustments if row.kind == "resume"]
        self._pauses = sorted(pauses, key=lambda pause: pause[1])

    @cached_property
    def _changes(self) -> list[int]:
        """When anything but a run decided the schedule again."""
        times = [
            line.at for line in self._view.audit.get(self._schedule.id, ()) if line.action not in _BY_HAND
        ]
        times += [at for at, _ in self._policies]
        times += [row.at for row in self._adjustments if row.kind not in _STREAKS]
        return sorted([*times, *(end for _, end, _ in self._hints), *(end for _, end in self._pauses)])

    @cached_property
    def _run_times(self) -> list[int]:
        """When occurrences were admitted and ended."""
        return sorted(at for row in self._rows for at in (row.created_at, row.finished_at) if at is not None)

    @cached_property
    def _late_ends(self) -> set[int]:
        """When occurrences ended, if that was after their instant."""
        return {row.finished_at for row in self._rows if row.finished_at and row.finished_at > row.planned_at}

    @cached_property
    def _known(self) -> set[int]:
        """Every instant at which something is recorded, from which another may count."""
        return self._bases.union(self._changes)

    @cached_property
    def _bases(self) -> set[int]:
        """Every instant from which an interval may count: not when a hint, a pause or a skip was made."""
        # Work counts from its start, also if it was late. What was decided ahead of its instant is dated by
        # the clock of its commit, which may show a little more.
        return self._times.union(
            row.planned_at
            for row in self._rows
            if row.state == "skipped" or row.created_at - row.planned_at <= COMMIT_DELAY_US
        )

    @cached_property
    def _times(self) -> set[int]:
        """When anything happened that may decide a schedule: the instants that were planned are left out."""
        times = {*self._run_times, *(end for _, end, _ in self._hints), *(end for _, end in self._pauses)}
        times.update(at for row in self._rows for at in (row.started_at, row.last_of) if at)
        leases = [(row, one) for row in self._rows for one in self._view.attempts.get(row.id, ())]
        times.update(one.leased_at for _, one in leases)
        # A run that was reset has ended before.
        times.update(one.ended_at for row, one in leases if self._view.resets(row))
        times.update(row.until for row in self._adjustments if row.until is not None)
        times.update(row.at for row in self._adjustments if row.kind not in _ONLY_ASKED)
        return times.union(
            at for made, policy in self._policies for at in (made, policy.created_at, policy.start_at) if at
        )

    @cached_property
    def _decided_at(self) -> dict[int, int]:
        """When each instant was decided: a move or a skip decides one that lies ahead."""
        return {row.planned_at: row.created_at for row in self._rows}

    @cached_property
    def _streaks(self) -> tuple[list[int], list[int]]:
        """When runs ended, by hand or not, and how many had failed in a row by then, at most.

        The order of runs that ended at one instant is not known: their failures may continue the streak
        before it, or come after their successes and begin one.
        """
        results = [
            (row.finished_at, row.state != "succeeded")
            for row in self._runs
            if row.finished_at is not None and row.state not in ("skipped", "cancelled")
        ]
        results.sort(key=lambda result: (result[0], not result[1]))
        counts: list[int] = []
        count = 0
        for _, at_once in groupby(results, key=itemgetter(0)):
            outcomes = [failed for _, failed in at_once]
            failures = sum(outcomes)
            counts += range(count + 1, count + failures + 1)
            counts += [failures] * (len(outcomes) - failures)
            count = counts[-1]
        return [at for at, _ in results], counts

    def long_gaps(self) -> Iterator[tuple[int, int]]:
        """Gaps that no decision explains: the last occurrence before, or the creation, and the next one."""
        if self._was_reset or not any(_is_governed(policy) for _, policy in self._policies):
            return
        before = self._policies[0][1].created_at
        for row in self._rows:
            # What is admitted early was decided before its instant. A hint may precede what was skipped, and
            # one for a single instant stands beside what else was decided.
            until = min(row.planned_at, row.created_at)
            is_bound = row.reason != "by_hand" and row.source != "ai-oneshot"
            is_checked = before > self._floor and is_bound
            latest = self._latest_after(before, until=until, by=row.created_at, run=row)
            if is_checked and row.planned_at > latest:
                yield before, row.planned_at
            before = max(before, last_instant(row))
        schedule, now = self._schedule, self._view.now
        is_decided = schedule.state == "active" and schedule.source != "paused" and before > self._floor
        if schedule.next_at is None or not is_decided or (schedule.wake_at or 0) <= now:
            return
        until = min(schedule.next_at, now + 1)
        # Behind what was skipped ahead by hand, a hint in force now may have decided, which is over by then.
        latest = max(self._latest_after(since, until=until, by=now) for since in (before, min(before, now)))
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
        is_from_now = all(one.aligned_to_now for _, one in self._policies)
        undecided = self._undecided_pause_ends() if is_from_now else set()
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

        It counts from the start of a run that began before it, or ahead from what was skipped by hand.
        """
        skipped = self._view.skipped_by_hand.get(self._schedule.id, set())
        wishes = ((began, ended, at - wish) for began, ended, wish in self._hints)
        known = ((began, ended, base) for began, ended, base in wishes if base in self._known)
        return any(began <= at and (base <= ended or base in skipped) for began, ended, base in known)

    @cached_property
    def _ends(self) -> set[int]:
        """When runs ended, by hand or not; a run that was reset has ended more than once."""
        ends = {one.ended_at for row in self._runs for one in self._view.attempts.get(row.id, ())}
        return ends | {row.finished_at for row in self._runs if row.finished_at is not None}

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

    def _latest_after(self, before: int, *, until: int, by: int, run: RunRow | None = None) -> int:
        """The latest instant that may follow `before`, given what happened up to `until`.

        It was decided by `by`: a backlog is decided under the edits that came before that. The end of a `run`
        decided nothing about the run itself.
        """
        change, end = bisect_right(self._changes, until), bisect_left(self._run_times, until)
        happened = self._changes[max(change - 1, 0) : change] + self._run_times[max(end - 1, 0) : end]
        streaks = [row for row in self._adjustments if row.kind in _STREAKS and row.at <= until]
        streaks = [row for row in streaks if run is None or row.planned_at != run.planned_at]
        happened += [row.at for row in streaks]
        # An instant may also be decided at the very end of a run that was planned before it.
        happened += [until] * (until in self._late_ends)
        # A success by hand ends a streak of failures, but what the cadence decided stands.
        since = max(before, *happened, *(row.cursor for row in streaks if row.kind == "recovered"))
        latest = self._latest_decided(since, by=by)
        for began, ended in self._pauses:
            if began <= latest and ended > since:
                since, latest = ended, max(latest, self._latest_decided(ended, by=by))
        return latest + self._view.skew

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
        wished = [wish for began, ended, wish in self._hints if began <= since < ended and policy.adaptive]
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

    def _failures(self, since: int, until: int) -> int:
        """The most failures in a row from about `since` to about `until`."""
        # How many runs of a streak were pruned is not known.
        if any(began <= self._floor and since < ended for began, ended in self._failing):
            return MAX_FAILURES
        times, counts = self._streaks
        first = bisect_right(times, since - self._view.skew)
        last = bisect_right(times, until + self._view.skew)
        return max(counts[max(first - 1, 0) : last], default=0)


def decision_times(view: HistoryView, schedule_id: str) -> DecisionTimes | None:
    """What a schedule was decided from; None if its trigger has no instants of its own."""
    schedule = view.schedules.get(schedule_id)
    times = DecisionTimes(view, schedule) if schedule is not None else None
    return times if times is not None and times.is_complete else None


def _is_known(policy: SchedulePolicy) -> bool:
    return policy.trigger.get("kind") in ("every", "cron", "rrule") and not policy.rolls_by_calendar


def _is_governed(policy: SchedulePolicy) -> bool:
    return policy.aligned_to_now or policy.adaptive or policy.cadence != "none"
