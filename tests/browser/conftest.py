"""A real browser in front of a real server; where there is no Chromium these tests say so and are not run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.conftest import postgres_url
from timewright.testing.postgres import fresh_database

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["postgres_url"]

PATIENCE = 60_000.0
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
def slow():
    """Go on until somebody makes the file."""
    while not release.exists():
        time.sleep(0.02)
    return {"done": True}


@scheduler.task()
def chatty(context: Context):
    """Say a line, and another for every file that somebody makes."""
    context.log.info("the first line")
    for word in ("second", "third"):
        while not pathlib.Path(word).exists():
            time.sleep(0.02)
        context.log.info("the %s line", word)


@scheduler.task()
def counted(context: Context):
    return {"rows": context.payload}


@scheduler.task()
def broken():
    raise RuntimeError("the disk is full")
'''
ONE_STORE = pytest.mark.parametrize("site", ["sqlite"], indirect=True, scope="module")
"""For what only the page decides: no store would make a difference."""
if CHROMIUM is None or find_spec("playwright") is None:
    collect_ignore_glob = ["test_*.py"]


class Site:
    """A running server, asked by its own API where a test needs something to be there."""

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
        """A way in that works once."""
        return self.url + str(self.ask("POST", "/session/links", {}, key=key)["link"])

    def release(self) -> None:
        """Let the slow ones end."""
        (self.folder / "release").touch()

    def hold(self) -> None:
        (self.folder / "release").unlink(missing_ok=True)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp(f"site-{request.param}")
    (folder / "handlers.py").write_text(APP)
    if request.param == "sqlite":
        yield from _serving(folder, "timewright.db")
        return
    with fresh_database(request.getfixturevalue("postgres_url")) as place:
        yield from _serving(folder, place)


def _serving(folder: Path, store: str) -> Iterator[Site]:
    command = [sys.executable, "-m", "timewright", "up", "--port", "0", "--store", store]
    command += ["--app", "handlers:scheduler", "--log", "off"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if line.startswith("ready"):
                break
        link = next((word for line in said for word in line.split() if "?key=" in word), "")
        assert link, said
        site = Site(folder, link.partition("/?")[0], "")
        site.key = _new_key(site, link)
        try:
            yield site
        finally:
            site.release()
            process.terminate()
            process.wait(60)


def _new_key(site: Site, link: str) -> str:
    """A key for the tests, made as a browser would make it: with the link that was printed."""

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
    """A browser for the tests of one file; while it is open no other event loop can run in this thread."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    yield from open_page(browser, site)


def open_page(browser: Browser, site: Site, *, key: str = "", **how: Any) -> Iterator[Page]:
    """A page that is let in; whatever it complains about fails the test."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **how})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    page.goto(site.link(key))
    page.wait_for_selector("nav.side")
    yield page
    context.close()
    assert [one for one in complaints if "Failed to load resource" not in one] == []
