"""The house at a glance: what runs and what comes, strips of what became of it, and the load ahead."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.operations.house import NOON, House
from timewright.core.moments import spell_instant
from timewright.testing.targets import fail, hang, succeed


@pytest.fixture
def place() -> House:
    """An empty house at noon."""
    return House()


def test_what_runs_comes_and_failed_is_there_at_a_glance(place: House) -> None:
    place.ask("schedule create", name="slow", every="10m", call="slow")
    place.ask("schedule create", name="broken", every="20m", call="broken", max_attempts=1)
    place.bench.target.script("slow", hang())
    place.bench.target.script("broken", fail("no luck"))
    place.bench.advance(minutes=20)
    seen = place.ask("now")
    assert [run["schedule"] for run in seen["running"]] == ["slow"]
    assert [(run["schedule"], run["error"]) for run in seen["failed"]] == [("broken", "no luck")]
    assert [row["name"] for row in seen["coming"]] == ["slow", "broken"]
    assert (seen["numbers"]["running"], seen["numbers"]["failed"], seen["numbers"]["due"]) == (1, 1, 2)


def test_the_time_behind_us_is_counted_in_pieces_that_together_are_everything(place: House) -> None:
    place.ask("schedule create", name="often", every="1m", call="often", max_attempts=1)
    place.bench.target.script("often", *[succeed() for _ in range(20)], fail("once"), succeed())
    place.bench.advance(minutes=58, seconds=30)
    seen = place.ask("now")
    sums: dict[str, int] = {}
    for piece in seen["behind"]:
        for state, count in piece["outcomes"].items():
            sums[state] = sums.get(state, 0) + count
    assert len(seen["behind"]) == 60
    assert sums == {"succeeded": 57, "failed": 1}
    assert seen["more"] is False


def test_a_list_without_end_says_that_there_is_more(place: House) -> None:
    place.ask("queue add", queue="long", payloads=list(range(1000)))
    place.ask("queue add", queue="long", payload="one more")
    assert place.ask("now")["more"] is True


@pytest.mark.parametrize("asked", ["0s", "400d"])
def test_a_glance_looks_a_minute_to_a_week_whatever_was_asked(place: House, asked: str) -> None:
    seen = place.ask("now", back=asked)
    width = NOON - datetime.fromisoformat(seen["behind"][0]["at"])
    assert timedelta(minutes=1) <= width <= timedelta(days=7)


def test_a_strip_shows_what_ran_and_what_did_not_oldest_first(place: House) -> None:
    place.ask("schedule create", name="busy", every="10m", call="busy", overlap="skip", time_limit="1h")
    place.ask("schedule create", name="idle", every="1d", call="idle")
    place.bench.target.script("busy", succeed(after=timedelta(minutes=15)), succeed())
    place.bench.advance(hours=1)
    busy, idle = place.ask("schedule strips", schedules=["busy", "idle"])["strips"]
    assert [mark["state"] for mark in busy["marks"]][:3] == ["succeeded", "skipped", "succeeded"]
    assert [mark["planned_at"] for mark in busy["marks"]] == sorted(m["planned_at"] for m in busy["marks"])
    assert busy["duration"]["longest"] == "15m"
    assert (idle["marks"], idle["duration"]["median"]) == ([], None)
    few = place.ask("schedule strips", schedules=["busy"], each=2)["strips"][0]["marks"]
    assert few == busy["marks"][-2:]


def test_the_load_ahead_is_what_the_schedules_will_do(place: House) -> None:
    place.ask("schedule create", name="minutely", every="1m", note="tick")
    place.ask("schedule create", name="daily", cron="30 15 * * *", note="tea")
    place.ask("schedule create", name="stopped", every="1m", note="no")
    place.ask("schedule pause", schedule="stopped")
    load = place.ask("forecast", days=2)
    hours = {hour["at"]: hour for hour in load["hours"]}
    assert len(hours) == 48
    full = hours[spell_instant(NOON + timedelta(hours=1))]
    assert full["starts"] == 60
    tea = hours[spell_instant(NOON + timedelta(hours=3))]
    assert tea["starts"] == 61
    assert {share["schedule"] for share in tea["most"]} == {"minutely", "daily"}
    assert load["more"] is False


def test_the_load_ahead_names_the_budgets_that_will_not_last(place: House) -> None:
    place.ask("budget set", budget="crm", unit="requests", limit=30, period="15m")
    place.ask("budget set", budget="tokens", unit="tokens", limit=3000)
    place.ask("budget set", budget="enough", unit="requests", limit=5000)
    every = {"every": "1m", "note": "x", "estimate": {"tokens": 10}}
    place.ask("schedule create", name="calm", budgets=["crm", "enough"], **every)
    place.ask("schedule create", name="thirsty", budgets=["tokens"], **every)
    assert place.ask("forecast", days=1)["shortfalls"] == [
        {
            "budget": "tokens",
            "since": "2026-03-10T00:00:00Z",
            "until": "2026-03-11T00:00:00Z",
            "limit": "3000 tokens",
            "expected": "7200 tokens",
            "schedules": ["thirsty"],
        }
    ]
    place.ask("schedule create", name="eager", every="20s", note="y", budgets=["crm"])
    crm, _ = place.ask("forecast", days=1)["shortfalls"]
    assert (crm["budget"], crm["limit"], crm["expected"]) == ("crm", "120 requests", "240 requests")
    assert crm["schedules"] == ["eager", "calm"]


def test_the_load_ahead_counts_the_time_that_runs_usually_take(place: House) -> None:
    place.ask("schedule create", name="heavy", every="2h", call="heavy")
    place.bench.target.script("heavy", succeed(after=timedelta(minutes=4)))
    place.bench.advance(hours=6, minutes=10)
    load = place.ask("forecast", days=1)
    busy = [hour["seconds"] for hour in load["hours"] if hour["starts"]]
    assert busy
    assert set(busy) == {240.0}


def test_schedules_that_start_together_are_told_with_what_would_spread_them(place: House) -> None:
    for name in ("one", "two", "three"):
        place.ask("schedule create", name=name, cron="0 15 * * *", note="hello")
    place.ask("schedule create", name="alone", cron="7 15 * * *", note="hello")
    place.ask("schedule create", name="spread", cron="0 15 * * *", note="hello", jitter="5m")
    (herd,) = place.ask("forecast", days=1)["herds"]
    assert herd["at"] == "2026-03-10T15:00:00Z"
    assert herd["schedules"] == ["one", "three", "two"]
    assert herd["spread"] == "10m"
    assert herd["commands"][0] == "timewright schedule update one --jitter 10m --offset stable"
    for name in herd["schedules"]:
        place.ask("schedule update", schedule=name, jitter="10m", offset="stable")
    assert place.ask("forecast", days=1)["herds"] == []
    starts = [
        place.ask("schedule next", schedule=name, count=1)["next"][0]["fire_at"][:16]
        for name in herd["schedules"]
    ]
    assert max(starts.count(minute) for minute in starts) == herd["after"]


def test_a_herd_that_runs_often_moves_within_a_fifth_of_its_pace(place: House) -> None:
    for number in range(8):
        place.ask("schedule create", name=f"often-{number}", cron="*/10 * * * *", note="hello")
    place.ask("schedule create", name="seldom", cron="0 15 * * *", note="hello")
    (herd,) = place.ask("forecast", days=1)["herds"]
    moves = {command.split()[3]: command.split()[5] for command in herd["commands"]}
    assert moves == {**{f"often-{number}": "2m" for number in range(8)}, "seldom": "10m"}
    assert herd["after"] < 9


def test_what_meets_only_now_and_then_is_a_herd_too_and_is_told_once(place: House) -> None:
    place.ask("schedule create", name="quarterly", every="15m", anchor="2026-03-10T12:00:00Z", note="x")
    place.ask("schedule create", name="hourly", cron="0 * * * *", note="x")
    place.ask("schedule create", name="daily", cron="0 20 * * *", note="x")
    place.ask("schedule create", name="ceaseless", every="1m", anchor="2026-03-10T12:00:00Z", note="x")
    (herd,) = place.ask("forecast", days=1)["herds"]
    assert herd["at"] == "2026-03-10T20:00:00Z"
    assert sorted(herd["schedules"]) == ["daily", "hourly", "quarterly"]


def test_numbers_in_results_are_told_over_time(place: House) -> None:
    place.ask("schedule create", name="poll", every="10m", call="poll")
    results = [{"rows": n, "ok": True, "deep": {"queue": {"depth": n * 2}}, "text": "3"} for n in (1, 2, 3)]
    place.bench.target.script("poll", *map(succeed, results))
    place.bench.advance(minutes=30)
    series = {one["field"]: one["points"] for one in place.ask("schedule trends", schedule="poll")["series"]}
    assert sorted(series) == ["deep.queue.depth", "rows"]
    assert [point["value"] for point in series["rows"]] == [1.0, 2.0, 3.0]
    assert [point["state"] for point in series["deep.queue.depth"]] == ["succeeded"] * 3
    few = place.ask("schedule trends", schedule="poll", each=1)["series"]
    assert [point["value"] for point in few[1]["points"]] == [3.0]


@pytest.mark.parametrize(
    "result", [None, "text", [1, 2], {"a": {"b": {"c": {"d": 1}}}}, {"nan": 1e300}, True]
)
def test_a_result_without_plain_numbers_tells_nothing(place: House, result: object) -> None:
    place.ask("schedule create", name="poll", every="10m", call="poll")
    place.bench.target.script("poll", succeed(result))
    place.bench.advance(minutes=20)
    assert place.ask("schedule trends", schedule="poll")["series"] == []
