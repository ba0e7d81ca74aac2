"""Hints: they apply at once, are bounded and counted, expire, and need an adaptive schedule."""

from __future__ import annotations

import pytest

from tests.operations.harness import OperationsHarness
from timewright.core.facts import ScheduleMoved
from timewright.errors import InvalidInput, NotAllowed, OverQuota, TimewrightError
from timewright.ledger.replan import Actor
from timewright.operations import OperationContext, operations
from timewright.testing.bench import Bench


def test_an_interval_hint_applies_at_once_and_shows_the_time_without_it(harness: OperationsHarness) -> None:
    hinted = harness.ask("hint interval", schedule="orders-poll", interval="1m", reason="the queue grows")
    assert (hinted["next_at"], hinted["source"]) == ("2026-03-10T12:01:00Z", "ai-interval")
    assert hinted["without_hints"] == "2026-03-10T12:03:00Z"
    assert hinted["hints"]["interval"]["expires_at"] == "2026-03-10T13:00:00Z"
    assert hinted["hints"]["interval"]["actor"] == "ada"
    assert any(isinstance(fact, ScheduleMoved) for fact in harness.facts)
    harness.advance(hours=2)
    after = harness.ask("hint list", schedule="orders-poll")
    assert after["hints"]["interval"] is None
    assert after["source"] == "baseline-interval"


def test_a_one_shot_hint_is_consumed_by_its_run(harness: OperationsHarness) -> None:
    hinted = harness.ask("hint once", schedule="orders-poll", at="2026-03-10T12:01:30Z")
    assert (hinted["next_at"], hinted["source"]) == ("2026-03-10T12:01:30Z", "ai-oneshot")
    harness.advance(minutes=2)
    (run,) = harness.ask("run list", schedule="orders-poll")["runs"]
    assert run["source"] == "ai-oneshot"
    assert harness.ask("hint list", schedule="orders-poll")["hints"]["one_shot"] is None


def test_a_one_shot_hint_takes_at_or_after_but_not_both(harness: OperationsHarness) -> None:
    hinted = harness.ask("hint once", schedule="orders-poll", after="90s")
    assert (hinted["next_at"], hinted["source"]) == ("2026-03-10T12:01:30Z", "ai-oneshot")
    for fields in ({}, {"at": "2026-03-10T12:01:30Z", "after": "90s"}, {"after": "-1s"}):
        with pytest.raises(TimewrightError) as error:
            harness.ask("hint once", fields, schedule="orders-poll")
        assert error.value.field in ("at", "after")


def test_a_one_shot_that_is_not_earlier_changes_nothing(harness: OperationsHarness) -> None:
    hinted = harness.ask("hint once", schedule="orders-poll", at="2026-03-10T12:20:00Z")
    assert (hinted["next_at"], hinted["source"]) == ("2026-03-10T12:03:00Z", "baseline-interval")


def test_a_pause_by_hint_lasts_at_most_an_hour(
    harness: OperationsHarness,
) -> None:
    hinted = harness.ask("hint pause", schedule="orders-poll", until="2026-03-10T12:30:00Z")
    assert (hinted["next_at"], hinted["source"]) == ("2026-03-10T12:30:00Z", "paused")
    for until in (
        "2026-03-10T13:00:01Z",
        "9999-01-01T00:00:00Z",
        "2026-03-10T12:00:00Z",
        "2025-01-01T00:00:00Z",
    ):
        with pytest.raises(InvalidInput) as error:
            harness.ask("hint pause", schedule="orders-poll", until=until)
        assert error.value.field == "until"


