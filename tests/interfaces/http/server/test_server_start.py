"""Starting a server: bind rules, key files, links, and the command line as its client."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import signal
import stat
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.faults.tools.worker_fleet import wait_until
from tests.interfaces.terminal import CommandResult, invoke, read_until, run, running, stop_process
from timewright import AsyncScheduler, Scheduler, every
from timewright.errors import NotAllowed, TimewrightError
from timewright.interfaces.cli.process.http_server import check_bind, host_check_for
from timewright.interfaces.cli.process.instance import settings_for
from timewright.interfaces.cli.session import Session
from timewright.settings import Settings

TLS = Path(__file__).parents[3] / "targets" / "http" / "data" / "tls" / "good.pem"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Up(NamedTuple):
    """A running server process."""

    url: str
    key: str
    words: list[str]
    process: Any

    def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        line = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=60)
        line.request("GET", path, headers={"authorization": f"Bearer {self.key}", **headers})
        answer = line.getresponse()
        found = answer.status, dict(answer.getheaders()), answer.read()
        line.close()
        return found


@pytest.fixture
def up(here: Path) -> Iterator[Up]:
    with running(here, "up") as process:
        words = read_until(process.stderr, "ready")
        where = json.loads((here / "timewright.db.server").read_text("utf-8"))
        yield Up(where["url"], (here / "timewright.db.admin").read_text("utf-8").strip(), words, process)


def test_the_first_start_creates_a_private_key_file_and_removes_the_server_file(up: Up, here: Path) -> None:
    for name in ("timewright.db", "timewright.db.admin", "timewright.db.server", "timewright.db.key"):
        assert stat.S_IMODE((here / name).stat().st_mode) == 0o600, name
    assert json.loads((here / "timewright.db.server").read_text("utf-8"))["pid"] == up.process.pid
    assert up.get("/api/v1/health")[0] == 200
    assert up.get("/readyz")[0] == 200
    assert b"timewright_" in up.get("/metrics")[2]
    seconds, words = stop_process(up.process, signal.SIGTERM)
    assert (up.process.returncode, seconds < 30) == (0, True)
    assert "stopped" in words
    assert not (here / "timewright.db.server").exists()
    assert (here / "timewright.db.admin").read_text("utf-8").strip() == up.key


def test_the_printed_link_works_once(up: Up) -> None:
    link = next(re.search(r"http://\S+", line) for line in up.words if "one-time link" in line)
    assert link is not None
    path = link[0].removeprefix(up.url)
    status, headers, _ = up.get(path, authorization="")
    assert (status, headers["location"]) == (303, "/")
    cookie = headers["set-cookie"].split(";")[0]
    line = http.client.HTTPConnection(up.url.removeprefix("http://"), timeout=60)
    line.request("GET", "/", headers={"cookie": cookie})
    answer = line.getresponse()
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    page = answer.read()
    line.close()
    assert b"imewright" in page
    assert up.get(path, authorization="")[0] == 401


def test_the_event_stream_shows_engine_facts_and_ends_with_it(up: Up, here: Path) -> None:
    line = http.client.HTTPConnection(up.url.removeprefix("http://"), timeout=60)
    line.request("GET", "/api/v1/events", headers={"authorization": f"Bearer {up.key}"})
    stream = line.getresponse()
    assert run(here, "schedule", "create", "hello", "--every", "1s", "--note", "hello").code == 0
    seen = b""
    while b"event: run-succeeded" not in seen:
        seen += stream.read1()
    up.process.send_signal(signal.SIGTERM)
    assert b'"reason":"stopping"' in stream.read()
    line.close()
    up.process.communicate(timeout=60)
    assert up.process.returncode == 0


def test_links_in_messages_lead_to_the_running_server(up: Up, here: Path) -> None:
    assert invoke(None, "channel", "create", "ops", "--to", "poll").code == 0
    assert invoke(None, "channel", "test", "ops").code == 0
    (entry,) = json.loads(invoke(None, "queue", "lease", "channel.ops", "-o", "json").out)["leases"]
    assert entry["payload"]["link"] == f"{up.url}/#/incidents"


def test_a_pause_survives_a_killed_server(up: Up, here: Path) -> None:
    assert invoke(None, "pause", "--reason", "moving").code == 0
    assert invoke(None, "schedule", "create", "hello", "--every", "1s", "--note", "hello").code == 0
    up.process.kill()
    up.process.wait()

    def runs() -> list[Any]:
        found: list[Any] = json.loads(invoke(None, "run", "list", "--schedule", "hello", "-o", "json").out)[
            "runs"
        ]
        return found

    with running(here, "up") as again:
        read_until(again.stderr, "ready")
        app = Scheduler(str(here / "timewright.db"))
        created = app.instance.store.now()
        wait_until(lambda: app.instance.store.now() > created + timedelta(seconds=2), "two seconds")
        app.stop()
        assert runs() == []
        assert "moving" in invoke(None, "doctor").out
        assert invoke(None, "resume").code == 0
        wait_until(lambda: bool(runs()), "a run after the resume")


def test_the_command_line_gets_the_same_answers_from_a_server(up: Up, here: Path) -> None:
    def both(*words: str) -> tuple[CommandResult, CommandResult]:
        direct = invoke(None, *words)
        return direct, invoke(None, "--server", up.url, *words)

    made = invoke(
        None, "--server", up.url, "schedule", "create", "later", "--cron", "0 3 * * *", "--note", "x", "-v"
    )
    assert (made.code, made.err) == (0, f"using the server {up.url}\n")
    for words in (
        ("schedule", "list"),
        ("schedule", "get", "later", "-o", "json"),
        ("schedule", "list", "-o", "yaml"),
        ("schedule", "get", "lter"),
        ("schedule", "create", "oops", "--cron", "0 0 31 2 *", "--note", "x"),
        ("schedule", "update", "later", "--revision", "7", "--grace", "1m"),
        ("queue", "policy", "show", "mail", "-o", "json"),
        ("run", "get", "run_nothing"),
    ):
        direct, remote = both(*words)
        assert direct == remote, words
    told = invoke(None, "schedule", "list", "-v")
    assert told.err == "using the store timewright.db\n"
    by_place = invoke(None, "--store", up.url, "schedule", "list", "-q")
    assert by_place.out == "later\n"
    by_environment = invoke(None, "schedule", "list", "-q", "-v", TIMEWRIGHT_SERVER=up.url)
    assert (by_environment.out, by_environment.err) == ("later\n", "")
    other = invoke(None, "--server", up.url, "schedule", "list", "-q", TIMEWRIGHT_KEY="tw_x_y")
    assert (other.code, "API key missing or invalid" in other.err) == (1, True)
    away = invoke(None, "--server", "http://127.0.0.1:1", "schedule", "list", TIMEWRIGHT_KEY="tw_x_y")
    assert (away.code, "cannot reach the server" in away.err) == (1, True)


def test_a_port_in_use_by_timewright_is_reported_with_its_process(up: Up, here: Path) -> None:
    port = up.url.rpartition(":")[2]
    said = run(here, "up", "--port", port)
    assert said.code == 1
    assert f"in use by Timewright for this store (process {up.process.pid})" in said.err
    (here / "elsewhere").mkdir()
    other = run(here / "elsewhere", "up", "--port", port)
    assert f"port {port} is in use by another program" in other.err
    assert "--port 0 for a free port" in other.err
    assert list((here / "elsewhere").iterdir()) == []


def test_serve_answers_without_running_schedules(here: Path) -> None:
    with running(here, "serve") as process:
        read_until(process.stderr, "ready")
        invoke(None, "schedule", "create", "hello", "--every", "1s", "--note", "hello")
        where = json.loads((here / "timewright.db.server").read_text("utf-8"))["url"]
        assert invoke(None, "--server", where, "schedule", "list", "-q").out == "hello\n"
        line = http.client.HTTPConnection(where.removeprefix("http://"), timeout=60)
        key = (here / "timewright.db.admin").read_text("utf-8").strip()
        line.request("GET", "/api/v1/events", headers={"authorization": f"Bearer {key}"})
        stream, seen = line.getresponse(), b""
        while b"hello" not in seen:
            seen += stream.read1()
        invoke(None, "schedule", "pause", "hello")
        while b"event: changed" not in seen:
            seen += stream.read1()
        line.close()
        stop_process(process, signal.SIGTERM)
        assert process.returncode == 0
    assert invoke(None, "run", "list", "-o", "json").data["runs"] == []


@pytest.mark.parametrize("bind", ["127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "192.0.2.1"])
@pytest.mark.parametrize("tls", ["none", "certificate", "proxy"])
def test_a_public_address_needs_tls_or_a_proxy(bind: str, tls: str) -> None:
    settings = Settings(bind=bind, tls_cert="x" * (tls == "certificate"), behind_proxy=tls == "proxy")
    if bind in ("127.0.0.1", "::1", "localhost") or tls != "none":
        check_bind(settings)
        return
    with pytest.raises(NotAllowed) as refusal:
        check_bind(settings)
    assert refusal.value.field == "bind"


def test_a_public_server_disables_local_http_targets_by_default() -> None:
    assert settings_for(Session(), {}).local
    assert not settings_for(Session(), {"bind": "0.0.0.0"}).local
    assert settings_for(Session(), {"bind": "0.0.0.0", "local": True}).local


def test_a_public_address_needs_a_key(here: Path) -> None:
    for words in (["--bind", "0.0.0.0"], ["--bind", "0.0.0.0", "--tls-key", "x"]):
        assert run(here, "up", *words).code == 1
    assert list(here.iterdir()) == []
    keyless = run(here, "up", "--bind", "0.0.0.0", "--behind-proxy")
    assert (keyless.code, "no API key exists" in keyless.err) == (1, True)
    made = invoke(None, "key", "create", "ops", "--role", "viewer", "-o", "json").data["token"]
    with running(here, "up", "--bind", "0.0.0.0", "--tls-cert", str(TLS), "--host", "good.test") as process:
        words = read_until(process.stderr, "ready")
        assert not [line for line in words if "only this machine" in line]
        url = json.loads((here / "timewright.db.server").read_text("utf-8"))["url"]
        assert url.startswith("https://127.0.0.1:")
        trusted = {"SSL_CERT_FILE": str(TLS.with_name("ca.pem")), "TIMEWRIGHT_KEY": made}
        assert run(here, "--server", url, "schedule", "list", "-q", **trusted).code == 0
        stop_process(process, signal.SIGTERM)


def test_the_allowed_hosts_are_local_names_and_configured_names() -> None:
    check = host_check_for(Settings(bind="127.0.0.1", hosts=("Scheduler.Example.com.",)))
    assert check.allows_host("scheduler.example.com")
    assert not check.allows_host("192.0.2.1")
    assert host_check_for(Settings(bind="0.0.0.0")).allows_host("192.0.2.1")
    assert host_check_for(Settings(bind="2001:db8::1")).allows_host("[2001:db8::1]:7411")


def test_http_targets_may_not_call_their_own_server_except_the_probe(up: Up, here: Path) -> None:
    made = invoke(
        None, "schedule", "create", "self", "--manual", "--http", "GET", f"{up.url}/api/v1/schedules"
    )
    alive = invoke(None, "schedule", "create", "probe", "--manual", "--http", "GET", f"{up.url}/healthz")
    assert (made.code, alive.code) == (0, 0)
    for name, state in (("self", "failed"), ("probe", "succeeded")):
        invoke(None, "schedule", "update", name, "--max-attempts", "1")
        run_id = invoke(None, "schedule", "run", name, "-o", "json").data["run"]["id"]
        with running(here, "run", "list", "--schedule", name, "--follow") as following:
            told = read_until(following.stdout, name)
        assert state in told[-1], told
        if state == "failed":
            answer = invoke(None, "run", "get", run_id, "-o", "json").data
            assert "own port" in answer["run"]["error"]


def test_an_invalid_port_is_refused(here: Path) -> None:
    for text in ("-1", "65536", "http", "7411.5", ""):
        assert run(here, "up", "--port", text).code != 0, text
    assert list(here.iterdir()) == []


def test_a_scheduler_can_be_mounted_in_a_web_application(here: Path) -> None:
    app = Scheduler("app.db")
    app.schedule(every("1h"), name="hourly")(lambda ctx: None)
    mounted = app.asgi(hosts=["web.example.com"])
    token = app.keys.create(key="web", role="viewer").token

    async def asked(path: str, host: str) -> tuple[int, Any]:
        scope = {
            "type": "http",
            "method": "GET",
            "path": f"/scheduler{path}",
            "raw_path": f"/scheduler{path}".encode(),
            "root_path": "/scheduler",
            "query_string": b"",
            "scheme": "http",
            "headers": [(b"host", host.encode()), (b"authorization", f"Bearer {token}".encode())],
        }
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await mounted(scope, receive, send)
        return sent[0]["status"], json.loads(sent[1]["body"])

    async def story() -> None:
        async with mounted.lifespan():
            status, found = await asked("/api/v1/schedules", "web.example.com")
            assert (status, [row["name"] for row in found["schedules"]]) == (200, ["hourly"])
            assert (await asked("/api/v1/nothing", "web.example.com"))[1][
                "type"
            ] == "/scheduler/docs#not_found"
            assert (await asked("/readyz", "localhost"))[1]["engine"] is True
            assert (await asked("/openapi.json", "localhost"))[1]["servers"] == [{"url": "/scheduler"}]
            assert (await asked("/healthz", "evil.example"))[0] == 421
        with pytest.raises(TimewrightError):
            app.start()

    asyncio.run(story())


def test_the_asgi_lifespan_starts_and_stops_the_engine(here: Path) -> None:
    app = AsyncScheduler("app.db")
    mounted = app.asgi()

    async def story() -> list[str]:
        coming = iter(["lifespan.startup", "lifespan.shutdown"])
        sent: list[str] = []

        async def receive() -> Any:
            return {"type": next(coming)}

        async def send(message: Any) -> None:
            sent.append(message["type"])

        await mounted({"type": "lifespan"}, receive, send)
        return sent

    assert asyncio.run(story()) == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert (here / "app.db").exists()


def test_an_invalid_network_is_refused_at_startup(here: Path) -> None:
    said = run(here, "up", "--egress", "{allow: [{cidr: 10.0.0.1/8}]}")
    assert said.code == 1
    assert "egress.allow[0].cidr" in said.err
    assert list(here.iterdir()) == []


def test_dashboard_prints_a_new_link(up: Up, here: Path) -> None:
    link = invoke(None, "dashboard").out.strip()
    assert link.startswith(f"{up.url}/?key=")
    assert up.get(link.removeprefix(up.url))[0] == 303
    stop_process(up.process, signal.SIGTERM)
    said = invoke(None, "dashboard")
    assert (said.code, "no server is running for timewright.db" in said.err) == (1, True)
