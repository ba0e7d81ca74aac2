"""up, worker and serve as processes."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.interfaces.terminal import invoke, read_until, run, running, stop_process
from timewright.errors import UnsafeStore
from timewright.interfaces.cli.process.instance import MIN_CLOCK, _check_clock
from timewright.interfaces.cli.session import Session
from timewright.testing.postgres import fresh_database

APP = """
import os
from timewright import Scheduler, every

app = Scheduler("timewright.db")


@app.schedule(every("1s"))
def beat(ctx):
    return {"pid": os.getpid()}


@app.task("add")
def add(a, b=1):
    return a + b
"""

ENVIRONMENT_APP = """
import os
from timewright import Scheduler, every

app = Scheduler("timewright.db")
AT_IMPORT = os.environ["DATABASE_URL"]


@app.schedule(every("1s"))
def read(ctx):
    return {"at_import": AT_IMPORT, "names": sorted(os.environ)}
"""


# A first run may be at midnight, and on a machine that has other things to do.
TIME = r"[^,(]*\d\d:\d\d[^,(]*"
LENGTH = r"[\d.]+ m?s"
HOSTED = """
from timewright import Scheduler, every

app = Scheduler("own.db")


@app.on("failed")
def on_fact(fact):
    raise AssertionError("nobody calls a listener of an app that another process runs")


@app.schedule(every("1s"))
def look(ctx):
    return {"schedules": [row.name for row in app.schedules.list().schedules]}
