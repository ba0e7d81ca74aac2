"""Where the seeds are silent, or answer in several ways: one ruling each (docs/differences.md)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from timewright.core.moments import parse_instant
from timewright.core.recurrence.triggers import Every
from timewright.errors import InvalidInput
from timewright.interfaces.cli.settings import load_settings
from timewright.testing.bench import Bench
from timewright.testing.targets import hang, succeed

DOCS = Path(__file__).resolve().parents[2] / "docs"


def create(bench: Bench, **fields: Any) -> Any:
    return bench.call("schedule create", **{"name": "job", "call": "work", **fields})


@pytest.mark.parametrize(
    ("fields", "first"),
    [
        ({"every": "1w"}, "2026-03-17T12:00:00Z"),
        ({"every": "5 m"}, "2026-03-10T12:05:00Z"),
        ({"cron": "@Daily", "zone": "UTC"}, "2026-03-11T00:00:00Z"),
        ({"cron": "  0 9 * * *  ", "zone": "UTC"}, "2026-03-11T09:00:00Z"),
        ({"cron": "0 0 9 1 1 * 2030", "zone": "UTC"}, "2030-01-01T09:00:00Z"),
    ],
)
def test_supersets_of_what_the_seeds_write_are_read(fields: dict[str, str], first: str) -> None:
    assert create(Bench(), **fields)["progress"]["next_at"] == first


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        ("schedule create", {"name": "job", "call": "work", "every": "5m", "cron": "* * * * *"}),
        ("limit set", {"limit": "api", "capacity": 2.5}),
        ("limit set", {"limit": "api", "capacity": -1}),
        ("schedule create", {"name": "job", "call": "x", "every": "5m", "anchor": "1960-01-01T00:00:00Z"}),
    ],
)
def test_input_that_the_seeds_repair_in_silence_is_refused(operation: str, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Bench().call(operation, **fields)


def test_an_anchor_before_1970_has_an_exact_grid_as_a_value() -> None:
    grid = Every(timedelta(minutes=7), datetime(1969, 12, 31, 23, 59, tzinfo=UTC))
    assert grid.next_after(datetime(1970, 1, 1, tzinfo=UTC)) == datetime(1970, 1, 1, 0, 6, tzinfo=UTC)


def test_a_pause_stops_admission_and_not_the_run_under_way() -> None:
    bench = Bench()
    create(bench, every="1m")
    bench.target.script("job", succeed(after="90s"))
    bench.advance("70s")
    bench.call("schedule pause", schedule="job")
    bench.advance("5m")
    assert [run.state.value for run in bench.runs("job")] == ["succeeded"]


def test_a_paused_schedule_runs_when_a_person_says_so() -> None:
    bench = Bench()
    create(bench, every="1m")
    bench.call("schedule pause", schedule="job")
    bench.call("schedule run", schedule="job")
    bench.tick()
    assert [run.state.value for run in bench.runs("job")] == ["succeeded"]


def test_a_run_is_lost_by_its_lease_and_never_by_its_age() -> None:
    bench = Bench()
    create(bench, every="1d", overlap="skip")
    bench.target.script("job", hang())
    bench.advance("30h")
    assert bench.runs("job")[0].state.value == "leased", "renewed while its process lives"


def test_the_workflow_preset_accepts_replace() -> None:
    detail = create(Bench(), preset="workflow", every="5m", overlap="replace")
    assert detail["schedule"]["overlap"] == "replace"


def test_a_cron_without_a_zone_gets_its_zone_when_it_is_written() -> None:
    bench = Bench()
    detail = create(bench, cron="0 9 * * *")
    assert detail["schedule"]["trigger"]["zone"] == "UTC"
    assert parse_instant(detail["progress"]["next_at"]) > bench.now


def test_between_answers_at_most_a_thousand_instants_unless_told_otherwise() -> None:
    start = datetime(2026, 3, 10, tzinfo=UTC)
    grid = Every(timedelta(seconds=1), start)
    assert len(grid.between(start, start + timedelta(hours=1))) == 1000
    assert len(grid.between(start, start + timedelta(hours=1), limit=5000)) == 3600


def test_the_settings_of_a_workflow_cron_are_read_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = re.search(r"`defaults\.jitter`, a duration: `(.+?)`", _names_of_a_workflow_cron())
    assert example is not None
    defaults = f'{{"catch_up_limit": 25, "overlap": "QUEUE", "catch_up": "all", "jitter": "{example[1]}"}}'
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIMEWRIGHT_LOOK_AHEAD", "30s")
    monkeypatch.setenv("TIMEWRIGHT_MAX_SLEEP", "20s")
    monkeypatch.setenv("TIMEWRIGHT_DEFAULTS", defaults)

    settings = load_settings(None, {}, strict=False)

    assert (settings.look_ahead, settings.max_sleep) == (timedelta(seconds=30), timedelta(seconds=20))
    assert settings.defaults.catch_up_limit == 25
    assert (settings.defaults.overlap, settings.defaults.catch_up) == ("queue", "all")
    assert settings.defaults.jitter == timedelta(milliseconds=500)


def test_the_routes_of_a_workflow_cron_map_to_routes_that_exist() -> None:
    routes = re.findall(r"`((?:GET|POST|PUT|DELETE) /api/v1/[^`]+)`", _names_of_a_workflow_cron())
    reference = (DOCS / "reference" / "operations.md").read_text(encoding="utf-8")
    assert len(routes) == 4
    assert [route for route in routes if f"`{route}`" not in reference] == []


def _names_of_a_workflow_cron() -> str:
    """The table that maps the names of a workflow cron to ours."""
    page = (DOCS / "differences.md").read_text(encoding="utf-8")
    return page.partition("## Names of a workflow cron")[2].partition("\n## ")[0]
