"""Functions of apps and of installed packages."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.faults.tools.worker_fleet import wait_until
from tests.interfaces.terminal import invoke, read_until, running
from tests.operations.harness import OperationsHarness
from timewright import Call, Scheduler
from timewright.core.run.needs import Offer
from timewright.engine.maintenance import Heartbeat
from timewright.errors import InvalidInput, NotFound
from timewright.operations.views import ScheduleDetail
from timewright.settings import Settings

CODE = "import os\ndef greet(name='you'):\n    return {'hello': name, 'pid': os.getpid()}\n"
OFFERS = "[timewright.calls]\ngreet = gifts_of_others:greet\nlost = gifts_of_others:nothing\n"


@pytest.fixture
def installed(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a distribution: code, metadata and entry points."""
    install(here, "gifts", OFFERS)
    (here / "gifts_of_others.py").write_text(CODE)
    monkeypatch.syspath_prepend(here)
    return here


def install(where: Path, name: str, offers: str) -> None:
    package = where / f"{name}-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(offers)


@pytest.fixture
def app(installed: Path) -> Iterator[Scheduler]:
    app = Scheduler("app.db")

    @app.task()
    def tidy(tables: int = 1) -> int:
        return tables

    yield app
    app.stop(wait=timedelta(0))


def create(app: Scheduler, target: Any) -> ScheduleDetail:
    return app.schedules.create(name="job", manual=True, call=target)


def test_a_worker_calls_functions_of_installed_packages_and_reports_broken_ones(installed: Path) -> None:
    assert invoke(None, "schedule", "create", "hello", "--every", "1s", "--call", "greet").code == 0
    with running(installed, "worker") as engine:
        words = read_until(engine.stderr, "ready in")
        (told,) = [word for word in words if "lost" in word]
        assert told.startswith(
            "note: function lost of an installed package cannot be loaded: gifts: AttributeError: module"
        )

        def succeeded() -> list[dict[str, Any]]:
            said = invoke(None, "run", "list", "--state", "succeeded", "-o", "json")
            return list(said.data["runs"])

        wait_until(lambda: bool(succeeded()), "it was called")
        shown = invoke(None, "run", "get", succeeded()[0]["id"], "-o", "json").data
        result = shown["attempts"][0]["result"]
        assert result["hello"] == "you"
        assert result["pid"] != engine.pid, "in a process of its own, as an app's functions are"


def test_own_functions_win_over_installed_ones(app: Scheduler) -> None:
    assert create(app, "greet").warnings == ()

    @app.task("greet")
    def mine() -> str:
        return "my own"

    assert app.registry.resolve("greet").function is mine


def test_a_broken_entry_point_is_reported_and_others_work(
    app: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(NotFound, match="'lost' cannot be used: gifts: Attr"):
        create(app, "lost")
    with caplog.at_level(logging.WARNING, logger="timewright"), app:
        assert "greet" in app.registry
    assert "'lost' of an installed package cannot be loaded" in caplog.text


def test_doctor_reports_broken_entry_points(app: Scheduler) -> None:
    app.registry.load_entry_points()
    found = [one for one in app.call("doctor").findings if one.kind == "functions"]
    assert [one.severity for one in found] == ["warn"]
    assert "gifts: AttributeError" in found[0].sentence


def test_a_name_registered_by_two_packages_is_not_used(installed: Path, app: Scheduler) -> None:
    install(installed, "rivals", "[timewright.calls]\ngreet = os:getpid\n")
    with pytest.raises(NotFound, match="gifts and rivals both register it"):
        create(app, "greet")


def test_entry_points_can_be_disabled(installed: Path) -> None:
    app = Scheduler("own.db", settings=Settings(entry_points=False))
    app.task("tidy")(lambda: None)
    with pytest.raises(NotFound, match="no function is registered as"):
        create(app, "greet")
    app.stop()


def test_an_unknown_function_gets_a_suggestion(app: Scheduler) -> None:
    with pytest.raises(NotFound, match="no function is registered as 'tidi'") as refusal:
        create(app, "tidi")
    assert refusal.value.field == "target.name"
    assert refusal.value.fix == "did you mean 'tidy'?"
    assert app.schedules.list().schedules == ()


def test_wrong_arguments_are_refused_when_the_schedule_is_written(app: Scheduler) -> None:
    with pytest.raises(InvalidInput, match="does not take 'table'; did you mean 'tables'") as refusal:
        create(app, {"name": "tidy", "args": {"table": 2}})
    assert refusal.value.field == "target.args"
    create(app, {"name": "tidy", "args": {"tables": 2}})
    edited = app.schedules.update(schedule="job", call={"name": "tidy", "args": {"tables": 3}})
    assert edited.schedule.target == Call(name="tidy", args={"tables": 3})
    with pytest.raises(InvalidInput, match="does not take 'flats'"):
        app.schedules.update(schedule="job", call={"name": "tidy", "args": {"flats": 1}})


def test_a_workflow_step_with_an_unknown_function_is_refused(app: Scheduler) -> None:
    steps: list[dict[str, Any]] = [
        {"name": "one", "target": "tidy"},
        {"name": "two", "target": "swep", "needs": ["one"]},
    ]
    with pytest.raises(NotFound, match=r"steps\[1\]: no function is registered as 'swep'") as refusal:
        app.workflows.put(name="clean", steps=steps)
    assert refusal.value.field == "steps[1].target.name"
    steps[1]["target"] = "tidy"
    assert app.workflows.put(name="clean", steps=steps).change == "created"


def test_a_process_without_functions_only_warns() -> None:
    harness = OperationsHarness()

    def create(name: str, **target: Any) -> list[str]:
        return list(harness.ask("schedule create", name=name, manual=True, **target)["warnings"])

    def alive(name: str, functions: list[str] | None) -> None:
        offer = Offer(functions=None if functions is None else tuple(functions))
        clock = harness.bench.clock
        heartbeat = Heartbeat(harness.store, name, clock=clock, capacity=1, in_flight=[], offer=lambda: offer)
        heartbeat.send_if_due()

    assert create("nobody-runs", call="tidi") == [], "nobody can tell"
    alive("one", ["sweep"])
    alive("two", ["tidy"])
    assert create("a", call="tidi") == ["no running instance has a function 'tidi'; did you mean 'tidy'?"]
    assert create("b", call="tidy") == []
    assert create("c", note="tidi") == []
    put = harness.ask("schedule put", name="d", manual=True, call="unheard-of")
    assert "start one with the --app that has it" in put["detail"]["warnings"][0]
    assert (
        "note: no running instance"
        in invoke(harness, "schedule", "create", "e", "--manual", "--call", "x").err
    )
    alive("three", None)
    assert create("f", call="tidi") == [], "one of them does not tell"
