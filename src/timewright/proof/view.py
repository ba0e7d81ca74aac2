"""A history laid out for looking: runs by schedule, leases by run, what a schedule said when."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import msgspec

from timewright.proof.plans import Instants, Plans
from timewright.proof.policy import Budget, Policy, policy_of, queue_budget
from timewright.proof.rows import (
    AttemptRow,
    AuditRow,
    History,
    Note,
    Plain,
    RevisionRow,
    RunRow,
    ScheduleRow,
)
from timewright.proof.spans import instant

SETTLED = frozenset({"succeeded", "failed", "skipped", "cancelled"})
Lease = tuple[int, int, int | None, AttemptRow | None]

STEPS = frozenset({"schedule.pause", "schedule.resume", "schedule.archive"})


class View:
    """One history, and every index that the promises need; each is made when it is first asked for."""

    def __init__(self, history: History, *, now: int, grace: int, skew: int) -> None:
        self.history = history
        self.now = now
        self.grace = grace
        self.skew = skew
        self._plans = Plans()
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
        """The rows of occurrences by schedule, in the order of their planned instants."""
        found: defaultdict[str, list[RunRow]] = defaultdict(list)
        for run in self.history.runs:
            if run.schedule_id and not run.lane:
                found[run.schedule_id].append(run)
        for rows in found.values():
            rows.sort(key=lambda run: (run.planned_at, run.id))
        return found

    @cached_property
    def of_schedule(self) -> dict[str, list[RunRow]]:
        """Every run of a schedule, also those by hand, in the order they were made."""
        found: defaultdict[str, list[RunRow]] = defaultdict(list)
        for run in self.history.runs:
            if run.schedule_id:
                found[run.schedule_id].append(run)
        for rows in found.values():
            rows.sort(key=lambda run: (run.created_at, run.id))
        return found

    @cached_property
    def attempts(self) -> dict[str, list[AttemptRow]]:
        """The ended leases of runs, by fence."""
        found: defaultdict[str, list[AttemptRow]] = defaultdict(list)
        for attempt in self.history.attempts:
            found[attempt.run_id].append(attempt)
        for rows in found.values():
            rows.sort(key=lambda attempt: attempt.fence)
        return found

    @cached_property
    def revisions(self) -> dict[str, list[RevisionRow]]:
        """What schedules said, oldest first."""
        found: defaultdict[str, list[RevisionRow]] = defaultdict(list)
        for row in self.history.revisions:
            found[row.schedule_id].append(row)
        for rows in found.values():
            rows.sort(key=lambda row: row.revision)
        return found

    @cached_property
    def audit(self) -> dict[str, list[AuditRow]]:
        """Audit lines by what they are about, oldest first."""
        found: defaultdict[str, list[AuditRow]] = defaultdict(list)
        for line in sorted(self.history.audit, key=lambda line: line.seq):
            found[line.subject].append(line)
        return found

    @cached_property
    def notes(self) -> dict[str, list[Note]]:
        """What a simulator noted, by kind, in order."""
        found: defaultdict[str, list[Note]] = defaultdict(list)
        for note in self.history.notes or ():
            found[note.kind].append(note)
        return found

    @cached_property
    def policies(self) -> dict[tuple[str, int], Policy | None]:
        """What each revision says, read once."""
        return {
            (row.schedule_id, row.revision): policy_of(row.schedule_id, row.body)
            for row in self.history.revisions
        }

    def plan(self, policy: Policy) -> Instants | None:
        """The oracle: the instants that a policy means."""
        return self._plans.of(policy)

    @cached_property
    def left_out(self) -> dict[str, set[int]]:
        """What someone left out or moved, by schedule: such rows may be pruned before their instant comes."""
        found: defaultdict[str, set[int]] = defaultdict(set)
        for line in self.history.audit:
            if line.action in ("schedule.skip", "schedule.move") and line.after:
                with suppress(ValueError):
                    found[line.subject].add(instant(line.after.split()[0]))
        return found

    @cached_property
    def pauses(self) -> dict[str, list[tuple[int, int]]]:
        """The pauses by hand that lasted until someone resumed, or that last still: from, and up to."""
        found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for subject, lines in self.audit.items():
            began: int | None = None
            for line in lines:
                if line.action == "schedule.pause":
                    began = line.at if line.before != "paused" or began is None else began
                elif line.action in ("schedule.resume", "schedule.archive") and began is not None:
                    if line.before == "paused":
                        found[subject].append((began, line.at))
                    began = None
            row = self.schedules.get(subject)
            if began is not None and row is not None and row.state == "paused" and row.paused_at == began:
                found[subject].append((began, self.now if row.paused_until is None else row.paused_until))
        return found

    def is_held_back(self, schedule_id: str, at: int) -> bool:
        """Whether a schedule may have been paused or parked at an instant.

        Nobody writes down that a schedule was parked; what came after says from which state it came.
        """
        steps = [line for line in self.audit.get(schedule_id, ()) if line.action in STEPS]
        before = [line.action for line in steps if line.at <= at]
        after = [line.before for line in steps if line.at > at]
        row = self.schedules.get(schedule_id)
        then = after[0] if after else row.state if row is not None else ""
        return before[-1:] == ["schedule.pause"] or then in ("paused", "parked")

    def calendars_at(self, namespace: str, rule: Plain, at: int) -> dict[str, Plain] | None:
        """The calendars of a rule as they were at an instant; nothing if one of them is not known."""
        names = [*rule.get("only", ()), *rule.get("except", ())]
        found = {name: self._calendar_at(namespace, name, at) for name in names}
        known = {name: body for name, body in found.items() if body}
        return known if len(known) == len(found) else None

    def _calendar_at(self, namespace: str, name: str, at: int) -> Plain | None:
        puts = [
            line
            for line in self.audit.get(name, ())
            if line.action == "calendar.put" and line.namespace == namespace
        ]
        before = [line for line in puts if line.at <= at]
        if before:
            return read_plain(before[-1].after)
        return read_plain(puts[0].before) if puts else self.object_body("calendar", namespace, name)

    def policy(self, run: RunRow) -> Policy | None:
        """What the schedule of a run said when the run was made."""
        return self.policies.get((run.schedule_id, run.revision))

    def budget(self, run: RunRow) -> Budget | None:
        """What a run is tried under; nothing if its queue's policy changed since the run was made."""
        if run.schedule_id:
            policy = self.policy(run)
            return policy.budget if policy is not None else None
        if run.parent or not run.queue:
            # A step of a workflow, or a workflow that was started by hand: its words are in the workflow.
            return None
        puts = [
            line
            for line in self.audit.get(run.queue, ())
            if line.action == "queue.put" and line.namespace == run.namespace and line.at >= run.created_at
        ]
        return None if puts else queue_budget(self.object_body("queue", run.namespace, run.queue) or {})

    def leases(self, run: RunRow) -> Sequence[Lease]:
        """Each lease of a run that left a row: fence, from, to (nothing while it lives), and its end."""
        return self._leases.get(run.id, ())

    @cached_property
    def _leases(self) -> dict[str, list[Lease]]:
        found: dict[str, list[Lease]] = {
            run_id: [(row.fence, row.leased_at, row.ended_at, row) for row in rows]
            for run_id, rows in self.attempts.items()
        }
        for run in self.history.runs:
            if run.state == "leased" and run.leased_at is not None:
                found.setdefault(run.id, []).append((run.fence, run.leased_at, None, None))
        return found

    def spells(self, run: RunRow) -> Iterator[tuple[int, int, int | None]]:
        """Each lease of a run as it stood in the store: fence, from, to (nothing while it lives).

        What is dated was read from the clock before the transaction began, and a process may stand still in
        between. Whoever noted the commits knows better; otherwise an end may be earlier by the skew.
        """
        for fence, began, ended, _ in self.leases(run):
            granted, over = self._granted.get((run.id, fence)), self._over.get((run.id, fence))
            if granted is not None and (over is not None or ended is None):
                yield fence, granted, over
            else:
                yield fence, began, None if ended is None else max(began, ended - self.skew)

    @cached_property
    def _granted(self) -> dict[tuple[str, int], int]:
        return {(note.subject, note.fence): note.at for note in self.notes.get("leased", ())}

    @cached_property
    def _over(self) -> dict[tuple[str, int], int]:
        ends = (*self.notes.get("answered", ()), *self.notes.get("reclaimed", ()))
        return {(note.subject, note.fence): note.at for note in ends}

    def passes(self, schedule_id: str, at: int) -> int:
        """How many passes may have decided for a schedule at an instant: more than one where the clock stood.

        A clock that was set back stands until it has caught up. Where nobody noted the commits, a lease that
        began and ended at that instant says that it did, and not how many passes there were.
        """
        if self.history.notes is not None:
            return max(1, self._commits[schedule_id, at])
        return 1 if at not in self._stood else len(self.history.runs)

    @cached_property
    def _commits(self) -> Counter[tuple[str, int]]:
        return Counter((note.subject, note.at) for note in self.notes.get("cursor", ()))

    @cached_property
    def _stood(self) -> set[int]:
        return {row.ended_at for row in self.history.attempts if row.leased_at == row.ended_at}

    def first_lease(self, run: RunRow) -> int | None:
        """When a run was leased for the first time."""
        return next((began for fence, began, *_ in self.leases(run) if fence == 1), None)

    def restarts(self, run: RunRow) -> list[AuditRow]:
        """When someone gave a run its attempts back."""
        return self._restarts.get(run.id, [])

    @cached_property
    def _restarts(self) -> dict[str, list[AuditRow]]:
        found: defaultdict[str, list[AuditRow]] = defaultdict(list)
        for line in sorted(self.history.audit, key=lambda line: line.seq):
            if line.action in ("run.reset", "run.reopen"):
                found[line.subject].append(line)
        return found

    def object_body(self, kind: str, namespace: str, name: str) -> Plain | None:
        """A policy, a limit or a calendar as it is now."""
        return self._objects.get((kind, namespace, name))

    @cached_property
    def _objects(self) -> dict[tuple[str, str, str], Plain]:
        return {(row.kind, row.namespace, row.name): row.body for row in self.history.objects}


def read_plain(text: str) -> Plain | None:
    """What a JSON text says, if it says an object."""
    try:
        said: Any = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return None
    return said if isinstance(said, dict) else None
