"""Accessibility: labels, contrast, keyboard order, focus and reduced motion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.actions import SCREENS, go, make, manual, newest_run
from tests.browser.conftest import ONE_STORE, Site, open_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = ONE_STORE

UNLABELLED = """() => [...document.querySelectorAll('a[href], button, input, select, [role=img], svg[role]')]
    .filter(node => node.getClientRects().length && node.getAttribute('tabindex') !== '-1')
    .filter(node => {
        const label = node.closest('label') || (node.id && document.querySelector(`label[for=${node.id}]`));
        const name = node.getAttribute('aria-label') || (label && label.textContent) || node.textContent
            || node.getAttribute('title') || node.getAttribute('alt');
        return !name || !name.trim();
    }).map(node => node.outerHTML.slice(0, 120))"""

# The contrast of each text with the first opaque background behind it.
CONTRAST = """() => {
    const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
    const colour = text => {
        canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data]; };
    const linear = v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const light = ([r, g, b]) => [r, g, b].map(v => linear(v / 255))
        .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
    const ground = node => { for (let at = node; at; at = at.parentElement) {
        const found = colour(getComputedStyle(at).backgroundColor); if (found[3] > 250) return found; }
        return [255, 255, 255, 255]; };
    const texts = [...document.querySelectorAll('main *, nav *')].filter(node => node.getClientRects().length
        && !node.closest('svg') && [...node.childNodes].some(c => c.nodeType === 3 && c.data.trim()));
    const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const read = node => ratio(light(colour(getComputedStyle(node).color)), light(ground(node)));
    return texts.map(node => [read(node), node.className, node.textContent.slice(0, 40)])
        .filter(([ratio]) => ratio < 4.5);
}"""


CAPTIONS = "[...document.querySelectorAll('table')].every(t => t.caption && t.tHead)"


def screens_of(site: Site) -> list[str]:
    site.release()
    name = make(site, "everyone", description="for everyone", tags=["a", "b"])
    broken = manual(site, "broken")
    site.api("POST", f"schedules/{broken}/run", {})
    site.api("POST", "queues", {"queue": "mail", "payload": 1})
    more = [f"schedules/{name}", f"schedules/{name}/edit", f"runs/{newest_run(site, broken)}", "queues/mail"]
    return [*SCREENS, *more]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_control_has_a_label_and_enough_contrast(browser: Browser, site: Site, scheme: Any) -> None:
    for page in open_page(browser, site, color_scheme=scheme):
        for screen in screens_of(site):
            go(page, f"/{screen}")
            assert page.evaluate(UNLABELLED) == [], screen
            assert page.evaluate(CONTRAST) == [], screen
            assert page.locator("h1").count() == page.locator("main").count() == 1
            assert page.evaluate(CAPTIONS), screen


def test_tab_moves_from_the_skip_link_through_the_navigation(page: Page) -> None:
    go(page, "/queues")
    page.wait_for_function("document.activeElement.id === 'main'")
    page.locator(".skip").focus()
    walked = []
    for _ in range(11):
        walked.append(page.evaluate("document.activeElement.textContent.trim()"))
        page.keyboard.press("Tab")
    assert walked[0] == "Skip to content"
    places = [walked.index(name) for name in ("Timewright", "Overview", "Schedules", "Runs", "Queues")]
    assert places == sorted(places)


def test_the_focus_is_visible(page: Page) -> None:
    go(page, "/schedules")
    page.locator("nav.side a").first.focus()
    page.keyboard.press("Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_reduced_motion_disables_transitions(browser: Browser, site: Site) -> None:
    site.hold()
    name = manual(site, "slow")
    site.api("POST", f"schedules/{name}/run", {})
    for page in open_page(browser, site, reduced_motion="reduce"):
        go(page, "/overview")
        page.wait_for_selector(".elapsed > div")
        lengths = page.evaluate(
            "[...document.querySelectorAll('*')].map(n => getComputedStyle(n).transitionDuration)"
        )
        assert set(lengths) <= {"0s"}
    site.release()


def test_a_state_is_never_shown_by_colour_alone(page: Page, site: Site) -> None:
    go(page, "/schedules")
    bare = "[...document.querySelectorAll('.dot, .badge')].filter(n => !n.textContent.trim()).length"
    assert page.evaluate(bare) == 0
    assert page.locator(".strip").first.get_attribute("aria-label")


HEAT_CELLS = """() => {
    const row = document.createElement('tr');
    for (let level = 0; level <= 8; level++) {
        const cell = document.createElement('td');
        cell.className = `heat h${level}`;
        cell.textContent = '12';
        row.append(cell);
    }
    document.querySelector('table.heatmap tbody').append(row);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_level_of_the_heat_map_has_enough_contrast(browser: Browser, site: Site, scheme: Any) -> None:
    for page in open_page(browser, site, color_scheme=scheme):
        go(page, "/forecast")
        page.evaluate(HEAT_CELLS)
        assert page.evaluate(CONTRAST) == []


NESTED = "document.querySelectorAll('[role=img] a, [role=img] button, a a, a button, button a').length"
EMPTY_HEADERS = """[...document.querySelectorAll('th')]
    .filter(node => !node.textContent.trim() && !node.querySelector('input')).length"""
UNREACHABLE_SCROLL = """() => [...document.querySelectorAll('.scroll, pre')]
    .filter(node => node.scrollWidth > node.clientWidth + 1 || node.scrollHeight > node.clientHeight + 1)
    .filter(node => node.tabIndex < 0 && !node.querySelector('a, button, input')).length"""


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_controls_are_not_nested_headers_have_text_and_scroll_areas_take_the_focus(
    browser: Browser, site: Site, width: int
) -> None:
    flow = {"steps": [{"name": "first", "target": {"kind": "note", "text": "a"}}]}
    site.api("PUT", "workflows/graphed", flow)
    site.api("POST", "workflows/graphed/run", {})
    for page in open_page(browser, site, viewport={"width": width, "height": 900}):
        for screen in (*screens_of(site), "workflows/graphed"):
            go(page, f"/{screen}")
            assert page.evaluate(NESTED) == 0, screen
            assert page.evaluate(EMPTY_HEADERS) == 0, screen
            assert page.evaluate(UNREACHABLE_SCROLL) == 0, screen


LABELLED_FIRST_CELLS = """() => [...document.querySelectorAll('tbody tr')]
    .map(row => [...row.cells].find(cell => cell.dataset.name))
    .filter(cell => cell && getComputedStyle(cell, '::before').content !== 'none')
    .map(cell => cell.dataset.name)"""


def test_on_a_phone_the_first_column_has_no_label_and_the_others_have_theirs(
    browser: Browser, site: Site
) -> None:
    for page in open_page(browser, site, viewport={"width": 390, "height": 800}):
        for screen in screens_of(site):
            go(page, f"/{screen}")
            assert page.evaluate(LABELLED_FIRST_CELLS) == [], screen
        go(page, "/runs")
        label = "getComputedStyle(document.querySelector('td[data-name=Planned]'), '::before').content"
        assert page.evaluate(label) == '"Planned"'
