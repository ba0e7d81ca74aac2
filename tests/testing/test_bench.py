"""Tests that a user writes with the kit, each in a few lines, and its error messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from timewright import Context, Scheduler, every
from timewright.errors import InvalidDuration, InvalidInput, InvalidInstant, NotFound, TimewrightError
from timewright.testing.bench import DEFAULT_START, Bench
from timewright.testing.clock import ManualClock
from timewright.testing.targets import ScriptedOutcome, fail, hang, succeed, vanish

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Scheduler]:
    app = Scheduler(tmp_path / "never-used.db")
    yield app
    app.stop()


def test_retries_wait_longer_each_time(bench: Bench) -> None:
    bench.schedule("sync", every("1h"), retry={"max_attempts": 4, "backoff": {"base": "10s"}})
    bench.target.script("sync", fail("503"), fail("503"), fail("503"), succeed({"rows": 7}))
    bench.advance("1h5m")
    began = [attempt.leased_at for attempt in bench.attempts("sync")]
    assert [after - before for before, after in pairwise(began)] == [
        timedelta(seconds=10),
        timedelta(seconds=20),
        timedelta(seconds=40),
    ]
    assert bench.result("sync") == {"rows": 7}


def test_long_work_skips_overlapping_occurrences(bench: Bench) -> None:
    bench.schedule("sync", every("1m"), overlap="skip")
    bench.target.script("sync", succeed(after="90s"))
    bench.advance("4m")
    assert [run.reason for run in bench.runs("sync")] == ["", "overlap", "", "overlap"]


def test_after_an_outage_all_missed_occurrences_run_in_order(bench: Bench) -> None:
    bench.schedule("sync", every("10m"), catch_up="all")
    bench.clock.advance("1h")
    bench.tick()
    assert [run.state for run in bench.runs("sync")] == ["succeeded"] * 6


def test_the_night_without_half_past_two_runs_at_three() -> None:
    bench = Bench(start="2026-03-28T12:00:00+01:00")
    bench.schedule("nightly", "30 2 * * *", zone="Europe/Berlin")
    bench.advance(until=datetime(2026, 3, 31, tzinfo=BERLIN))
    shown = [f"{run.planned_at.astimezone(BERLIN):%d %H:%M}" for run in bench.runs("nightly")]
    assert shown == ["29 03:00", "30 02:30"]


def test_a_hint_makes_it_run_more_often_until_it_expires(bench: Bench) -> None:
    bench.schedule("poll", every("1h"), adaptive=True)
    bench.call("hint interval", schedule="poll", interval="10m", ttl="35m", reason="a queue grows")
    bench.advance("2h")
    shown = [f"{run.planned_at:%H:%M} {run.source}" for run in bench.runs("poll")]
    assert shown == [
        "12:10 ai-interval",
        "12:20 ai-interval",
        "12:30 ai-interval",
        "12:40 ai-interval",
        "13:00 baseline-interval",
        "14:00 baseline-interval",
    ]


def test_a_pause_skips_the_instants_it_covers(bench: Bench) -> None:
    bench.schedule("poll", every("10m"))
    bench.call("schedule pause", schedule="poll", until="2026-03-10T12:25:00Z")
    bench.advance("30m")
    assert [run.reason or run.state for run in bench.runs("poll")] == ["paused", "paused", "succeeded"]


def test_work_that_hangs_ends_at_its_time_limit(bench: Bench) -> None:
    bench.schedule("sync", every("1h"), time_limit="30s", retry=1)
    bench.target.script("sync", hang())
    bench.advance("1h30s")
    (attempt,) = bench.attempts("sync")
    assert (attempt.outcome, attempt.ended_at - attempt.leased_at) == ("timed_out", timedelta(seconds=30))


def test_a_run_that_fails_for_good_parks_and_a_reset_gives_it_another_chance(bench: Bench) -> None:
    bench.schedule("mail", every("1h"), retry={"max_attempts": 2, "exhausted": "park"})
    bench.target.script("mail", fail("no"), fail("no"), succeed())
    bench.advance("1h5m")
    (run,) = bench.runs("mail")
    assert run.state == "parked"
    bench.call("run reset", run=run.id, reason="mailbox mended")
    bench.tick()
    assert bench.runs("mail")[0].state == "succeeded"


def test_a_second_instance_runs_what_a_dead_one_left(bench: Bench) -> None:
    other = bench.twin("other")
    bench.schedule("sync", every("1h"))
    bench.target.script("sync", vanish())
    bench.advance("1h")
    other.advance("10m")  # the first instance is no longer ticked
    (run,) = other.runs("sync")
    assert run.state == "succeeded"
    assert [(attempt.holder, attempt.outcome) for attempt in other.attempts("sync")] == [
        ("bench", "lost"),
        ("other", "succeeded"),
    ]


def test_a_function_may_be_the_work(bench: Bench) -> None:
    bench.schedule("report", every("1h"), target=lambda ctx: f"{ctx.planned_at:%H:%M}")
    bench.advance("2h")
    assert [attempt.result for attempt in bench.attempts("report")] == ["13:00", "14:00"]


def test_two_apps_may_be_adopted_even_while_one_runs(app: Scheduler, tmp_path: Path, bench: Bench) -> None:
    other = Scheduler(tmp_path / "other.db")
    app.schedule(every("1h"), name="first")(lambda: 1)
    other.schedule(every("1h"), name="second")(lambda: 2)
    with other:
        bench.adopt(app)
        bench.adopt(other)
    bench.advance("1h")
    assert (bench.result("first"), bench.result("second")) == (1, 2)


def test_waiting_through_the_context_takes_no_real_time(bench: Bench) -> None:
    def polls(ctx: Context) -> int:
        looks = 0
        while not ctx.cancelled.wait(60):
            looks += 1
        return looks

    def rests(ctx: Context) -> str:
        return "cancelled" if ctx.cancelled.wait(10) else "rested"

    bench.schedule("polls", every("1h"), target=polls, retry=1, time_limit="5m")
    bench.schedule("rests", every("1h"), target=rests)
    bench.advance("1h")
    assert [attempt.outcome for attempt in bench.attempts("polls")] == ["timed_out"]
    assert bench.result("rests") == "rested"


def test_a_bench_takes_every_trigger_of_the_decorator(bench: Bench) -> None:
    bench.schedule("once", DEFAULT_START + timedelta(hours=1))
    bench.schedule("list", [every("6h"), "0 15 * * *"])
    bench.schedule("word", cron="0 13 * * *")
    bench.schedule("manual", manual=True)
    bench.advance("4h")
    assert [len(bench.runs(name)) for name in ("once", "list", "word", "manual")] == [1, 1, 1, 0]


def test_a_bench_in_async_code_calls_async_functions(bench: Bench) -> None:
    async def poll() -> int:
        await asyncio.sleep(0)
        return 5

    async def main() -> None:
        bench.schedule("poll", every("1h"), target=poll)
        bench.advance("1h")

    asyncio.run(main())
    assert bench.result("poll") == 5


# Mistakes.


@pytest.mark.parametrize(
    ("mistake", "error", "fix"),
    [
        (lambda bench: bench.advance(60), InvalidDuration, "60s for seconds or 60m for minutes"),
        (lambda bench: bench.advance(hour=1), InvalidInput, "did you mean hours?"),
        (lambda bench: bench.advance(hours="1"), InvalidDuration, "hours=3"),
        (lambda bench: bench.advance(hours=-1), InvalidDuration, "step() moves"),
        (lambda bench: bench.advance(until="2026-03-10T11:00:00Z"), InvalidDuration, "step() moves"),
        (lambda bench: bench.advance(until=5), InvalidInstant, "datetime.now(UTC)"),
        (lambda bench: bench.clock.advance(60), InvalidDuration, "60s for"),
        (lambda bench: bench.clock.step("yesterday"), InvalidInstant, "2026-03-10T12:00:00Z"),
        (lambda bench: bench.runs("reprot"), NotFound, "did you mean report?"),
        (lambda bench: bench.target.script("report"), InvalidInput, "script('report', fail())"),
        (lambda bench: bench.target.script("report", fail), InvalidInput, "script('report', fail())"),
        (lambda bench: bench.adopt(None), InvalidInput, "bench.adopt(app)"),
        (lambda _: succeed(outcome_label="usefull"), InvalidInput, "outcome_label='useful'"),
        (lambda _: succeed(after=90), InvalidDuration, "90s for"),  # type: ignore[arg-type]
        (lambda _: fail(not_before=datetime(2026, 1, 1)), InvalidInstant, "2026-01-01T00:00:00Z"),
        (lambda _: Bench(start=datetime(2026, 1, 1)), InvalidInstant, "2026-01-01T00:00:00Z"),
        (
            lambda bench: Bench(clock=bench.clock, start="2027-01-01T00:00:00Z"),
            InvalidInput,
            "omit start",
        ),
    ],
)
def test_a_mistake_is_refused_with_a_remedy(
    bench: Bench, mistake: Callable[[Any], Any], error: type[TimewrightError], fix: str
) -> None:
    bench.schedule("report", every("1h"))
    with pytest.raises(error) as refusal:
        mistake(bench)
    assert refusal.value.field
    assert refusal.value.rule
    assert str(refusal.value.fix).startswith(fix)
    assert bench.now == DEFAULT_START


def test_a_script_for_a_misspelt_schedule_is_refused(bench: Bench) -> None:
    bench.schedule("send_report", every("1h"))
    bench.target.script("send_reprot", fail())
    with pytest.raises(NotFound, match="no schedule 'send_reprot'") as refusal:
        bench.advance("1h")
    assert refusal.value.fix == "did you mean send_report?"


def test_a_bench_and_its_clock_print_their_time(bench: Bench) -> None:
    bench.schedule("report", every("1h"))
    assert repr(bench) == "<bench at 2026-03-10T12:00:00+00:00: report>"
    assert repr(bench.clock) == "<clock at 2026-03-10T12:00:00+00:00>"


def test_a_clock_takes_text_as_well() -> None:
    clock = ManualClock("2026-03-10T13:00:00+01:00")
    assert clock.advance("90m") == datetime(2026, 3, 10, 13, 30, tzinfo=UTC)
    assert clock.advance(weeks=1, milliseconds=500).microsecond == 500_000
    assert clock.step("-1h") == datetime(2026, 3, 17, 12, 30, 0, 500_000, tzinfo=UTC)
    assert clock.step("2026-03-10T12:00:00Z") == DEFAULT_START
    assert isinstance(hang(), ScriptedOutcome)
