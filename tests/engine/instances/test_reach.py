"""Settings that limit targets and history, from the setting to its effect."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.targets.http.scripted_server import ScriptedServer, respond
from timewright import Scheduler
from timewright.core.input.decode import decode
from timewright.core.input.encoding import encode
from timewright.engine import maintenance
from timewright.errors import InvalidInput, TimewrightError
from timewright.ports import PruneRequest
from timewright.settings import Settings
from timewright.targets.call.target import CallTarget
from timewright.targets.processes.table import set_subreaper
from timewright.wiring import Instance, new_registry, open_store

AUTHORITY = Path(__file__).parents[2] / "targets" / "http" / "data" / "tls" / "ca.pem"


@contextmanager
def running(file: str, **settings: Any) -> Iterator[Scheduler]:
    app = Scheduler(file, settings=decode(settings, Settings))
    try:
        yield app
    finally:
        app.instance.free()
        app.stop()


def tried(app: Scheduler, **target: Any) -> dict[str, Any]:
    """The outcome of a target that is launched without a run."""
    name = f"job-{len(app.schedules.list().schedules)}"
    app.schedules.create(name=name, manual=True, **target)
    outcome = app.schedules.test(name).outcome
    assert outcome is not None
    return encode(outcome)


def test_only_the_programs_that_are_listed_may_be_commands(file: str) -> None:
    with running(file, shell=True, commands={"programs": ["true", "/bin/echo"]}) as app:
        assert tried(app, shell=["true"])["kind"] == "succeeded"
        refused = tried(app, shell=["sh", "-c", "true"])
        assert refused["kind"] == "failed"
        assert "'sh' is not an allowed program; see the setting `commands.programs`" in refused["error"]
    with running(file, commands={"programs": ["true"]}) as app:
        assert "shell targets are disabled" in tried(app, shell=["true"])["error"], (
            "a list of programs alone enables nothing"
        )


def test_commands_run_in_their_folder_with_the_variables_they_are_given(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_OURS", "passed on")
    monkeypatch.setenv("SECRET_OF_OURS", "not this")
    folder = tmp_path / "jobs"
    folder.mkdir()
    rules = {"folder": str(folder), "environment": ["OF_OURS"]}
    with running(file, shell=True, commands=rules) as app:
        said = str(tried(app, shell=["sh", "-c", "pwd; echo $OF_OURS; echo $SECRET_OF_OURS"])["result"])
        assert str(folder) in said
        assert "passed on" in said
        assert "not this" not in said
        outside = tried(app, target={"kind": "shell", "command": ["pwd"], "cwd": str(tmp_path)})
        assert outside["kind"] == "failed"


def test_a_command_uses_no_more_than_it_may(file: str) -> None:
    with running(file, shell=True, commands={"open_files": 17, "new_privileges": False}) as app:
        assert "17" in str(tried(app, shell=["sh", "-c", "ulimit -n"])["result"])


def test_an_authority_of_ones_own_is_trusted_beside_the_usual(file: str) -> None:
    with ScriptedServer({"/": respond(200, b"ok")}, certificate="good") as peer:
        url = f"GET {peer.url()}"
        with running(file, egress={"authorities": str(AUTHORITY)}) as app:
            outcome = tried(app, http=url)
            assert outcome["kind"] == "succeeded", outcome
        with running(file) as app:
            assert "issuer" in tried(app, http=url)["error"]


def test_requests_to_one_host_have_a_bound_of_their_own(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    built: dict[str, Any] = {}

    def build(_loop: object, **options: Any) -> Any:
        built.update(options)
        return CallTarget(app.registry)

    monkeypatch.setattr("timewright.targets.http.target.HttpTarget", build)
    with running(file, egress={"per_host": 3}) as app:
        app.instance.targets["http"].close(grace=timedelta(0))
    assert built["limit_per_host"] == 3


def test_requests_are_read_where_they_are_counted_whatever_loop_the_program_prefers(file: str) -> None:
    class Another(asyncio.DefaultEventLoopPolicy):
        def new_event_loop(self) -> asyncio.AbstractEventLoop:
            raise AssertionError("a loop that may read past our sockets")

    with ScriptedServer({"/": respond(200, b"ok")}) as peer, running(file) as app:
        before = asyncio.get_event_loop_policy()
        asyncio.set_event_loop_policy(Another())
        try:
            assert tried(app, http=f"GET {peer.url()}")["kind"] == "succeeded"
        finally:
            asyncio.set_event_loop_policy(before)


def test_an_instance_that_has_its_process_to_itself_takes_in_the_orphans_of_its_commands(file: str) -> None:
    instance = Instance(
        open_store(file), settings=Settings(shell=True), registry=new_registry(), own_process=True
    )
    assert instance.targets["shell"] is not None
    took_in = set_subreaper(True)
    instance.free()
    instance.close()
    assert took_in


def test_an_authority_that_cannot_be_read_starts_nothing(file: str, tmp_path: Path) -> None:
    with (
        running(file, egress={"authorities": str(tmp_path / "none.pem")}) as app,
        pytest.raises(InvalidInput, match="cannot be read") as refusal,
    ):
        app.start()
    assert refusal.value.field == "egress.authorities"


def test_history_is_limited_to_the_configured_number_of_runs(file: str) -> None:
    with running(file, keep_runs=3) as app:
        app.schedules.create(name="often", manual=True, note="x", overlap="allow")
        for _ in range(8):
            app.schedules.run(schedule="often")
        loop = app.instance.loop
        for _ in range(3):
            loop.step()
        assert loop.pruner is not None
        loop.pruner.run(now=app.instance.store.now() + timedelta(minutes=2))
        assert len(app.runs.list().runs) == 3


def test_a_long_history_is_pruned_batch_by_batch_without_waiting_a_minute(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "PruneRequest", partial(PruneRequest, limit=1))
    monkeypatch.setattr(maintenance, "PRUNE_PAUSE", timedelta(0), raising=False)
    with running(file, keep_runs=3) as app:
        app.schedules.create(name="often", manual=True, note="x", overlap="allow")
        app.schedules.run_many(runs=[{"schedule": "often"}] * 40)
        loop = app.instance.loop
        left: list[int] = []
        while not left or left[-1] > 3:
            assert len(left) < 60, left
            assert loop.step() <= 1
            left.append(len(app.runs.list(limit=100).runs))
        assert max(before - after for before, after in pairwise(left)) == 1


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"keep_runs": 0}, "keep_runs"),
        ({"keep_bytes": 1}, "keep_bytes"),
        ({"commands": {"memory": 5}}, "commands.memory"),
        ({"commands": {"memory_mb": 0}}, "commands.memory_mb"),
        ({"commands": {"environment": ["A B"]}}, "commands.environment"),
        ({"egress": {"per_host": -1}}, "egress.per_host"),
    ],
)
def test_a_wrong_setting_is_refused_by_its_name(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(TimewrightError) as refusal:
        decode(wrong, Settings)
    assert (refusal.value.field or "").startswith(field)
