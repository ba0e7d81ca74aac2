"""A real browser and a real server; the tests are skipped without Chromium."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.large_store import EVENTS, write_large_store
from tests.conformance.conftest import postgres_url
from timewright.testing.postgres import fresh_database

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

__all__ = ["postgres_url"]

TIMEOUT_MS = 60_000.0
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
APP = '''
import pathlib, time
from timewright import Context, Scheduler

scheduler = Scheduler("app.db")
release = pathlib.Path("release")


@scheduler.task()
def slow(order: int = 0):
    """Run until the file exists."""
    while not release.exists():
        time.sleep(0.02)
    return {"done": True}


@scheduler.task()
def chatty(context: Context):
    """Log a line, and another one for each file that is created."""
    context.log.info("the first line")
    for word in ("second", "third"):
        while not pathlib.Path(word).exists():
            time.sleep(0.02)
        context.log.info("the %s line", word)


@scheduler.task()
def talkative(context: Context):
    """Log 60 lines in about three seconds."""
    for number in range(60):
        context.log.info("line %s of 60", number)
        time.sleep(0.05)


@scheduler.task()
def flaky():
    """Fail the first time."""
    mark = pathlib.Path("failed-once")
    if not mark.exists():
        mark.touch()
        raise RuntimeError("not yet")


@scheduler.task()
def flaky_step(context: Context):
    """Fail the first time in each workflow."""
    mark = pathlib.Path(f"failed-{context.payload['workflow']}")
    if not mark.exists():
        mark.touch()
        raise RuntimeError("not yet")


@scheduler.task()
def levels(context: Context):
    context.log.info("all is well")
    print("a \x1b[31mred\x1b[0m word")
    context.log.warning("the disk is nearly full")


@scheduler.task()
def counted(context: Context):
    return {"rows": context.payload}


@scheduler.task()
def dated(day: str):
    return {"day": day}


@scheduler.task()
def filed(context: Context):
    return context.artifact("report.txt", "forty rows")


@scheduler.task()
def broken():
    raise RuntimeError("the disk is full")
'''
LARGE_QUOTAS = {"schedules": 10_000, "triggers_per_minute": 10_000, "requests_per_minute": 100_000}
ONE_STORE = pytest.mark.parametrize("site", ["sqlite"], indirect=True, scope="module")
"""For tests that do not depend on the store."""
LARGE_STORE = pytest.mark.parametrize("site", ["large"], indirect=True, scope="module")
"""5,000 schedules, 100,000 runs and, from the engine, 10 events a second."""
if CHROMIUM is None or not all(map(find_spec, ("playwright", "axe_playwright_python"))):
    collect_ignore_glob = ["test_*.py"]


class Site:
    """A running server with an API client for test data."""

    def __init__(self, folder: Path, url: str, key: str) -> None:
        self.folder = folder
        self.url = url
        self.key = key

    def ask(self, method: str, path: str, data: Any = None, *, key: str = "") -> Any:
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(f"{self.url}{path}", data=body, method=method)
        request.add_header("authorization", f"Bearer {key or self.key}")
        if body is not None:
            request.add_header("content-type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"{}")

    def api(self, method: str, path: str, data: Any = None) -> Any:
        return self.ask(method, f"/api/v1/{path}", data)

    def link(self, key: str = "") -> str:
        """Create a one-time login link."""
        return self.url + str(self.ask("POST", "/session/links", {}, key=key)["link"])

    def release(self) -> None:
        """Let the slow functions end."""
        (self.folder / "release").touch()

    def hold(self) -> None:
        (self.folder / "release").unlink(missing_ok=True)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if request.param == "large":
        large: Site = request.getfixturevalue("large_site")
        large.api("POST", f"schedules/{EVENTS}/resume", {})
        yield large
        large.api("POST", f"schedules/{EVENTS}/pause", {})
        return
    folder = tmp_path_factory.mktemp(f"site-{request.param}")
    (folder / "handlers.py").write_text(APP)
    if request.param == "sqlite":
        yield from serve(folder, "timewright.db")
        return
    with fresh_database(request.getfixturevalue("postgres_url")) as place:
        yield from serve(folder, place)


@pytest.fixture(scope="session")
def large_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The large store, written once for all workers of a test run."""
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    file = folder / "large.db"
    with (folder / "large.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            unfinished = folder / "unfinished.db"
            unfinished.unlink(missing_ok=True)
            write_large_store(unfinished)
            unfinished.rename(file)
    return file


@pytest.fixture(scope="session")
def large_site(large_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server on a copy of the large store, shared by the modules of a worker."""
    yield from serve_large(tmp_path_factory.mktemp("large"), large_file)


def serve_large(folder: Path, file: Path) -> Iterator[Site]:
    (folder / "handlers.py").write_text(APP)
    shutil.copy(file, folder / "timewright.db")
    for site in serve(folder, "timewright.db"):
        site.api("POST", "namespaces", {"name": "default", **LARGE_QUOTAS})
        yield site


def serve(folder: Path, store: str) -> Iterator[Site]:
    command = [sys.executable, "-m", "timewright", "up", "--port", "0", "--store", store]
    command += ["--app", "handlers:scheduler", "--log", "off"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if line.startswith("ready"):
                break
        link = next((word for line in lines for word in line.split() if "?key=" in word), "")
        assert link, lines
        site = Site(folder, link.partition("/?")[0], "")
        site.key = _new_key(site, link)
        try:
            yield site
        finally:
            site.release()
            process.terminate()
            process.wait(60)


def _new_key(site: Site, link: str) -> str:
    """Create a key for the tests with the session of the printed link."""

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    opener = urllib.request.build_opener(Stay)
    try:
        opener.open(link)
    except urllib.error.HTTPError as moved:
        cookie = moved.headers["set-cookie"].partition(";")[0]
        moved.close()
    headers = {"cookie": cookie}
    with urllib.request.urlopen(urllib.request.Request(f"{site.url}/session", headers=headers)) as answer:
        token = json.load(answer)["csrf"]
    headers |= {"timewright-csrf": token, "content-type": "application/json"}
    body = json.dumps({"key": "tests", "role": "admin", "within": ["*"]}).encode()
    made = urllib.request.Request(f"{site.url}/api/v1/keys", data=body, headers=headers, method="POST")
    with urllib.request.urlopen(made) as answer:
        return str(json.load(answer)["token"])


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser per test module; no other event loop can run in this thread while it is open."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=TIMEOUT_MS)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """One cache of files for the pages of a module; each page logs in again."""
    opened = new_context(browser)
    yield opened
    opened.close()


@pytest.fixture
def page(context: BrowserContext, site: Site) -> Iterator[Page]:
    yield from log_in(context, site)
    for other in context.pages:
        other.close()


def open_page(browser: Browser, site: Site, *, key: str = "", **how: Any) -> Iterator[Page]:
    """Open a logged-in page with its own cookies and cache."""
    context = new_context(browser, **how)
    yield from log_in(context, site, key=key)
    context.close()


def new_context(browser: Browser, **how: Any) -> BrowserContext:
    return browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **how})


def log_in(context: BrowserContext, site: Site, *, key: str = "") -> Iterator[Page]:
    """Open a page with a new login link; any error in its console fails the test."""
    page = context.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(site.link(key))
    page.wait_for_selector("nav.side")
    yield page
    page.close()
    assert [one for one in errors if "Failed to load resource" not in one] == []
