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
