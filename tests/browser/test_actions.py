"""Acting from a screen: workflow steps, queues, runs and their remedies."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.actions import confirm, go, make, manual, new_name, newest_run
from tests.browser.conftest import ONE_STORE

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.conftest import Site

pytestmark = ONE_STORE

# Whether any edge of a graph passes through the inside of a box.
EDGES_BEHIND_BOXES = """() => {
    const svg = document.querySelector('svg.graph');
    const boxes = [...svg.querySelectorAll('rect.step')].map(one => one.getBBox());
    return [...svg.querySelectorAll('path.edge')].filter(edge => {
        const length = edge.getTotalLength();
        for (let at = 2; at < length - 2; at += 2) {
            const { x, y } = edge.getPointAtLength(at);
            const within = b => x > b.x + 2 && x < b.x + b.width - 2 && y > b.y && y < b.y + b.height;
            if (boxes.some(within)) return true;
        }
        return false;
    }).length;
}"""


def call(name: str, function: str, *needs: str, **fields: object) -> dict[str, object]:
    return {"name": name, "needs": list(needs), "target": {"kind": "call", "name": function}, **fields}


def test_a_workflow_run_shows_its_items_times_and_is_retried_from_a_step(page: Page, site: Site) -> None:
    name = new_name("nightly")
    each = {"each": {"$from": "input.files"}, "retry": {"max_attempts": 1}}
    steps = [
        call("fetch", "dated", input={"day": "sunday"}),
        call("load", "counted", "fetch", **each),
        call("check", "flaky_step", "fetch", retry={"max_attempts": 1}),
        call("mail", "counted", "check", "fetch"),
    ]
    site.api("PUT", f"workflows/{name}", {"steps": steps, "input": {"files": []}})
    made = site.api("POST", f"workflows/{name}/run", {"input": {"files": list(range(12))}})
    go(page, f"/workflows/{name}?run={made['run']['id']}")
    graph = page.get_by_label("Steps", exact=True)
    expect(graph).to_contain_text("12 × ✔12")
    expect(graph.locator(".lead .badge")).to_contain_text("failed")
    assert page.evaluate(EDGES_BEHIND_BOXES) == 0
    times = page.get_by_label("Timeline", exact=True)
    expect(times.locator("li", has_text="fetch").locator(".bar.good")).to_have_count(1)
    times.get_by_role("button", name=f"items of {name} › load").click()
    expect(times.locator("li", has_text="load[7]")).to_be_visible()
    width = page.locator("svg.graph").bounding_box()
    graph.get_by_role("button", name="+", exact=True).click()
    wider = page.locator("svg.graph").bounding_box()
    assert width is not None
    assert wider is not None
    assert wider["width"] > width["width"]
    times.locator("li", has_text="fetch").get_by_role("button", name="retry from here").click()
    expect(page.locator("dialog")).to_contain_text("--from-step")
    expect(page.get_by_label("Input of the step")).to_have_value(re.compile("sunday"))
    page.get_by_label("Input of the step").fill('{"day": "monday"}')
    expect(page.locator("dialog code")).to_contain_text("--from-step --input day=monday")
    confirm(page, "retry")
    expect(graph.locator(".lead .badge")).to_contain_text("succeeded")
    steps_now = site.api("GET", f"workflows/{name}/graph?run={made['run']['id']}")["steps"]
    fetched = next(step["run"] for step in steps_now if step["step"] == "fetch")
    assert site.api("GET", f"runs/{fetched}")["payload"]["input"]["day"] == "monday"
    times.get_by_role("link", name="fetch").click()
    expect(page.locator("h1")).to_have_text(f"{name} › fetch · succeeded")
    page.locator(".lead").get_by_role("link", name=f"{name} › fetch").click()
    expect(page.locator("h1")).to_have_text(name)


def test_a_workflow_run_offers_to_pause_while_it_runs_and_to_resume_while_it_is_paused(
    page: Page, site: Site
) -> None:
    site.hold()
    name = new_name("stopped")
    site.api("PUT", f"workflows/{name}", {"steps": [call("first", "slow"), call("then", "dated", "first")]})
    site.api("POST", f"workflows/{name}/run", {})
    go(page, f"/workflows/{name}")
    page.get_by_role("button", name="pause this run").click()
    confirm(page, "pause")
    expect(page.locator(".lead .badge")).to_contain_text("paused")
    expect(page.get_by_role("button", name="pause this run")).to_have_count(0)
    page.get_by_role("button", name="resume this run").click()
    confirm(page, "resume")
    expect(page.get_by_role("button", name="pause this run")).to_be_visible()
    expect(page.get_by_role("button", name="resume this run")).to_have_count(0)
    site.release()


def test_a_queue_is_limited_paused_resumed_by_undo_and_purged(page: Page, site: Site) -> None:
    queue = new_name("mail")
    site.api("POST", "queues", {"queue": queue, "payloads": [{"to": "ada@example.com"}, {"to": "bob"}]})
    go(page, f"/queues/{queue}")
    expect(page.locator(".figures")).to_contain_text(re.compile("added ?2 in 15 m"))
    page.get_by_role("button", name="payload").first.click()
    expect(page.locator("pre.json")).to_contain_text("ada@example.com")
    page.get_by_role("button", name="limit…").click()
    page.get_by_label("Maximum concurrent").fill("7")
    confirm(page, "set limit")
    expect(page.locator(".lead")).to_contain_text("7 free")
    page.get_by_role("button", name="pause", exact=True).click()
    confirm(page, "pause")
    expect(page.locator(".lead")).to_contain_text(f"paused: queue {queue}")
    page.locator(".toast").get_by_role("button", name="undo").click()
    expect(page.get_by_role("button", name="pause", exact=True)).to_be_visible()
    page.get_by_role("button", name="purge…").click()
    expect(page.locator("dialog h2")).to_have_text(f"Cancel 2 waiting entries of {queue}?")
    confirm(page, "purge")
    expect(page.get_by_role("button", name="purge…")).to_be_disabled()
    assert site.api("GET", f"queues/{queue}")["queue"]["counts"] == {}


def test_a_queue_without_a_worker_says_that_nobody_leases_here(page: Page, site: Site) -> None:
    fresh, lonely = new_name("fresh"), new_name("lonely")
    since = (datetime.now(UTC) - timedelta(minutes=3)).isoformat()
    site.api("POST", "queues", {"queue": fresh, "payload": 1})
    site.api("POST", "queues", {"queue": lonely, "payload": 1, "not_before": since})
    go(page, f"/queues/{fresh}")
    expect(page.get_by_text("Nobody leases here")).to_have_count(0)
    go(page, f"/queues/{lonely}")
    expect(page.get_by_text("Nobody leases here")).to_be_visible()
    expect(page.locator(".figures")).to_contain_text(re.compile("oldest waits ?3 m"))


def test_a_run_shows_its_times_on_one_axis_and_its_output_by_level(page: Page, site: Site) -> None:
    name = manual(site, "levels")
    site.api("POST", f"schedules/{name}/run", {})
    go(page, f"/runs/{newest_run(site, name)}")
    expect(page.locator(".lead .badge")).to_contain_text("succeeded")
    page.reload()
    for mark in ("planned", "may start", "started", "ended"):
        expect(page.locator(".marks")).to_contain_text(mark)
    expect(page.locator(".waterfall .bar.ghost")).to_have_count(1)
    output = page.get_by_label("Output", exact=True)
    expect(output.locator(".ansi-red")).to_have_text("red")
    expect(output.locator("pre")).not_to_contain_text("Z INFO")
    output.get_by_label("Lowest level").select_option("WARNING")
    expect(output.locator(".log")).to_have_count(1)
    expect(output.locator(".log.warning")).to_contain_text("nearly full")
    output.get_by_label("Lowest level").select_option("")
    output.get_by_label("Search the output").fill("NEARLY")
    expect(output.locator("mark")).to_have_text("nearly")
    with page.expect_download() as saved:
        output.get_by_role("button", name="download").click()
    assert "nearly full" in saved.value.path().read_text()


def test_an_artifact_of_a_run_is_downloaded(page: Page, site: Site) -> None:
    name = manual(site, "filed")
    site.api("POST", f"schedules/{name}/run", {})
    go(page, f"/runs/{newest_run(site, name)}")
    artifacts = page.get_by_label("Artifacts", exact=True)
    expect(artifacts).to_contain_text("10 B · text/plain")
    with page.expect_download() as saved:
        artifacts.get_by_role("link", name="report.txt").click()
    assert saved.value.path().read_text() == "forty rows"


def test_a_remedy_shows_what_it_changes_before_it_does(page: Page, site: Site) -> None:
    name = manual(site, "broken")
    site.api("POST", f"schedules/{name}/run", {})
    go(page, f"/runs/{newest_run(site, name)}")
    why = page.get_by_label("Why", exact=True)
    why.get_by_role("button", name="change the schedule: max attempts").click()
    expect(page.locator("dialog .diff")).to_contain_text("retry.max_attempts")
    assert site.api("GET", f"schedules/{name}")["schedule"]["retry"]["max_attempts"] == 1
    confirm(page, "apply")
    expect(page.locator(".toast")).to_be_visible()
    assert site.api("GET", f"schedules/{name}")["schedule"]["retry"]["max_attempts"] > 1


def test_a_cancelled_run_and_a_paused_schedule_are_brought_back_by_undo(page: Page, site: Site) -> None:
    name = make(site, "undone")
    go(page, f"/schedules/{name}")
    page.get_by_role("button", name="pause", exact=True).click()
    confirm(page, "pause")
    expect(page.locator(".lead .badge")).to_contain_text("paused")
    page.locator(".toast").get_by_role("button", name="undo").click()
    expect(page.locator(".lead .badge")).to_contain_text("active")
    page.get_by_role("button", name="skip next").click()
    confirm(page, "skip")
    page.locator(".toast").get_by_role("button", name="undo").click()
    expect(page.locator(".toast", has_text="it runs at its time again")).to_be_visible()
    planned = site.api("GET", f"schedules/{name}")["next"][0]
    assert planned["source"] == "manual"
    queue = new_name("held")
    entry = site.api("POST", "queues", {"queue": queue, "payload": 1})["entries"][0]["id"]
    go(page, f"/runs/{entry}")
    page.get_by_role("button", name="cancel", exact=True).click()
    confirm(page, "cancel")
    expect(page.locator(".lead .badge")).to_contain_text("cancelled")
    page.locator(".toast").get_by_role("button", name="undo").click()
    expect(page.locator(".lead .badge")).to_contain_text("ready")
