"""Open incidents are acknowledged and snoozed, on a store with a week of history."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.actions import confirm, go
from tests.browser.conftest import APP, Site, serve

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("incidents")
    (folder / "handlers.py").write_text(APP)
    subprocess.run([sys.executable, "-m", "timewright", "demo"], cwd=folder, check=True, capture_output=True)
    yield from serve(folder, "demo.db")


def test_an_incident_is_acknowledged_and_another_is_snoozed(page: Page) -> None:
    expect(page.get_by_label("Open incidents", exact=True)).to_contain_text("backup-database")
    go(page, "/incidents")
    rows = page.get_by_role("table", name="Open incidents").locator("tr.row")
    first = rows.filter(has_text="backup-database").first
    first.get_by_role("button", name="acknowledge").click()
    expect(first).to_contain_text("acknowledged by")
    expect(first.get_by_role("button", name="snooze")).to_have_count(0)
    second = rows.filter(has_text="crm-export").first
    second.get_by_role("button", name="snooze").click()
    page.locator("dialog").get_by_label("For how long").fill("2h")
    confirm(page, "snooze")
    expect(second).to_contain_text("snoozed until")
