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
