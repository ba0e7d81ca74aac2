"""The routines document, sentence by sentence: what it names works, in its own words."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from timewright.core.moments import parse_instant
from timewright.errors import NotAllowed
from timewright.testing.bench import Bench
from timewright.testing.targets import fail, hang, succeed

CRON_EXAMPLES = [
    ("0 3 * * 1", "2026-03-16T03:00:00Z"),
    ("*/15 * * * *", "2026-03-10T12:15:00Z"),
    ("0 0 1 * *", "2026-04-01T00:00:00Z"),
    ("0 */5 * * * *", "2026-03-10T12:05:00Z"),
]


def routine(bench: Bench, **fields: Any) -> Any:
    """Create a routine in the words of the document."""
    given = {"name": "audit", "handler": "work", "preset": "routine", **fields}
    if not {"manual", "cron"} & given.keys():
        given.setdefault("interval_ms", 60_000)
    return bench.call("schedule create", **given)


def states(bench: Bench) -> list[str]:
    return [run.state.value for run in bench.runs("audit")]


def test_a_routine_is_created_active_and_paused_and_resumed() -> None:
    bench = Bench()
    assert routine(bench)["progress"]["state"] == "active"
    assert bench.call("schedule pause", schedule="audit")["progress"]["state"] == "paused"
    bench.advance("3m")
    assert states(bench) == []
    assert bench.call("schedule resume", schedule="audit")["progress"]["state"] == "active"
    bench.advance("1m")
    assert states(bench) == ["skipped", "skipped", "succeeded", "succeeded"]


def test_run_now_triggers_one_execution_whatever_the_schedule_says() -> None:
    bench = Bench()
    routine(bench, manual=True)
    bench.advance("1d")
    assert states(bench) == []
    bench.call("schedule run", schedule="audit")
    bench.tick()
    assert states(bench) == ["succeeded"]


def test_the_last_runs_are_listed_with_their_times_and_errors() -> None:
    bench = Bench()
    routine(bench, max_retries=1)
    bench.target.script("audit", succeed(), fail("no disk"), succeed())
    bench.advance("3m")
    runs = bench.call("run list", schedule="audit", limit=2)["runs"]
    assert [(run["state"], run["error"]) for run in runs] == [("succeeded", ""), ("failed", "no disk")]
    assert all(run["started_at"] and run["finished_at"] for run in runs)


@pytest.mark.parametrize(("cron", "first"), CRON_EXAMPLES)
def test_the_cron_examples_fire_when_the_document_says(cron: str, first: str) -> None:
    bench = Bench()
    found = bench.call("schedule next", cron=cron, count=1)["next"]
    assert parse_instant(found[0]["planned_at"]) == parse_instant(first)


def test_forbid_skips_and_records_a_run_while_the_last_still_runs() -> None:
    bench = Bench()
    routine(bench, concurrency_policy="FORBID")
    bench.target.script("audit", succeed(after="90s"))
    bench.advance("150s")
    assert [(run.state.value, run.reason) for run in bench.runs("audit")] == [
        ("succeeded", ""),
        ("skipped", "overlap"),
    ]


def test_allow_lets_runs_overlap() -> None:
    bench = Bench()
    routine(bench, concurrency_policy="ALLOW")
    bench.target.script("audit", succeed(after="90s"), succeed(after="90s"))
    bench.advance("130s")
    assert states(bench) == ["leased", "leased"]


def test_replace_cancels_the_previous_run_and_starts_the_new_one() -> None:
    bench = Bench()
    routine(bench, concurrency_policy="REPLACE")
    bench.target.script("audit", hang(), succeed())
    bench.advance("150s")
    assert states(bench) == ["cancelled", "succeeded"]


@pytest.mark.parametrize(("policy", "ran"), [("SKIP", 1), ("LAST", 1), ("ALL", 5)])
def test_missed_triggers_are_skipped_run_once_or_all_run(policy: str, ran: int) -> None:
    bench = Bench()
    routine(bench, catch_up_policy=policy)
    bench.clock.advance("5m30s")
    bench.advance("1s")
    assert states(bench).count("succeeded") == ran
    assert len(states(bench)) == 5


def test_a_failing_routine_does_not_stop_the_others() -> None:
    bench = Bench()
    routine(bench, max_retries=1)
    routine(bench, name="other")
    bench.target.script("audit", fail("boom"))
    bench.advance("1m")
    assert [run.state.value for run in bench.runs("other")] == ["succeeded"]


def test_a_failure_is_retried_with_growing_delays_and_at_most_a_fifth_of_jitter() -> None:
    bench = Bench()
    routine(bench, interval_ms=3_600_000)
    bench.target.script("audit", fail("a"), fail("b"), fail("c"))
    bench.advance("61m")
    starts = [attempt.started_at for attempt in bench.attempts("audit") if attempt.started_at]
    gaps = [(after - before).total_seconds() for before, after in pairwise(starts)]
    assert 1 <= gaps[0] <= 1.2
    assert 2 <= gaps[1] <= 2.4
    assert states(bench) == ["failed"]


def test_completed_failed_and_exhausted_are_told_once_each() -> None:
    bench = Bench()
    routine(bench, interval_ms=3_600_000)
    bench.target.script("audit", fail("a"), fail("b"), fail("c"), succeed())
    told = [type(fact).__name__ for fact in bench.advance("121m")]
    assert told.count("RunWillRetry") == 2
    assert told.count("RunFailed") == 1
    assert told.count("RunSucceeded") == 1


def test_an_execution_ends_at_its_time_limit() -> None:
    bench = Bench()
    detail = routine(bench, max_retries=1)
    assert detail["schedule"]["lease"]["time_limit"] == "5m"
    bench.target.script("audit", hang())
    bench.advance("7m")
    assert bench.runs("audit")[0].state.value == "failed"


def test_an_archived_routine_never_runs_again() -> None:
    bench = Bench()
    routine(bench)
    bench.call("schedule delete", schedule="audit")
    bench.advance("1h")
    with pytest.raises(NotAllowed):
        bench.call("schedule run", schedule="audit")
