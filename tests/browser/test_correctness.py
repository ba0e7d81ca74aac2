"""What the dashboard shows agrees with the server: approvals, output, delays, counts and previews."""

from __future__ import annotations

import re
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.actions import confirm, go, make, manual, new_name, newest_run
from tests.browser.conftest import ONE_STORE

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.conftest import Site

pytestmark = ONE_STORE


def test_an_approval_shows_the_whole_target_before_it_is_given(page: Page, site: Site) -> None:
    place, name, budget = new_name("agents"), new_name("wipe"), new_name("money")
    site.api("POST", "namespaces", {"name": place, "agent_approval": True})
    agent = {"key": name, "role": "admin", "origin": "agent", "within": [place]}
    key = site.api("POST", "keys", agent)["token"]
    person = site.api("POST", "keys", {**agent, "key": f"{name}-person", "origin": "human"})["token"]
    site.ask("PUT", f"/api/v1/budgets/{budget}", {"unit": "tokens", "limit": 10}, key=person)
    wish = {
        "name": name,
        "every": "1h",
        "budgets": [budget],
        "http": {
            "method": "POST",
            "url": "https://example.com/wipe",
            "headers": {"X-Confirm": "yes"},
            "body": {"paths": ["/srv/data"]},
        },
    }
    site.ask("POST", "/api/v1/schedules", wish, key=key)
    shown = ("POST https://example.com/wipe", "X-Confirm", "/srv/data", budget)
    go(page, f"/overview?namespace={place}")
    listed = page.get_by_label("Pending approvals").locator("li", has_text=name)
    for text in shown:
        expect(listed).to_contain_text(text)
    expect(listed.locator("ol.next time")).to_have_count(5)
    listed.get_by_role("link", name=name).click()
    for text in shown:
        expect(page.get_by_label("Requested")).to_contain_text(text)
    page.get_by_role("button", name="approve", exact=True).click()
    for text in shown:
        expect(page.locator("dialog")).to_contain_text(text)
    expect(page.locator("dialog ol.next time")).to_have_count(5)
    confirm(page, "approve")
    expect(page.locator(".lead .badge")).to_contain_text("active")


SLOW_LOGS = """() => {
    const ask = window.fetch;
    window.fetch = async (url, init) => {
        const answer = await ask(url, init);
        if (String(url).includes('/logs')) await new Promise(done => setTimeout(done, 700));
        return answer;
    };
}"""


def test_each_line_of_output_is_shown_once_while_two_readers_overlap(page: Page, site: Site) -> None:
    name = manual(site, "talkative")
    page.evaluate(SLOW_LOGS)
    site.api("POST", f"schedules/{name}/run", {})
    go(page, f"/runs/{newest_run(site, name)}")
    expect(page.locator(".lead .badge")).to_contain_text("succeeded")
    output = page.get_by_label("Output", exact=True).locator("pre")
    expect(output).to_contain_text("line 59 of 60")
    assert len(output.inner_text().strip().splitlines()) == 60


@contextmanager
def busy(site: Site, *, per_second: float) -> Iterator[None]:
    """Start runs in the background, each of which causes several events."""
    name, ended = make(site, "busy", overlap="allow"), threading.Event()

    def start_runs() -> None:
        while not ended.wait(1 / per_second):
            site.api("POST", f"schedules/{name}/run", {})

    thread = threading.Thread(target=start_runs)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_a_new_run_is_shown_within_half_a_second_at_ten_events_a_second(page: Page, site: Site) -> None:
    go(page, "/runs")
    expect(page.locator(".status .live")).to_be_visible()
    delays = []
    with busy(site, per_second=10):
        for _ in range(5):
            name = make(site, "seen")
            site.api("POST", f"schedules/{name}/run", {})
            started = time.monotonic()
            page.wait_for_selector(f"tbody >> text={name}")
            delays.append(time.monotonic() - started)
    assert statistics.median(delays) < 0.5, delays


def test_the_page_says_how_far_it_is_behind(page: Page, site: Site) -> None:
    name = make(site, "delayed")
    go(page, "/runs")
    expect(page.locator(".status .live")).to_have_text("● live")
    page.evaluate("() => { window.fetch = () => new Promise(() => {}) }")
    site.api("POST", f"schedules/{name}/run", {})
    expect(page.locator(".status")).to_contain_text("s behind")


def test_a_retry_counts_as_duration_and_not_as_delay(page: Page, site: Site) -> None:
    retry = {"max_attempts": 2, "backoff": {"kind": "constant", "wait": "3s"}}
    name = new_name("flaky")
    site.api("POST", "schedules", {"name": name, "manual": True, "call": "flaky", "retry": retry})
    site.api("POST", f"schedules/{name}/run", {})
    go(page, f"/runs?schedule={name}&state=succeeded")
    row = page.locator("tbody tr", has_text=name)
    expect(row).to_contain_text("succeeded")
    expect(row.locator('td[data-name="Delay"]')).to_contain_text("ms")
    expect(row.locator('td[data-name="Duration"]')).to_contain_text(re.compile(r"^[3-9]\.\d s$"))
    go(page, f"/runs/{newest_run(site, name)}")
    start = page.get_by_label("Details").locator("dt", has_text="start delay").locator("+ dd")
    expect(start).to_contain_text("ms")


def test_runs_that_wait_for_a_worker_process_do_not_count_as_running(page: Page, site: Site) -> None:
    site.hold()
    name = manual(site, "slow", overlap="allow")
    before = site.api("GET", "now")["numbers"]
    for _ in range(7):
        site.api("POST", f"schedules/{name}/run", {})
    go(page, "/overview")
    figures = page.locator(".numbers li")
    expect(figures.filter(has_text="Running").locator("strong")).to_have_text("2")
    waiting = figures.filter(has_text="Waiting").locator("strong")
    expect(waiting).to_have_text(str(before["waiting"] + 5))
    expect(page.get_by_label("Running").locator("li", has_text=name)).to_have_count(2)
    site.release()
    expect(figures.filter(has_text="Running").locator("strong")).to_have_text("0")
    site.hold()