def test_cleared_hints_leave_the_baseline(harness: OperationsHarness) -> None:
    harness.ask("hint interval", schedule="orders-poll", interval="1m")
    harness.ask("hint once", schedule="orders-poll", at="2026-03-10T12:00:30Z")
    cleared = harness.ask("hint clear", schedule="orders-poll")
    assert cleared["hints"] == {"interval": None, "one_shot": None, "pause": None}
    assert cleared["next_at"] == "2026-03-10T12:03:00Z"


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        ("hint interval", {"interval": "1m"}),
        ("hint once", {"at": "2026-03-10T12:01:00Z"}),
        ("hint pause", {"until": "2026-03-10T12:30:00Z"}),
    ],
)
def test_a_schedule_that_is_not_adaptive_takes_no_hint(
    harness: OperationsHarness, operation: str, fields: dict[str, str]
) -> None:
    with pytest.raises(NotAllowed) as error:
        harness.ask(operation, fields, schedule="nightly-report")
    assert error.value.field == "adaptive"
    assert error.value.fix == "schedule update nightly-report with adaptive: true"
    harness.ask("schedule update", schedule="nightly-report", adaptive=True)
    harness.ask(operation, fields, schedule="nightly-report")


def test_an_archived_schedule_takes_no_hint(harness: OperationsHarness) -> None:
    harness.ask("schedule archive", schedule="orders-poll")
    with pytest.raises(NotAllowed) as error:
        harness.ask("hint interval", schedule="orders-poll", interval="1m")
    assert error.value.field == "state"


def test_a_hint_does_not_resume_a_paused_schedule(harness: OperationsHarness) -> None:
    harness.ask("schedule pause", schedule="orders-poll")
    hinted = harness.ask("hint interval", schedule="orders-poll", interval="1m")
    assert hinted["next_at"] is None


@pytest.mark.parametrize(
    "fields",
    [
        {"interval": "9.9s"},
        {"interval": "0s"},
        {"interval": -5},
        {"interval": "NaN"},
        {"interval": 10**18},
        {"interval": "1m", "ttl": "25h"},
        {"interval": "1m", "ttl": "0s"},
        {"interval": "1m", "ttl": -1},
        {"interval": "1m", "reason": "x" * 2001},
        {"interval": "1m", "url": "https://evil.example"},
        {"interval": "1m", "headers": {}},
        {"intervalMs": 9999},
    ],
)
def test_a_hint_out_of_range_is_rejected(harness: OperationsHarness, fields: dict[str, object]) -> None:
    before = harness.ask("hint list", schedule="orders-poll")
    with pytest.raises(TimewrightError) as error:
        harness.ask("hint interval", fields, schedule="orders-poll")
    assert error.value.field
    assert error.value.rule
    assert harness.ask("hint list", schedule="orders-poll") == before


def test_a_one_shot_in_the_past_is_refused(harness: OperationsHarness) -> None:
    with pytest.raises(InvalidInput) as error:
        harness.ask("hint once", schedule="orders-poll", at="2025-03-10T12:00:00Z")
    assert error.value.field == "hint.at"


def test_hints_change_at_most_twelve_times_an_hour_and_can_always_be_cleared(
    harness: OperationsHarness,
) -> None:
    for left in range(11, -1, -1):
        assert harness.ask("hint interval", schedule="orders-poll", interval="1m")["changes_left"] == left
    with pytest.raises(OverQuota) as error:
        harness.ask("hint once", schedule="orders-poll", at="2026-03-10T12:01:00Z")
    assert error.value.rule == "at most 12 changes an hour"
    harness.ask("hint clear", schedule="orders-poll")
    harness.sleep(hours=1, seconds=1)
    assert harness.ask("hint interval", schedule="orders-poll", interval="1m")["changes_left"] == 11


def test_a_rejected_or_dry_run_hint_does_not_count(harness: OperationsHarness) -> None:
    for _ in range(20):
        harness.ask("hint interval", schedule="orders-poll", interval="1m", dry_run=True)
        with pytest.raises(InvalidInput):
            harness.ask("hint interval", schedule="orders-poll", interval="1s")
    assert harness.ask("hint list", schedule="orders-poll")["changes_left"] == 12


def test_an_agent_hints_on_a_store_in_memory() -> None:
    bench = Bench()
    bench.call("schedule create", name="poll", every="1h", note="x", adaptive=True)
    agent = Actor(name="bot", origin="agent")
    context = OperationContext(store=bench.store, ids=bench.ids, notify=bench.loop.notify_observers, by=agent)
    answer = operations["hint interval"](context, {"schedule": "poll", "interval": "2m"})
    assert answer["source"] == "ai-interval"
