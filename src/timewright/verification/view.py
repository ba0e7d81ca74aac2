"""Indexes over a history: runs by schedule, leases by run, the policy in force at an instant."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import msgspec

from timewright.verification.oracle.instant_sets import InstantSet, InstantSetCache
from timewright.verification.oracle.schedule_policy import (
    RetryBudget,
    SchedulePolicy,
    parse_policy,
    parse_queue_budget,
)
from timewright.verification.rows import (
    AdjustmentRow,
    AttemptRow,
    AuditRow,
    History,
    JsonObject,
    RevisionRow,
    RunRow,
    ScheduleRow,
    SimulationEvent,
)

TERMINAL_STATES = frozenset({"succeeded", "failed", "skipped", "cancelled"})
Lease = tuple[int, int, int | None, AttemptRow | None]

# What begins a pause, and what ends it.
_PAUSE_KINDS = (("pause",), ("resume",))
_HINT_PAUSE_KINDS = (("hint_pause",), ("resume", "clear_hints"))
STATE_CHANGING_ACTIONS = frozenset({"schedule.pause", "schedule.resume", "schedule.archive"})


# More than any jitter or skew; not more than a step of the clock that is not used.
MAX_AHEAD_US = 86_400_000_000
# After every instant.
NEVER = 2**62


class HistoryView:
    """A history with every index that the invariants need; each index is built on first use."""

    def __init__(self, history: History, *, now: int, grace: int, skew: int) -> None:
        self.history = history
        self.now = now
        self.grace = grace
        self.skew = skew
        self._plans = InstantSetCache()
        self.since = history.since if history.since is not None else 0

    @cached_property
    def schedules(self) -> dict[str, ScheduleRow]:
        """Schedules by id."""
        return {row.id: row for row in self.history.schedules}

    @cached_property
    def runs(self) -> dict[str, RunRow]:
        """Runs by id."""
        return {row.id: row for row in self.history.runs}

    @cached_property
    def occurrences(self) -> dict[str, list[RunRow]]:
        """Occurrences by schedule, in the order of their planned instants.

        Rows that are dated after the clock ran at a time that it has taken back; they are left out.
        """
        index: defaultdict[str, list[RunRow]] = defaultdict(list)
        latest = self.now + MAX_AHEAD_US
        for run in self.history.runs:
            if run.schedule_id and not run.dedupe_scope and run.created_at <= latest:
                index[run.schedule_id].append(run)
        for rows in index.values():
            rows.sort(key=lambda run: (run.planned_at, run.id))
        return index

    @cached_property
    def runs_by_schedule(self) -> dict[str, list[RunRow]]:
        """All runs by schedule, manual ones included, in the order of creation."""
        index: defaultdict[str, list[RunRow]] = defaultdict(list)
        for run in self.history.runs:
            if run.schedule_id:
                index[run.schedule_id].append(run)
        for rows in index.values():
            rows.sort(key=lambda run: (run.created_at, run.id))
        return index

    @cached_property
    def attempts(self) -> dict[str, list[AttemptRow]]:
        """Finished leases by run, in the order of their fences."""
        index: defaultdict[str, list[AttemptRow]] = defaultdict(list)
        for attempt in self.history.attempts:
            index[attempt.run_id].append(attempt)
        for rows in index.values():
            rows.sort(key=lambda attempt: attempt.fence)
        return index

    @cached_property
    def revisions(self) -> dict[str, list[RevisionRow]]:
        """Revisions by schedule, oldest first."""
        index: defaultdict[str, list[RevisionRow]] = defaultdict(list)
        for row in self.history.revisions:
            index[row.schedule_id].append(row)
        for rows in index.values():
            rows.sort(key=lambda row: row.revision)
        return index

    @cached_property
    def audit(self) -> dict[str, list[AuditRow]]:
        """Audit entries by subject, oldest first."""
        index: defaultdict[str, list[AuditRow]] = defaultdict(list)
        for line in sorted(self.history.audit, key=lambda line: line.seq):
            index[line.subject].append(line)
        return index

    @cached_property
    def events(self) -> dict[str, list[SimulationEvent]]:
        """Simulation events by kind, in order."""
        index: defaultdict[str, list[SimulationEvent]] = defaultdict(list)
        for note in self.history.events or ():
            index[note.kind].append(note)
        return index

    @cached_property
    def policies(self) -> dict[tuple[str, int], SchedulePolicy | None]:
        """The parsed policy of each revision."""
        return {
            (row.schedule_id, row.revision): parse_policy(row.schedule_id, row.body)
            for row in self.history.revisions
        }

    def planned_instants(self, policy: SchedulePolicy) -> InstantSet | None:
        """The instants that a policy plans, found by the oracle."""
        return self._plans.get(policy)

    @cached_property
    def adjustments(self) -> dict[str, list[AdjustmentRow]]:
        """Hints, pauses, skips, moves and streaks of failures by schedule, in the order they were made."""
        index: defaultdict[str, list[AdjustmentRow]] = defaultdict(list)
        for row in sorted(self.history.adjustments, key=lambda row: row.seq):
            index[row.schedule_id].append(row)
        return index

    @cached_property
    def skipped_by_hand(self) -> dict[str, set[int]]:
        """Instants that users skipped or moved, by schedule. Such rows may be pruned before their instant."""
        index: defaultdict[str, set[int]] = defaultdict(set)
        for row in self.history.adjustments:
            if row.kind in ("skip", "move") and row.planned_at is not None:
                index[row.schedule_id].add(row.planned_at)
        return index

    @cached_property
    def interval_hints(self) -> dict[str, list[tuple[int, int]]]:
        """When an interval hint was in force: from its request to its expiry, replacement or removal.

        An instant exactly at the removal was still replaced.
        """
        index: dict[str, list[tuple[int, int]]] = {}
        for schedule_id, rows in self.adjustments.items():
            cleared = {row.at for row in rows if row.kind == "clear_hints"}
            periods = _periods(rows, ("interval",), ("clear_hints",))
            index[schedule_id] = [(row.at, ended + (ended in cleared)) for row, ended in periods]
        return index

    @cached_property
    def pauses(self) -> dict[str, list[tuple[AdjustmentRow, int]]]:
        """Pauses by schedule, by a person or a hint, each with its end; another pause continues the first."""
        return {
            schedule_id: [
                *_periods(rows, *_PAUSE_KINDS),
                *_periods(rows, *_HINT_PAUSE_KINDS),
            ]
            for schedule_id, rows in self.adjustments.items()
        }

    @cached_property
    def streaks(self) -> dict[str, list[tuple[int, int]]]:
        """When failures in a row let a cadence decide: the instants after the first failure, up to the cursor
        from which the trigger decided again.
        """
        index: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for schedule_id, rows in self.adjustments.items():
            began: int | None = None
            for row in rows:
                if row.kind == "failing":
                    began = row.at + 1
                elif row.kind in ("recovered", "resume") and began is not None:
                    index[schedule_id].append((began, row.cursor + 1))
                    began = None
                elif row.kind == "recovered":
                    # An edit while what a success had opened was not decided yet: the new plan takes over.
                    index[schedule_id].append((row.cursor + 1, row.at + 1))
            if began is not None:
                index[schedule_id].append((began, NEVER))
            schedule = self.schedules.get(schedule_id)
            if schedule is not None and schedule.replaced_after is not None:
                # The next admission decides what a success has made occurrences again.
                index[schedule_id].append((schedule.replaced_after + 1, schedule.cursor + 1))
        return index

    def is_set_aside(self, schedule: ScheduleRow) -> bool:
        """Whether a schedule is not woken before the end of a pause of more than itself."""
        ends = (NEVER if one.until is None else one.until for one in self.history.pauses if not one.ended_at)
        far = self.now + MAX_AHEAD_US
        return schedule.wake_at is not None and schedule.wake_at > far and max(ends, default=0) > self.now

    def may_be_suspended(self, following: RevisionRow, edit: AdjustmentRow | None) -> bool:
        """Whether a schedule may have been paused or parked just before an edit made a revision.

        Parking leaves no audit entry, but the next entry records the state before it.
        """
        schedule_id, at = following.schedule_id, following.at
        steps = [line for line in self.audit.get(schedule_id, ()) if line.action in STATE_CHANGING_ACTIONS]
        later = [line for line in steps if line.at > at]
        row = self.schedules.get(schedule_id)
        then = later[0].before if later else row.state if row is not None else ""
        pauses = [(row, ended) for row, ended in self.pauses.get(schedule_id, ()) if row.at <= at <= ended]
        if edit is None:
            return bool(pauses) or then in ("paused", "parked")
        # What is parked admits nothing until it is resumed, and an edit leaves its cursor as it is.
        until = later[0].at if later else NEVER
        runs, rows = self.occurrences.get(schedule_id, ()), self.adjustments.get(schedule_id, ())
        is_parked = then == "parked" and not any(edit.at < run.created_at < until for run in runs)
        cursors = (one.cursor for one in rows if one.seq > edit.seq and one.kind != "recovered")
        is_parked = is_parked and next(cursors, row.cursor if row is not None else 0) <= edit.cursor
        # At its very end a pause is open only if the new revision has decided its instants.
        decided = any(run.revision >= following.revision and run.planned_at <= at for run in runs)
        ends = at if decided else at + 1
        rows = [one for one in rows if one.seq < edit.seq]
        return is_parked or any(
            _is_open(rows, *kinds, at=ends) for kinds in (_PAUSE_KINDS, _HINT_PAUSE_KINDS)
        )

    def calendars_at(self, namespace: str, rule: JsonObject, at: int) -> dict[str, JsonObject] | None:
        """The calendars of a rule as they were at an instant, or None if one is unknown."""
        names = [*rule.get("only", ()), *rule.get("except", ())]
        index = {name: self._calendar_at(namespace, name, at) for name in names}
        known = {name: body for name, body in index.items() if body}
        return known if len(known) == len(index) else None

    def _calendar_at(self, namespace: str, name: str, at: int) -> JsonObject | None:
        changes = [
            line
            for line in self.audit.get(name, ())
            if line.action == "calendar.put" and line.namespace == namespace
        ]
        before = [line for line in changes if line.at <= at]
        if before:
            return parse_json_object(before[-1].after)
        return (
            parse_json_object(changes[0].before) if changes else self.object_body("calendar", namespace, name)
        )

    def policy(self, run: RunRow) -> SchedulePolicy | None:
        """The policy of the run's schedule when the run was created."""
        return self.policies.get((run.schedule_id, run.revision))

    def retry_budget(self, run: RunRow) -> RetryBudget | None:
        """The retry budget of a run, or None if its queue's policy changed since the run was created."""
        if run.schedule_id:
            policy = self.policy(run)
            return policy.retry_budget if policy is not None else None
        if run.parent or not run.queue:
            # The policy of a workflow step, or of a workflow started by hand, is in the workflow.
            return None
        changes = [
            line
            for line in self.audit.get(run.queue, ())
            if line.action == "queue.put" and line.namespace == run.namespace and line.at >= run.created_at
        ]
        return (
            None if changes else parse_queue_budget(self.object_body("queue", run.namespace, run.queue) or {})
        )

    def leases(self, run: RunRow) -> Sequence[Lease]:
        """The recorded leases of a run: fence, start, end (None while live), and the attempt."""
        return self._leases.get(run.id, ())

    @cached_property
    def _leases(self) -> dict[str, list[Lease]]:
        index: dict[str, list[Lease]] = {
            run_id: [(row.fence, row.leased_at, row.ended_at, row) for row in rows]
            for run_id, rows in self.attempts.items()
        }
        for run in self.history.runs:
            if run.state == "leased" and run.leased_at is not None:
                index.setdefault(run.id, []).append((run.fence, run.leased_at, None, None))
        return index

    def lease_periods(self, run: RunRow) -> Iterator[tuple[int, int, int | None]]:
        """The leases of a run by commit time: fence, start, end (None while live).

        Rows are dated by a clock read before the transaction began, and a process may be suspended in
        between. A simulation records the commits; otherwise an end may be earlier by the skew.
        """
        for fence, began, ended, _ in self.leases(run):
            granted, committed_end = self._granted.get((run.id, fence)), self._ended.get((run.id, fence))
            if granted is not None and (committed_end is not None or ended is None):
                yield fence, granted, committed_end
            else:
                yield fence, began, None if ended is None else max(began, ended - self.skew)

    @cached_property
    def _granted(self) -> dict[tuple[str, int], int]:
        return {(note.subject, note.fence): note.at for note in self.events.get("leased", ())}

    @cached_property
    def _ended(self) -> dict[tuple[str, int], int]:
        ends = (*self.events.get("settled", ()), *self.events.get("reclaimed", ()))
        return {(note.subject, note.fence): note.at for note in ends}

    def admission_passes(self, schedule_id: str, at: int) -> int:
        """How many admission passes a schedule may have had at one instant.

        More than one is possible while the store clock is frozen after a step back. Without recorded commits,
        a lease that began and ended at that instant shows that the clock was frozen; then the number is
        unbounded.
        """
        if self.history.events is not None:
            return max(1, self._commits[schedule_id, at])
        return 1 if at not in self._frozen_instants else len(self.history.runs)

    @cached_property
    def _commits(self) -> Counter[tuple[str, int]]:
        return Counter((note.subject, note.at) for note in self.events.get("cursor", ()))

    @cached_property
    def _frozen_instants(self) -> set[int]:
        return {row.ended_at for row in self.history.attempts if row.leased_at == row.ended_at}

    def first_lease(self, run: RunRow) -> int | None:
        """When a run was leased for the first time."""
        return next((began for fence, began, *_ in self.leases(run) if fence == 1), None)

    def resets(self, run: RunRow) -> list[AuditRow]:
        """The audit entries that gave a run its attempts back."""
        return self._restarts.get(run.id, [])

    @cached_property
    def _restarts(self) -> dict[str, list[AuditRow]]:
        index: defaultdict[str, list[AuditRow]] = defaultdict(list)
        for line in sorted(self.history.audit, key=lambda line: line.seq):
            if line.action in ("run.reset", "run.reopen"):
                index[line.subject].append(line)
        return index

    def object_body(self, kind: str, namespace: str, name: str) -> JsonObject | None:
        """A policy, a limit or a calendar as it is now."""
        return self._objects.get((kind, namespace, name))

    @cached_property
    def _objects(self) -> dict[tuple[str, str, str], JsonObject]:
        return {(row.kind, row.namespace, row.name): row.body for row in self.history.objects}


def _periods(
    rows: Sequence[AdjustmentRow], begins: tuple[str, ...], ends: tuple[str, ...]
) -> Iterator[tuple[AdjustmentRow, int]]:
    """Rows of some kinds, each with its end: by itself, or by the next row that replaces or ends it."""
    current: AdjustmentRow | None = None
    for row in rows:
        if row.kind in begins or row.kind in ends:
            if current is not None:
                yield current, min(row.at, current.until or NEVER)
            current = row if row.kind in begins else None
    if current is not None:
        yield current, current.until or NEVER


def _is_open(
    rows: Sequence[AdjustmentRow], begins: tuple[str, ...], ends: tuple[str, ...], *, at: int
) -> bool:
    """Whether the last period has neither been ended by a row nor ended by itself before an instant."""
    found = [row for row in rows if row.kind in begins or row.kind in ends]
    return bool(found) and found[-1].kind in begins and (found[-1].until or NEVER) >= at


def parse_json_object(text: str) -> JsonObject | None:
    """Parse a JSON text; return None unless it is an object."""
    try:
        value: Any = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return None
    return value if isinstance(value, dict) else None
