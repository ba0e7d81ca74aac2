"""When something happened to a schedule that may have decided its next instant."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property

from timewright.verification.oracle.failure_counts import count_failures
from timewright.verification.oracle.revision_spans import history_starts_at
from timewright.verification.oracle.schedule_policy import SchedulePolicy
from timewright.verification.rows import ScheduleRow
from timewright.verification.view import NEVER, HistoryView

# More than any cadence counts.
MAX_FAILURES = 1_000

# Requests that decide nothing: a run by hand never moves the next time.
_BY_HAND = ("schedule.run", "schedule.backfill")
# How much later than its instant a row may be dated that was decided ahead of it.
COMMIT_DELAY_US = 1_000
STREAKS = ("failing", "recovered")
_NUDGES = ("interval", "one_shot")
# Adjustments from which no interval counts.
_ONLY_ASKED = ("one_shot", "pause", "hint_pause", "skip", "move")


class RecordedTimes:
    """When a schedule was decided, by the rows of its runs, its revisions and its adjustments."""

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
        pauses += [(row.cursor + 1, row.at) for row in self._adjustments if row.kind == "resume"]
        self._pauses = sorted(pauses, key=lambda pause: pause[1])

    @cached_property
    def _changes(self) -> set[int]:
        """When anything but a run decided the schedule again."""
        requests = (row.at for row in self._adjustments if row.kind in _NUDGES)
        return self._replans.union(requests, (end for _, end, _ in self._hints))

    @cached_property
    def _replans(self) -> set[int]:
        """When the schedule was decided again, whatever had been decided before."""
        lines = self._view.audit.get(self._schedule.id, ())
        times = {line.at for line in lines if line.action not in _BY_HAND and line.action != "schedule.hint"}
        times.update(at for at, _ in self._policies)
        times.update(row.at for row in self._adjustments if row.kind not in (*STREAKS, *_NUDGES))
        return times.union(end for _, end in self._pauses)

    @cached_property
    def _requests(self) -> set[int]:
        """Just after each hint was made: what was due by then was decided first."""
        return {row.at + 1 for row in self._adjustments if row.kind in _NUDGES}

    @cached_property
    def _nudges(self) -> set[int]:
        """When a hint was made or expired: what had been decided stays unless the new instant is earlier."""
        replans = self._replans.union(run.finished_at for run in self._runs if run.state != "skipped")
        # A hint that a person removes ends just after that.
        ends = {end for end in self._hint_ends if end - 1 not in self._replans}
        return {at for at in self._requests if at - 1 not in replans} | ends - replans

    @cached_property
    def _hint_ends(self) -> set[int]:
        """When interval hints ended, unless another replaced them."""
        return {end for _, end, _ in self._hints} - self._hint_starts

    @cached_property
    def _hint_starts(self) -> set[int]:
        return {began for began, _, _ in self._hints}

    @cached_property
    def _decisions(self) -> list[int]:
        """When anything may have decided the schedule again, sorted."""
        return sorted(self._replans.union(self._requests, self._hint_ends, self._run_times))

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
        return count_failures(self._view, self._runs)

    @cached_property
    def _ends(self) -> set[int]:
        """When runs ended, by hand or not; a run that was reset has ended more than once."""
        ends = {one.ended_at for row in self._runs for one in self._view.attempts.get(row.id, ())}
        return ends | {row.finished_at for row in self._runs if row.finished_at is not None}

    def _failures(self, since: int, until: int) -> int:
        """The most failures in a row from about `since` to about `until`."""
        # How many runs of a streak were pruned is not known.
        if any(began <= self._floor and since < ended for began, ended in self._failing):
            return MAX_FAILURES
        times, counts = self._streaks
        first = bisect_right(times, since - self._view.skew)
        last = bisect_right(times, until + self._view.skew)
        return max(counts[max(first - 1, 0) : last], default=0)


def _is_known(policy: SchedulePolicy) -> bool:
    return policy.trigger.get("kind") in ("every", "cron", "rrule") and not policy.rolls_by_calendar
