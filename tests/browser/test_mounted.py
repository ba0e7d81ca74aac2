"""The dashboard below a prefix of another application, with the sign-in of that application."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from playwright.sync_api import expect
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.browser.actions import confirm
from timewright import Scheduler

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_a_mounted_dashboard_reads_and_writes_below_its_prefix(browser: Browser, tmp_path: Path) -> None:
    app = Scheduler(tmp_path / "app.db")
    app.schedules.create("hello", manual=True, note="hello")
    mounted = app.asgi(sign_in=lambda _: ("anna", "operator"))
    web = Starlette(routes=[Mount("/jobs", mounted)], lifespan=app.lifespan)
    failed: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(web, log_level="error", timeout_graceful_shutdown=1))
        serving = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        serving.start()
        page = browser.new_page()
        page.on("response", lambda one: failed.append(one.url) if one.status >= 400 else None)
        try:
            page.goto(f"http://127.0.0.1:{listening.getsockname()[1]}/jobs/#/schedules/hello")
            expect(page.locator(".status .live")).to_be_visible()
            expect(page.locator(".who .name")).to_have_text("anna")
            expect(page.get_by_role("button", name="sign out")).to_have_count(0)
            page.get_by_role("button", name="run now", exact=True).click()
            confirm(page, "run now")
            expect(page.locator("tr.row", has_text="succeeded").first).to_be_visible()
        finally:
            page.close()
            server.should_exit = True
            serving.join()
    assert failed == []
