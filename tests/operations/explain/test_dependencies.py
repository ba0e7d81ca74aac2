"""Dependencies between schedules: how they are written, shown and explained."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operations.harness import OperationsHarness
from timewright import Scheduler, after, every
from timewright.core.moments import MINUTE
from timewright.errors import InvalidInput, NotAllowed, NotFound, TimewrightError
from timewright.operations.definitions.programs import sort_by_dependency
from timewright.testing.bench import Bench
from timewright.testing.targets import fail, succeed

WAITS = {"schedule": "load", "within": "2h", "wait": "30m"}


@pytest.fixture
def empty() -> OperationsHarness:
    harness = OperationsHarness()
    harness.ask("schedule create", name="load", cron="0 15 * * *", call="load", retry=1)
    return harness


def answer(harness: OperationsHarness, schedule: str, **fields: Any) -> str:
    found = harness.ask("schedule explain", fields, schedule=schedule)
    return " | ".join([found["summary"], *found["because"]])


def states(harness: OperationsHarness, schedule: str) -> list[str]:
    return [run.reason or run.state.value for run in harness.bench.runs(schedule)]


@pytest.mark.parametrize(
    "words",
    [
        {"after": "load", "on": "failure", "delay": "5m"},
        {"after": {"schedule": "load", "on": "FAILED", "delay": "5m"}},
        {"trigger": {"kind": "after", "schedule": "load", "on": "failure", "delay": "5m"}},
        {"trigger": {"after": "load", "on": "failure", "delay_ms": 300_000}},
    ],
)
def test_all_spellings_of_a_dependency_are_equal(empty: OperationsHarness, words: dict[str, Any]) -> None:
    made = empty.ask("schedule create", words, name="alarm", note="x")
    assert made["schedule"]["trigger"] == {
        "kind": "after",
        "delay": "5m",
        "schedule": "load",
        "on": "failure",
    }
    assert made["trigger"] == "5m after load failed"


@pytest.mark.parametrize(
    "words",
    ["load:2h wait 30m", "load within 2h on success wait 30m else skip", {**WAITS, "else": "skip"}],
)
def test_a_need_is_a_word_or_a_mapping(empty: OperationsHarness, words: Any) -> None:
    made = empty.ask("schedule create", name="mail", cron="0 16 * * *", note="x", needs=[words])
    assert made["schedule"]["needs"] == [{**WAITS, "on": "success", "else": "skip"}]


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ({"after": "laod"}, "trigger.schedule"),
        ({"after": "5m", "on": "failure"}, "trigger.on"),
        ({"after": "load", "on": "sometimes"}, "trigger.on"),
        ({"after": "load", "every": "5m"}, "trigger"),
        ({"after": "load", "calendar": {"roll": "next"}}, "calendar.roll"),
        ({"every": "1h", "needs": ["load"]}, "needs[0]"),
        ({"every": "1h", "needs": ["load:0s"]}, "needs[0].within"),
        ({"every": "1h", "needs": [{"schedule": "load"}]}, "needs[0].within"),
        ({"every": "1h", "needs": ["away:1h"]}, "needs[0].schedule"),
        ({"every": "1h", "needs": ["load:1h"] * 21}, "needs"),
    ],
)
def test_an_invalid_dependency_is_rejected_with_its_field_and_a_fix(
    empty: OperationsHarness, words: dict[str, Any], field: str
) -> None:
    with pytest.raises(TimewrightError) as error:
        empty.ask("schedule create", words, name="next", note="x")
    assert error.value.field == field
    assert error.value.fix


def test_upstream_and_downstream_are_shown_and_can_be_listed(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="report", after="load", note="x")
    empty.ask("schedule create", name="mail", cron="0 16 * * *", note="x", needs=[WAITS])
    empty.advance(hours=4)
    below = empty.ask("schedule get", schedule="load")["downstream"]
    assert [(one["schedule"], one["kind"]) for one in below] == [("mail", "needs"), ("report", "after")]
    (above,) = empty.ask("schedule get", schedule="mail")["upstream"]
    assert (above["schedule"], above["words"]) == ("load", "needs that load succeeded within 2h")
    assert above["met_at"] == "2026-03-10T15:00:00Z"
    found = empty.ask("schedule list", waits_for="load")["schedules"]
    assert [one["name"] for one in found] == ["mail", "report"]
    assert empty.ask("forecast")["follows"] == {"report": "after load succeeded"}


def test_explain_names_the_upstream_and_downstream_runs(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="report", after="load", note="x")
    assert "nothing is planned yet: it runs after load succeeded" in answer(empty, "report")
    empty.advance(hours=4)
    (load,), (report,) = empty.bench.runs("load"), empty.bench.runs("report")
    assert f"run {load.id} of load succeeded, and report runs after that" in answer(
        empty, "report", last=True
    )
    assert f"report ran after it: {report.id}" in answer(empty, "load", last=True)


def test_explain_shows_that_a_skipped_run_triggers_nothing(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="report", after="load", note="x")
    empty.ask("schedule skip", schedule="load")
    assert "it never ran, so nothing runs after it: report" in answer(
        empty, "load", at="2026-03-10T15:00:00Z"
    )


def test_a_failed_upstream_run_that_is_retried_releases_its_downstream(empty: OperationsHarness) -> None:
    """The load fails and the report waits; the load is retried at 16:10, and the report starts at once."""
    empty.ask("schedule create", name="report", cron="0 16 * * *", call="report", needs=[WAITS])
    empty.bench.target.script("load", fail("the source is away"), succeed())
    empty.advance(hours=4, minutes=10)
    (waiting,) = empty.bench.runs("report")
    sentences = answer(empty, "report", last=True)
    assert "it waits for load, which never succeeded, at most until 2026-03-10T16:30:00Z" in sentences
    assert "then it is skipped" in sentences
    empty.ask("run retry", run=empty.bench.runs("load")[0].id)
    empty.bench.tick()
    (run,) = empty.bench.runs("report")
    assert (run.id, run.state.value, run.started_at) == (waiting.id, "succeeded", empty.now)


def test_a_run_whose_dependency_is_never_met_is_skipped_with_the_reason(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="report", cron="0 16 * * *", call="report", needs=[WAITS])
    empty.advance(hours=5)
    empty.bench.target.script("load", fail("the source is away"))
    empty.advance(days=1)
    assert states(empty, "report") == [
        "succeeded",
        "needs: load last succeeded at 2026-03-10T15:00:00Z, longer ago than 2h",
    ]
    found = empty.ask("schedule explain", schedule="report", last=True)
    assert found["because"][1] == "it waited 30m for it"
    assert found["remedies"][0]["command"] == "timewright schedule run load"
    assert "it starts only if load succeeded within 2h, or waits 30m for it" in answer(empty, "report")


def test_an_upstream_schedule_cannot_be_renamed_while_it_is_needed(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="report", after="load", note="x")
    with pytest.raises(NotAllowed, match="cannot be renamed: report depends on it"):
        empty.ask("schedule update", schedule="load", name="loader")
    with pytest.raises(NotAllowed, match="schedule load cannot be archived"):
        empty.ask("schedule delete", schedule="load")
    empty.ask("schedule update", schedule="report", every="1h")
    empty.ask("schedule update", schedule="load", name="loader")
    with pytest.raises(NotFound):
        empty.ask("schedule create", name="late", after="load", note="x")


def test_a_dependency_on_another_namespace_is_not_found(empty: OperationsHarness) -> None:
    with pytest.raises(NotFound, match="there is no schedule 'load'"):
        empty.in_namespace().ask("schedule create", name="report", after="load", note="x")


def test_a_dry_run_writes_no_link(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="report", after="load", note="x", dry_run=True)
    assert empty.ask("schedule get", schedule="load")["downstream"] == []


def test_a_program_may_declare_dependencies_in_any_order() -> None:
    app = Scheduler(":memory:")

    @app.schedule(after("load"))
    def report() -> None: ...

    @app.schedule("every 1h", needs=["report:2h"])
    def mail() -> None: ...

    @app.schedule(every("1h"))
    def load() -> None: ...

    assert [one["name"] for one in app.declared] == ["load", "report", "mail"]
    bench = Bench()
    bench.adopt(app)
    bench.advance(minutes=65)
    assert [run.state.value for run in bench.runs("report")] == ["succeeded"]
    app.stop()


def test_a_cycle_of_drafts_keeps_its_order_and_is_rejected_when_written(empty: OperationsHarness) -> None:
    ring = [{"name": "a", "after": "b"}, {"name": "b", "after": "a"}, {"name": "c", "every": "?"}]
    assert [one["name"] for one in sort_by_dependency(ring)] == ["c", "a", "b"]
    empty.ask("schedule create", name="report", after="load", note="x")
    with pytest.raises(InvalidInput, match="load depends on report depends on load"):
        empty.ask("schedule update", schedule="load", after="report")


def test_a_jitter_moves_only_what_comes_later(empty: OperationsHarness) -> None:
    empty.ask("schedule create", name="report", after="load", note="x", jitter="10m", jitter_side="both")
    empty.advance(hours=4)
    (run,) = empty.bench.runs("report")
    assert run.planned_at <= run.fire_at <= run.planned_at + 10 * MINUTE
