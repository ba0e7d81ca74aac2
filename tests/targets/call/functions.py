"""Functions for the tests of the call target, most of them misbehaving. Worker processes import them."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from timewright.targets.call.registry import FunctionRegistry
from timewright.targets.context import Context, NotBefore

registry = FunctionRegistry()
ANSWER = {"answer": 42}
HELD: list[int] = []
SPOILS = ("limit", "niceness", "input", "files")
LATER = datetime(2026, 3, 10, 12, tzinfo=UTC)


@registry.register
def nothing() -> None:
    pass


@registry.register
def add(a: int, b: int = 1) -> int:
    return a + b


@registry.register
def tell(context: Context) -> dict[str, Any]:
    return {
        "run": context.run_id,
        "planned_at": context.planned_at,
        "missed": context.missed,
        "fence": context.fence,
        "remaining": context.remaining.total_seconds(),
        "pid": os.getpid(),
        "thread": threading.current_thread().name,
        "env": {name: text for name, text in os.environ.items() if name.startswith("TIMEWRIGHT_RUN_")},
        "names": sorted(os.environ),
    }


@registry.register
async def tell_async(context: Context, **args: Any) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"run": context.run_id, "args": args, "thread": threading.current_thread().name}


@registry.register
def word(text: str) -> str:
    return text


@registry.register
def not_yet() -> NotBefore:
    return NotBefore(LATER)


@registry.register
def boom() -> None:
    raise ValueError("the cat \0 is \udc80 out")


class Unshowable(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


@registry.register
def unshowable() -> None:
    raise Unshowable


class Stubborn(str):
    """A str subclass whose methods raise."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        raise SystemExit(3)

    def rstrip(self, chars: str | None = None) -> str:
        raise SystemExit(3)


class Wordy(Exception):
    def __str__(self) -> str:
        return Stubborn("in words of its own")


