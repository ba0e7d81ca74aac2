"""What an operator does at the dashboard, in a real browser, on both stores."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from tests.browser.conftest import ONE_STORE, Site, open_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

from playwright.sync_api import expect


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


def go(page: Page, to: str) -> None:
    """Open a screen, and wait until it is the one that is shown, with what it shows."""
    page.evaluate("to => { location.hash = to }", to)
    page.wait_for_selector(f'main[data-at="{to.partition("?")[0]}"]')


def confirm(page: Page, act: str) -> None:
    page.locator("dialog").get_by_role("button", name=act, exact=True).click()


def newest_run(site: Site, schedule: str) -> str:
    return str(site.api("GET", f"runs?schedule={schedule}&limit=1")["runs"][0]["id"])


def test_a_schedule_is_written_with_its_next_times_in_view(page: Page, site: Site) -> None:
    name = new_name("made")
    go(page, "/create")
    page.locator("input[name=name]").fill(name)
    page.locator("select[name=when]").select_option("cron")
    page.locator("input[name=cron]").fill("0 9 * * mon-fri")
    page.locator("input[name=zone]").fill("Europe/Berlin")
    page.locator("input[name=note]").fill("good morning")
    expect(page.get_by_text("at 09:00 on Monday through Friday")).to_be_visible()
    expect(page.locator("table tbody tr")).to_have_count(10)
    page.get_by_role("button", name="create", exact=True).click()
    expect(page.locator("h1")).to_have_text(name)
    assert site.api("GET", f"schedules/{name}")["schedule"]["trigger"]["zone"] == "Europe/Berlin"


@ONE_STORE
def test_a_wrong_expression_is_refused_while_one_types(page: Page) -> None:
    go(page, "/create")
    page.locator("select[name=when]").select_option("cron")
    page.locator("input[name=cron]").fill("0 0 31 2 *")
    expect(page.get_by_role("alert")).to_contain_text("never fires")


def test_an_edit_shows_what_it_changes_and_keeps_what_it_was(page: Page, site: Site) -> None:
    name = make(site, "edited")
    go(page, f"/schedules/{name}/edit")
    page.locator("input[name=every]").fill("2h")
    expect(page.get_by_text("every 2h", exact=True)).to_be_visible()
    page.locator("input[name=reason]").fill("half as often")
    page.get_by_role("button", name="save").click()
    expect(page.locator("h1")).to_have_text(name)
    expect(page.get_by_label("Revisions")).to_contain_text("half as often")
    expect(page.get_by_label("Revisions")).to_contain_text("r2")


def test_a_pause_and_its_end_are_two_clicks_each(page: Page, site: Site) -> None:
    name = make(site, "paused")
    go(page, f"/schedules/{name}")
    page.get_by_role("button", name="pause", exact=True).click()
    page.get_by_role("button", name="4 hours").click()
    expect(page.locator("dialog code")).to_contain_text(f"timewright schedule pause {name} --until 20")
    confirm(page, "pause")
    expect(page.locator(".lead .badge")).to_contain_text("paused")
    assert site.api("GET", f"schedules/{name}")["standing"]["paused_until"]
    page.get_by_role("button", name="resume", exact=True).click()
    confirm(page, "resume")
    expect(page.locator(".lead .badge")).to_contain_text("active")


def test_a_run_by_hand_is_seen_to_the_end(page: Page, site: Site) -> None:
    name = make(site, "run")
    go(page, f"/schedules/{name}")
    page.get_by_role("button", name="run now").click()
    confirm(page, "run now")
    expect(page.get_by_label("Runs").locator("tbody")).to_contain_text("succeeded")


def test_a_run_is_watched_while_it_runs_and_cancelled(page: Page, site: Site) -> None:
    site.hold()
    name = manual(site, "slow")
    site.api("POST", f"schedules/{name}/run", {})
    go(page, "/now")
    expect(page.get_by_label("Running")).to_contain_text(name)
    go(page, f"/runs/{newest_run(site, name)}")
    expect(page.locator(".lead .badge")).to_contain_text("running")
    page.get_by_role("button", name="cancel", exact=True).click()
    confirm(page, "cancel")
    expect(page.locator(".lead .badge")).to_contain_text("cancelled")


def test_a_run_that_failed_says_why_and_is_tried_again(page: Page, site: Site) -> None:
    name = manual(site, "broken")
    site.api("POST", f"schedules/{name}/run", {})
    go(page, f"/runs/{newest_run(site, name)}")
    expect(page.locator(".lead .badge")).to_contain_text("failed")
    expect(page.get_by_label("What went wrong")).to_contain_text("the disk is full")
    page.get_by_role("button", name="retry", exact=True).click()
    confirm(page, "retry")
    expect(page.get_by_label("Attempts").locator("tbody tr")).to_have_count(2)


def test_a_parked_run_waits_for_a_person_and_is_reset_by_one(page: Page, site: Site) -> None:
    name = manual(site, "broken", exhausted="park")
    site.api("POST", f"schedules/{name}/run", {})
    go(page, f"/runs/{newest_run(site, name)}")
    expect(page.locator(".lead .badge")).to_contain_text("parked")
    page.get_by_role("button", name="reset", exact=True).click()
    confirm(page, "reset")
    expect(page.get_by_label("Attempts").locator("tbody tr")).to_have_count(2)


def test_an_occurrence_that_was_skipped_says_why(page: Page, site: Site) -> None:
    site.hold()
    name = new_name("skipping")
    site.api("POST", "schedules", {"name": name, "every": "1s", "call": "slow", "overlap": "skip"})
    go(page, f"/runs?schedule={name}&state=skipped")
    page.locator("tbody tr", has_text=name).first.locator("a").first.click()
    expect(page.get_by_label("Why")).to_contain_text("overlap")
    site.release()
    site.api("POST", f"schedules/{name}/archive", {})


def test_a_filter_is_in_the_address_and_an_address_is_a_filter(page: Page, site: Site) -> None:
    name = make(site, "found")
    go(page, f"/schedules?q={name}")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("button", name="paused", exact=True).click()
    expect(page.get_by_text("No schedule fits these filters.")).to_be_visible()
    assert "state=paused" in page.url


def test_everything_can_be_reached_with_keys_alone(page: Page, site: Site) -> None:
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
    expect(page.get_by_role("toolbar", name="for the chosen")).to_contain_text("1 chosen")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text(name)
    page.keyboard.press("?")
    expect(page.locator("dialog")).to_contain_text("next or previous row")
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)


SCREENS = (
    "now",
    "schedules",
    "runs",
    "queues",
    "workflows",
    "forecast",
    "planner",
    "instances",
    "audit",
    "settings",
    "create",
)


@ONE_STORE
def test_nothing_is_wider_than_a_phone(browser: Browser, site: Site) -> None:
    name = make(site, "narrow", description="x" * 300)
    for page in open_page(browser, site, viewport={"width": 390, "height": 800}):
        for screen in (*SCREENS, f"schedules/{name}"):
            go(page, f"/{screen}")
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, screen


@ONE_STORE
def test_the_page_is_dark_where_people_want_it_dark(browser: Browser, site: Site) -> None:
    for scheme, dark in (("dark", True), ("light", False)):
        for page in open_page(browser, site, color_scheme=scheme):
            colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (brightness(colour) < 0.2) is dark


def brightness(colour: str) -> float:
    parts = [int(float(part)) for part in colour.partition("(")[2].rstrip(")").split(",")[:3]]
    return sum(parts) / 3 / 255


def test_whoever_may_only_look_is_shown_nothing_to_press_and_is_refused(browser: Browser, site: Site) -> None:
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


def test_a_write_without_the_token_of_the_page_is_refused(page: Page, site: Site) -> None:
    name = make(site, "forged")
    status = page.evaluate(
        """async name => (await fetch(`/api/v1/schedules/${name}/pause`, {
            method: 'POST', headers: {'content-type': 'application/json'}, body: '{}'})).status""",
        name,
    )
    assert status == 403


MARKUP = "<img src=x onerror='window.hit=1'><script>window.hit=1</script>"


@ONE_STORE
def test_what_people_wrote_is_text_and_stays_inside_its_box(page: Page, site: Site) -> None:
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
