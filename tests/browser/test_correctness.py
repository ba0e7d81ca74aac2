"""What the dashboard shows agrees with the server: approvals, output, delays, counts and previews."""

from __future__ import annotations

import re
import statistics
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.actions import confirm, go, make, manual, new_name, newest_run
from tests.browser.conftest import LARGE_STORE, log_in, new_context

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.browser.conftest import Site

pytestmark = LARGE_STORE


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


# Counts the events, and delivers the four events of a run 0.1 s apart, so that no moment is quiet.
SPREAD_EVENTS = """(() => {
    window.eventCount = 0;
    const add = EventSource.prototype.addEventListener;
    EventSource.prototype.addEventListener = function (kind, call) {
        add.call(this, kind, event => {
            setTimeout(() => call(event), 100 * (window.eventCount % 4));
            window.eventCount += 1;
        });
    };
})()"""
# At 10 events a second a page that waits for a quiet moment shows a run only when it polls, after up to 160.
MAX_EVENTS_BEFORE_SHOWN = 30


def test_a_new_run_is_shown_soon_while_ten_events_a_second_arrive(page: Page, site: Site) -> None:
    """How soon in seconds is measured by `benchmarks live-pages`."""
    page.add_init_script(SPREAD_EVENTS)
    page.goto(f"{site.url}/#/runs")
    page.reload()
    page.wait_for_function("() => window.eventCount > 10")
    counts = []
    for _ in range(5):
        name = make(site, "seen")
        before = page.evaluate("eventCount")
        site.api("POST", f"schedules/{name}/run", {})
        page.wait_for_selector(f"tbody >> text={name}")
        counts.append(page.evaluate("eventCount") - before)
    assert statistics.median(counts) < MAX_EVENTS_BEFORE_SHOWN, counts


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
    expect(row.locator('td[data-name="Duration"]')).to_contain_text(re.compile(r"^[3-9](\.\d)? s$"))
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


def test_a_skipped_occurrence_shows_its_reason(page: Page, site: Site) -> None:
    site.hold()
    name = new_name("skipping")
    site.api("POST", "schedules", {"name": name, "every": "1s", "call": "slow", "overlap": "skip"})
    go(page, f"/runs?schedule={name}&state=skipped")
    page.locator("tbody tr", has_text=name).first.locator("a").first.click()
    expect(page.get_by_label("Why")).to_contain_text("overlap")
    expect(page.get_by_label("Attempts", exact=True)).to_contain_text("it did not start")
    expect(page.locator(".marks")).to_have_text(re.compile("planned.*skipped"))
    site.release()
    site.api("POST", f"schedules/{name}/archive", {})


CLOCK_OF_YESTERDAY = "(() => { const real = Date.now; Date.now = () => real() - 86_400_000; })()"
DISTANCES = "[...document.querySelectorAll('time[data-away]')].map(node => node.textContent)"


def test_a_browser_with_a_wrong_clock_shows_the_times_of_the_server(browser: Browser, site: Site) -> None:
    site.hold()
    name = manual(site, "slow")
    site.api("POST", f"schedules/{name}/run", {})
    site.api("POST", "queues", {"queue": name, "payload": 1})
    context = new_context(browser)
    for signed_in in log_in(context, site):
        for screen in (f"runs/{newest_run(site, name)}", f"queues/{name}", "instances", "settings"):
            page = signed_in.context.new_page()
            page.add_init_script(CLOCK_OF_YESTERDAY)
            page.goto(f"{site.url}/#/{screen}")
            page.wait_for_selector(f'main[data-at="/{screen}"] time[data-away]')
            assert [text for text in page.evaluate(DISTANCES) if re.match(r"(in )?(1 d|23 h)", text)] == []
            expect(page.locator(".status")).to_contain_text(
                re.compile(r"this browser's clock is (24 h|1 d) slow")
            )
            page.close()
    context.close()
    site.release()


def test_a_workflow_shows_a_manual_run_also_after_hundreds_of_newer_runs(page: Page, site: Site) -> None:
    name = new_name("flow")
    site.api(
        "PUT", f"workflows/{name}", {"steps": [{"name": "one", "target": {"kind": "note", "text": "a"}}]}
    )
    run = site.api("POST", f"workflows/{name}/run", {})["run"]["id"]
    site.api("POST", "queues", {"queue": name, "payloads": list(range(250))})
    go(page, f"/workflows/{name}")
    expect(page.get_by_label("Runs", exact=True).locator("tbody tr")).to_have_count(1)
    expect(page.get_by_role("link", name="show run")).to_have_attribute("href", f"#/runs/{run}")
