"""What the browser tests do: create schedules, open screens and confirm dialogs."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.conftest import Site

SCREENS = (
    "overview",
    "schedules",
    "runs",
    "grid",
    "queues",
    "workflows",
    "forecast",
    "planner",
    "instances",
    "audit",
    "settings",
    "incidents",
    "create",
)


def new_name(kind: str) -> str:
    return f"{kind}-{uuid4().hex[:6]}"


def make(site: Site, kind: str, **fields: object) -> str:
    name = new_name(kind)
    site.api("POST", "schedules", {"name": name, **({"every": "1h", "note": "hello"} | fields)})
    return name


def manual(site: Site, function: str, **fields: object) -> str:
    name = new_name(function)
    site.api(
        "POST", "schedules", {"name": name, "manual": True, "call": function, "max_attempts": 1, **fields}
    )
    return name


def wish_of_an_agent(site: Site) -> tuple[str, str]:
    """A schedule that an agent made and that waits for approval; returns its namespace and its name."""
    place, name = new_name("agents"), new_name("wish")
    site.api("POST", "namespaces", {"name": place, "agent_approval": True})
    agent = {"key": name, "role": "editor", "origin": "agent", "within": [place]}
    key = site.api("POST", "keys", agent)["token"]
    site.ask("POST", "/api/v1/schedules", {"name": name, "every": "1h", "note": "x"}, key=key)
    return place, name


def go(page: Page, to: str) -> None:
    """Open a screen and wait until it shows its data."""
    page.evaluate("to => { location.hash = to }", to)
    page.wait_for_selector(f'main[data-at="{to.partition("?")[0]}"]')


def confirm(page: Page, act: str) -> None:
    page.locator("dialog").get_by_role("button", name=act, exact=True).click()


def newest_run(site: Site, schedule: str) -> str:
    return str(site.api("GET", f"runs?schedule={schedule}&limit=1")["runs"][0]["id"])
