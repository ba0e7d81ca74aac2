"""The monitoring endpoints: healthz, readyz, overdue and metrics."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.interfaces.http.http_client import ADMIN, HttpTestClient, client_for
from tests.operations.harness import KEYRING, OperationsHarness
from timewright.engine.waiting import LoopHealth
from timewright.operations.access.auth_cache import AuthCache
from timewright.operations.access.service_tokens import load_service_token_verifier
from timewright.settings import Settings
from timewright.wiring.metrics_port import filter_metrics


def test_healthz_works_without_a_store(harness: OperationsHarness) -> None:
    harness.store.close()
    with client_for(harness) as client:
        assert client.request("GET", "/healthz").data == {"alive": True}


def test_readyz_reports_engine_problems(harness: OperationsHarness) -> None:
    health = LoopHealth(last_tick_at=harness.now)
    with client_for(harness, engine_health=health) as client:
        assert client.request("GET", "/readyz").data["ready"] is True
        health.errors_in_a_row, health.last_error = 1, "StoreUnavailable: away"
        troubled = client.request("GET", "/readyz")
        assert (troubled.status, troubled.data["problem"]) == (503, "StoreUnavailable: away")
        health.errors_in_a_row = 0
        harness.sleep(minutes=2)
        late = client.request("GET", "/readyz")
        assert (late.status, late.data["problem"]) == (503, "no tick for 2m")


def test_readyz_without_an_engine_checks_the_store(client: HttpTestClient) -> None:
    assert client.request("GET", "/readyz").data["engine"] is False


def test_overdue_works_without_an_engine(client: HttpTestClient, harness: OperationsHarness) -> None:
    calm = client.request("GET", "/overdue")
    assert (calm.status, calm.data["late"]) == (200, [])
    harness.sleep(days=1)
    late = client.request("GET", "/overdue")
    assert (late.status, late.data["overdue"]) == (503, True)
    assert {"nightly-report", "orders-poll"} <= {row["schedule"] for row in late.data["late"]}
    assert client.request("GET", "/overdue?tolerance=2d").status == 200
    assert client.request("GET", "/overdue?tolerance=soon").status == 422
    harness.advance(seconds=1)
    assert client.request("GET", "/overdue").status == 200


def test_overdue_includes_ready_runs_that_do_not_start(
    client: HttpTestClient, harness: OperationsHarness
) -> None:
    made = harness.ask("schedule run", schedule="nightly-report")["run"]["id"]
    harness.sleep(minutes=2)
    late = client.request("GET", "/overdue").data["late"]
    assert made in {row["run"] for row in late}


def test_overdue_is_limited_to_one_namespace(client: HttpTestClient, harness: OperationsHarness) -> None:
    harness.sleep(days=1)
    assert client.request("GET", "/overdue?namespace=other").data["late"] == []
    assert client.request("GET", "/overdue", headers={"timewright-namespace": "other"}).status == 200


@pytest.mark.parametrize("tolerance", ["-1s", "400d", "x", ""])
def test_an_invalid_tolerance_is_refused(client: HttpTestClient, tolerance: str) -> None:
    assert client.request("GET", f"/api/v1/overdue?tolerance={tolerance}").status == 422


def test_metrics_are_served_if_they_are_collected(harness: OperationsHarness) -> None:
    with client_for(harness, metrics=lambda: "timewright_ticks_total 3\n") as client:
        answer = client.request("GET", "/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert answer.body == b"timewright_ticks_total 3\n"
    with client_for(harness) as client:
        assert client.request("GET", "/metrics").status == 404


def test_metrics_are_limited_to_the_namespaces_of_the_caller(harness: OperationsHarness) -> None:
    lines = [
        "# HELP timewright_runs_total Runs that ended, by how.",
        'timewright_runs_total{namespace="default",outcome="failed",queue="mail"} 1.0',
        'timewright_runs_total{namespace="other",outcome="failed",queue="mail"} 2.0',
        'timewright_schedule_runs_total{a="x",namespace="other",schedule="hidden"} 3.0',
        "timewright_ticks_total 3.0",
    ]
    shown = {"metrics": lambda: "\n".join(lines) + "\n"}
    with client_for(harness, caller=replace(ADMIN, namespaces=("default",)), **shown) as client:
        answer = client.request("GET", "/metrics")
        assert answer.body.decode().splitlines() == [*lines[:2], lines[-1]]
    with client_for(harness, caller=replace(ADMIN, scopes=frozenset({"hint"})), **shown) as client:
        assert client.request("GET", "/metrics").status == 403


def test_the_tick_delay_is_measured(client: HttpTestClient, harness: OperationsHarness) -> None:
    harness.sleep(hours=1)
    rows = client.request("GET", "/overdue").data["late"]
    assert rows == sorted(rows, key=lambda row: row["since"])
    assert rows[0]["sentence"].endswith(" has been due for 57m and has not started")


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("# HELP runs Runs by namespace", True),
        ("up 1", True),
        ('runs{state="ok"} 3', True),
        ('runs{namespace="mine",state="ok"} 3', True),
        ('runs{namespace="theirs",state="ok"} 3', False),
        ('runs{host="a}b",namespace="theirs"} 3', False),
        ('runs{host="a{b",namespace="theirs"} 3', False),
        ('runs{host="x,namespace=\\"mine\\"",namespace="theirs"} 3', False),
    ],
)
def test_a_metric_line_is_visible_to_callers_of_its_namespace(line: str, *, seen: bool) -> None:
    assert filter_metrics(f"{line}\n", {"mine"}.__contains__) == (f"{line}\n" if seen else "")


def test_an_issuer_of_tokens_is_published_only_where_one_is_set(
    harness: OperationsHarness, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("a shared secret of more than thirty-two letters")
    keys.chmod(0o600)
    settings = Settings(jwt_keys=str(keys), jwt_algorithms=("HS256",), jwt_audience="timewright")

    def client(issuer: str) -> HttpTestClient:
        chosen = replace(settings, jwt_issuer=issuer)
        cache = AuthCache(lambda: KEYRING, services=lambda: load_service_token_verifier(chosen))
        harness.context = replace(harness.context, auth_cache=cache)
        return client_for(harness, caller=None)

    path, issuer = "/.well-known/oauth-protected-resource", "https://login.example.com"
    with client("") as without:
        assert without.request("GET", path).status == 401
        assert "resource_metadata" not in without.request("POST", "/mcp", {}).headers["www-authenticate"]
    with client(issuer) as named:
        for address in (path, f"{path}/mcp"):
            found = named.request("GET", address).data
            assert found["authorization_servers"] == [issuer]
            assert found["resource"].endswith("/mcp")
            assert "timewright:read" in found["scopes_supported"]
        assert f'{path}/mcp"' in named.request("POST", "/mcp", {}).headers["www-authenticate"]
        elsewhere = named.request("GET", "/api/v1/schedules").headers["www-authenticate"]
        assert "resource_metadata" not in elsewhere
        assert named.request("GET", f"{path}/other").status == 401
        assert named.request("POST", path, {}).status == 401
