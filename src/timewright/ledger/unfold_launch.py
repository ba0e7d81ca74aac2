"""The launch of a workflow run, and the end of a lease that no process held."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.facts import Fact
from timewright.core.moments import spell_duration
from timewright.core.run import Cancelled, Failed, Lost, Outcome, Reason, Run, RunState, Succeeded
from timewright.core.target import Workflow
from timewright.errors import TimewrightError
from timewright.ledger.shelf import Under
from timewright.ledger.unfold import CLOSED, NOTHING, Moved, Over, finish, stop
from timewright.ledger.unfold_again import again
from timewright.ledger.unfold_parts import EXECUTOR, UNFOLDED
from timewright.ledger.unfold_pin import pinned, time_limit
from timewright.ledger.unfold_walk import Walk
from timewright.ports import Transaction
from timewright.ports.steps import StepRow, TakeOver

ENDED = "its workflow is over"


class Answered(Struct, frozen=True, kw_only=True, gc=False):
    """The outcome of one lease; `run` is the run as it was leased, with its fence."""

    run: Run
    outcome: Outcome
    started_at: datetime | None = None


class Begun(Struct, frozen=True, kw_only=True):
    """The answers that are still to be settled, and the runs that go on instead."""

    answers: dict[str, Answered]
    done: frozenset[str] = frozenset()
    moved: Moved = NOTHING


def begin(
    tx: Transaction, newest: dict[str, Answered], under: Mapping[str, Under], *, now: datetime
) -> Begun:
    """Unfold what was launched, and put outcomes right that mean something else for a workflow.

    Answers of runs that have nothing to do with workflows are left as they are.
    """
    flows = [i for i in newest if isinstance(under[i].terms.target, Workflow)]
    parents = {answer.run.parent for answer in newest.values() if answer.run.parent}
    if not flows and not parents:
        return Begun(answers=newest)
    wholes = tx.hold_wholes({*parents, *flows})
    rows = tx.get_runs(flows, lock=True) if flows else {}
    launches = _Launches(tx, dict(newest), under, now=now)
    for i in flows:
        launches.take(newest[i], rows.get(i), wholes.get(i))
    moved = Moved(tuple(launches.facts), tuple(launches.over))
    return Begun(answers=launches.answers, done=frozenset(launches.done), moved=moved)


class _Launches:
    """Answers about workflow runs, taken one by one."""

    def __init__(
        self, tx: Transaction, answers: dict[str, Answered], under: Mapping[str, Under], *, now: datetime
    ) -> None:
        self.answers = answers
        self.facts: list[Fact] = []
        self.over: list[Over] = []
        self.done: set[str] = set()
        self._tx = tx
        self._under = under
        self._now = now

    def take(self, answer: Answered, row: Run | None, whole: StepRow | None) -> None:
        """Unfold a launch, put right the end of a lease that no process held, leave the rest to the fence."""
        run = answer.run
        ours = row is not None and row.holder in (UNFOLDED, EXECUTOR)
        held = row is not None and (row.state, row.fence) == (RunState.LEASED, run.fence)
        launched = isinstance(answer.outcome, Succeeded) and run.holder not in (UNFOLDED, EXECUTOR)
        if launched and (ours or not held or row is None):
            # Whoever launched it has lost it; or it was taken over, and the launcher did not hear of it.
            del self.answers[run.id]
            if ours and held:
                self.done.add(run.id)
        elif launched and row is not None:
            self._unfold(answer, row, whole)
        elif held and row is not None and (ours or run.holder == EXECUTOR):
            self._put_right(answer, row)

    def _unfold(self, answer: Answered, row: Run, whole: StepRow | None) -> None:
        """A launch that succeeded: the run goes on in the hands of its steps, or of an executor."""
        tx, now, terms = self._tx, self._now, self._under[row.id].terms
        target = terms.target
        assert isinstance(target, Workflow)
        if row.cancel_at is not None:
            self._answer(answer, Cancelled(reason=row.reason or Reason.BY_HAND.value))
            return
        try:
            part, pin, plan = pinned(tx, row, target, known=whole is not None)
        except TimewrightError as error:
            self._answer(answer, Failed(error=error.message, unresolved=True))
            return
        outside = plan.spec.executor is not None
        taken = replace(
            row,
            holder=EXECUTOR if outside else UNFOLDED,
            started_at=row.started_at if outside else answer.started_at,
            lease_until=now + time_limit(plan.spec, terms.lease, outside=outside),
            payload=replace(part, runs=pin).told() if part is not None and part.step else pin.told(),
        )
        tx.take_over([TakeOver(run=taken, was=row.holder)])
        del self.answers[row.id]
        self.done.add(row.id)
        if not outside:
            walk = Walk(tx, taken, pin, plan, now=now)
            if whole is None:
                walk.begin(plan.roots)
            else:
                again(tx, taken, walk, plan, round=whole.round + 1, now=now)
            self._moved(finish(tx, taken, walk))

    def _put_right(self, answer: Answered, row: Run) -> None:
        """The end of a lease that no process held: a time limit of steps, or the silence of an executor."""
        lost = isinstance(answer.outcome, Lost) and row.cancel_at is None
        if EXECUTOR in (row.holder, answer.run.holder):
            if lost:
                self._answer(answer, _silence(row))
            elif isinstance(answer.outcome, Failed):
                # It was launched: what failed is the work, and only the executor could try that again.
                self._answer(answer, replace(answer.outcome, final=True))
            return
        if lost:
            took = spell_duration(self._now - (row.started_at or self._now))
            error = f"the time limit of the workflow was reached after {took}"
            self._answer(answer, Failed(error=error, final=True), started_at=row.started_at)
        self._moved(stop(self._tx, [row], reason=ENDED, now=self._now, state=CLOSED))

    def _answer(self, answer: Answered, outcome: Outcome, **fields: Any) -> None:
        self.answers[answer.run.id] = replace(answer, outcome=outcome, **fields)

    def _moved(self, moved: Moved) -> None:
        self.facts += moved.facts
        self.over += moved.over


def _silence(row: Run) -> Outcome:
    """An executor that never spoke was launched all the same; one that began and fell silent was lost."""
    if row.started_at is None:
        return Succeeded(result={"launched": True, "reported": False})
    return Failed(error="the executor reported its start and never its end", final=True)
