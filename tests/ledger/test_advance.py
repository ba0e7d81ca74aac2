"""What is ordinary goes the short way: the same rows, the same standing, the same facts, all or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.ledger.bench import Bench
from timewright.core.facts import Fact, RunAdmitted
from timewright.core.policies import Overlap
from timewright.core.run import Run
from timewright.core.schedule import Schedule, Standing
from timewright.core.target import Handoff
from timewright.core.triggers import Cron
from timewright.ledger.admission_pass import AdmissionPass, Offer
from timewright.ports import Stood

ORDINARY: tuple[dict[str, Any], ...] = (
    {},
    {"trigger": Cron("* * * * *")},
    {"queue": "mail", "limits": ("api",)},
    {"priority": 3, "overlap": Overlap.ALLOW},
    {"target": Handoff()},
)


def outcome(bench: Bench, made: list[Schedule], told: tuple[Fact, ...]) -> list[tuple[Run, Standing, Fact]]:
    """What was written and told of each, without the ids in which any two differ."""
    facts = {fact.schedule_id: fact for fact in told if isinstance(fact, RunAdmitted)}
    found: list[tuple[Run, Standing, Fact]] = []
    for schedule in made:
        (run,) = bench.runs(schedule)
        assert bench.due(schedule).last_run == run.id == facts[schedule.id].run_id
        nobodys = replace(run, id="", schedule_id="")
        found.append(
            (nobodys, bench.standing(schedule), replace(facts[schedule.id], run_id="", schedule_id=""))
        )
    return found


def test_the_short_way_writes_and_tells_what_the_long_way_does(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, long = (
        [bench.schedule(f"{way} {n}", **fields) for n, fields in enumerate(ORDINARY)]
        for way in ("short", "long")
    )
    bench.go(1)
    plain, taken = AdmissionPass.advance, list[bool]()

    def counted(self: AdmissionPass, due: Any) -> bool:
        taken.append(due.schedule.name.startswith("short") and plain(self, due))
        return taken[-1]

    monkeypatch.setattr(AdmissionPass, "advance", counted)
    told = bench.admit().facts
    assert (taken.count(True), taken.count(False)) == (len(ORDINARY), len(ORDINARY))
    assert outcome(bench, short, told) == outcome(bench, long, told)


def test_what_starts_here_and_now_leaves_the_short_way_to_the_others(bench: Bench) -> None:
    made = [bench.schedule(f"job-{n}") for n in range(4)]
    bench.go(1)
    admitted = bench.admit(offer=Offer(holder="here", capacity=3))
    assert [schedule.id for _, schedule in admitted.leased] == [one.id for one in made[:3]]
    assert [bench.fates(one) for one in made] == [[(1, "leased")]] * 3 + [[(1, "ready")]]
    assert [fact.schedule_id for fact in admitted.facts if isinstance(fact, RunAdmitted)] == [
        one.id for one in made
    ]


class Crash(Exception):
    """The instance dies here."""


def dying(*_: Any, **__: Any) -> Any:
    raise Crash


@pytest.mark.parametrize("place", ["stores.advance_verbs._moved_row", "ledger.admission_pass.advanced"])
def test_a_crash_on_the_short_way_leaves_neither_the_row_nor_the_cursor(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    job = bench.schedule()
    before = bench.standing(job)
    bench.go(1)
    with monkeypatch.context() as patch:
        patch.setattr(f"timewright.{place}", dying)
        with pytest.raises(Crash):
            bench.admit()
    assert (bench.runs(job), bench.standing(job)) == ([], before)
    bench.admit()
    assert bench.fates(job) == [(1, "ready")]


def test_an_occurrence_that_is_there_already_is_not_told_and_the_schedule_goes_on(bench: Bench) -> None:
    job = bench.schedule(overlap=Overlap.ALLOW)
    opened = bench.standing(job)
    bench.go(1)
    bench.admit()
    newest = bench.due(job).last_run
    bench.store.write(lambda tx: tx.stand([Stood(job.id, opened)]))
    assert bench.admit().facts == ()
    assert bench.fates(job) == [(1, "ready")]
    assert (bench.due(job).last_run, bench.standing(job).cursor) == (newest, bench.now)
