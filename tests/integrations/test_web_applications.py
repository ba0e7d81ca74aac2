"""The scheduler inside web applications: sign-in of the host, mounted paths, Flask, several workers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from flask import Flask, current_app
from starlette.requests import Request

from tests.project import DOCS, GUIDE_BLOCK
from timewright import AsyncScheduler, Context, Scheduler, every
from timewright.errors import InvalidInput
from timewright.integrations.commands import import_path
from timewright.integrations.flask import FlaskScheduler

WAIT_S = 60.0
LEASE_AND_WAIT_S = 180.0
FULL = bool(os.environ.get("TIMEWRIGHT_FULL"))


class Mounted:
    """An application mounted below `/jobs`, asked without a server."""

    def __init__(self, app: Any) -> None:
        self.app = app

    def ask(self, path: str, *, method: str = "GET", user: str = "", **headers: str) -> tuple[int, dict, Any]:
        body = {"content-type": "application/json", "content-length": "2"} if method == "POST" else {}
        return asyncio.run(self._ask(path, method, {"host": "localhost", "x-user": user, **body, **headers}))

    async def _ask(self, path: str, method: str, headers: dict[str, str]) -> tuple[int, dict, Any]:
        scope = {
            "type": "http",
            "method": method,
            "path": f"/jobs{path}",
            "raw_path": f"/jobs{path}".encode(),
            "root_path": "/jobs",
            "query_string": b"",
            "scheme": "http",
            "headers": [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()],
        }
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b"{}", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        found = {name.decode(): text.decode() for name, text in sent[0]["headers"]}
        return sent[0]["status"], found, sent[1]["body"]


def named(request: Request) -> tuple[str, str] | None:
    name = request.headers.get("x-user")
    return (name, "operator") if name else None


async def named_later(request: Request) -> tuple[str, str] | None:
    await asyncio.sleep(0)
    return named(request)


@pytest.fixture
def app(tmp_path: Path) -> Any:
    scheduler = Scheduler(tmp_path / "app.db")
    scheduler.schedules.create("hello", every="1h", note="hello")
    yield scheduler
    scheduler.stop()


@pytest.mark.parametrize("sign_in", [named, named_later])
def test_the_host_application_names_the_caller(app: Scheduler, sign_in: Callable[[Request], Any]) -> None:
    web = Mounted(app.asgi(sign_in=sign_in))
    status, _, body = web.ask("/session", user="anna")
    assert (status, json.loads(body)["actor"]) == (200, "anna")
    status, _, body = web.ask("/api/v1/schedules/hello/run", method="POST", user="anna", timewright_csrf="1")
    assert (status, json.loads(body)["run"]["schedule"]) == (200, "hello")
    assert app.audit.list(limit=1).entries[0].actor == "anna"


def test_a_role_of_the_host_application_limits_what_its_user_may_do(app: Scheduler) -> None:
    web = Mounted(app.asgi(sign_in=lambda _: ("vera", "viewer")))
    asked = web.ask("/api/v1/schedules/hello/run", method="POST", timewright_csrf="1")
    assert (asked[0], json.loads(asked[2])["code"]) == (403, "forbidden")


def test_a_visitor_is_sent_to_the_sign_in_of_the_host_application(app: Scheduler) -> None:
    web = Mounted(app.asgi(sign_in=named, sign_in_url="/login"))
    status, headers, _ = web.ask("/", accept="text/html")
    assert (status, headers["location"]) == (303, "/login")
    assert web.ask("/api/v1/schedules")[0] == 401


def test_a_write_with_the_hosts_session_needs_a_header_that_no_form_can_send(app: Scheduler) -> None:
    web = Mounted(app.asgi(sign_in=named))
    asked = web.ask("/api/v1/schedules/hello/run", method="POST", user="anna")
    assert (asked[0], json.loads(asked[2])["fix"]) == (403, "timewright-csrf: 1")


def test_api_keys_work_beside_the_sign_in_of_the_host(app: Scheduler) -> None:
    token = app.keys.create(key="ci", role="viewer").token
    web = Mounted(app.asgi(sign_in=named))
    status, _, body = web.ask("/session", authorization=f"Bearer {token}")
    assert (status, json.loads(body)["actor"]) == (200, "ci")
    assert web.ask("/session", authorization="Bearer wrong", user="anna")[0] == 401


@pytest.mark.parametrize("wrong", ["anna", ("anna", "root"), ("", "viewer"), ("anna",)])
def test_a_sign_in_that_names_nobody_properly_is_an_error_and_lets_nobody_in(
    app: Scheduler, wrong: Any
) -> None:
    assert Mounted(app.asgi(sign_in=lambda _: wrong)).ask("/session")[0] == 422


def test_the_mounted_dashboard_is_served_below_its_prefix(app: Scheduler) -> None:
    web = Mounted(app.asgi(sign_in=named))
    status, _, body = web.ask("/", user="anna", accept="text/html")
    assert (status, b'src="v/' in body) == (200, True)  # relative to the prefix


def test_a_lifespan_starts_and_stops_the_scheduler(tmp_path: Path) -> None:
    app, ran = AsyncScheduler(tmp_path / "app.db"), threading.Event()

    @app.schedule(every("1h"), run_at_start=True)
    async def first() -> None:
        ran.set()

    async def story() -> None:
        async with app.lifespan(object()):
            assert app.is_running
            assert await asyncio.to_thread(ran.wait, WAIT_S)
        assert not app.is_running

    asyncio.run(story())


def test_a_signal_ends_event_streams_before_the_server_waits_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, order = Scheduler(tmp_path / "app.db"), []
    mounted = app.asgi()
    monkeypatch.setattr(mounted, "end_streams", lambda: order.append("streams"))

    async def story() -> None:
        async with app.lifespan():
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(0)

    before = signal.signal(signal.SIGTERM, lambda *_: order.append("server"))
    try:
        asyncio.run(story())
    finally:
        signal.signal(signal.SIGTERM, before)
    assert order[:2] == ["server", "streams"]  # the handler of the server ran; ours follows in the loop


def test_functions_of_a_flask_scheduler_run_in_the_context_of_the_application(tmp_path: Path) -> None:
    scheduler = FlaskScheduler(tmp_path / "app.db")

    @scheduler.schedule(manual=True)
    def plain(ctx: Context) -> str:
        return current_app.name

    @scheduler.schedule(manual=True)
    async def later() -> str:
        await asyncio.sleep(0)
        return current_app.name

    scheduler.init_app(Flask("shop"))
    with scheduler:
        assert [scheduler.run_now(plain), scheduler.run_now(later)] == ["shop", "shop"]


def test_flask_has_the_command_line_on_the_store_of_the_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler, web = FlaskScheduler(tmp_path / "app.db"), Flask("shop")
    monkeypatch.setattr(sys.modules[__name__], "flask_scheduler", scheduler, raising=False)
    scheduler.init_app(web)
    scheduler.schedules.create("hello", every="1h", note="hello")
    ran = web.test_cli_runner().invoke(args=["timewright", "schedule", "list", "-o", "json"])
    assert [row["name"] for row in json.loads(ran.output)["schedules"]] == ["hello"]
    scheduler.stop()


def test_a_scheduler_that_no_worker_could_import_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="not in a module"):
        import_path(object())


SERVERS = {
    "fastapi": ["uvicorn", "--workers", "4", "--port", "0", "web:web"],
    "flask": ["gunicorn", "--workers", "4", "--bind", "127.0.0.1:0", "web:create_app()"],
    "django": ["manage", "timewright", "worker"],  # four of them
}


# Without --full the pages themselves start these servers, for a few seconds (tests/test_guides.py).
if FULL:

    @pytest.mark.parametrize("framework", SERVERS)
    def test_four_workers_run_every_tick_once_although_one_is_killed(framework: str, tmp_path: Path) -> None:
        """The project of the page for 20 s; after 8 s a worker gets SIGKILL."""
        for _, title, text in GUIDE_BLOCK.findall((DOCS / f"how-to/{framework}.md").read_text("utf-8")):
            if title:
                (tmp_path / title).parent.mkdir(exist_ok=True)
                (tmp_path / title).write_text(
                    text.replace('every("1s")', 'every("1s"), catch_up="all", overlap="allow"')
                )
        ticks = tmp_path / "ticks.txt"

        def rows() -> list[list[str]]:
            return [line.split() for line in ticks.read_text().splitlines()] if ticks.exists() else []

        def seconds() -> set[int]:
            return {int(datetime.fromisoformat(row[0]).timestamp()) for row in rows()}

        def wait(condition: Callable[[], bool]) -> None:
            ends = time.monotonic() + LEASE_AND_WAIT_S
            while not condition():
                assert time.monotonic() < ends, rows()
                time.sleep(0.1)

        environment = {name: text for name, text in os.environ.items() if name != "TIMEWRIGHT_FULL"}
        if framework == "django":
            subprocess.run(
                [sys.executable, "manage.py", "migrate"], cwd=tmp_path, env=environment, check=True
            )
        servers = [
            subprocess.Popen([sys.executable, "-m", *SERVERS[framework]], cwd=tmp_path, env=environment)
            for _ in range(4 if framework == "django" else 1)
        ]
        try:
            wait(lambda: len(rows()) >= 8)
            first = min(seconds())
            os.kill(servers[0].pid if framework == "django" else int(rows()[-1][1]), signal.SIGKILL)
            wait(lambda: {*range(first, first + 20)} <= seconds())
        finally:
            for server in servers:
                server.send_signal(signal.SIGTERM)
            for server in servers:
                server.wait(WAIT_S)
        with Scheduler(tmp_path / "timewright.db") as looked:
            runs = looked.runs.list(limit=500).runs
        # Exact, also for the tick of the killed worker: one run.
        ticked = Counter(int(run.planned_at.timestamp()) for run in runs)
        assert [ticked[second] for second in range(first, first + 20)] == [1] * 20
        # A tick is repeated only where its worker was killed before it could say that it had ended.
        losses = {run.planned_at.isoformat(): run.losses for run in runs}
        assert all(count <= 1 + losses[at] for at, count in Counter(row[0] for row in rows()).items())
