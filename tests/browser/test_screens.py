"""Search, bulk actions, hints, output, workflows, dependencies, budgets and instances in the dashboard."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.actions import confirm, go, make, manual, new_name, newest_run, wish_of_an_agent
from tests.browser.conftest import ONE_STORE

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.conftest import Site

# What the screens show comes from operations, whose tests run on both stores.
pytestmark = ONE_STORE


def test_search_qualifiers_are_completed_and_become_the_address(page: Page, site: Site) -> None:
    name = make(site, "asked")
    go(page, "/runs")
    box = page.locator("input[data-search]")
    box.fill("sta")
    expect(page.get_by_role("option")).to_have_text(["state: run state"])
    page.keyboard.press("Tab")
    expect(page.get_by_role("option").filter(has_text="state:failed")).to_be_visible()
    box.fill(f"state:failed schedule:{name[:8]}")
    page.get_by_role("option", name=f"schedule:{name}").click()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/#/runs?*schedule={name}*")
    assert "state=failed" in page.url
    expect(page.get_by_text("No matching runs.")).to_be_visible()


def test_all_matching_schedules_are_selected_and_paused(page: Page, site: Site) -> None:
    group = new_name("many")
    for number in range(52):
        site.api(
            "POST", "schedules", {"name": f"{group}-{number:02d}", "every": "1h", "note": "x", "group": group}
        )
    go(page, f"/schedules?group={group}")
    page.get_by_label("Select all on this page").check()
    toolbar = page.get_by_role("toolbar", name="Bulk actions")
    expect(toolbar).to_contain_text("50 selected")
    toolbar.get_by_role("button", name="select all matching").click()
    expect(toolbar).to_contain_text("52 selected")
    toolbar.get_by_role("button", name="pause").click()
    expect(page.locator("dialog code")).to_contain_text(re.compile("schedule pause .*--store .*; done$"))
    confirm(page, "pause")
    expect(page.locator("#toasts")).to_contain_text("52 done")
    assert len(site.api("GET", f"schedules?group={group}&state=paused&limit=100")["schedules"]) == 52


def test_moving_the_next_occurrence_skips_its_planned_time(page: Page, site: Site) -> None:
    name = make(site, "moved", every="1d")
    go(page, f"/schedules/{name}")
    page.get_by_role("button", name="move next…").click()
    page.locator("dialog input[name=to]").fill("2031-01-02T03:04")
    expect(page.locator("dialog code")).to_contain_text(f"timewright schedule move {name} --to 2031-01-02T")
    confirm(page, "move")
    expect(page.get_by_label("Runs", exact=True)).to_contain_text("ready")
    states = {run["state"] for run in site.api("GET", f"runs?schedule={name}")["runs"]}
    assert states == {"ready", "skipped"}


def test_a_hint_is_set_and_cleared(page: Page, site: Site) -> None:
    name = make(site, "hinted", adaptive=True, clamp={"min": "30s", "max": "2h"})
    go(page, f"/schedules/{name}")
    hints = page.get_by_label("Hints")
    hints.get_by_role("button", name="hint…").click()
    page.locator("dialog input[name=interval]").fill("10m")
    page.locator("dialog input[name=reason]").fill("a release")
    expect(page.locator("dialog code")).to_contain_text("--interval 10m --ttl 1h --reason 'a release'")
    confirm(page, "hint")
    expect(hints).to_contain_text("every 10 m")
    expect(hints).to_contain_text("a release")
    expect(hints).to_contain_text("expires in 59 m")
    expect(hints.locator("dd").nth(1)).to_contain_text("later)")
    hints.get_by_role("button", name="clear").click()
    confirm(page, "clear")
    expect(hints).to_contain_text("no active hints")


def test_a_run_shows_its_request_and_result(page: Page, site: Site) -> None:
    site.release()
    name = manual(site, "slow")
    site.api("POST", f"schedules/{name}/run", {"payload": {"order": 7}})
    go(page, f"/runs/{newest_run(site, name)}")
    expect(page.get_by_label("Request", exact=True)).to_contain_text("slow")
    expect(page.get_by_label("Request", exact=True)).to_contain_text('"order": 7')
    expect(page.get_by_label("Result", exact=True)).to_contain_text("done")
    expect(page.get_by_label("Output")).to_contain_text("timewright run logs")


def test_the_output_of_a_running_run_is_live(page: Page, site: Site) -> None:
    name = manual(site, "chatty")
    site.api("POST", f"schedules/{name}/run", {})
    go(page, f"/runs/{newest_run(site, name)}")
    output = page.get_by_label("Output", exact=True)
    expect(output).to_contain_text("--follow")
    expect(output.locator("pre.live")).to_contain_text("INFO the first line")
    (site.folder / "second").touch()
    expect(output.locator("pre.live")).to_contain_text("the second line")
    expect(output.locator("pre")).to_have_count(1)
    (site.folder / "third").touch()
    expect(page.locator(".lead .badge")).to_contain_text("succeeded")
    expect(output.locator("pre")).to_contain_text("the third line")
    assert output.inner_text().count("the first line") == 1
    for word in ("second", "third"):
        (site.folder / word).unlink()


def requests_of(page: Page, site: Site, screen: str) -> list[str]:
    """Return the requests of a screen that is opened first."""
    asked: list[str] = []
    other = page.context.new_page()
    other.on("request", lambda request: asked.append(request.url.removeprefix(site.url)))
    other.goto(f"{site.url}/#/{screen}")
    other.wait_for_selector(f'main[data-at="/{screen}"]')
    other.close()
    return asked


def test_the_first_screen_requests_its_data_once_and_files_are_cached(page: Page, site: Site) -> None:
    for screen, wanted in (
        ("overview", "/api/v1/now"),
        ("schedules", "/api/v1/schedules?limit=50&count=true"),
    ):
        asked = requests_of(page, site, screen)
        assert [asked.count(wanted), asked.count("/session")] == [1, 1], screen
    (main,) = [path for path in asked if path.endswith("/main.js")]
    assert "immutable" in page.request.get(site.url + main).headers["cache-control"]
    assert "immutable" not in page.request.get(f"{site.url}/v/0/main.js").headers["cache-control"]


def test_a_revision_shows_only_the_changed_fields(page: Page, site: Site) -> None:
    name = make(site, "diffed")
    site.api("PATCH", f"schedules/{name}", {"every": "2h", "reason": "half as often"})
    go(page, f"/schedules/{name}")
    changed = page.get_by_label("Revisions").locator(".diff li")
    expect(changed).to_have_count(1)
    expect(changed).to_contain_text("trigger.interval")
    expect(changed.locator("del")).to_contain_text("1h")
    expect(changed.locator("ins")).to_contain_text("2h")
    go(page, f"/audit?schedule={name}&action=schedule.update")
    page.get_by_text("revision 1 to 2").click()
    expect(page.locator(".diff li")).to_contain_text("trigger.interval")


def test_the_form_shows_the_next_clock_change(page: Page) -> None:
    go(page, "/create")
    page.locator("select[name=when]").select_option("cron")
    page.locator("input[name=cron]").fill("30 2 * * *")
    page.locator("input[name=zone]").fill("Europe/Berlin")
    expect(page.get_by_text("Clock change in Europe/Berlin")).to_be_visible()
    expect(
        page.get_by_role("table", name="Occurrences around the clock change").locator("tbody tr")
    ).not_to_have_count(0)
    page.locator("input[name=zone]").fill("Asia/Tokyo")
    expect(page.get_by_text("Clock change in")).to_have_count(0)


def test_simultaneous_starts_are_listed_with_commands_that_spread_them(page: Page, site: Site) -> None:
    group = new_name("herd")
    names = [make(site, "herd", cron="0 9 * * *", every=None, group=group) for _ in range(4)]
    go(page, f"/forecast?group={group}")
    herd = page.get_by_label("Simultaneous starts")
    for name in names:
        expect(herd).to_contain_text(name)
    herd.get_by_text("spread over up to 10 m").click()
    expect(herd).to_contain_text(f"timewright schedule update {names[0]} --jitter 10m --offset stable")
    busy = page.locator("[data-hour]").filter(has_text="4").first
    busy.hover()
    expect(page.locator("#hour")).to_contain_text(names[0])


def test_the_workflow_graph_shows_the_states_of_a_run(page: Page, site: Site) -> None:
    name = new_name("flow")
    steps = [
        {"name": "first", "target": {"kind": "note", "text": "a"}},
        {"name": "second", "target": {"kind": "call", "name": "broken"}, "needs": ["first"]},
    ]
    site.api("PUT", f"workflows/{name}", {"steps": steps})
    go(page, f"/workflows/{name}")
    drawn = page.get_by_role("group", name=f"steps of {name}")
    expect(drawn).to_contain_text("second")
    page.get_by_role("button", name="run now").click()
    confirm(page, "run now")
    expect(drawn).to_contain_text("succeeded")
    expect(page.get_by_label("Timeline", exact=True).locator("li")).to_have_count(2)


def test_dependencies_are_shown_upstream_and_downstream(page: Page, site: Site) -> None:
    first = make(site, "first")
    second = new_name("second")
    go(page, "/create")
    page.locator("input[name=name]").fill(second)
    page.locator("select[name=when]").select_option("after")
    page.locator("input[name=after]").fill(first)
    page.locator("[name='target.text']").fill("x")
    expect(page.get_by_label("Preview")).to_contain_text(f"each time {first} succeeds")
    expect(page.locator(".command code")).to_contain_text(f"--after {first}")
    page.get_by_role("button", name="create", exact=True).click()
    expect(page.locator("h1")).to_have_text(second)
    expect(page.get_by_label("Dependencies", exact=True)).to_contain_text(f"waiting{first}")
    go(page, f"/schedules/{first}")
    expect(page.get_by_label("Dependencies", exact=True)).to_contain_text(
        f"{second}runs after it, on success"
    )
    drawn = page.get_by_role("group", name=f"dependencies of {first}")
    expect(drawn.locator("a")).to_have_count(2)
    expect(drawn.locator(".edge")).to_have_count(1)


def test_a_schedule_of_an_agent_starts_after_approval(page: Page, site: Site) -> None:
    place, name = wish_of_an_agent(site)
    go(page, f"/overview?namespace={place}")
    page.get_by_label("Pending approvals").get_by_role("link", name=name).click()
    expect(page.get_by_label("Upcoming", exact=True)).to_contain_text("it starts after approval")
    page.get_by_role("button", name="approve", exact=True).click()
    expect(page.locator("dialog .command code")).to_contain_text(f"timewright approval approve {name}")
    confirm(page, "approve")
    expect(page.locator(".lead .badge")).to_contain_text("active")


def test_a_question_of_a_workflow_is_answered_with_its_form(page: Page, site: Site) -> None:
    name = new_name("ask")
    form = {"approved": "boolean", "copies": "number"}
    check = {"name": "check", "wait": {"answer": {"form": form}}, "description": f"Print {name}?"}
    site.api("PUT", f"workflows/{name}", {"steps": [{**check, "input": {"draft": "a text"}}]})
    run = site.api("POST", f"workflows/{name}/run", {})["run"]["id"]
    go(page, "/overview")
    asked = page.get_by_label("Questions").locator("li", has_text=f"Print {name}?")
    asked.get_by_role("button", name="answer").click()
    expect(page.locator("dialog pre")).to_contain_text("a text")
    page.locator("dialog").get_by_role("button", name="yes").click()
    page.locator("dialog input[name=answer_copies]").fill("2")
    confirm(page, "answer")
    expect(page.locator("#toasts")).to_contain_text("answered")
    result = site.api("GET", f"runs/{run}")["attempts"][-1]["result"]
    assert result == {"check": {"approved": True, "copies": 2}}


def test_budgets_show_their_limit_and_a_closed_provider_is_opened(page: Page, site: Site) -> None:
    budget, provider = new_name("tokens"), new_name("model")
    site.api("PUT", f"budgets/{budget}", {"unit": "tokens", "limit": 1000})
    until = "2031-01-02T03:04:05Z"
    site.api("POST", f"providers/{provider}/close", {"until": until, "reason": "the quota is used up"})
    go(page, "/queues")
    expect(page.get_by_label("Budgets", exact=True)).to_contain_text("1000 tokens a day")
    row = page.get_by_label("Closed providers").locator("tr", has_text=provider)
    expect(row).to_contain_text("the quota is used up")
    row.get_by_role("button", name="open").click()
    expect(page.locator("dialog code")).to_contain_text(f"timewright provider open {provider}")
    confirm(page, "open")
    expect(row).to_have_count(0)


def test_a_live_instance_shows_its_leases(page: Page, site: Site) -> None:
    site.hold()
    name = manual(site, "slow")
    site.api("POST", f"schedules/{name}/run", {})
    go(page, "/instances")
    row = page.get_by_label("Instances", exact=True).locator("tbody tr").first
    expect(row).to_contain_text("alive")
    expect(row).to_contain_text("all schedules")
    expect(row.get_by_role("link", name=name)).to_be_visible()
    site.release()
    go(page, "/overview")
    expect(page.get_by_label("Health")).to_contain_text("1 instance alive")


def test_the_selected_namespace_stays_in_the_address(page: Page, site: Site) -> None:
    name = new_name("ns")
    site.api("POST", "namespaces", {"name": name})
    page.reload()
    page.locator("select[name=namespace]").select_option(name)
    page.wait_for_url(f"**/#/overview?namespace={name}")
    go(page, "/schedules")
    expect(page.get_by_text("No schedules yet.")).to_be_visible()
    page.wait_for_url(f"**/#/schedules?namespace={name}")


def test_a_namespace_is_selected_also_if_its_first_screen_is_left_before_it_is_loaded(
    page: Page, site: Site
) -> None:
    name = new_name("ns")
    site.api("POST", "namespaces", {"name": name})
    page.evaluate(
        """name => {
            addEventListener("hashchange", () => { location.hash = "/schedules" }, { once: true });
            location.hash = `/overview?namespace=${name}`;
        }""",
        name,
    )
    expect(page.get_by_text("No schedules yet.")).to_be_visible()
    page.wait_for_url(f"**/#/schedules?namespace={name}")


def test_numbers_in_results_are_charted(page: Page, site: Site) -> None:
    name = manual(site, "counted", overlap="allow")
    for number in (3, 5):
        site.api("POST", f"schedules/{name}/run", {"payload": number})
    go(page, f"/schedules/{name}")
    trends = page.get_by_label("Recent runs").locator("figure")
    expect(trends.filter(has_text="rows")).to_contain_text("max 5")
