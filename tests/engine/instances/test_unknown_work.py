"""At-most-once work that ended without a result is parked as unknown; a known failure has failed."""

from __future__ import annotations

import importlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.engine.instances.scheduler_kit import app, finish, nothing_left
from timewright import Scheduler
from timewright.settings import Settings

__all__ = ["app", "nothing_left"]

FUNCTIONS = """
import os, signal

def killed():
    os.kill(os.getpid(), signal.SIGKILL)

def leaves():
    os._exit(3)

def fails():
    raise ValueError("no")
"""


@contextmanager
def peer(answer: bytes) -> Iterator[str]:
    """A server that reads one whole POST, sends the bytes and closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                received = b""
                while not received.endswith(b'{"n":1}'):
                    received += connection.recv(65_536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/pay"
        thread.join()


def outcome_of(app: Scheduler, target: dict[str, Any]) -> tuple[str, str]:
    """The state and reason of an at-most-once run of a target."""
    app.schedules.create(name="a", manual=True, delivery="at_most_once", target=target)
    with app:
        done = finish(app, "a")
        explained = app.runs.explain(run=done.run.id)
    assert done.run.error in str(explained)
    return str(done.run.state), done.run.reason


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"", ("parked", "unknown")),
        (b"nonsense\r\n\r\n", ("parked", "unknown")),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", ("parked", "unknown")),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", ("failed", "exhausted")),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 10\r\n\r\nhalf", ("failed", "exhausted")),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ("succeeded", "")),
    ],
)
def test_a_request_without_a_complete_response_is_unknown(
    app: Scheduler, answer: bytes, expected: tuple[str, str]
) -> None:
    with peer(answer) as url:
        target = {"kind": "http", "method": "POST", "url": url, "body": {"n": 1}}
        assert outcome_of(app, target) == expected


def test_a_request_that_could_not_be_sent_has_failed(app: Scheduler) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    target = {"kind": "http", "method": "POST", "url": f"http://127.0.0.1:{port}/pay"}
    assert outcome_of(app, target) == ("failed", "exhausted")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("killed", ("parked", "unknown")),
        ("leaves", ("parked", "unknown")),
        ("fails", ("failed", "exhausted")),
    ],
)
def test_a_function_whose_worker_process_ended_is_unknown(
    app: Scheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, expected: tuple[str, str]
) -> None:
    (tmp_path / "unknown_functions.py").write_text(FUNCTIONS, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    app.task(name)(getattr(importlib.import_module("unknown_functions"), name))
    assert outcome_of(app, {"kind": "call", "name": name, "isolation": "process"}) == expected


@pytest.mark.parametrize(
    ("script", "expected"), [("kill -9 $$", ("parked", "unknown")), ("exit 3", ("failed", "exhausted"))]
)
def test_a_command_that_was_killed_is_unknown(file: str, script: str, expected: tuple[str, str]) -> None:
    app = Scheduler(file, settings=Settings(shell=True))
    assert outcome_of(app, {"kind": "shell", "command": ["/bin/sh", "-c", script]}) == expected