"""


def test_a_process_stops_although_its_output_is_not_read(here: Path) -> None:
    with running(here, "up") as engine:
        read_until(engine.stderr, "schedule create")
        run(here, "schedule", "create", "hello", "--every", "1h", "--note", "hello")
        # The engine's end of the pipe, filled until another write would block.
        full = os.open(f"/proc/{engine.pid}/fd/2", os.O_WRONLY | os.O_NONBLOCK)
        with suppress(BlockingIOError):
            while True:
                os.write(full, b"x")
        engine.send_signal(signal.SIGTERM)
        assert engine.wait(60) == 0
        os.close(full)
    (stopped,) = invoke(None, "instance", "list", "-o", "json").data["instances"]
    assert stopped["state"] == "stopped"


def test_the_first_run_from_an_empty_folder_to_a_clean_stop(here: Path) -> None:
    with running(here, "up", PATH="/usr/bin:/bin") as engine:
        words = read_until(engine.stderr, "schedule create")
        assert re.fullmatch(
            r"timewright \d\S* · SQLite 3\.\S+ · \./timewright\.db \(new, durable\) · zone UTC", words[0]
        )
        assert re.fullmatch(
            r"  dashboard   http://127\.0\.0\.1:\d+/\?key=[\w-]{43}    \(one-time link\)", words[1]
        )
        assert re.fullmatch(
            r"  api         http://127\.0\.0\.1:\d+/api/v1      \(OpenAPI: /openapi\.json\)", words[2]
        )
        assert words[-3].startswith("  only this machine can connect")
        assert re.fullmatch(
            r"ready in \d+\.\d s — nothing scheduled yet\. Try, in another terminal:", words[-2]
        )
        suggested = words[-1].strip().removeprefix(f"{sys.executable} -m timewright ")
        assert suggested == "schedule create hello --every 5s --note 'hello'"
        made = run(here, *suggested.replace("5s", "1s").replace("'", "").split())
        assert re.fullmatch(
            rf"sch_\w{{26}}   hello   every 1s   next {TIME} \(.+\), {TIME}, {TIME}\n", made.out
        )
        with running(here, "run", "list", "--schedule", "hello", "--follow") as following:
            told = read_until(following.stdout, "hello")
            _, complaint = stop_process(following, signal.SIGINT)
            assert (following.returncode, complaint) == (0, "")
        assert re.fullmatch(
            rf"{TIME}  ✔ succeeded  attempt 1 +{LENGTH} +start delay +{LENGTH} +hello", told[0]
        )
        refused = invoke(None, "schedule", "create", "oops", "--cron", "0 0 31 2 *", "--note", "x")
        assert refused.code == 1
        assert refused.err.splitlines()[-1].startswith("  try     '0 0 28 2 *'")
        seconds, words_at_the_end = stop_process(engine, signal.SIGTERM)
        assert (engine.returncode, seconds < 30) == (0, True)
        assert "1 schedule and the history are kept in ./timewright.db" in words_at_the_end
    kept = invoke(None, "run", "list", "--schedule", "hello", "-o", "json").data["runs"]
    assert kept
    assert {row["state"] for row in kept} == {"succeeded"}


def test_an_existing_store_is_reported_with_its_next_occurrence(here: Path) -> None:
    invoke(None, "--store", "other.db", "schedule", "create", "later", "--every", "1h", "--note", "x")
    invoke(None, "--store", "other.db", "pause", "--reason", "disk errors")
    with running(here, "up", "--store", "other.db", PATH="/usr/bin:/bin") as engine:
        *words, paused = read_until(engine.stderr, "is paused")
        resume = f"{sys.executable} -m timewright resume --store other.db"
        assert paused == f"note: the installation is paused: {resume}"
        assert "./other.db (existing, durable)" in words[0]
        assert re.fullmatch(
            r"ready in \d+\.\d s — 1 schedule, next later .*\. Follow the runs in another terminal:",
            words[-2],
        )
        assert words[-1] == f"  {sys.executable} -m timewright run list --follow --store other.db"
        stop_process(engine, signal.SIGINT)
        assert engine.returncode == 0


def test_shutdown_waits_for_runs_and_a_second_signal_releases_them(here: Path) -> None:
    with running(here, "up", "--shell") as engine:
        read_until(engine.stderr, "ready")
        marked = ["--shell", "--", "sleep", "61"]
        invoke(None, "schedule", "create", "slow", "--every", "1s", "--overlap", "skip", *marked)
        await_state("leased")
        engine.send_signal(signal.SIGINT)
        assert "1 run in progress" in read_until(engine.stderr, "stopping")[-1]
        seconds, words = stop_process(engine, signal.SIGINT)
        assert (engine.returncode, seconds < 30) == (130, True)
        assert "stopped immediately" in words
    state = invoke(None, "run", "list", "-o", "json", "--state", "ready").data["runs"]
    assert [row["reason"] for row in state] == ["released at stop"]


def test_an_app_runs_its_declared_schedules_in_worker_processes(
    here: Path,
) -> None:
    (here / "myapp.py").write_text(APP, encoding="utf-8")
    with running(here, "up", "--app", "myapp:app") as engine:
        read_until(engine.stderr, "ready")
        run(
            here,
            "schedule",
            "create",
            "sum",
            "--every",
            "1s",
            "--call",
            "add",
            "--arg",
            "a=2",
            "--arg",
            "b=3",
        )
        beat, total = await_state("succeeded", "beat"), await_state("succeeded", "sum")
        stop_process(engine, signal.SIGTERM)
    assert engine.returncode == 0
    attempts = invoke(None, "run", "get", beat, "-o", "json").data["attempts"]
    assert attempts[0]["result"]["pid"] not in (engine.pid, os.getpid())
    assert invoke(None, "run", "get", total, "-o", "json").data["attempts"][0]["result"] == 5


def test_functions_get_the_environment_of_up_without_our_secrets(here: Path) -> None:
    (here / "envapp.py").write_text(ENVIRONMENT_APP, encoding="utf-8")
    (here / "timewright.toml").write_text('[environment]\ndeny = ["CLOUD_*"]\n', encoding="utf-8")
    (here / "timewright.toml").chmod(0o600)
    variables = {
        "DATABASE_URL": "postgresql://db/app",
        "CLOUD_TOKEN": "denied",
        "TIMEWRIGHT_KEY": "ours",
        "TIMEWRIGHT_SECRET_KEY": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
    }
    with running(here, "up", "--app", "envapp:app", **variables) as engine:
        read_until(engine.stderr, "ready")
        run_id = await_state("succeeded", "read")
        stop_process(engine, signal.SIGTERM)
    result = invoke(None, "run", "get", run_id, "-o", "json").data["attempts"][0]["result"]
    assert result["at_import"] == "postgresql://db/app"
    assert {"DATABASE_URL", "PATH", "TZ"} <= set(result["names"])
    assert not {"CLOUD_TOKEN", "TIMEWRIGHT_KEY", "TIMEWRIGHT_SECRET_KEY"} & set(result["names"])


def test_a_missing_app_is_refused_before_the_store_is_created(here: Path) -> None:
    said = run(here, "up", "--app", "nowhere:app")
    assert said.code == 1
    assert "is not a scheduler" in said.err
    assert list(here.iterdir()) == []


def test_a_worker_runs_on_a_postgres_store(here: Path, postgres_url: str) -> None:
    with fresh_database(postgres_url) as place:
        invoke(None, "--store", place, "migrate")
        with running(here, "worker", "--store", place) as engine:
            words = read_until(engine.stderr, "ready")
            assert len(words) == 2
            assert re.search(
                r"· PostgreSQL \d\S* · postgresql://\S* \(existing, durable\) · zone UTC", words[0]
            )
            assert words[1].endswith("nothing scheduled yet")
            invoke(None, "--store", place, "schedule", "create", "hello", "--every", "1s", "--note", "hello")
            await_state("succeeded", "hello", store=place)
            stop_process(engine, signal.SIGTERM)
            assert engine.returncode == 0


def test_quiet_prints_no_notes(capsys: pytest.CaptureFixture[str]) -> None:
    session = Session()
    session.print_note("ready")
    session.given["quiet"] = True
    session.print_note("ready")
    assert capsys.readouterr().err == "ready\n"


def test_a_clock_before_2024_is_refused() -> None:
    _check_clock(MIN_CLOCK)
    with pytest.raises(UnsafeStore, match="the clock is wrong: 1970-01-01"):
        _check_clock(datetime(1970, 1, 1, tzinfo=UTC))


def await_state(state: str, schedule: str = "", *, store: str = "timewright.db") -> str:
    """Wait until a run of another process has the state."""
    filters = ["--schedule", schedule] if schedule else []
    deadline, pause = time.monotonic() + 60, threading.Event()
    while time.monotonic() < deadline:
        said = invoke(None, "--store", store, "run", "list", "--state", state, "--limit", "1", "-q", *filters)
        if said.code == 0 and said.lines:
            return said.lines[0]
        pause.wait(0.05)
    raise AssertionError(f"no run of {schedule or 'any schedule'} was {state}")


def test_a_hosted_app_uses_the_store_of_its_host(here: Path) -> None:
    (here / "hosted.py").write_text(HOSTED, encoding="utf-8")
    with running(here, "up", "--app", "hosted:app", "--store", "ours.db") as engine:
        read_until(engine.stderr, "ready")
        run_id = await_state("succeeded", store="ours.db")
    got = invoke(None, "run", "get", run_id, "--store", "ours.db", "-o", "json").data
    assert got["attempts"][0]["result"] == {"schedules": ["look"]}
    assert not (here / "own.db").exists()
