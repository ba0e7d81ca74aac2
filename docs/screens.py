"""Draws every screen of the dashboard again, by `python3 dev.py screens`: a demo, a server, a browser."""
# ruff: noqa: INP001, T201

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "screens"
WIDE: Any = {"width": 1440, "height": 900}
PHONE: Any = {"width": 390, "height": 844}
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SCREENS = {
    "now": "/overview",
    "grid": "/grid",
    "schedules": "/schedules",
    "schedule": "/schedules/orders-poll",
    "edit": "/schedules/nightly-report/edit",
    "runs": "/runs",
    "run": "/runs?state=failed",
    "skipped": "/runs?state=skipped",
    "queues": "/queues",
    "queue": "/queues/mail",
    "forecast": "/forecast",
    "planner": "/planner",
    "workflow": "/workflows/warehouse-load",
    "instances": "/instances",
    "audit": "/audit?action=schedule.update",
    "settings": "/settings",
    "create": "/create",
}
OTHERS: tuple[tuple[str, str, Any, Any], ...] = (
    ("/overview", "now-dark", WIDE, "dark"),
    ("/overview", "now-phone", PHONE, "light"),
    ("/schedules", "schedules-phone", PHONE, "light"),
    ("/schedules/orders-poll", "schedule-phone", PHONE, "dark"),
)
# What is pressed before a picture is taken: the first run of a list, what an edit changed.
PRESSED = {"run": "tbody tr a", "audit": "summary"}


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """A demo and a server in front of it; gives the link that lets a browser in."""
    # Found by the shell, so that the pages show `timewright` and not the path of this Python.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["timewright", "demo"], cwd=folder, env=environment, check=True)
    command = ["timewright", "serve", "--port", "0", "--store", "demo.db"]
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        link = ""
        for line in server.stderr:
            link = next((word for word in line.split() if "?key=" in word), link)
            if line.startswith("ready"):
                break
        try:
            yield link
        finally:
            server.terminate()


def draw() -> None:
    """Every screen, wide and light; some also dark, and on a phone.

    The overview comes first: nothing runs what becomes due, and half a minute later it says so.
    """
    from playwright.sync_api import sync_playwright

    FOLDER.mkdir(exist_ok=True)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as link, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        context = browser.new_context(viewport=WIDE, color_scheme="light")
        page = context.new_page()
        page.goto(link)
        page.wait_for_selector("main .screen")
        take(page, "now", SCREENS["now"])
        kept = context.storage_state()
        for path, name, size, scheme in OTHERS:
            other = browser.new_context(storage_state=kept, viewport=size, color_scheme=scheme).new_page()
            other.goto(f"{link.partition('/?')[0]}/#{path}")
            take(other, name, path)
        for name, path in SCREENS.items():
            if name != "now":
                take(page, name, path)
        browser.close()


def take(page: Any, name: str, path: str) -> None:
    page.evaluate("to => { location.hash = to }", path)
    page.mouse.move(0, 0)
    page.wait_for_selector(f'main[data-at="{path.partition("?")[0]}"]')
    page.wait_for_timeout(900)
    if name in PRESSED:
        page.locator(PRESSED[name]).first.click()
        page.mouse.move(0, 0)
        page.wait_for_timeout(600)
    page.screenshot(path=FOLDER / f"{name}.png")
    if page.locator("main .failure").count():
        sys.exit(f"docs/screens/{name}.png shows a problem: {page.locator('main .failure').inner_text()}")
    print(f"docs/screens/{name}.png")


if __name__ == "__main__":
    draw()
