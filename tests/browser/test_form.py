"""The schedule form creates and edits every target and policy, and shows errors at their field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

from tests.browser.actions import go, make, new_name
from tests.browser.conftest import ONE_STORE

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.conftest import Site

pytestmark = ONE_STORE

# For each kind of target: what is filled in, and what is stored.
TARGETS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "note": ({"text": "hello"}, {"text": "hello"}),
    "http": (
        {
            "method": "POST",
            "url": "https://example.com/hook",
            "headers": "Accept: text/plain\nX-Time: 09:00",
            "body": '{"rows": [1, 2]}',
            "timeout": "5s",
        },
        {
            "method": "POST",
            "headers": {"Accept": "text/plain", "X-Time": "09:00"},
            "body": {"rows": [1, 2]},
            "timeout": "5s",
        },
    ),
    "call": (
        {"name": "dated", "args": '{"day": "monday"}', "isolation": "thread"},
        {"name": "dated", "args": {"day": "monday"}, "isolation": "thread"},
    ),
    "workflow": ({"workflow": "filled", "input": '{"day": 1}'}, {"workflow": "filled", "input": {"day": 1}}),
    "handoff": ({"payload": "[1, 2]"}, {"payload": [1, 2]}),
    "publish": (
        {"to": "redis", "name": "events", "url": "redis://localhost", "payload": '{"a": 1}'},
        {"to": "redis", "name": "events", "payload": {"a": 1}},
    ),
    "shell": (
        {"command": "echo 'a b' c", "env": "LEVEL: info"},
        {"command": ["echo", "a b", "c"], "env": {"LEVEL": "info"}},
    ),
}
# For each policy: what is filled in, and what is stored.
POLICIES: dict[str, tuple[str, Any]] = {
    "overlap": ("allow", "allow"),
    "max_running": ("3", 3),
    "catch_up": ("spread", "spread"),
    "spread_over": ("5m", "5m"),
    "catch_up_window": ("2h", "2h"),
    "catch_up_limit": ("7", 7),
    "grace": ("2m", "2m"),
    "deadline": ("10m", "10m"),
    "retry.max_attempts": ("4", 4),
    "retry.backoff.kind": ("ladder", "ladder"),
    "retry.backoff.steps": ("30s, 1m", ["30s", "1m"]),
    "retry.exhausted": ("park", "park"),
    "lease.time_limit": ("90s", "1m30s"),
    "disable_after": ("9", 9),
    "cadence.kind": ("stretch", "stretch"),
    "jitter": ("30s", "30s"),
    "jitter_side": ("both", "both"),
    "offset": ("stable", "stable"),
    "limits": ("filled", ["filled"]),
    "priority": ("50", 50),
    "runs_on": ("gpu, big", ["gpu", "big"]),
    "calendar.except": ("filled", ["filled"]),
    "calendar.roll": ("next", "next"),
    "end_at": ("2099-01-01T00:00:00Z", "2099-01-01T00:00:00Z"),
    "max_runs": ("12", 12),
    "alerts.failed": ("2", 2),
    "alerts.late": ("5m", "5m"),
    "expect.done_by": ("09:00", "09:00"),
    "expect.within": ("2h", "2h"),
    "group": ("billing", "billing"),
    "tags": ("a, b", ["a", "b"]),
    "description": ("what it is for", "what it is for"),
    "metadata": ('{"team": 7}', {"team": 7}),
}


def fill(page: Page, path: str, text: str) -> None:
    """Fill in a field of the form; its group is opened if it is closed."""
    box = page.locator(f"form [name='{path}']")
    box.evaluate("node => { const group = node.closest('details'); if (group) group.open = true }")
    if box.evaluate("node => node.nodeName") == "SELECT":
        box.select_option(text)
    else:
        box.fill(text)


def stored(site: Site, name: str) -> Any:
    return site.api("GET", f"schedules/{name}")["schedule"]


def at(schedule: Any, path: str) -> Any:
    for part in path.split("."):
        schedule = schedule[part]
    return schedule


def test_every_kind_of_target_is_created_and_shown_again(page: Page, site: Site) -> None:
    site.api("PUT", "workflows/filled", {"steps": [{"name": "a", "target": {"kind": "note", "text": "a"}}]})
    for kind, (texts, wanted) in TARGETS.items():
        name = new_name(kind)
        go(page, "/create")
        fill(page, "name", name)
        fill(page, "when", "manual")
        fill(page, "what", kind)
        for field, text in texts.items():
            fill(page, f"target.{field}", text)
        if kind == "handoff":
            fill(page, "queue", "filled")
        page.get_by_role("button", name="create", exact=True).click()
        expect(page.locator("h1")).to_have_text(name)
        made = stored(site, name)["target"]
        assert made["kind"] == kind
        assert {field: made[field] for field in wanted} == wanted
        go(page, f"/schedules/{name}/edit")
        for field, text in texts.items():
            box = page.locator(f"form [name='target.{field}']")
            assert box.input_value().replace(" ", "") == text.replace(" ", ""), field


def test_every_policy_is_set_by_an_edit_and_cleared_again(page: Page, site: Site) -> None:
    site.api("PUT", "limits/filled", {"max_running": 2})
    site.api("PUT", "calendars/filled", {"dates": ["2099-12-24"]})
    name = make(site, "policies")
    before = stored(site, name)
    go(page, f"/schedules/{name}/edit")
    for path, (text, _) in POLICIES.items():
        fill(page, path, text)
    page.get_by_role("button", name="save").click()
    expect(page.locator("h1")).to_have_text(name)
    found = stored(site, name)
    assert {path: at(found, path) for path in POLICIES} == {
        path: wanted for path, (_, wanted) in POLICIES.items()
    }
    go(page, f"/schedules/{name}/edit")
    first_options = "nodes => nodes.map(node => [node.name, node.options[0].value])"
    firsts = dict(page.locator("form details select").evaluate_all(first_options))
    for path in reversed(POLICIES):
        fill(page, path, firsts.get(path, "1d" if path == "catch_up_window" else ""))
    page.get_by_role("button", name="save").click()
    expect(page.locator("h1")).to_have_text(name)
    after = stored(site, name)
    changed = {field for field in before if before[field] != after[field]}
    assert changed == {"revision"}


def test_a_refused_value_is_explained_at_its_field_and_keeps_the_rest(page: Page, site: Site) -> None:
    name = new_name("refused")
    go(page, "/create")
    fill(page, "name", name)
    fill(page, "target.text", "hello")
    for path, wrong, right in (
        ("retry.max_attempts", "0", "2"),
        ("lease.time_limit", "soon", "5m"),
        ("jitter", "a bit", "5s"),
        ("alerts.failed", "often", "3"),
    ):
        fill(page, path, wrong)
        page.get_by_role("button", name="create", exact=True).click()
        box = page.locator(f"form [name='{path}']")
        expect(box).to_be_focused()
        expect(box.locator("..").get_by_role("alert")).to_be_visible()
        expect(page.locator("form [aria-invalid]")).to_have_count(1)
        fill(page, path, right)
        expect(page.locator("form [aria-invalid]")).to_have_count(0)
    page.get_by_role("button", name="create", exact=True).click()
    expect(page.locator("h1")).to_have_text(name)
    made = stored(site, name)
    assert [at(made, "retry.max_attempts"), at(made, "lease.time_limit"), made["jitter"]] == [2, "5m", "5s"]


def test_a_single_run_is_chosen_with_a_picker(page: Page, site: Site) -> None:
    name = new_name("single")
    go(page, "/create")
    fill(page, "name", name)
    fill(page, "when", "once")
    fill(page, "target.text", "hello")
    page.locator("[name=once-picker]").fill("2099-12-24T18:00")
    expect(page.locator("[name=once]")).to_have_value("2099-12-24T18:00:00.000Z")
    page.get_by_role("button", name="create", exact=True).click()
    expect(page.locator("h1")).to_have_text(name)
    assert stored(site, name)["trigger"] == {"kind": "once", "at": "2099-12-24T18:00:00Z"}


def test_other_triggers_are_edited_with_the_form(page: Page, site: Site) -> None:
    first = make(site, "upstream")
    for trigger, box, text in (
        ({"after": first, "on": "failure"}, "on", "failure"),
        ({"after": "15m"}, "delay", "15m"),
        ({"rrule": "FREQ=WEEKLY;BYDAY=MO", "zone": "Europe/Berlin"}, "rrule", "FREQ=WEEKLY;BYDAY=MO"),
        ({"trigger": [{"cron": "0 9 * * *"}, {"every": "6h"}]}, "triggers", "0 9 * * *"),
    ):
        name = new_name("shown")
        site.api("POST", "schedules", {"name": name, "note": "hello", **trigger})
        before = stored(site, name)
        go(page, f"/schedules/{name}/edit")
        assert text in page.locator(f"form [name={box}]").input_value()
        fill(page, "group", "billing")
        page.get_by_role("button", name="save").click()
        expect(page.locator("h1")).to_have_text(name)
        assert stored(site, name)["trigger"] == before["trigger"]