class _Nameless(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise SystemExit(3)


class Anonymous(Exception, metaclass=_Nameless):
    pass


@registry.register
def raise_wordy() -> None:
    raise Wordy


@registry.register
def raise_anonymous() -> None:
    raise Anonymous("who")


@registry.register
def raise_it(name: str) -> None:
    raise {"exit": SystemExit(3), "interrupt": KeyboardInterrupt(), "generator": GeneratorExit()}[name]


@registry.register
async def raise_it_async(name: str) -> None:
    raise {"exit": SystemExit(3), "cancelled": asyncio.CancelledError()}[name]


@registry.register
def recurse() -> int:
    return recurse() + 1


@registry.register
def odd() -> object:
    return object()


class Bill:
    """Has `model_dump` like a pydantic model, without importing pydantic in every worker."""

    def model_dump(self, *, mode: str) -> dict[str, str]:
        return {"total": "9.50", "mode": mode}


class Column:
    """Has `tolist` like a NumPy array."""

    def tolist(self) -> list[float]:
        return [1.0, 2.5]


class Mirror:
    """Its `tolist` returns itself."""

    def tolist(self) -> Mirror:
        return self


@registry.register
def modelled() -> object:
    return {"bill": Bill(), "column": Column(), "path": PurePosixPath("/a/b")}


@registry.register
def mirrored() -> object:
    return Mirror()


@registry.register
def yielding() -> object:
    """Returns a generator, like a generator function behind a decorator."""
    return (ANSWER for _ in range(3))


@registry.register
def cyclic() -> object:
    found: list[object] = []
    found.append(found)
    return found


@registry.register
def deep(levels: int) -> object:
    found: object = 1
    for _ in range(levels):
        found = [found]
    return found


@registry.register
def half_character() -> str:
    return "\udc80"


@registry.register
def huge() -> str:
    return "x" * 1_000_000


@registry.register
def leave(code: int) -> None:
    os._exit(code)


@registry.register
def kill_yourself(signum: int) -> None:
    os.kill(os.getpid(), signum)


@registry.register
def hold_the_interpreter() -> None:
    """Match a regular expression that backtracks for years while it holds the GIL."""
    re.match(r"(a+)+$", "a" * 64 + "b")


@registry.register
def ignore_term(ready: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(ready).write_text(str(os.getpid()))
    while True:
        time.sleep(60)


@registry.register
def tidy_up(ready: str, tidied: str) -> None:
    try:
        Path(ready).write_text(str(os.getpid()))
        time.sleep(60)
    finally:
        Path(tidied).write_text("tidied")


def write(path: str, text: str) -> None:
    Path(path).write_text(text)


@registry.register
async def tidy_up_async(ready: str, tidied: str) -> None:
    try:
        write(ready, "ready")
        await asyncio.sleep(60)
    finally:
        write(tidied, "tidied")


@registry.register
def wait_until_cancelled(context: Context, ready: str) -> str:
    Path(ready).write_text("ready")
    context.cancelled.wait(60)
    return context.cancelled.reason


@registry.register
def fork_and_return(context: Context) -> str:
    """Fork; both processes return, and the parent waits for the child."""
    other = os.fork()
    if other:
        os.waitpid(other, 0)
    return context.run_id


@registry.register
def leave_a_daemon(ready: str) -> str:
    """Leave a grandchild in its own session that outlives the function."""
    code = f"import os,time; open({ready!r},'w').write(str(os.getpid())); time.sleep(60)"
    subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    while not Path(ready).exists() or not Path(ready).read_text():
        time.sleep(0.01)
    return "useful"


@registry.register
def leave_an_orphan(ready: str) -> str:
    """Leave a forked grandchild in its own session whose parent has ended."""
    middle = os.fork()
    if not middle:
        os.setsid()
        if not os.fork():
            Path(ready + ".new").write_text(str(os.getpid()))
            Path(ready + ".new").rename(ready)
            time.sleep(60)
        os._exit(0)
    os.waitpid(middle, 0)
    while not Path(ready).exists():
        time.sleep(0.01)
    return "useful"


@registry.register
def leave_a_thread() -> int:
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    return os.getpid()


@registry.register
def print_much(megabytes: int) -> int:
    line = "x" * 1023 + "\n"
    for _ in range(megabytes * 1024):
        sys.stdout.write(line)
    sys.stdout.write("the end\n")
    return os.getpid()


@registry.register
def print_pieces(megabytes: int) -> None:
    piece = "x" * (1024 * 1024 - 1) + "\n"
    for _ in range(megabytes):
        sys.stdout.write(piece)
    sys.stdout.write("the end\n")


@registry.register
def length(text: str) -> int:
    return len(text)


@registry.register
def start_a_process(ready: str) -> None:
    """Start a process in the same group, and write both pids."""
    child = subprocess.Popen(["sleep", "60"])
    Path(ready + ".new").write_text(f"{os.getpid()} {child.pid}")
    Path(ready + ".new").rename(ready)
    time.sleep(60)


@registry.register
def close_outputs() -> int:
    os.close(1)
    sys.stderr.close()
    return os.getpid()


@registry.register
def close_output() -> int:
    os.close(1)
    return os.getpid()


@registry.register
def change_everything() -> int:
    os.environ["LEFT_BEHIND"] = "1"
    os.chdir("/")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    signal.setitimer(signal.ITIMER_REAL, 30)
    sys.setrecursionlimit(5000)
    socket.setdefaulttimeout(0.001)
    threading.excepthook = lambda _: sys.exit(3)
    os.umask(0o777)
    return os.getpid()


@registry.register
def look_around() -> dict[str, Any]:
    mask = os.umask(0o022)
    os.umask(mask)
    return {
        "pid": os.getpid(),
        "left": os.environ.get("LEFT_BEHIND"),
        "cwd": str(Path.cwd()),
        "chld": signal.getsignal(signal.SIGCHLD),
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "alarm": signal.getitimer(signal.ITIMER_REAL),
        "depth": sys.getrecursionlimit(),
        "timeout": socket.getdefaulttimeout(),
        "mask": mask,
        "hook": threading.excepthook is threading.__excepthook__,
    }


@registry.register
def spoil(what: str) -> int:
    """Change process state that cannot be restored."""
    if what == "limit":
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    if what == "niceness":
        os.nice(1)
    if what == "input":
        os.close(0)
    if what == "files":
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        HELD.extend(os.open("/dev/null", os.O_RDONLY) for _ in range(150))
    return os.getpid()


@registry.register
def babble_to_the_owner() -> None:
    """Write invalid bytes to every descriptor, also to the connection of the worker."""
    for fd in range(3, 64):
        try:
            os.write(fd, b"\xff\xff\xff\xffnonsense")
        except OSError:
            continue
    time.sleep(60)


@registry.register
def flood_the_owner() -> None:
    """Write messages to the connection of the worker endlessly."""
    body = b'{"type":"started","number":999999}'
    flood = (len(body).to_bytes(4, "big") + body) * 4000
    for fd in range(3, 64):
        while True:
            try:
                os.write(fd, flood)
            except OSError:
                break


@registry.register
def hang_up() -> None:
    os.closerange(3, 256)
    time.sleep(60)


@registry.register
async def ignore_cancel(ready: str, release: str) -> None:
    write(ready, "ready")
    while not os.access(release, os.F_OK):
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue


@registry.register
async def exit_in_a_task() -> str:
    async def leave() -> None:
        raise SystemExit(3)

    task = asyncio.ensure_future(leave())
    await asyncio.wait({task})
    return "noop"


@registry.register
async def stop_the_loop() -> str:
    asyncio.get_running_loop().stop()
    return "noop"


@registry.register
async def cancel_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(60)


@registry.register
def log_what_has_no_text() -> str:
    class Mute:
        def __str__(self) -> str:
            raise ValueError("no text")

    logging.getLogger("quiet").error(Mute())
    return "useful"


@registry.register
def pid() -> int:
    return os.getpid()


@registry.register
def report_pages(ctx: Context) -> None:
    """Report many pages, then wait until the run is cancelled."""
    for page in range(3_000):
        ctx.progress(page / 5_998, f"page {page}")
        ctx.checkpoint({"page": page})
    ctx.cancelled.wait(60)


@registry.register
async def report_pages_async(ctx: Context) -> None:
    await asyncio.to_thread(report_pages, ctx)


@registry.register
def die_after_a_checkpoint(ctx: Context) -> Any:
    """Save a checkpoint and kill this process; the next attempt returns the checkpoint."""
    if ctx.last_checkpoint is None:
        ctx.checkpoint({"page": 7})
        os.kill(os.getpid(), signal.SIGKILL)
    return ctx.last_checkpoint


@registry.register
def token_parts(ctx: Context) -> list[Any]:
    """Return the kind of this run's token, whether it names the run, and whether the environment has it."""
    is_own = ctx.run_id in ctx.token
    return [ctx.token.partition("_")[0], is_own, os.environ.get("TIMEWRIGHT_RUN_TOKEN") == ctx.token]
