"""Navigation, sessions, forms and selections keep what the user expects, also when something is lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.actions import SCREENS, confirm, go, make, new_name, wish_of_an_agent
from tests.browser.conftest import LARGE_STORE, open_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.browser.conftest import Site

pytestmark = LARGE_STORE


def test_signing_out_signs_out_the_other_tabs(page: Page, site: Site) -> None:
    other = page.context.new_page()
    other.goto(f"{site.url}/#/runs")
    expect(other.locator(".status .live")).to_be_visible()
    page.get_by_role("button", name="sign out").first.click()
    expect(page.get_by_role("heading", name="You were signed out")).to_be_visible()
    expect(other.get_by_role("heading", name="You were signed out")).to_be_visible()
    expect(other.locator(".status .live")).to_have_count(0)


def test_an_expired_session_leads_back_to_the_same_page(page: Page, site: Site) -> None:
    name = make(site, "kept")
    go(page, f"/schedules/{name}")
    page.context.clear_cookies()
    go_without_data(page, f"/runs?schedule={name}")
    expect(page.get_by_role("heading", name="You were signed out")).to_be_visible()
    page.get_by_role("button", name="sign in").click()
    page.get_by_label("API key or sign-in link").fill("tw_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_have_text("API key missing or invalid.")
    page.get_by_label("API key or sign-in link").fill(site.key)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("h1")).to_have_text("Runs")
    assert f"schedule={name}" in page.url


def test_sessions_are_listed_and_ended(browser: Browser, page: Page, site: Site) -> None:
    for other in open_page(browser, site):
        go(page, "/settings")
        rows = page.get_by_label("Sessions", exact=True).locator("tbody tr")
        expect(rows.filter(has_text="this browser")).to_have_count(1)
        before = rows.count()
        rows.filter(has_not_text="this browser").first.get_by_role("button", name="end").click()
        confirm(page, "end")
        expect(rows).to_have_count(before - 1)
        other.reload()
        expect(other.get_by_label("API key or sign-in link")).to_be_visible()


def test_a_new_key_is_shown_alone_so_that_it_can_be_copied(page: Page) -> None:
    go(page, "/settings")
    page.get_by_role("button", name="new key").click()
    page.locator("dialog input[name=key]").fill(new_name("copied"))
    page.locator("dialog select[name=role]").select_option("operator")
    confirm(page, "create")
    expect(page.locator("dialog h2")).to_have_text("Your new key")
    assert " " not in page.locator("dialog code").inner_text().strip()


def go_without_data(page: Page, to: str) -> None:
    page.evaluate("to => { location.hash = to }", to)


def test_the_skip_link_moves_the_focus_and_stays_on_the_screen(page: Page) -> None:
    go(page, "/queues")
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    expect(page.locator("h1")).to_have_text("Queues")
    assert page.url.endswith("#/queues")


def test_a_screen_opens_while_the_server_is_unreachable(page: Page) -> None:
    go(page, "/overview")
    page.context.set_offline(True)
    go_without_data(page, "/workflows")
    expect(page.locator("h1")).to_have_text("Workflows")
    expect(page.get_by_role("alert")).to_contain_text("server does not respond")
    page.context.set_offline(False)
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_screen_that_cannot_be_loaded_is_asked_for_again_after_a_pause(page: Page, site: Site) -> None:
    missing = new_name("missing")
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url) if one.url.endswith(f"/{missing}") else None)
    go_without_data(page, f"/schedules/{missing}")
    expect(page.get_by_text(f"no schedule '{missing}'").first).to_be_visible()
    make(site, "noise")  # an event, as they arrive all the time on a busy installation
    page.wait_for_timeout(2500)
    assert 1 <= len(asked) <= 2


def test_an_edit_clears_what_was_cleared(page: Page, site: Site) -> None:
    name = make(site, "cleared", group="billing", jitter="30s", tags=["a"], description="old")
    go(page, f"/schedules/{name}/edit")
    for field in ("group", "jitter", "tags", "description"):
        page.locator(f"input[name={field}]").fill("")
    page.get_by_role("button", name="save").click()
    expect(page.locator("h1")).to_have_text(name)
    kept = site.api("GET", f"schedules/{name}")["schedule"]
    assert [kept[field] for field in ("group", "jitter", "tags", "description")] == [None, "0s", [], ""]


def test_a_selection_does_not_survive_a_filter(page: Page, site: Site) -> None:
    hidden, shown = make(site, "hidden"), make(site, "shown")
    go(page, f"/schedules?q={hidden}")
    page.get_by_label(f"Select {hidden}").check()
    expect(page.get_by_role("toolbar", name="Bulk actions")).to_contain_text("1 selected")
    go(page, f"/schedules?q={shown}")
    expect(page.locator("tbody tr")).to_contain_text(shown)
    expect(page.get_by_role("toolbar", name="Bulk actions")).to_have_count(0)


def test_a_selection_does_not_survive_a_namespace(page: Page, site: Site) -> None:
    name, other = make(site, "here"), new_name("there")
    site.api("POST", "namespaces", {"name": other})
    go(page, f"/schedules?q={name}")
    page.get_by_label(f"Select {name}").check()
    go(page, f"/schedules?q={name}&namespace={other}")
    expect(page.get_by_text("No matching schedules.")).to_be_visible()
    expect(page.get_by_role("toolbar", name="Bulk actions")).to_have_count(0)
    go(page, "/overview?namespace=default")


def test_the_overview_shows_nothing_of_the_namespace_before(page: Page, site: Site) -> None:
    place, name = wish_of_an_agent(site)
    go(page, f"/overview?namespace={place}")
    expect(page.get_by_label("Pending approvals")).to_contain_text(name)
    page.evaluate("""() => {
        const ask = window.fetch;
        const isHeld = url => String(url).includes('/api/v1/approvals');
        window.fetch = (url, init) => isHeld(url) ? new Promise(() => {}) : ask(url, init);
    }""")
    go(page, "/overview?namespace=default")
    expect(page.get_by_label("Pending approvals")).to_have_count(0)


def test_a_cut_selection_says_that_more_schedules_match(page: Page) -> None:
    go(page, "/schedules")
    page.get_by_label("Select all on this page").check()
    toolbar = page.get_by_role("toolbar", name="Bulk actions")
    toolbar.get_by_role("button", name="select all matching").click()
    expect(toolbar).to_contain_text("1000 selected, more match")


def test_both_archive_dialogs_say_the_same(page: Page, site: Site) -> None:
    name = make(site, "archived")
    go(page, f"/schedules?q={name}")
    page.get_by_label(f"Select {name}").check()
    page.get_by_role("toolbar", name="Bulk actions").get_by_role("button", name="archive").click()
    expect(page.locator("dialog")).to_contain_text("cannot be restored")
    page.keyboard.press("Escape")
    page.get_by_role("toolbar", name="Bulk actions").get_by_role("button", name="resume").click()
    expect(page.locator(".toast")).to_contain_text("none of the selected schedules can be changed this way")
    go(page, f"/schedules/{name}")
    page.get_by_role("button", name="archive", exact=True).click()
    expect(page.locator("dialog")).to_contain_text("cannot be restored")


def test_the_overview_and_its_health_agree_on_what_is_overdue(page: Page, site: Site) -> None:
    page.evaluate("""() => {
        const ask = window.fetch;
        window.fetch = async (url, init) => {
            const answer = await ask(url, init);
            if (!String(url).includes('/api/v1/now')) return answer;
            return new Response(JSON.stringify({...await answer.json(), late_by: '37s'}));
        };
    }""")
    go(page, "/schedules")
    go(page, "/overview")
    expect(page.get_by_role("alert")).to_contain_text("37 s")
    expect(page.get_by_label("Health")).to_contain_text("overdue")
    expect(page.get_by_label("Health")).not_to_contain_text("nothing is overdue")


BROKEN_WORDS = """() => {
    const broken = [];
    const walker = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
    const range = document.createRange();
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        if (node.parentElement.closest('pre, code, del, ins, svg, .hidden, .break, option')) continue;
        for (const word of node.data.matchAll(/[A-Z]?[a-z]{2,19}/g)) {
            range.setStart(node, word.index);
            range.setEnd(node, word.index + word[0].length);
            const tops = new Set([...range.getClientRects()].map(box => Math.round(box.top)));
            if (tops.size > 1) broken.push(word[0]);
        }
    }
    for (const code of document.querySelectorAll('.command code'))
        if (code.checkVisibility() && code.clientWidth < 140) broken.push(code.textContent);
    return broken;
}"""
INCIDENT = {
    "id": "inc_01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "severity": "fail",
    "sentence": "a-schedule-with-a-long-name: 2 runs are parked",
    "schedule": "a-schedule-with-a-long-name",
    "error": "no space left on device",
    "run": "run_01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "remedy": "timewright run reset run_01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "since": (datetime.now(UTC) - timedelta(days=2, hours=7)).isoformat(),
}


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_no_word_is_broken_inside(browser: Browser, site: Site, width: int) -> None:
    names = [make(site, "a-schedule-with-a-long-name", cron="0 9 * * mon-fri", every=None) for _ in range(2)]
    site.api("POST", f"schedules/{names[0]}/run", {})
    for page in open_page(browser, site, viewport={"width": width, "height": 900}):
        page.route("**/api/v1/incidents*", lambda route: route.fulfill(json={"incidents": [INCIDENT]}))
        for screen in (*SCREENS, f"schedules/{names[0]}", f"schedules/{names[0]}/edit"):
            go(page, f"/{screen}")
            assert page.evaluate(BROKEN_WORDS) == [], screen
