"""The metrics server: it serves only metrics, and stops with its process."""

from __future__ import annotations

import http.client
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from tests.faults.tools.ports import free_port
from tests.interfaces.terminal import run
from timewright.errors import InvalidInput, NotAllowed
from timewright.operations import operations
from timewright.settings import Settings
from timewright.stores.sqlite.store import SqliteStore
from timewright.telemetry.metrics_server import CONTENT_TYPE, MetricsServer
from timewright.wiring import Instance, build_auth_cache, new_registry

TLS = Path(__file__).parents[1] / "targets" / "http" / "data" / "tls"


def get(port: int, path: str) -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def instance_on(port: int) -> Instance:
    settings = Settings(metrics_port=port)
    return Instance(SqliteStore(), settings=settings, registry=new_registry())


def test_the_numbers_are_given_and_nothing_else() -> None:
    port = MetricsServer("127.0.0.1", 0, scrape=lambda _: "timewright_ticks_total 7\n")
    try:
        assert get(port.port, "/metrics") == (200, CONTENT_TYPE, "timewright_ticks_total 7\n")
        assert get(port.port, "/metrics?name=x")[0] == 200
        assert get(port.port, "/api/v1/schedules")[0] == 404
    finally:
        port.close()
    with pytest.raises(ConnectionRefusedError):
        get(port.port, "/metrics")


def test_an_instance_opens_its_port_when_it_starts_and_closes_it_when_it_stops() -> None:
    harness = instance_on(port := free_port())
    harness.start()
    try:
        status, _, text = get(port, "/metrics")
        assert (status, "timewright_store_up 1.0" in text) == (200, True)
    finally:
        harness.stop()
        harness.close()
    with pytest.raises(ConnectionRefusedError):
        get(port, "/metrics")


def test_a_port_that_is_taken_is_refused_by_name() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        harness = instance_on(taken.getsockname()[1])
        try:
            with pytest.raises(InvalidInput) as refusal:
                harness.start()
            assert refusal.value.field == "metrics_port"
        finally:
            harness.free()
            harness.close()


# Addresses that other machines can reach.


def public_instance(tmp_path: Path, port: int, **more: Any) -> Instance:
    settings = Settings(metrics_port=port, metrics_host="0.0.0.0", **more)
    store = str(tmp_path / "store.db")
    return Instance(
        SqliteStore(store),
        settings=settings,
        registry=new_registry(),
        auth_cache=build_auth_cache(store, settings),
    )


def scrape(port: int, *, key: str, tls: ssl.SSLContext | None = None) -> tuple[int, str]:
    connection = (
        http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        if tls is None
        else http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=tls)
    )
    try:
        connection.request("GET", "/metrics", headers={"authorization": f"Bearer {key}"} if key else {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_a_metrics_port_for_other_machines_needs_tls_or_a_proxy(tmp_path: Path) -> None:
    instance = public_instance(tmp_path, free_port())
    operations["key create"](instance.context(), {"key": "prometheus", "role": "viewer"})
    try:
        with pytest.raises(NotAllowed) as refusal:
            instance.start()
        assert refusal.value.field == "metrics_host"
    finally:
        instance.free()
        instance.close()


def test_a_metrics_port_for_other_machines_needs_a_key_to_exist(tmp_path: Path) -> None:
    instance = public_instance(tmp_path, free_port(), behind_proxy=True)
    try:
        with pytest.raises(NotAllowed, match="no API key exists"):
            instance.start()
    finally:
        instance.free()
        instance.close()


def test_a_scrape_from_other_machines_needs_a_key_that_may_read(tmp_path: Path) -> None:
    instance = public_instance(tmp_path, port := free_port(), behind_proxy=True)
    token = operations["key create"](instance.context(), {"key": "prometheus", "role": "viewer"})["token"]
    instance.start()
    try:
        assert scrape(port, key="")[0] == scrape(port, key="tw_x_y")[0] == 401
        status, text = scrape(port, key=token)
        assert (status, "timewright_store_up 1.0" in text) == (200, True)
        operations["key revoke"](instance.context(), {"key": "prometheus"})
        assert scrape(port, key=token)[0] == 401
    finally:
        instance.stop()
        instance.close()


def test_a_metrics_port_with_a_certificate_speaks_only_tls(tmp_path: Path) -> None:
    instance = public_instance(tmp_path, port := free_port(), tls_cert=str(TLS / "good.pem"))
    token = operations["key create"](instance.context(), {"key": "prometheus", "role": "viewer"})["token"]
    instance.start()
    try:
        context = ssl.create_default_context(cafile=str(TLS / "ca.pem"))
        assert scrape(port, key=token, tls=context)[0] == 200
        with pytest.raises((http.client.HTTPException, OSError)):
            scrape(port, key=token)
        assert scrape(port, key=token, tls=context)[0] == 200
    finally:
        instance.stop()
        instance.close()


def test_a_worker_refuses_a_public_metrics_address_before_it_creates_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = run(tmp_path, "worker", "--metrics-host", "0.0.0.0", "--metrics-port", "1")
    assert (refused.code, "metrics_host 0.0.0.0 is reachable" in refused.err) == (1, True)
    assert list(tmp_path.iterdir()) == []
