"""The overview, grid, failures, search and lists on a store with 5,000 schedules and 100,000 runs."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.actions import confirm, go
from tests.browser.conftest import log_in, serve_large
from tests.browser.large_store import EVENTS, FAILING, SCHEDULES, name_of

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import BrowserContext, Page

    from tests.browser.conftest import Site

MAX_BYTES_PER_30_S = 1_000_000


@pytest.fixture(scope="module")
def large(large_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    for site in serve_large(tmp_path_factory.mktemp("counted"), large_file):
        until = time.monotonic() + 60
        while not site.api("GET", "runs/counts")["counted_until"] and time.monotonic() < until:
            time.sleep(0.1)
        yield site


@pytest.fixture
def page(context: BrowserContext, large: Site) -> Iterator[Page]:
    yield from log_in(context, large)
    for other in context.pages:
        other.close()


def number(text: str) -> int:
    return int(re.sub(r"\D", "", text))


def test_the_overview_counts_all_runs_of_a_day_and_opens_the_runs_of_a_bar(page: Page, large: Site) -> None:
    go(page, "/overview")
    history = page.get_by_label("Runs over time", exact=True)
    expect(history.locator(".legend")).to_contain_text(f"{3 * FAILING} failed")
    total = large.api("GET", "runs/counts")["total"]
    assert total["succeeded"] > 90_000
    assert (
        number(history.locator(".legend span", has_text="succeeded").first.inner_text()) == total["succeeded"]
    )
    assert history.locator("figure.plotted").count() == 3
    assert page.get_by_label("Open incidents").or_(page.locator(".numbers")).first.is_visible()
    failures = history.get_by_label(re.compile("^Failures per"))
    failures.focus()
    page.keyboard.press("End")
    expect(history.locator(".picked-mark").nth(1)).to_contain_text("failed")
    page.keyboard.press("Enter")
    page.wait_for_selector('main[data-at="/runs"]')
    assert "since=" in page.url
    expect(page.locator("tbody tr").first).to_be_visible()
    page.go_back()
    page.get_by_role("button", name="hour", exact=True).click()
    expect(history.locator("figcaption").first).to_contain_text("Runs per minute")


def test_failures_are_grouped_by_cause_and_retried_in_place(page: Page, large: Site) -> None:
    go(page, "/overview")
    causes = page.get_by_label("Failures by cause")
    first = causes.locator("li").first
    expect(first).to_contain_text("ValueError: row # of batch # has no amount")
    expect(first).to_contain_text("3 times, since")
    name = first.locator("a").nth(1).inner_text()
    first.get_by_role("button", name="retry all").click()
    expect(page.locator("dialog")).to_contain_text("run retry-failures")
    confirm(page, "retry all")
    expect(causes.locator("li", has_text=name)).to_have_count(0)
    assert large.api("GET", f"runs/failures?schedule={name}")["causes"] == []
    other = causes.locator("li").first
    other_name = other.locator("a").nth(1).inner_text()
    other.get_by_role("button", name="pause", exact=True).click()
    confirm(page, "pause")
    expect(page.locator(".toast", has_text=f"paused: {other_name}")).to_be_visible()
    assert large.api("GET", f"schedules/{other_name}")["progress"]["state"] == "paused"


def test_the_grid_shows_failing_schedules_first_and_opens_a_run(page: Page) -> None:
    go(page, "/grid")
    panel = page.get_by_label("Runs by schedule", exact=True).first
    expect(panel).to_contain_text(f"of {SCHEDULES:,} schedules")
    strip = panel.locator("svg.cells").first
    assert "failed" in (strip.get_attribute("aria-label") or "")
    box = strip.bounding_box()
    assert box is not None
    found = page.evaluate(
        "() => { const d = document.querySelector('svg.cells path.fill-bad').getAttribute('d');"
        " const view = document.querySelector('svg.cells').viewBox.baseVal.width;"
        " return (parseFloat(d.slice(1)) + 4) / view; }"
    )
    page.mouse.click(box["x"] + box["width"] * found, box["y"] + box["height"] / 2)
    page.wait_for_selector('main[data-at^="/runs/"]')
    expect(page.locator(".lead .badge")).to_contain_text("failed")
    page.go_back()
    page.get_by_role("button", name="next page").click()
    expect(panel).to_contain_text("51 to 100 of")


def focused_cell(page: Page) -> str:
    """The label of the cell that has the focus, or the text of the name."""
    return str(
        page.evaluate("document.activeElement.ariaLabel || document.activeElement.textContent.slice(0, 60)")
    )


def test_the_grid_is_one_tab_stop_and_the_arrow_keys_walk_its_cells(page: Page) -> None:
    go(page, "/grid")
    grid = page.get_by_role("grid")
    first, second = (grid.locator(".grid-name a").nth(n).inner_text() for n in (0, 1))
    stop = grid.locator("[tabindex='0']")
    expect(stop).to_have_count(1)
    stop.focus()
    assert focused_cell(page) == first
    page.keyboard.press("End")
    newest = focused_cell(page)
    assert newest.startswith(f"{first} ")
    assert newest.endswith(": 1 failed")
    expect(page.locator(".legend")).to_contain_text(newest)
    page.keyboard.press("ArrowDown")
    assert focused_cell(page).startswith(f"{second} ")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    assert focused_cell(page) not in (newest, first)
    page.keyboard.press("ArrowRight")
    with page.expect_response("**/schedules/grid*"):
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(stop).to_have_count(1)
    expect(stop).to_be_focused()
    assert focused_cell(page) == newest
    page.keyboard.press("Enter")
    page.wait_for_selector('main[data-at^="/runs/"]')
    expect(page.locator(".lead .badge")).to_contain_text("failed")
    page.go_back()
    stop.focus()
    page.keyboard.press("Control+End")
    assert focused_cell(page).startswith(grid.locator(".grid-name a").last.inner_text())
    page.keyboard.press("Home")
    assert focused_cell(page) == grid.locator(".grid-name a").last.inner_text()


def test_one_box_finds_parts_of_names_tags_and_errors_and_runs_actions(page: Page, large: Site) -> None:
    wanted = name_of(4321)
    go(page, "/queues")
    page.keyboard.press("Control+k")
    box = page.get_by_role("combobox", name="Search everything")
    box.fill(wanted[-8:])
    option = page.locator("[role=option]", has_text=wanted).first
    expect(option).to_be_visible()
    page.keyboard.press("Enter")
    page.wait_for_selector(f'main[data-at="/schedules/{wanted}"]')
    for text, kind in (("team-3", "tag team-3"), ("has no AMOUNT", "run")):
        page.keyboard.press("Control+k")
        box.fill(text)
        expect(page.locator("[role=option]", has_text=kind).first).to_be_visible()
        page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    box.fill(f"pause {wanted}")
    expect(page.locator("[role=option]").first).to_contain_text(f"pause: {wanted}")
    page.keyboard.press("Enter")
    confirm(page, "pause")
    expect(page.locator(".toast")).to_contain_text(f"pause: {wanted}")
    assert large.api("GET", f"schedules/{wanted}")["progress"]["state"] == "paused"


def test_lists_say_their_totals_and_are_ordered_by_a_click(page: Page) -> None:
    go(page, "/schedules")
    expect(page.get_by_label("Schedules", exact=True)).to_contain_text(f"{SCHEDULES:,} schedules")
    page.get_by_role("button", name=re.compile("^Next")).click()
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("Next")
    expect(page.locator("tbody tr").first).to_contain_text("billing-load-0000")
    go(page, "/schedules?q=score-00")
    expect(page.locator("tbody tr").first).to_contain_text("score-00")
    go(page, "/runs")
    expect(page.get_by_label("Runs", exact=True)).to_contain_text("last 24 hours:")
    page.get_by_role("button", name="Delay").click()
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("Delay")


def test_a_paused_list_counts_new_runs_and_back_keeps_the_scroll_position(page: Page, large: Site) -> None:
    go(page, "/runs")
    page.get_by_role("button", name="pause", exact=True).click()
    expect(page.get_by_role("button", name="continue", exact=True)).to_be_visible()
    before = page.locator("tbody tr").first.inner_text()
    for _ in range(3):
        large.api("POST", f"schedules/{name_of(77)}/run", {"force": True})
    expect(page.get_by_role("button", name="3 new")).to_be_visible()
    assert page.locator("tbody tr").first.inner_text() == before
    page.get_by_role("button", name="3 new").click()
    expect(page.locator("tbody tr").first).to_contain_text(name_of(77))
    page.evaluate("scrollTo(0, 700)")
    page.locator("tbody tr a").nth(30).click()
    page.wait_for_selector('main[data-at^="/runs/"]')
    page.go_back()
    page.wait_for_selector('main[data-at="/runs"]')
    page.wait_for_function("Math.abs(scrollY - 700) < 60")


def test_the_forecast_counts_all_5000_schedules(page: Page) -> None:
    go(page, "/forecast")
    expect(page.locator(".lead").first).to_contain_text(
        re.compile(r"expected starts of 4,99\d|5,000 schedules")
    )


def test_a_screen_under_ten_events_a_second_takes_less_than_a_megabyte_in_30_s(
    page: Page, large: Site
) -> None:
    taken: dict[str, list[float]] = {}
    for screen in ("overview", "runs", "schedules", "grid"):
        other = page.context.new_page()
        other.goto(f"{large.url}/#/{screen}")
        other.wait_for_selector(f'main[data-at="/{screen}"]')
        wire = other.context.new_cdp_session(other)
        wire.send("Network.enable")
        sizes = taken[screen] = []
        wire.on("Network.loadingFinished", lambda event, to=sizes: to.append(event["encodedDataLength"]))
    large.api("POST", f"schedules/{EVENTS}/resume", {})
    page.wait_for_timeout(1500)  # what a screen loads first does not count
    for sizes in taken.values():
        sizes.clear()
    page.wait_for_timeout(6000)
    large.api("POST", f"schedules/{EVENTS}/pause", {})
    assert all(taken.values()), taken
    assert {
        screen: sum(sizes) * 5 for screen, sizes in taken.items() if sum(sizes) * 5 >= MAX_BYTES_PER_30_S
    } == {}
