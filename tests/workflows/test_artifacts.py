"""Artifacts through the whole engine: written by steps, listed, read, verified, moved and pruned."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.conformance.support.databases import Database
from timewright import Context, Scheduler
from timewright.core.moments import MINUTE, ZERO
from timewright.errors import Conflict, InvalidInput, NotFound
from timewright.interfaces.http.app import HttpApp
from timewright.ports import PruneRequest
from timewright.ports.rows import RunsWithArtifacts
from timewright.settings import Settings
from timewright.targets.artifacts.store import ArtifactSweeper
from timewright.wiring.store_copies import StoreCopier

ROWS = list(range(40_000))
ONCE = {"max_attempts": 1}


def export(ctx: Context) -> dict[str, Any]:
    """Write a page, and return a reference to it."""
    return {"file": ctx.artifact("page.html", "<script>alert(1)</script>")}


def rows() -> list[int]:
    """Return more than fits into a result."""
    return ROWS


def total(ctx: Context, rows: list[int], file: dict[str, Any]) -> str:
    """Read what both returned."""
    return f"{sum(rows)} {ctx.read_artifact(file).decode()[:8]}"


def break_after(ctx: Context) -> None:
    """Leave something behind, and fail."""
    ctx.artifact("screen.png", b"picture")
    raise RuntimeError("no")


STEPS = [
    {"name": "export", "target": "export"},
    {"name": "rows", "target": "rows"},
    {
        "name": "total",
        "target": "total",
        "input": {"rows": {"$from": "steps.rows.result"}, "file": {"$from": "steps.export.result.file"}},
    },
]


def scheduler(place: str, artifacts: str = "") -> Scheduler:
    app = Scheduler(place, settings=Settings(artifacts=artifacts))
    for function in (export, rows, total, break_after):
        app.task(function.__name__)(function)
    return app


@pytest.fixture
def folder(database: Database, tmp_path: Path) -> str:
    return str(tmp_path / "files") if database.kind == "postgres" else ""


@pytest.fixture
def app(database: Database, folder: str) -> Iterator[Scheduler]:
    made = scheduler(database.place, folder)
    yield made
    made.stop()


def run_steps(app: Scheduler) -> dict[str, str]:
    """Run the workflow; return the runs of its steps by name."""
    app.workflows.put(name="flow", steps=STEPS)
    app.start()
    run = app.workflows.run(workflow="flow").run.id
    assert app.result(run, timeout="60s") == {"total": f"{sum(ROWS)} <script>"}
    return {step.step: str(step.run) for step in app.workflows.graph(workflow="flow", run=run).steps}


def test_steps_pass_files_and_large_results_on(app: Scheduler) -> None:
    steps = run_steps(app)
    (page,) = app.runs.artifacts(run=steps["export"]).artifacts
    assert (page.name, page.size, page.type) == ("page.html", 25, "text/html")
    (large,) = app.runs.artifacts(run=steps["rows"]).artifacts
    assert (large.name, large.type) == ("result.json", "application/json")
    assert app.runs.artifacts(run=steps["total"]).artifacts == ()
    part = app.runs.artifacts(run=steps["export"], name="page.html", offset=1, limit=6).part
    assert part is not None
    assert (b64decode(part.data), part.next_offset) == (b"script", 7)
    with pytest.raises(NotFound, match="has no artifact 'other'"):
        app.runs.artifacts(run=steps["export"], name="other")
    checks = {one.promise: one for one in app.call("verify").promises}
    assert (checks["I64"].checked, checks["I64"].broken) == (2, 0)


def test_a_failed_attempt_keeps_its_artifacts(app: Scheduler) -> None:
    app.start()
    app.workflows.put(name="breaks", steps=[{"name": "a", "target": "break_after", "retry": ONCE}])
    run = app.workflows.run(workflow="breaks").run.id
    assert app.runs.wait(run=run, time_limit="30s").run.state == "failed"
    (step,) = app.workflows.graph(workflow="breaks", run=run).steps
    assert [one.name for one in app.runs.artifacts(run=str(step.run)).artifacts] == ["screen.png"]


def test_over_http_an_artifact_is_a_file_to_save(app: Scheduler) -> None:
    steps = run_steps(app)
    context = app.instance.context()
    client = TestClient(HttpApp(context, authenticate=lambda *_: context.caller))
    found = client.get(f"/api/v1/runs/{steps['export']}/artifacts/page.html", headers={"host": "127.0.0.1"})
    assert found.status_code == 200, found.text
    assert found.text == "<script>alert(1)</script>"
    assert found.headers["content-disposition"] == 'attachment; filename="page.html"'
    assert found.headers["content-type"] == "application/octet-stream"
    assert found.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in found.headers["content-security-policy"]
    missing = client.get(f"/api/v1/runs/{steps['export']}/artifacts/x", headers={"host": "127.0.0.1"})
    assert missing.status_code == 404


def test_files_go_with_their_run(app: Scheduler) -> None:
    run_steps(app)
    instance = app.instance
    assert instance.artifacts is not None
    sweeper = ArtifactSweeper(instance.artifacts, instance.store, time=instance.clock.now)
    assert sweeper.run(grace=-MINUTE) == 0
    assert instance.store.write(lambda tx: tx.prune(PruneRequest(keep_runs=0)))
    assert instance.store.read(lambda tx: tx.select(RunsWithArtifacts("", limit=9))) == []
    assert sweeper.run(grace=-MINUTE) == 2
    assert instance.artifacts.runs(after=("", ""), limit=9) == []


def test_a_report_from_outside_cannot_name_artifacts(app: Scheduler) -> None:
    app.queues.add(queue="q")
    (entry,) = app.queues.lease("q").leases
    claim = {"kind": "artifact", "run": entry.run, "fence": entry.fence, "name": "a"}
    outcome = {"kind": "succeeded", "artifacts": [claim]}
    with pytest.raises(InvalidInput, match="cannot refer to artifacts"):
        app.call("run report", run=entry.run, fence=entry.fence, outcome=outcome)


@pytest.mark.parametrize("kind", ["sqlite"])
def test_backups_and_moves_take_the_files_along(app: Scheduler, database: Database, tmp_path: Path) -> None:
    steps = run_steps(app)
    app.stop()
    backup, restored, moved = (tmp_path / name for name in ("backup.db", "restored.db", "moved.db"))
    copier = StoreCopier(user="ada")
    copier.back_up(database.place, backup)
    copier.restore(backup, str(restored))
    copier.move(database.place, str(moved), wait=ZERO)
    for place in (restored, moved):
        other = scheduler(str(place))
        part = other.runs.artifacts(run=steps["export"], name="page.html").part
        assert part is not None
        assert b64decode(part.data) == b"<script>alert(1)</script>"
        assert other.call("verify").holds
        other.stop()
    with pytest.raises(Conflict, match="no place for them"):
        copier.restore(backup, "postgresql:///nowhere")
