"""Operator tasks in the dashboard, in a real browser, on both stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.actions import SCREENS, confirm, go, make, manual, new_name, newest_run
from tests.browser.conftest import ONE_STORE, Site, open_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


def test_the_form_previews_the_next_occurrences_of_a_new_schedule(page: Page, site: Site) -> None:
    name = new_name("made")
    go(page, "/create")
    page.locator("input[name=name]").fill(name)
    page.locator("select[name=when]").select_option("cron")
    page.locator("input[name=cron]").fill("0 9 * * mon-fri")
    page.locator("input[name=zone]").fill("Europe/Berlin")
    page.locator("[name='target.text']").fill("good morning")
    expect(page.get_by_text("at 09:00 on Monday through Friday")).to_be_visible()
    coming = page.get_by_role("table", name="Next occurrences")
    expect(coming.locator("tbody tr")).to_have_count(10)
    around = page.get_by_role("table", name="Occurrences around the clock change")
    expect(around.locator("tbody tr")).to_have_count(4)
    page.get_by_role("button", name="create", exact=True).click()
    expect(page.locator("h1")).to_have_text(name)
    assert site.api("GET", f"schedules/{name}")["schedule"]["trigger"]["zone"] == "Europe/Berlin"
    expect(page.get_by_text("09:00 Europe/Berlin").first).to_be_visible()
    go(page, "/schedules")
    expect(page.locator(".zone", has_text="09:00 Europe/Berlin").first).to_be_visible()


@ONE_STORE
def test_a_phrase_is_read_while_it_is_typed_and_shows_both_sides_of_a_clock_change(
    page: Page, site: Site
) -> None:
    name = new_name("spoken")
    go(page, "/create")
    page.locator("input[name=name]").fill(name)
    page.locator("input[name=words]").fill("every blue moon")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.locator("input[name=words][aria-invalid]")).to_be_visible()
    page.locator("input[name=words]").fill("weekdays at 9am")
    page.locator("input[name=zone]").fill("Europe/Berlin")
    expect(page.get_by_text("at 09:00 on Monday through Friday")).to_be_visible()
    expect(page.locator("input[aria-invalid]")).to_have_count(0)
    expect(page.get_by_role("table", name="Occurrences around the clock change")).to_contain_text("before")
    page.locator("[name='target.text']").fill("good morning")
    page.get_by_role("button", name="create", exact=True).click()
    expect(page.locator("h1")).to_have_text(name)
    assert site.api("GET", f"schedules/{name}")["schedule"]["trigger"]["zone"] == "Europe/Berlin"


@ONE_STORE
def test_an_invalid_cron_expression_is_reported_while_typing(page: Page) -> None:
    go(page, "/create")
    page.locator("select[name=when]").select_option("cron")
    page.locator("input[name=cron]").fill("0 0 31 2 *")
    expect(page.get_by_role("alert")).to_contain_text("never fires")


def test_an_edit_creates_a_revision_with_its_reason(page: Page, site: Site) -> None:
    name = make(site, "edited")
    go(page, f"/schedules/{name}/edit")
    page.locator("input[name=every]").fill("2h")
    expect(page.get_by_text("every 2 h", exact=True)).to_be_visible()
    page.locator("input[name=reason]").fill("half as often")
    page.get_by_role("button", name="save").click()
    expect(page.locator("h1")).to_have_text(name)
    expect(page.get_by_label("Revisions")).to_contain_text("half as often")
    expect(page.get_by_label("Revisions")).to_contain_text("r2")


def test_a_schedule_is_paused_and_resumed(page: Page, site: Site) -> None:
    name = make(site, "paused")
    go(page, f"/schedules/{name}")
    page.get_by_role("button", name="pause", exact=True).click()
    page.get_by_role("button", name="4 hours").click()
    expect(page.locator("dialog code")).to_contain_text(f"timewright schedule pause {name} --until 20")
    confirm(page, "pause")
    expect(page.locator(".lead .badge")).to_contain_text("paused")
    assert site.api("GET", f"schedules/{name}")["progress"]["paused_until"]
    page.get_by_role("button", name="resume", exact=True).click()
    confirm(page, "resume")
    expect(page.locator(".lead .badge")).to_contain_text("active")


def test_a_group_is_paused_from_the_overview_and_a_banner_says_so(page: Page, site: Site) -> None:
    group = new_name("group")
    name = make(site, "grouped", group=group)
    go(page, "/overview")
    page.get_by_role("button", name="pause all").click()
    page.locator("dialog select[name=scope]").select_option("group")
    page.locator("dialog input[name=name]").fill(group)
    page.locator("dialog input[name=reason]").fill("wrong numbers")
    expect(page.locator("dialog code")).to_contain_text(f"pause --scope group --name {group}")
    confirm(page, "pause")
    banner = page.locator(".paused", has_text=f"Paused: group {group}")
    expect(banner).to_contain_text("wrong numbers")
    assert site.api("GET", f"schedules/{name}")["paused_by"].startswith(f"group {group} by ")
    banner.locator(".line", has_text=group).get_by_role("button", name="resume").click()
    confirm(page, "resume")
    expect(banner).to_have_count(0)


@ONE_STORE
def test_a_channel_is_changed_and_deleted(page: Page, site: Site) -> None:
    site.api("POST", "channels", {"channel": "ops", "to": "https://example.com/hook"})
    go(page, "/incidents")
    row = page.get_by_label("Channels").locator("tbody tr", has_text="ops")
    row.get_by_role("button", name="change").click()
    page.locator("dialog input[name=kinds]").fill("failed, late")
    confirm(page, "change")
    expect(row).to_contain_text("incident, failed, late")
    (channel,) = site.api("GET", "channels")["channels"]
    assert (channel["channel"]["kinds"], channel["channel"]["to"]["url"]) == (
        ["failed", "late"],
        "https://example.com/hook",
    )
    row.get_by_role("button", name="delete").click()
    confirm(page, "delete")
    expect(page.get_by_text("Nobody is told")).to_be_visible()


def test_a_manual_run_is_shown_until_it_succeeds(page: Page, site: Site) -> None:
    name = make(site, "run")
    go(page, f"/schedules/{name}")
    page.get_by_role("button", name="run now").click()
    confirm(page, "run now")
    expect(page.get_by_label("Runs").locator("tbody")).to_contain_text("succeeded")


def test_a_running_run_is_shown_and_cancelled(page: Page, site: Site) -> None:
    site.hold()
    name = manual(site, "slow")
    site.api("POST", f"schedules/{name}/run", {})
    go(page, "/overview")
    expect(page.get_by_label("Running")).to_contain_text(name)
    go(page, f"/runs/{newest_run(site, name)}")
    expect(page.locator(".lead .badge")).to_contain_text("running")
    expect(page.locator(".marks")).to_contain_text("started")
    page.get_by_role("button", name="cancel", exact=True).click()
    confirm(page, "cancel")
    expect(page.locator(".lead .badge")).to_contain_text("cancelled")


def test_a_failed_run_shows_its_error_and_is_retried(page: Page, site: Site) -> None:
    name = manual(site, "broken")
    site.api("POST", f"schedules/{name}/run", {})
    go(page, f"/runs/{newest_run(site, name)}")
    expect(page.locator(".lead .badge")).to_contain_text("failed")
    expect(page.get_by_label("Error", exact=True)).to_contain_text("the disk is full")
    page.get_by_role("button", name="retry", exact=True).click()
    confirm(page, "retry")
    expect(page.get_by_label("Attempts").locator("tbody tr")).to_have_count(2)


def test_a_parked_run_is_reset(page: Page, site: Site) -> None:
    name = manual(site, "broken", exhausted="park")
    site.api("POST", f"schedules/{name}/run", {})
    go(page, f"/runs/{newest_run(site, name)}")
    expect(page.locator(".lead .badge")).to_contain_text("parked")
    page.get_by_role("button", name="reset", exact=True).click()
    confirm(page, "reset")
    expect(page.get_by_label("Attempts").locator("tbody tr")).to_have_count(2)


def test_filters_are_part_of_the_address(page: Page, site: Site) -> None:
    name = make(site, "found")
    go(page, f"/schedules?q={name}")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("button", name="paused", exact=True).click()
    expect(page.get_by_text("No matching schedules.")).to_be_visible()
    assert "state=paused" in page.url


def test_the_dashboard_works_with_the_keyboard_alone(page: Page, site: Site) -> None:
    name = make(site, "keys")
    page.keyboard.press("2")
    expect(page.locator("h1")).to_have_text("Schedules")
    expect(page.locator("input[data-search]")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type(name)
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.get_by_role("toolbar", name="Bulk actions")).to_contain_text("1 selected")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text(name)
    page.keyboard.press("?")
    expect(page.locator("dialog")).to_contain_text("next or previous row")
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)


@ONE_STORE
def test_no_screen_is_wider_than_a_phone(browser: Browser, site: Site) -> None:
    name = make(site, "narrow", description="x" * 300)
    for page in open_page(browser, site, viewport={"width": 390, "height": 800}):
        for screen in (*SCREENS, f"schedules/{name}"):
            go(page, f"/{screen}")
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, screen


@ONE_STORE
def test_the_page_follows_the_colour_scheme(browser: Browser, site: Site) -> None:
    for scheme, dark in (("dark", True), ("light", False)):
        for page in open_page(browser, site, color_scheme=scheme):
            colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (brightness(colour) < 0.2) is dark


def brightness(colour: str) -> float:
    parts = [int(float(part)) for part in colour.partition("(")[2].rstrip(")").split(",")[:3]]
    return sum(parts) / 3 / 255


def test_a_viewer_sees_no_write_buttons_and_writes_are_refused(browser: Browser, site: Site) -> None:
    name = make(site, "looked-at")
    viewer = site.api("POST", "keys", {"key": new_name("viewer"), "role": "viewer"})["token"]
    for page in open_page(browser, site, key=str(viewer)):
        go(page, f"/schedules/{name}")
        expect(page.locator("h1")).to_have_text(name)
        expect(page.get_by_role("button", name="pause", exact=True)).to_have_count(0)
        expect(page.get_by_role("link", name="New schedule")).to_have_count(0)
        status = page.evaluate(
            """async name => {
                const session = await (await fetch('/session')).json();
                const headers = {'timewright-csrf': session.csrf, 'content-type': 'application/json'};
                const path = `/api/v1/schedules/${name}/pause`;
                return (await fetch(path, {method: 'POST', headers, body: '{}'})).status;
            }""",
            name,
        )
        assert status == 403


def test_a_write_without_the_csrf_token_is_refused(page: Page, site: Site) -> None:
    name = make(site, "forged")
    status = page.evaluate(
        """async name => (await fetch(`/api/v1/schedules/${name}/pause`, {
            method: 'POST', headers: {'content-type': 'application/json'}, body: '{}'})).status""",
        name,
    )
    assert status == 403


MARKUP = "<img src=x onerror='window.hit=1'><script>window.hit=1</script>"


@ONE_STORE
def test_user_text_is_never_markup_and_does_not_overflow(page: Page, site: Site) -> None:
    texts = (MARKUP, "\u202eevil\u202c" + "a" * 5000, "</title><svg onload=window.hit=1>")
    names = [make(site, "hostile", description=text[:2000], note=text) for text in texts]
    for name in names:
        site.api("POST", f"schedules/{name}/run", {})
    runs = [f"/runs/{newest_run(site, name)}" for name in names]
    for to in (*(f"/schedules/{name}" for name in names), "/schedules", *runs, "/audit"):
        go(page, to)
        assert page.evaluate("window.hit") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    assert page.locator("main img").count() == 0
