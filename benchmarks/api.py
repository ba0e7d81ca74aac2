"""What does a request to the HTTP door cost, beside Starlette alone, and does it grow with the store?

    python -m benchmarks api [--schedules 100000] [--large 1000000] [--requests 2000] [--rounds 3] [--quick]

Both answer over loopback to the same client, with as many bytes, by turns. CPU is that of the server process
alone, all of its threads; requests per second depend on what else the machine does. The door is served with
what the `fast` extra brings (uvloop, httptools); Starlette alone is served so as well, under the same
settings of the server, and once more with h11 for comparison.

An answer that is still true is not made twice, so more figures stand beside: schedules and lists that nobody
asked for before, pages of schedules that nobody has looked at before, and reads and lists while another
process commits all the time.
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

from benchmarks._measure import Goals, Places, heading, machine, median, spread
from benchmarks.start import fill

CONNECTIONS = 8
READ, LIST, CREATE = "read", "list of 50", "create"
FIRST, ANEW = "read for the first time", "list of 50 for the first time"
UNSEEN = "list of 50 that nobody has seen"
NAMES = 1_000
STIR_SECONDS = 0.002
GOALS = {READ: 2.0, LIST: 3.0, FIRST: 2.0, ANEW: 3.0}
GROWTH = 1.5


class Server(NamedTuple):
    """A process that answers, where, and the key it asks for."""

    process: subprocess.Popen[str]
    port: int
    key: str = ""
    schedules: int = 1

    def cpu(self) -> float:
        """Seconds of CPU it has used, all of its threads together."""
        # The clock of another process, as clock_getcpuclockid(3) spells it on Linux: finer than its ticks.
        return time.clock_gettime((~self.process.pid << 3) | 2)


class Figure(NamedTuple):
    """One round: how many a second, what one cost the server, and how many bytes came back."""

    rate: float
    cpu_ms: float
    size: int


def main(arguments: list[str]) -> int:
    asked = parsed(arguments)
    print(machine("starlette", "uvicorn", "uvloop", "httptools", "h11", "apsw"))
    goals = Goals()
    with Places() as places:
        compare(goals, places, asked)
        growth(goals, places, asked)
    print(f"\nall goals\n{goals.summary()}")
    return 0


def compare(goals: Goals, places: Places, asked: argparse.Namespace) -> None:
    """Each kind of request at the door, and with Starlette alone."""
    heading(
        f"the door beside Starlette alone, {asked.schedules:,} schedules",
        f"SQLite, {CONNECTIONS} connections, {asked.rounds} rounds of {asked.requests} requests by turns",
    )
    with places.fresh("sqlite") as place:
        fill(place, asked.schedules)
        with door(place, schedules=asked.schedules) as ours:
            sizes = [ask(ours, kind, 1, first=n).size for n, kind in enumerate((READ, LIST, CREATE))]
            with bare(sizes, "auto") as fast, bare(sizes, "h11") as plain:
                sides = {"door": ours, "Starlette, fast": fast, "Starlette, h11": plain}
                for kind in (READ, LIST, FIRST, ANEW, UNSEEN, CREATE):
                    many = asked.requests if kind != CREATE else asked.requests // 4
                    judged(goals, kind, alternated(sides, kind, many, asked.rounds))
                with stirred(place):
                    for kind in (READ, LIST):
                        found = alternated(sides, kind, asked.requests, asked.rounds)
                        judged(goals, f"{kind} while another process writes", found)


def alternated(sides: dict[str, Server], kind: str, many: int, rounds: int) -> dict[str, list[Figure]]:
    found: dict[str, list[Figure]] = {name: [] for name in sides}
    for server in sides.values():
        # Whoever reads again has read before; whoever reads for the first time has not.
        ask(server, kind, NAMES if kind == READ else max(many // 10, 20), first=10)
    for number in range(rounds):
        for name, server in sides.items():
            found[name].append(ask(server, kind, many, first=100 + number * many))
    return found


def judged(goals: Goals, kind: str, found: dict[str, list[Figure]]) -> None:
    print(f"\n  {kind}, {found['door'][0].size:,} bytes")
    for name, figures in found.items():
        rates, costs = [one.rate for one in figures], [one.cpu_ms for one in figures]
        print(f"    {name:<18}{spread(rates):>24}/s {spread(costs, digits=3):>26} ms CPU a request")
    cost = {name: median([one.cpu_ms for one in figures]) for name, figures in found.items()}
    fast, plain = cost["door"] / cost["Starlette, fast"], cost["door"] / cost["Starlette, h11"]
    print(f"    ratio of CPU: {fast:.1f} x Starlette with the fast extra, {plain:.1f} x with h11")
    if kind in GOALS:
        goal = f"CPU at most {GOALS[kind]:.0f} x bare Starlette (fast extra)"
        goals.judge(kind, goal, found=f"{fast:.1f} x ({plain:.1f} x h11)", met=fast <= GOALS[kind])


@contextlib.contextmanager
def stirred(place: str) -> Iterator[None]:
    """Another process that commits a small write every other millisecond."""
    words = [sys.executable, "-m", "benchmarks._api_stir", place, str(STIR_SECONDS)]
    process = subprocess.Popen(words)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)


def growth(goals: Goals, places: Places, asked: argparse.Namespace) -> None:
    """A list of 50 on a small and on a large store, by turns."""
    heading(f"a list of 50, 1,000 and {asked.large:,} schedules", "SQLite; CPU of the server a request")
    with places.fresh("sqlite") as small, places.fresh("sqlite") as large:
        fill(small, 1_000)
        fill(large, asked.large)
        with door(small) as little, door(large) as much:
            found = alternated({"small": little, "large": much}, ANEW, asked.requests, asked.rounds)
    costs = {name: [one.cpu_ms for one in figures] for name, figures in found.items()}
    for name, values in costs.items():
        print(f"    {name:<18}{spread(values, digits=3):>26} ms CPU a request")
    ratio = median(costs["large"]) / median(costs["small"])
    goals.judge("list, 1 k → large", f"at most {GROWTH} x", found=f"{ratio:.2f} x", met=ratio <= GROWTH)


def ask(server: Server, kind: str, many: int, *, first: int) -> Figure:
    """So many requests over a few connections that stay open."""
    before, began = server.cpu(), time.monotonic()
    sizes = asyncio.run(_all(server, kind, many, first))
    seconds, cpu = time.monotonic() - began, server.cpu() - before
    return Figure(many / seconds, cpu / many * 1000, int(statistics.median(sizes)))


async def _all(server: Server, kind: str, many: int, first: int) -> list[int]:
    numbers = iter(range(first, first + many))
    lanes = [_lane(server, kind, numbers) for _ in range(min(CONNECTIONS, many))]
    return [size for sizes in await asyncio.gather(*lanes) for size in sizes]


async def _lane(server: Server, kind: str, numbers: Iterator[int]) -> list[int]:
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
        READ: f"/api/v1/schedules/schedule-{number % NAMES:08d}",
        FIRST: f"/api/v1/schedules/schedule-{server.schedules - 1 - number % server.schedules:08d}",
        LIST: "/api/v1/schedules?limit=50",
        ANEW: f"/api/v1/schedules?limit=50&metadata=%7B{_blanks(number)}%7D",
        UNSEEN: f"/api/v1/schedules?limit=50&name_starts=schedule-{_hundred(server, number)}",
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


def _hundred(server: Server, number: int) -> str:
    """The beginning of a hundred names; the same one comes again when all of them have come."""
    return f"{number % max(server.schedules // 100, 1):06d}"


def _blanks(number: int) -> str:
    """A number as spaces and tabs, which change what is asked in its letters only."""
    return f"{number:016b}".replace("0", "%20").replace("1", "%09")


@contextlib.contextmanager
def door(place: str, *, schedules: int = 1) -> Iterator[Server]:
    """The HTTP door on a store, without an engine beside it."""
    state = {**os.environ, "XDG_STATE_HOME": str(Path(place).parent)}
    words = [sys.executable, "-m", "timewright", "serve", "--store", place, "--port", "0"]
    process = subprocess.Popen(
        words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=state, cwd=Path(place).parent
    )
    try:
        port = 0
        assert process.stderr is not None
        for line in process.stderr:
            if line.strip().startswith("api "):
                port = int(line.split("127.0.0.1:")[1].split("/")[0])
            if line.startswith("ready in"):
                break
        yield Server(process, port, _key(place, state["XDG_STATE_HOME"]), schedules)
    finally:
        process.terminate()
        process.communicate(timeout=30)


def _key(place: str, state: str) -> str:
    """The key of the local administrator, from the file that the door has made."""
    from timewright.assembly import private_place

    os.environ["XDG_STATE_HOME"] = state
    path = private_place(place, "admin")
    assert path is not None
    return path.read_text("utf-8").strip()


@contextlib.contextmanager
def bare(sizes: Sequence[int], protocol: str) -> Iterator[Server]:
    words = [sys.executable, "-m", "benchmarks._api_bare", *map(str, sizes), protocol]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        time.sleep(0.5)
        yield Server(process, port)
    finally:
        process.terminate()
        process.communicate(timeout=30)


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks api", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--schedules", type=int, default=None, help="100,000, quick 1,000")
    parser.add_argument("--large", type=int, default=None, help="1,000,000, quick 10,000")
    parser.add_argument("--requests", type=int, default=None, help="2,000, quick 200")
    parser.add_argument("--rounds", type=int, default=None, help="3, quick 1")
    parser.add_argument("--quick", action="store_true", help="small sizes: whether it works, not how fast")
    asked = parser.parse_args(arguments)
    sizes = {"schedules": (1_000, 100_000), "large": (10_000, 1_000_000), "requests": (200, 2_000)}
    for name, (quick, usual) in {**sizes, "rounds": (1, 3)}.items():
        if getattr(asked, name) is None:
            setattr(asked, name, quick if asked.quick else usual)
    return asked


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
