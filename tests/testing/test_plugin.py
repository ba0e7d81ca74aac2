"""The fixtures for users: found by pytest, separate for each test, and documented correctly."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from timewright import Scheduler, every
from timewright.core.run.run import Attempt, RunState
from timewright.testing.bench import DEFAULT_START, Bench
from timewright.testing.targets import fail

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "test" / "kit.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
SOURCE = str(ROOT / "src")

BY_FIXTURE = """
from timewright import every

def test_they_share_one_clock(timewright_clock, timewright_store, timewright_bench):
    assert timewright_bench.clock is timewright_clock
    assert timewright_bench.store is timewright_store
    timewright_clock.advance(hours=1)
    assert timewright_bench.now == timewright_store.now()

def test_each_test_has_its_own(timewright_bench):
    assert timewright_bench.now.isoformat() == "2026-03-10T12:00:00+00:00"
    timewright_bench.schedule("a", every("1h"))
    timewright_bench.advance(hours=2)
    assert len(timewright_bench.runs("a")) == 2
"""


@pytest.fixture
def outside(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run tests as a user does, in a separate folder and process, with only this plugin."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", SOURCE)

    def run(text: str) -> dict[str, int]:
        pytester.makepyfile(text)
        result = pytester.runpytest_subprocess("-p", "timewright.testing.plugin", "-W", "error")
        return result.parseoutcomes()

    return run


def test_the_package_tells_pytest_where_its_fixtures_are() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"timewright": "timewright.testing.plugin"}


def test_every_fixture_is_there_for_a_test_that_only_names_it(outside: Any) -> None:
    assert outside(BY_FIXTURE) == {"passed": 2}


def test_the_tests_on_the_page_about_the_kit_pass(outside: Any) -> None:
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    text = "\n".join(blocks)
    assert outside(text) == {"passed": text.count("def test_")}


# A bench with a user's app.


@pytest.fixture
def app(tmp_path: Path) -> Any:
    app = Scheduler(tmp_path / "never-used.db")
    yield app
    app.stop()


def test_an_app_on_a_bench_runs_its_own_functions_by_the_benchs_clock(app: Scheduler) -> None:
    planned: list[str] = []

    @app.schedule(every("1h"))
    def report(ctx: Any) -> dict[str, int]:
        planned.append(f"{ctx.planned_at - DEFAULT_START}")
        return {"sent": len(planned)}

    bench = Bench()
    bench.adopt(app)
    bench.advance(hours=2)
    assert planned == ["1:00:00", "2:00:00"]
    ids = [run.id for run in bench.runs("report")]
    attempts = bench.store.read(lambda tx: tx.get_run_rows(Attempt, ids))
    assert [one.result for ended in attempts.values() for one in ended] == [{"sent": 1}, {"sent": 2}]
    assert app.schedules.list().schedules == (), "its own store is left alone"


def test_an_exception_of_an_adopted_function_fails_its_run(app: Scheduler) -> None:
    @app.schedule(every("1h"), retry=1)
    async def fails() -> None:
        raise ValueError("no")

    bench = Bench()
    bench.adopt(app)
    bench.advance(hours=1)
    (run,) = bench.runs("fails")
    assert (run.state, run.error) == (RunState.FAILED, "ValueError: no")


def test_a_script_takes_precedence_over_the_function(app: Scheduler) -> None:
    called: list[int] = []
    app.schedule(every("1h"), name="a", retry=1)(lambda: called.append(1))
    bench = Bench()
    bench.adopt(app)
    bench.target.script("a", fail("scripted"))
    bench.advance(hours=1)
    assert called == []
    assert bench.runs("a")[0].error == "scripted"


def test_a_function_that_is_not_there_is_an_outcome(app: Scheduler) -> None:
    app.schedule(every("1h"), name="a", retry=1)(lambda: None)
    bench = Bench()
    bench.adopt(app)
    app.registry._functions.clear()
    bench.advance(hours=1)
    assert "no function is registered as 'a'" in bench.runs("a")[0].error
