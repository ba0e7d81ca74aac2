"""The fast path for on-time occurrences writes the same rows, progress and facts as the general path."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.ledger.ledger_kit import LedgerHarness
from timewright.core.facts import Fact, RunAdmitted
from timewright.core.policies.policies import Overlap
from timewright.core.recurrence.triggers import Cron
from timewright.core.run.run import Run
from timewright.core.schedule.schedule import Schedule, ScheduleProgress
from timewright.core.target import Handoff
from timewright.ledger.admission_batch import AdmissionBatch, LocalCapacity
from timewright.ports import ProgressUpdate

ORDINARY: tuple[dict[str, Any], ...] = (
    {},
    {"trigger": Cron("* * * * *")},
    {"queue": "mail", "limits": ("api",)},
    {"priority": 3, "overlap": Overlap.ALLOW},
    {"target": Handoff()},
)


def outcome(
    bench: LedgerHarness, made: list[Schedule], told: tuple[Fact, ...]
) -> list[tuple[Run, ScheduleProgress, Fact]]:
    """What was written and reported for each schedule, without ids."""
    facts = {fact.schedule_id: fact for fact in told if isinstance(fact, RunAdmitted)}
    found: list[tuple[Run, ScheduleProgress, Fact]] = []
    for schedule in made:
        (run,) = bench.runs(schedule)
        assert bench.due(schedule).last_run == run.id == facts[schedule.id].run_id
        anonymous = replace(run, id="", schedule_id="")
        found.append(
            (anonymous, bench.progress(schedule), replace(facts[schedule.id], run_id="", schedule_id=""))
        )
    return found


def test_the_fast_path_writes_and_reports_the_same_as_the_general_path(
    bench: LedgerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, long = (
        [bench.schedule(f"{way} {n}", **fields) for n, fields in enumerate(ORDINARY)]
        for way in ("short", "long")
    )
    bench.move_to(1)
    plain, taken = AdmissionBatch.add_on_time_step, list[bool]()

    def counted(self: AdmissionBatch, due: Any) -> bool:
        taken.append(due.schedule.name.startswith("short") and plain(self, due))
        return taken[-1]

    monkeypatch.setattr(AdmissionBatch, "add_on_time_step", counted)
    told = bench.admit().facts
    assert (taken.count(True), taken.count(False)) == (len(ORDINARY), len(ORDINARY))
    assert outcome(bench, short, told) == outcome(bench, long, told)


def test_runs_that_start_at_admission_and_others_share_the_fast_path(bench: LedgerHarness) -> None:
    made = [bench.schedule(f"job-{n}") for n in range(4)]
    bench.move_to(1)
    admitted = bench.admit(local_capacity=LocalCapacity(holder="here", free_slots=3))
    assert [schedule.id for _, schedule in admitted.leased] == [one.id for one in made[:3]]
    assert [bench.outcomes_of(one) for one in made] == [[(1, "leased")]] * 3 + [[(1, "ready")]]
    assert [fact.schedule_id for fact in admitted.facts if isinstance(fact, RunAdmitted)] == [
        one.id for one in made
    ]


class Crash(Exception):
    """A simulated crash."""


def dying(*_: Any, **__: Any) -> Any:
    raise Crash


@pytest.mark.parametrize(
    "place", ["stores.queries.tick._progress_row", "ledger.admission_batch.on_time_step_facts"]
)
def test_a_crash_on_the_fast_path_leaves_neither_row_nor_progress(
    bench: LedgerHarness, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    job = bench.schedule()
    before = bench.progress(job)
    bench.move_to(1)
    with monkeypatch.context() as patch:
        patch.setattr(f"timewright.{place}", dying)
        with pytest.raises(Crash):
            bench.admit()
    assert (bench.runs(job), bench.progress(job)) == ([], before)
    bench.admit()
    assert bench.outcomes_of(job) == [(1, "ready")]


def test_an_existing_occurrence_is_not_reported_again_and_the_schedule_advances(bench: LedgerHarness) -> None:
    job = bench.schedule(overlap=Overlap.ALLOW)
    opened = bench.progress(job)
    bench.move_to(1)
    bench.admit()
    newest = bench.due(job).last_run
    bench.store.write(lambda tx: tx.save_progress([ProgressUpdate(job.id, opened)]))
    assert bench.admit().facts == ()
    assert bench.outcomes_of(job) == [(1, "ready")]
    assert (bench.due(job).last_run, bench.progress(job).cursor) == (newest, bench.now)
