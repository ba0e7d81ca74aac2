"""Accessibility: labels, contrast, keyboard order, focus and reduced motion."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser.actions import SCREENS, go, make, manual, newest_run
from tests.browser.conftest import ONE_STORE, Site, open_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = ONE_STORE

CAPTIONS = "[...document.querySelectorAll('table')].every(t => t.caption && t.tHead)"


DETAILS = ("schedule", "schedule form", "run", "queue", "workflow", "dialog")


@pytest.fixture(scope="module")
def shown(site: Site) -> dict[str, str]:
    """Create something to show on every screen; returns where each screen is."""
    site.release()
    name = make(site, "everyone", description="for everyone", tags=["a", "b"])
    broken = manual(site, "broken")
    site.api("POST", f"schedules/{broken}/run", {})
    site.api("POST", "queues", {"queue": "mail", "payload": 1})
    note = {"target": {"kind": "note", "text": "a"}}
    items = {"name": "load", "each": {"$from": "input.files"}, "needs": ["first"], **note}
    site.api(
        "PUT", "workflows/graphed", {"steps": [{"name": "first", **note}, items], "input": {"files": []}}
    )
    site.api("POST", "workflows/graphed/run", {"input": {"files": [1, 2, 3, 4, 5]}})
    run = newest_run(site, broken)
    details = (f"schedules/{name}", f"schedules/{name}/edit", f"runs/{run}", "queues/mail")
    paths = (*details, "workflows/graphed", "workflows/graphed")
    return {screen: screen for screen in SCREENS} | dict(zip(DETAILS, paths, strict=True))


@pytest.fixture(scope="module")
def axe_page(browser: Browser, site: Site) -> Iterator[Page]:
    """A page with axe, which goes from screen to screen."""
    for page in open_page(browser, site):
        page.evaluate(Axe().axe_script)
        yield page


# Every level of the heat map, every colour of a state and a full gauge, whatever the store holds.
COLOURS = """() => {
    const row = document.createElement('tr');
    for (let level = 0; level <= 8; level++) {
        const cell = document.createElement('td');
        cell.className = `heat h${level}`;
        cell.textContent = '12';
        row.append(cell);
    }
    document.querySelector('table.heatmap tbody').append(row);
    for (const kind of ['good', 'bad', 'warn', 'busy', 'wait', 'stop', 'gone', 'mute']) {
        const badge = document.createElement('span');
        badge.className = `badge ${kind}`;
        badge.textContent = kind;
        document.querySelector('main').append(badge);
    }
    for (const kind of ['', 'full']) {
        const gauge = document.createElement('div'), bar = document.createElement('div');
        const text = document.createElement('span');
        gauge.className = 'gauge';
        bar.className = kind;
        bar.style.height = '20px';
        text.textContent = '1 of 1';
        gauge.append(bar, text);
        document.querySelector('main').append(gauge);
    }
}"""
# The result of axe without what it does not decide, because that is large.
AXE = """async ([only, rules]) =>
    (await axe.run(only || document, {resultTypes: ['violations'], preload: false, ...rules}))
    .violations.map(one => `${one.id}: ${one.nodes[0].html.slice(0, 160)} ${one.nodes[0].failureSummary}`)"""
# Colours take axe the longest, and rows of a table look alike: of the elements with text, mark the first one
# of each look, which is its style and its place: the elements around it with their classes and states.
LOOKS = """() => {
    const looks = new Set();
    const states = /^(class|type|disabled|aria-(current|pressed|selected|invalid)|data-tone)$/;
    const place = node => !node ? '' : place(node.parentElement) + node.nodeName
        + [...node.attributes].filter(one => states.test(one.name)).map(one => `[${one.name}=${one.value}]`);
    const styled = (node, style = getComputedStyle(node)) =>
        [style.color, style.backgroundColor, style.fontSize, style.fontWeight, style.opacity];
    const hasText = node => node.matches('input, select, textarea')
        || [...node.childNodes].some(one => one.nodeType === 3 && one.data.trim());
    for (const node of document.querySelectorAll('body *')) {
        delete node.dataset.look;
        if (!hasText(node) || !node.checkVisibility()) continue;
        const look = place(node) + styled(node);
        if (looks.has(look)) continue;
        looks.add(look);
        node.dataset.look = '';
    }
    return '[data-look]';
}"""
COLOURS_ONLY = {"runOnly": ["color-contrast", "link-in-text-block"]}
WITHOUT_COLOURS = {"rules": {name: {"enabled": False} for name in COLOURS_ONLY["runOnly"]}}


def axe_findings(page: Page) -> list[str]:
    """What axe finds at three widths in both colour schemes; only colours differ in the dark one."""
    found: list[str] = []
    for width in (1440, 1024, 390):
        page.set_viewport_size({"width": width, "height": 900})
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme)
            looks = page.evaluate(LOOKS)
            found += [f"{scheme}, {width}: {one}" for one in page.evaluate(AXE, [looks, COLOURS_ONLY])]
        found += [f"{width}: {one}" for one in page.evaluate(AXE, [None, WITHOUT_COLOURS])]
    return found


@pytest.mark.parametrize("screen", [*SCREENS, *DETAILS])
def test_axe_finds_nothing_in_light_and_dark_at_three_widths(
    axe_page: Page, shown: dict[str, str], screen: str
) -> None:
    go(axe_page, f"/{shown[screen]}")
    if screen == "forecast":
        axe_page.evaluate(COLOURS)
    elif screen == "overview":
        axe_page.get_by_label("Health").wait_for()
    elif screen == "dialog":
        axe_page.get_by_role("button", name="run now").click()
    assert axe_findings(axe_page) == []
    assert axe_page.locator("h1").count() == axe_page.locator("main").count() == 1
    assert axe_page.evaluate(CAPTIONS)
    axe_page.keyboard.press("Escape")


def test_axe_finds_nothing_on_the_sign_in_page(browser: Browser, site: Site) -> None:
    for page in open_page(browser, site):
        page.context.clear_cookies()
        page.reload()
        page.get_by_label("API key or sign-in link").wait_for()
        page.evaluate(Axe().axe_script)
        assert axe_findings(page) == []


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


STATES = ("succeeded", "failed", "parked", "leased", "ready", "skipped", "cancelled", "missed")
LOOKS_OF_STATES = """async states => {
    const [{ badge }, { cellPath }] =
        await Promise.all([import('/v/0/base/states.js'), import('/v/0/charts/cells.js')]);
    const badges = states.map(state => document.querySelector('main').appendChild(badge(state)));
    const found = [badges.map(node => getComputedStyle(node).color),
        badges.map(node => node.querySelector('.sign').textContent), states.map(one => cellPath(one, 0, 9))];
    for (const node of badges) node.remove();
    return found;
}"""


def test_each_state_has_its_own_colour_sign_and_shape(page: Page) -> None:
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for looks in page.evaluate(LOOKS_OF_STATES, STATES):
            assert len(set(looks)) == len(STATES), looks


LABELLED_FIRST_CELLS = """() => [...document.querySelectorAll('tbody tr')]
    .map(row => [...row.cells].find(cell => cell.dataset.name))
    .filter(cell => cell && getComputedStyle(cell, '::before').content !== 'none')
    .map(cell => cell.dataset.name)"""


def test_on_a_phone_the_first_column_has_no_label_and_the_others_have_theirs(
    browser: Browser, site: Site, shown: dict[str, str]
) -> None:
    for page in open_page(browser, site, viewport={"width": 390, "height": 800}):
        for screen in shown.values():
            go(page, f"/{screen}")
            assert page.evaluate(LABELLED_FIRST_CELLS) == [], screen
        go(page, "/runs")
        label = "getComputedStyle(document.querySelector('td[data-name=Planned]'), '::before').content"
        assert page.evaluate(label) == '"Planned"'
