"""Runs one PostgreSQL for as long as somebody needs it, then stops it and clears up: a program of its own.

`timewright.testing.postgres` starts it as a separate process, so that a test run that is killed, however
hard, leaves no server and no files behind. It needs the standard library alone. Its one argument is JSON:

    home      where the binaries are
    who       [uid, gid] to run the server as, or null to run it as ourselves
    folders   where to keep the data, the first that will do
    settings  what is set on the server
    users     a file that every user holds a shared lock on, or null if our standard input is the only user
    ready     a file that names the running server, for those who come later, or null

It says one line of JSON when the server answers (`host`, `pid`) or why it cannot (`failed`). A lone user
may ask for another start, after the server was killed, by writing a line.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

PATIENCE = 30.0
POLL = 0.02
RESTARTS = 100
# The kernel takes socket paths of 107 bytes (elsewhere a few less); PostgreSQL adds `/.s.PGSQL.5432`.
LONGEST_FOLDER = 80


class Failed(Exception):
    """The server cannot be started, and why."""


class Server:
    """One cluster in a folder of its own, run by whoever may run it."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.settings: list[str] = asked["settings"]
        self.who: list[int] | None = asked["who"]
        self.folder = Path("/")
        self.folder = self._make_folder(asked["folders"])
        self.data = self.folder / "d"
        self.home = Path(asked["home"])
        self.process: subprocess.Popen[bytes] | None = None

    def create(self) -> None:
        """Lay out the data."""
        self.home = self._reachable(self.home)
        initdb, data = str(self.home / "bin" / "initdb"), str(self.data)
        command = [initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, **self._surroundings()
        )
        if done.returncode:
            raise Failed(f"initdb: {(done.stderr or done.stdout).strip()}")

    def start(self, *, tries: int = 1) -> None:
        """Start the server and wait until it answers; what a killed one left may take a moment to go."""
        for _ in range(tries):
            if self._comes_up():
                return
            pause()
        self.stop()
        raise Failed(f"postgres: {self._last_words()}")

    def _comes_up(self) -> bool:
        left = PATIENCE
        self.process = self._launch()
        while self.process.poll() is None and left > 0:
            if self._status() == "ready":
                return True
            left -= pause()
        return False

    def stop(self) -> None:
        """Ask it to end at once, and insist if it does not."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def clear(self) -> None:
        """Remove every file of the cluster."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def wait(self) -> None:
        """Wait until the server that was killed is gone, so that another can be started."""
        if self.process is not None:
            self.process.wait(PATIENCE)

    def _launch(self) -> subprocess.Popen[bytes]:
        arguments = [part for setting in self.settings for part in ("-c", setting)]
        command = [str(self.home / "bin" / "postgres"), "-D", str(self.data), "-k", str(self.folder)]
        with self._log().open("ab") as log:
            return subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=False,
                **self._surroundings(),
            )

    def _status(self) -> str:
        """What the server says of itself: the eighth line of its lock file, once it is the one we started."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return ""
        ours = self.process is not None and lines[:1] == [str(self.process.pid)]
        return lines[7].strip() if ours and len(lines) > 7 else ""

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            return self._log().read_text(errors="replace").strip()[-2000:]
        return "no log was written"

    def _log(self) -> Path:
        return self.folder / "log"

    def _make_folder(self, folders: list[str]) -> Path:
        """A short folder that the server's user owns and can reach."""
        tried = []
        for parent in folders:
            if len(parent.encode()) > LONGEST_FOLDER - 16:
                tried.append(f"{parent}: the path is too long for a socket")
                continue
            try:
                folder = Path(tempfile.mkdtemp(prefix="pg-", dir=parent))
            except OSError as error:
                tried.append(str(error))
                continue
            if self.who is None:
                return folder
            os.chown(folder, *self.who)
            if self._runs(["/bin/sh", "-c", 'cd "$1"', "sh", str(folder)]):
                return folder
            folder.rmdir()
            tried.append(f"{parent}: the user {self.who[0]} cannot enter it")
        raise Failed(f"no folder for the data: {'; '.join(tried)}")

    def _reachable(self, home: Path) -> Path:
        """The binaries where they are, or a copy beside the data if the server's user cannot get there."""
        if self.who is None or self._runs([home / "bin" / "postgres", "--version"]):
            return home
        copy = self._copied(home.resolve())
        if self._runs([copy / "bin" / "postgres", "--version"]):
            return copy
        raise Failed(f"the user {self.who[0]} cannot run {copy / 'bin' / 'postgres'}")

    def _copied(self, home: Path) -> Path:
        """A copy of the binaries, and of the libraries the package keeps two folders above them."""
        site, package = self.folder / "site", home.parent
        copy = site / package.name / home.name
        shutil.copytree(home, copy, symlinks=True)
        for libraries in package.parent.glob(f"{package.name}*.libs"):
            shutil.copytree(libraries, site / libraries.name, symlinks=True)
        for path in [site, *site.rglob("*")]:
            if not path.is_symlink():
                # As chmod a+rX: what the owner may run or enter, everybody may.
                path.chmod(path.stat().st_mode | 0o444 | (0o111 if path.stat().st_mode & 0o100 else 0))
        return copy

    def _runs(self, command: list[Any]) -> bool:
        try:
            done = subprocess.run(command, capture_output=True, check=False, **self._surroundings())
        except (OSError, subprocess.SubprocessError):
            return False
        return done.returncode == 0

    def _surroundings(self) -> dict[str, Any]:
        """The least a server needs to know of us: PostgreSQL refuses to run as root, so root steps down."""
        who = {} if self.who is None else {"user": self.who[0], "group": self.who[1], "extra_groups": []}
        return {"env": {"LC_ALL": "C.UTF-8", "HOME": str(self.folder)}, "cwd": "/", **who}


def pause() -> float:
    """Wait a little, and say how long."""
    select.select([], [], [], POLL)
    return POLL


def serve(asked: dict[str, Any]) -> None:
    """Run the server until nobody needs it any more."""
    server = Server(asked)
    ready = Path(asked["ready"]) if asked["ready"] else None
    try:
        server.create()
        server.start()
        tell(server, ready)
        if asked["users"]:
            with Path(asked["users"]).open("rb") as users:
                _until_alone(users, server, ready)
        else:
            for _ in sys.stdin:
                server.wait()
                server.start(tries=RESTARTS)
                tell(server, ready)
    finally:
        server.stop()
        server.clear()


def _until_alone(users: IO[bytes], server: Server, ready: Path | None) -> None:
    """Hold the lock that every user shares: we get it when the last of them is gone, killed or not."""
    fcntl.flock(users, fcntl.LOCK_EX)
    if ready is not None:
        ready.unlink(missing_ok=True)
    # Whoever comes now waits for the lock, and finds no server: stopped before the lock is given back.
    server.stop()


def tell(server: Server, ready: Path | None) -> None:
    """Say where the server is."""
    assert server.process is not None
    line = json.dumps({"host": str(server.folder), "pid": server.process.pid})
    if ready is not None:
        fresh = ready.with_suffix(".new")
        fresh.write_text(line, encoding="utf-8")
        fresh.replace(ready)
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(argument: str) -> int:
    """Serve, or say why not; a polite request to end is obeyed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        serve(json.loads(argument))
    except (Failed, OSError) as error:
        sys.stdout.write(json.dumps({"failed": str(error)}) + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
