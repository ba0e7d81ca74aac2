"""What does an HTTP request cost, compared with Starlette alone, and does it grow with the store?

    python -m benchmarks api [--schedules 100000] [--large 1000000] [--requests 2000] [--rounds 3] [--quick]

Both servers answer over loopback to the same client, with equally large responses, by turns. CPU is that of
the server process with all its threads; requests per second depend on the load of the machine. Our server and
Starlette use the `fast` extra (uvloop, httptools) with the same settings; Starlette is also measured with
h11.

Responses are cached while they are valid, so there are more figures: schedules and lists requested for the
first time, pages read for the first time, and reads and lists while another process commits all the time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.parts.measure import Goals, TemporaryStores, heading, machine, median, spread
from benchmarks.start import add_schedules

CONNECTIONS = 8
READ, LIST, CREATE = "read", "list of 50", "create"
FIRST, ANEW = "read for the first time", "list of 50 for the first time"
UNSEEN = "list of 50 never read before"
NAME_COUNT = 1_000
WRITE_INTERVAL_S = 0.002
GOALS = {READ: 2.0, LIST: 3.0, FIRST: 2.0, ANEW: 3.0}
MAX_GROWTH = 1.5


class Server(NamedTuple):
    """A server process, its port and its API key."""

    process: subprocess.Popen[str]
    port: int
    key: str = ""
    schedules: int = 1

    def cpu(self) -> float:
        """CPU seconds used by all threads of the process."""
        # The CPU clock of another process, as clock_getcpuclockid(3) defines it on Linux: finer than its
        # ticks.
        return time.clock_gettime((~self.process.pid << 3) | 2)


class Figure(NamedTuple):
    """One round: requests a second, CPU a request, and the size of a response."""

    rate: float
    cpu_ms: float
    size: int


def main(arguments: list[str]) -> int:
    options = parse_arguments(arguments)
    print(machine("starlette", "uvicorn", "uvloop", "httptools", "h11", "apsw"))
    goals = Goals()
    with TemporaryStores() as temporary_stores:
        compare_with_starlette(goals, temporary_stores, options)
        growth(goals, temporary_stores, options)
    print(f"\nall goals\n{goals.summary()}")
    return 0


def compare_with_starlette(
    goals: Goals, temporary_stores: TemporaryStores, options: argparse.Namespace
) -> None:
    """Measure each kind of request on our server and on Starlette alone."""
    heading(
        f"our server compared with Starlette alone, {options.schedules:,} schedules",
        f"SQLite, {CONNECTIONS} connections, {options.rounds} rounds of {options.requests} requests by turns",
    )
    with temporary_stores.new_store("sqlite") as store_url:
        add_schedules(store_url, options.schedules)
        with http_server(store_url, schedules=options.schedules) as ours:
            sizes = [
                send_requests(ours, kind, 1, first=n).size for n, kind in enumerate((READ, LIST, CREATE))
            ]
            with bare_starlette(sizes, "auto") as fast, bare_starlette(sizes, "h11") as plain:
                sides = {"timewright": ours, "Starlette, fast": fast, "Starlette, h11": plain}
                for kind in (READ, LIST, FIRST, ANEW, UNSEEN, CREATE):
                    many = options.requests if kind != CREATE else options.requests // 4
                    judge_request(goals, kind, measure_by_turns(sides, kind, many, options.rounds))
                with background_writer(store_url):
                    for kind in (READ, LIST):
                        found = measure_by_turns(sides, kind, options.requests, options.rounds)
                        judge_request(goals, f"{kind} while another process writes", found)


def measure_by_turns(sides: dict[str, Server], kind: str, many: int, rounds: int) -> dict[str, list[Figure]]:
    found: dict[str, list[Figure]] = {name: [] for name in sides}
    for server in sides.values():
        # Warm up: repeated reads must be cached, first reads must not.
        send_requests(server, kind, NAME_COUNT if kind == READ else max(many // 10, 20), first=10)
    for number in range(rounds):
        for name, server in sides.items():
            found[name].append(send_requests(server, kind, many, first=100 + number * many))
    return found


def judge_request(goals: Goals, kind: str, found: dict[str, list[Figure]]) -> None:
    print(f"\n  {kind}, {found['timewright'][0].size:,} bytes")
    for name, figures in found.items():
        rates, costs = [one.rate for one in figures], [one.cpu_ms for one in figures]
        print(f"    {name:<18}{spread(rates):>24}/s {spread(costs, digits=3):>26} ms CPU a request")
    cost = {name: median([one.cpu_ms for one in figures]) for name, figures in found.items()}
    fast, plain = cost["timewright"] / cost["Starlette, fast"], cost["timewright"] / cost["Starlette, h11"]
    print(f"    ratio of CPU: {fast:.1f} x Starlette with the fast extra, {plain:.1f} x with h11")
    if kind in GOALS:
        goal = f"CPU at most {GOALS[kind]:.0f} x bare Starlette (fast extra)"
        goals.judge(kind, goal, found=f"{fast:.1f} x ({plain:.1f} x h11)", met=fast <= GOALS[kind])


@contextlib.contextmanager
def background_writer(store_url: str) -> Iterator[None]:
    """Run a process that commits a small write every 2 ms."""
    words = [sys.executable, "-m", "benchmarks.parts.api_writer", store_url, str(WRITE_INTERVAL_S)]
    process = subprocess.Popen(words)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)


def growth(goals: Goals, temporary_stores: TemporaryStores, options: argparse.Namespace) -> None:
    """Measure a list of 50 on a small and on a large store, by turns."""
    heading(f"a list of 50, 1,000 and {options.large:,} schedules", "SQLite; CPU of the server a request")
    with temporary_stores.new_store("sqlite") as small, temporary_stores.new_store("sqlite") as large:
        add_schedules(small, 1_000)
        add_schedules(large, options.large)
        with http_server(small) as little, http_server(large) as much:
            found = measure_by_turns({"small": little, "large": much}, ANEW, options.requests, options.rounds)
    costs = {name: [one.cpu_ms for one in figures] for name, figures in found.items()}
    for name, values in costs.items():
        print(f"    {name:<18}{spread(values, digits=3):>26} ms CPU a request")
    ratio = median(costs["large"]) / median(costs["small"])
    goals.judge(
        "list, 1 k → large", f"at most {MAX_GROWTH} x", found=f"{ratio:.2f} x", met=ratio <= MAX_GROWTH
    )


def send_requests(server: Server, kind: str, many: int, *, first: int) -> Figure:
    """Send requests over a few persistent connections."""
    before, began = server.cpu(), time.monotonic()
    sizes = asyncio.run(_send_all(server, kind, many, first))
    seconds, cpu = time.monotonic() - began, server.cpu() - before
    return Figure(many / seconds, cpu / many * 1000, int(statistics.median(sizes)))


async def _send_all(server: Server, kind: str, many: int, first: int) -> list[int]:
    numbers = iter(range(first, first + many))
    senders = [_send_on_connection(server, kind, numbers) for _ in range(min(CONNECTIONS, many))]
    return [size for sizes in await asyncio.gather(*senders) for size in sizes]


async def _send_on_connection(server: Server, kind: str, numbers: Iterator[int]) -> list[int]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    sizes = []
    for number in numbers:
        writer.write(_request(server, kind, number))
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head[9:12])
        if status >= 300:
            raise RuntimeError(f"{kind}: {head.decode()}{await reader.read(500)!r}")
        lower = head.lower()
        at = lower.index(b"content-length:") + 15
        length = int(lower[at : lower.index(b"\r\n", at)])
        await reader.readexactly(length)
        sizes.append(length)
    writer.close()
    return sizes


def _request(server: Server, kind: str, number: int) -> bytes:
    path = {
        READ: f"/api/v1/schedules/schedule-{number % NAME_COUNT:08d}",
        FIRST: f"/api/v1/schedules/schedule-{server.schedules - 1 - number % server.schedules:08d}",
        LIST: "/api/v1/schedules?limit=50",
        ANEW: f"/api/v1/schedules?limit=50&metadata=%7B{_blanks(number)}%7D",
        UNSEEN: f"/api/v1/schedules?limit=50&name_starts=schedule-{_name_prefix(server, number)}",
        CREATE: "/api/v1/schedules",
    }[kind]
    body = b""
    if kind == CREATE:
        body = f'{{"name":"new-{server.port}-{number}","every":"1d","note":"hello"}}'.encode()
    lines = [
        f"{'POST' if body else 'GET'} {path} HTTP/1.1",
        f"Host: 127.0.0.1:{server.port}",
        f"Authorization: Bearer {server.key}",
    ]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _name_prefix(server: Server, number: int) -> str:
    """A prefix of a hundred names; prefixes repeat once all of them were used."""
    return f"{number % max(server.schedules // 100, 1):06d}"


def _blanks(number: int) -> str:
    """A number as spaces and tabs, which change the text of a request but not its meaning."""
    return f"{number:016b}".replace("0", "%20").replace("1", "%09")


@contextlib.contextmanager
def http_server(store_url: str, *, schedules: int = 1, command: str = "serve") -> Iterator[Server]:
    """Our HTTP server on a store, without an engine; the command `up` adds one."""
    state = {**os.environ, "XDG_STATE_HOME": str(Path(store_url).parent)}
    words = [sys.executable, "-m", "timewright", command, "--store", store_url, "--port", "0"]
    process = subprocess.Popen(
        words,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env=state,
        cwd=Path(store_url).parent,
    )
    try:
        port = 0
        assert process.stderr is not None
        for line in process.stderr:
            if line.strip().startswith("api "):
                port = int(line.split("127.0.0.1:")[1].split("/")[0])
            if line.startswith("ready in"):
                break
        yield Server(process, port, _key(store_url, state["XDG_STATE_HOME"]), schedules)
    finally:
        process.terminate()
        process.communicate(timeout=30)


def _key(store_url: str, state: str) -> str:
    """The local administrator's key, from the file that the server created."""
    from timewright.wiring import private_file

    os.environ["XDG_STATE_HOME"] = state
    path = private_file(store_url, "admin")
    assert path is not None
    return path.read_text("utf-8").strip()


@contextlib.contextmanager
def bare_starlette(sizes: Sequence[int], protocol: str) -> Iterator[Server]:
    words = [sys.executable, "-m", "benchmarks.parts.api_bare_server", *map(str, sizes), protocol]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        time.sleep(0.5)
        yield Server(process, port)
    finally:
        process.terminate()
        process.communicate(timeout=30)


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks api", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--schedules", type=int, default=None, help="100,000, quick 1,000")
    parser.add_argument("--large", type=int, default=None, help="1,000,000, quick 10,000")
    parser.add_argument("--requests", type=int, default=None, help="2,000, quick 200")
    parser.add_argument("--rounds", type=int, default=None, help="3, quick 1")
    parser.add_argument("--quick", action="store_true", help="small sizes: whether it works, not how fast")
    options = parser.parse_args(arguments)
    sizes = {"schedules": (1_000, 100_000), "large": (10_000, 1_000_000), "requests": (200, 2_000)}
    for name, (quick, usual) in {**sizes, "rounds": (1, 3)}.items():
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else usual)
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
