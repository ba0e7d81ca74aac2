"""Starting a server: who may reach it, what it leaves on disk, and the command line that asks it."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.doors.terminal import Said, ask, lines_until, run, started
from tests.doors.test_cli_up import ended
from timewright import AsyncScheduler, Scheduler, every
from timewright.doors.cli.door import check_bind, gate_for
from timewright.doors.cli.session import Session
from timewright.doors.cli.up import settings_for
from timewright.errors import NotAllowed, TimewrightError
from timewright.settings import Settings

TLS = Path(__file__).parents[2] / "targets" / "data" / "tls" / "good.pem"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Up(NamedTuple):
    """A process that answers."""

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
    with started(here, "up") as process:
        words = lines_until(process.stderr, "ready")
        where = json.loads((here / "timewright.db.server").read_text("utf-8"))
        yield Up(where["url"], (here / "timewright.db.admin").read_text("utf-8").strip(), words, process)


def test_the_first_start_makes_a_key_that_only_its_owner_reads_and_leaves_no_address_behind(
    up: Up, here: Path
) -> None:
    for name in ("timewright.db", "timewright.db.admin", "timewright.db.server", "timewright.db.key"):
        assert stat.S_IMODE((here / name).stat().st_mode) == 0o600, name
    assert json.loads((here / "timewright.db.server").read_text("utf-8"))["pid"] == up.process.pid
    assert up.get("/api/v1/health")[0] == 200
    assert up.get("/readyz")[0] == 200
    assert b"timewright_" in up.get("/metrics")[2]
    seconds, words = ended(up.process, signal.SIGTERM)
    assert (up.process.returncode, seconds < 30) == (0, True)
    assert "stopped" in words
    assert not (here / "timewright.db.server").exists()
    assert (here / "timewright.db.admin").read_text("utf-8").strip() == up.key


def test_the_link_that_is_printed_opens_the_dashboard_once(up: Up) -> None:
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


def test_a_stream_of_facts_shows_what_the_engine_does_and_ends_with_it(up: Up, here: Path) -> None:
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


def test_the_command_line_asks_a_server_and_gets_what_the_store_says(up: Up, here: Path) -> None:
    def both(*words: str) -> tuple[Said, Said]:
        direct = ask(None, *words)
        return direct, ask(None, "--server", up.url, *words)

    made = ask(
        None, "--server", up.url, "schedule", "create", "later", "--cron", "0 3 * * *", "--note", "x", "-v"
    )
    assert (made.code, made.err) == (0, f"asking the server at {up.url}\n")
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
    told = ask(None, "schedule", "list", "-v")
    assert told.err == "asking the store itself: timewright.db\n"
    by_place = ask(None, "--store", up.url, "schedule", "list", "-q")
    assert by_place.out == "later\n"
    by_environment = ask(None, "schedule", "list", "-q", "-v", TIMEWRIGHT_SERVER=up.url)
    assert (by_environment.out, by_environment.err) == ("later\n", "")
    other = ask(None, "--server", up.url, "schedule", "list", "-q", TIMEWRIGHT_KEY="tw_x_y")
    assert (other.code, "no key, or not one" in other.err) == (1, True)
    away = ask(None, "--server", "http://127.0.0.1:1", "schedule", "list")
    assert (away.code, "no server answers" in away.err) == (1, True)


def test_a_second_server_on_a_taken_port_is_told_whose_it_is(up: Up, here: Path) -> None:
    port = up.url.rpartition(":")[2]
    said = run(here, "up", "--port", port)
    assert said.code == 1
    assert f"taken by Timewright itself, for this store (process {up.process.pid})" in said.err
    (here / "elsewhere").mkdir()
    other = run(here / "elsewhere", "up", "--port", port)
    assert f"port {port} is taken by another program" in other.err
    assert "--port 0 for a free port" in other.err
    assert list((here / "elsewhere").iterdir()) == []


def test_a_server_without_an_engine_answers_and_runs_nothing(here: Path) -> None:
    with started(here, "serve") as process:
        lines_until(process.stderr, "ready")
        ask(None, "schedule", "create", "hello", "--every", "1s", "--note", "hello")
        where = json.loads((here / "timewright.db.server").read_text("utf-8"))["url"]
        assert ask(None, "--server", where, "schedule", "list", "-q").out == "hello\n"
        line = http.client.HTTPConnection(where.removeprefix("http://"), timeout=60)
        key = (here / "timewright.db.admin").read_text("utf-8").strip()
        line.request("GET", "/api/v1/events", headers={"authorization": f"Bearer {key}"})
        stream, seen = line.getresponse(), b""
        while b"hello" not in seen:
            seen += stream.read1()
        ask(None, "schedule", "pause", "hello")
        while b"event: changed" not in seen:
            seen += stream.read1()
        line.close()
        ended(process, signal.SIGTERM)
        assert process.returncode == 0
    assert ask(None, "run", "list", "-o", "json").data["runs"] == []


@pytest.mark.parametrize("bind", ["127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "192.0.2.1"])
@pytest.mark.parametrize("tls", ["none", "certificate", "proxy"])
def test_wider_than_this_machine_only_with_tls_or_behind_a_proxy(bind: str, tls: str) -> None:
    settings = Settings(bind=bind, tls_cert="x" * (tls == "certificate"), behind_proxy=tls == "proxy")
    if bind in ("127.0.0.1", "::1", "localhost") or tls != "none":
        check_bind(settings)
        return
    with pytest.raises(NotAllowed) as refusal:
        check_bind(settings)
    assert refusal.value.field == "bind"


def test_a_door_that_others_reach_closes_this_machine_to_http_targets_unless_told() -> None:
    assert settings_for(Session(), {}).local
    assert not settings_for(Session(), {"bind": "0.0.0.0"}).local
    assert settings_for(Session(), {"bind": "0.0.0.0", "local": True}).local


def test_wider_than_this_machine_only_with_a_key(here: Path) -> None:
    for words in (["--bind", "0.0.0.0"], ["--bind", "0.0.0.0", "--tls-key", "x"]):
        assert run(here, "up", *words).code == 1
    assert list(here.iterdir()) == []
    keyless = run(here, "up", "--bind", "0.0.0.0", "--behind-proxy")
    assert (keyless.code, "there is no key" in keyless.err) == (1, True)
    made = ask(None, "key", "create", "ops", "--role", "viewer", "-o", "json").data["token"]
    with started(here, "up", "--bind", "0.0.0.0", "--tls-cert", str(TLS), "--host", "good.test") as process:
        words = lines_until(process.stderr, "ready")
        assert not [line for line in words if "only this machine" in line]
        url = json.loads((here / "timewright.db.server").read_text("utf-8"))["url"]
        assert url.startswith("https://127.0.0.1:")
        trusted = {"SSL_CERT_FILE": str(TLS.with_name("ca.pem")), "TIMEWRIGHT_KEY": made}
        assert run(here, "--server", url, "schedule", "list", "-q", **trusted).code == 0
        ended(process, signal.SIGTERM)


def test_the_names_of_a_server_are_those_of_this_machine_and_those_that_were_said() -> None:
    gate = gate_for(Settings(bind="127.0.0.1", hosts=("Scheduler.Example.com.",)))
    assert gate.answers_to("scheduler.example.com")
    assert not gate.answers_to("192.0.2.1")
    assert gate_for(Settings(bind="0.0.0.0")).answers_to("192.0.2.1")
    assert gate_for(Settings(bind="2001:db8::1")).answers_to("[2001:db8::1]:7411")


def test_our_own_port_is_closed_to_our_own_targets_but_for_the_probe(up: Up, here: Path) -> None:
    made = ask(None, "schedule", "create", "self", "--manual", "--http", "GET", f"{up.url}/api/v1/schedules")
    alive = ask(None, "schedule", "create", "probe", "--manual", "--http", "GET", f"{up.url}/healthz")
    assert (made.code, alive.code) == (0, 0)
    for name, state in (("self", "failed"), ("probe", "succeeded")):
        ask(None, "schedule", "update", name, "--max-attempts", "1")
        run_id = ask(None, "schedule", "run", name, "-o", "json").data["run"]["id"]
        with started(here, "run", "list", "--schedule", name, "--follow") as following:
            told = lines_until(following.stdout, name)
        assert state in told[-1], told
        if state == "failed":
            answer = ask(None, "run", "get", run_id, "-o", "json").data
            assert "own port" in answer["run"]["error"]


def test_a_port_that_is_no_port_is_refused(here: Path) -> None:
    for text in ("-1", "65536", "http", "7411.5", ""):
        assert run(here, "up", "--port", text).code != 0, text
    assert list(here.iterdir()) == []


def test_a_scheduler_can_be_a_part_of_a_web_application(here: Path) -> None:
    app = Scheduler("app.db")
    app.schedule(every("1h"), name="hourly")(lambda ctx: None)
    mounted = app.asgi(hosts=["web.example.com"])
    token = app.keys.create(key="web", role="viewer")["token"]

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


def test_an_asgi_server_starts_and_stops_the_engine_by_the_lifespan(here: Path) -> None:
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


def test_a_network_that_is_none_is_refused_at_the_start(here: Path) -> None:
    said = run(here, "up", "--egress", "{allow: [{cidr: 10.0.0.1/8}]}")
    assert said.code == 1
    assert "egress.allow[0].cidr" in said.err
    assert list(here.iterdir()) == []


def test_a_new_link_is_printed_for_whoever_has_the_store(up: Up, here: Path) -> None:
    link = ask(None, "dashboard").out.strip()
    assert link.startswith(f"{up.url}/?key=")
    assert up.get(link.removeprefix(up.url))[0] == 303
    ended(up.process, signal.SIGTERM)
    said = ask(None, "dashboard")
    assert (said.code, "no server runs on timewright.db" in said.err) == (1, True)
