"""`/in/<slug>`: foreign jobs report their start and end; a watch without an engine tells when they stop."""

from __future__ import annotations

import pytest

from tests.interfaces.http.http_client import HttpTestClient
from tests.operations.harness import OperationsHarness


@pytest.fixture
def slug(harness: OperationsHarness) -> str:
    harness.ask("schedule create", name="night-copy", every="1h", handoff={}, expect="10m")
    return str(harness.ask("ping create", schedule="night-copy")["slug"])


def states(harness: OperationsHarness) -> list[str]:
    runs = harness.ask("run list", schedule="night-copy")["runs"]
    return [run["state"] for run in reversed(runs)]


def test_a_ping_ends_the_run_that_waits(
    client: HttpTestClient, harness: OperationsHarness, slug: str
) -> None:
    harness.advance(hours=1)
    assert states(harness) == ["ready"]
    assert client.request("GET", f"/in/{slug}/start").status == 200
    assert states(harness) == ["leased"]
    assert client.request("POST", f"/in/{slug}").status == 200
    assert states(harness) == ["succeeded"]


@pytest.mark.parametrize(
    ("path", "state"), [("/0", "succeeded"), ("/1", "failed"), ("/fail", "failed"), ("", "succeeded")]
)
def test_an_exit_code_says_how_it_ended(
    client: HttpTestClient, harness: OperationsHarness, slug: str, path: str, state: str
) -> None:
    harness.advance(hours=1)
    assert client.request("POST", f"/in/{slug}{path}").status == 200
    assert states(harness) == [state]


def test_an_unknown_address_is_not_found_and_guessing_is_slow(client: HttpTestClient) -> None:
    answers = [client.request("GET", f"/in/nothing-{n}").status for n in range(40)]
    assert set(answers) == {404, 429}


@pytest.mark.parametrize("path", ["/256", "/stop", "/-1"])
def test_an_unknown_report_is_refused(client: HttpTestClient, slug: str, path: str) -> None:
    assert client.request("GET", f"/in/{slug}{path}").status == 404


def test_a_deleted_address_is_not_found(
    client: HttpTestClient, harness: OperationsHarness, slug: str
) -> None:
    harness.ask("ping delete", schedule="night-copy")
    assert client.request("GET", f"/in/{slug}").status in (404, 429)


@pytest.fixture
def question(harness: OperationsHarness) -> str:
    """A workflow that asks whether to publish; returns the run that waits."""
    form = {"approved": "boolean", "copies": "number", "why": {"type": "text", "required": False}}
    step = {"name": "check", "wait": {"answer": {"form": form}}, "description": "Publish <it>?"}
    harness.ask("workflow put", name="flow", steps=[{**step, "input": {"draft": "<b>text"}}])
    harness.ask("workflow run", workflow="flow")
    harness.advance(seconds=1)
    asked = harness.ask("approval list")["answers"]
    return str(next(one["run"] for one in asked if one["workflow"] == "flow"))


def test_a_link_shows_the_question_and_takes_one_answer(
    client: HttpTestClient, harness: OperationsHarness, question: str
) -> None:
    link = harness.ask("run link", run=question)["path"]
    page = client.request("GET", link)
    assert page.status == 200
    text = page.body.decode()
    assert "Publish &lt;it&gt;?" in text
    assert "&lt;b&gt;text" in text
    assert "name='approved'" in text

    kind = ("content-type", "application/x-www-form-urlencoded")
    wrong = client.send("POST", link, b"copies=2", [*client.headers.items(), kind, ("accept", "text/html")])
    assert (wrong.status, b"lacks &#x27;approved&#x27;" in wrong.body) == (422, True)

    def send(body: bytes) -> int:
        return client.send("POST", link, body, [*client.headers.items(), kind]).status

    assert send(b"approved=perhaps&copies=2") == 422
    assert send(b"approved=yes&copies=nan") == 422
    assert send(b"approved=yes&copies=1e999") == 422
    assert send(b"a=1&" * 101) == 422
    assert send(b"approved=yes&copies=2&why=") == 200
    run = harness.ask("run get", run=question)
    assert run["run"]["state"] == "succeeded"
    assert run["attempts"][-1]["result"] == {"approved": True, "copies": 2}
    assert client.request("GET", link).status == 409
    assert send(b"approved=no&copies=2") == 409
    used = client.send("GET", link, b"", [*client.headers.items(), ("accept", "text/html")])
    assert (used.status, b"answered already" in used.body) == (409, True)
    other = link.replace(question, "run_01KKBXWX00EXAMPLE000000000")
    assert client.request("GET", other).status in (404, 429)
    assert client.request("GET", link[:-1] + "g").status in (404, 429)


def test_of_two_links_to_a_question_the_second_is_too_late(
    client: HttpTestClient, harness: OperationsHarness, question: str
) -> None:
    first, second = (harness.ask("run link", run=question)["path"] for _ in range(2))
    answer = {"approved": False, "copies": 0}
    assert client.request("POST", first, answer).status == 200
    assert client.request("POST", second, answer).status == 409
    assert harness.ask("run get", run=question)["attempts"][-1]["result"] == answer


def test_an_answer_that_says_two_things_is_refused(
    client: HttpTestClient, harness: OperationsHarness, question: str
) -> None:
    link, kind = harness.ask("run link", run=question)["path"], ("content-type", "application/json")
    twice = b'{"approved": true, "approved": false, "copies": 1}'
    refused = client.send("POST", link, twice, [*client.headers.items(), kind])
    assert (refused.status, b"duplicate key" in refused.body) == (422, True)
    assert harness.ask("run get", run=question)["run"]["state"] == "leased"
