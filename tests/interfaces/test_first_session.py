"""The first session of a new user: install, start, create a schedule, explain, stop."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import sysconfig
import tomllib
import venv
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.interfaces.terminal import CommandResult, environment, read_until

MAX_OTHERS = 20
ROOT = Path(__file__).resolve().parents[2]
BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
EMBEDDED = """
import threading
from timewright import Scheduler, every

app = Scheduler("embedded.db")
ran = threading.Event()


@app.schedule(every("1s"), overlap="skip", retry=3)
def refresh(ctx):
    ran.set()


with app:
    assert ran.wait(60)
print("it ran")
"""


Engine = subprocess.Popen[str]


class UserEnvironment:
    """A folder and a new environment."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs = programs
        self._folder = folder
        self._environment = environment(XDG_STATE_HOME=str(folder / "state"), PYTHONPATH="")

    def types(self, *words: str) -> CommandResult:
        """Run a command and wait for it."""
        done = subprocess.run(
            [str(self._programs / words[0]), *words[1:]],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def starts(self, *words: str) -> subprocess.Popen[str]:
        """Start a long-running command."""
        return subprocess.Popen(
            [str(self._programs / words[0]), *words[1:]],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def user(tmp_path: Path) -> UserEnvironment:
    """`pip install timewright` without a package index."""
    place = tmp_path
    subprocess.run([sys.executable, "-c", BUILD, str(place)], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = place.glob("timewright-*.whl")
    venv.create(place / "env", with_pip=False)
    programs = place / "env" / ("Scripts" if sys.platform == "win32" else "bin")
    (site,) = (place / "env").rglob("site-packages")
    # What the wheel needs is here already; a path file brings it without another thing.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True, capture_output=True)
    folder = place / "project"
    folder.mkdir()
    return UserEnvironment(programs, folder)


def test_the_first_session_from_install_to_stop(user: UserEnvironment) -> None:
    check_the_installed_version(user)
    with user.starts("timewright", "up") as engine:
        try:
            check_the_startup_messages(engine)
            create_a_schedule_and_follow_its_runs(user, engine)
            create_a_local_http_schedule(user)
            check_the_error_for_an_impossible_schedule(user)
            explain_a_skipped_occurrence(user, engine)
            run_doctor(user)
            run_an_embedded_program(user)
            stop_the_server(user, engine)
        finally:
            engine.kill()


def check_the_installed_version(user: UserEnvironment) -> None:
    said = user.types("python", "-c", "import timewright; print(timewright.__file__)")
    assert "/env/" in said.out.replace("\\", "/")
    assert re.fullmatch(r"timewright,? (version )?\d\S*\n", user.types("timewright", "--version").out)


def check_the_startup_messages(engine: Engine) -> None:
    words = read_until(engine.stderr, "schedule create")
    assert re.match(
        r"timewright \d\S* · SQLite 3\.\S+ · \./timewright\.db \(new, durable\) · zone ", words[0]
    )
    for line, place in ((1, r"dashboard   http://\S+/\?key="), (2, r"api         http://\S+/api/v1 ")):
        assert re.match(f"  {place}", words[line])
    assert any(re.match(r"  mcp         \S*timewright mcp", line) for line in words)
    assert any(line.startswith("  only this machine can connect") for line in words)
    assert re.match(r"ready in \d+\.\d s — nothing scheduled yet", words[-2])
    assert re.fullmatch(r"  \S*timewright schedule create hello --every 5s --note 'hello'", words[-1])


def create_a_schedule_and_follow_its_runs(user: UserEnvironment, engine: Engine) -> None:
    assert engine.poll() is None
    made = user.types("timewright", "schedule", "create", "hello", "--every", "1s", "--note", "hello")
    assert re.match(r"sch_\w{26}   hello   every 1s   next .*\d\d:\d\d", made.out)
    with user.starts("timewright", "run", "list", "--schedule", "hello", "--follow") as following:
        told = read_until(following.stdout, "succeeded")
        following.send_signal(signal.SIGINT)
        following.communicate(timeout=60)
    assert re.match(r".*\d\d:\d\d.*  ✔ succeeded  attempt 1 .* m?s   start delay .* hello", told[-1])


def create_a_local_http_schedule(user: UserEnvironment) -> None:
    when = ["--cron", "0 9 * * mon-fri", "--zone", "Europe/Berlin"]
    what = ["--http", "POST", "http://127.0.0.1:8000/report"]
    made = user.types("timewright", "schedule", "create", "report", *when, *what)
    assert "report   at 09:00 on Monday through Friday" in made.out
    assert re.search(r"next (Mon|Tue|Wed|Thu|Fri|\d\d:)", made.out)
    assert "may call this machine" in made.err


def check_the_error_for_an_impossible_schedule(user: UserEnvironment) -> None:
    words = ["schedule", "create", "oops", "--cron", "0 0 31 2 *", "--note", "x"]
    refused = user.types("timewright", *words)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.splitlines() == [
        "error: cron '0 0 31 2 *' never fires",
        "  field   day 31 in month 2 (February has at most 29 days)",
        "  rule    at least one day from 1970 to 9999 matches",
        "  try     '0 0 28 2 *' or 'L' for the last day: '0 0 L 2 *'",
    ]


def explain_a_skipped_occurrence(user: UserEnvironment, engine: Engine) -> None:
    assert engine.poll() is None
    said = user.types("timewright", "explain", "report", "--at", "2020-01-06T08:00:00Z")
    assert said.code == 0
    assert said.lines[0].startswith("report")
    for word in ("  planned ", "  decision ", "  because "):
        assert any(line.startswith(word) for line in said.lines)


def run_doctor(user: UserEnvironment) -> None:
    said = user.types("timewright", "doctor")
    assert said.code == 0
    assert {line.split()[0] for line in said.lines} <= {"ok", "warn"}
    text = said.out
    assert re.search(r"^ok    SQLite 3\.\S+, journal_mode wal", text, re.MULTILINE)
    assert re.search(r"^ok    the clocks of the store", text, re.MULTILINE)
    assert re.search(r"^ok    2 schedules, ", text, re.MULTILINE)


def run_an_embedded_program(user: UserEnvironment) -> None:
    said = user.types("python", "-c", EMBEDDED)
    assert (said.out, said.code) == ("it ran\n", 0)


def stop_the_server(user: UserEnvironment, engine: Engine) -> None:
    engine.send_signal(signal.SIGINT)
    _, words = engine.communicate(timeout=60)
    assert engine.returncode == 0
    assert "2 schedules and the history are kept in ./timewright.db" in words
    kept = user.types("timewright", "run", "list", "--schedule", "hello", "-o", "json").data["runs"]
    assert kept
    assert {row["state"] for row in kept} == {"succeeded"}


def test_a_plain_install_has_at_most_twenty_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: dict[str, set[str]] = {}
    pending = [Requirement(line) for line in project["dependencies"]]
    while pending:
        one = pending.pop()
        name, extras = canonicalize_name(one.name), one.extras | {""}
        if (one.marker is not None and not one.marker.evaluate({"extra": ""})) or extras <= found.get(
            name, set()
        ):
            continue
        found.setdefault(name, set()).update(extras)
        pending += _needed(name, extras)
    assert "msgspec" in found
    assert len(found) <= MAX_OTHERS, sorted(found)


def _needed(name: str, extras: set[str]) -> list[Requirement]:
    """Return the requirements of an installed distribution with its extras."""
    lines = [Requirement(line) for line in metadata.requires(name) or []]
    wanted = [
        one for one in lines if one.marker is None or any(one.marker.evaluate({"extra": e}) for e in extras)
    ]
    for one in wanted:
        one.marker = None
    return wanted
