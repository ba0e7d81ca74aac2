"""The metrics server: it serves only metrics, and stops with its process."""

from __future__ import annotations

import http.client
import socket

import pytest

from tests.faults.tools.ports import free_port
from timewright.errors import InvalidInput
from timewright.settings import Settings
from timewright.stores.sqlite.store import SqliteStore
from timewright.telemetry.metrics_server import CONTENT_TYPE, MetricsServer
from timewright.wiring import Instance, new_registry


def get(port: int, path: str) -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def house_on(port: int) -> Instance:
    settings = Settings(metrics_port=port)
    return Instance(SqliteStore(), settings=settings, registry=new_registry())


def test_the_numbers_are_given_and_nothing_else() -> None:
    port = MetricsServer("127.0.0.1", 0, text=lambda: "timewright_ticks_total 7\n")
    try:
        assert get(port.port, "/metrics") == (200, CONTENT_TYPE, "timewright_ticks_total 7\n")
        assert get(port.port, "/metrics?name=x")[0] == 200
        assert get(port.port, "/api/v1/schedules")[0] == 404
    finally:
        port.close()
    with pytest.raises(ConnectionRefusedError):
        get(port.port, "/metrics")


def test_an_instance_opens_its_port_when_it_starts_and_closes_it_when_it_stops() -> None:
    harness = house_on(port := free_port())
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
        harness = house_on(taken.getsockname()[1])
        try:
            with pytest.raises(InvalidInput) as refusal:
                harness.start()
            assert refusal.value.field == "metrics_port"
        finally:
            harness.free()
            harness.close()
