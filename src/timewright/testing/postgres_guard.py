"""Run one PostgreSQL server while a test process needs it, then stop it and remove its files.

`timewright.testing.postgres` starts this file as a separate process, so that a test run that is killed leaves
no server and no files behind. It needs only the standard library. Its one argument is JSON:

    home      folder of the binaries
    who       [uid, gid] to run the server as, or null for the current user
    folders   candidate folders for the data; the first usable one is taken
    settings  server settings
    users     file on which every user holds a shared lock, or null if standard input is the only user
    ready     file that describes the running server for later users, or null

It prints one line of JSON: `host` and `pid` when the server answers, or `failed` with the reason. A single
user may ask for another start, after it killed the server, by writing a line.
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

TIMEOUT_S = 30.0
POLL_S = 0.02
MAX_RESTARTS = 100
# The kernel limits socket paths to 107 bytes (elsewhere a few less); PostgreSQL adds `/.s.PGSQL.5432`.
MAX_FOLDER_BYTES = 80


class StartFailed(Exception):
    """The server cannot be started; the message says why."""


class GuardedServer:
    """One cluster in its own folder."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.settings: list[str] = options["settings"]
        self.run_as: list[int] | None = options["who"]
        self.folder = Path("/")
        self.folder = self._make_folder(options["folders"])
        self.data = self.folder / "d"
        self.home = Path(options["home"])
        self.process: subprocess.Popen[bytes] | None = None

    def init_cluster(self) -> None:
        """Create the data folder with initdb."""
        self.home = self._reachable(self.home)
        initdb, data = str(self.home / "bin" / "initdb"), str(self.data)
        command = [initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, **self._process_options()
        )
        if done.returncode:
            raise StartFailed(f"initdb: {(done.stderr or done.stdout).strip()}")

    def start(self, *, tries: int = 1) -> None:
        """Start the server and wait until it answers.

        After a kill, retry until the old process's locks are gone.
        """
        for _ in range(tries):
            if self._start_once():
                return
            sleep_briefly()
        self.stop()
        raise StartFailed(f"postgres: {self._log_tail()}")

    def _start_once(self) -> bool:
        left = TIMEOUT_S
        self.process = self._launch()
        while self.process.poll() is None and left > 0:
            if self._status() == "ready":
                return True
            left -= sleep_briefly()
        return False

    def stop(self) -> None:
        """Ask the server to stop, and kill it after the timeout."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def remove_files(self) -> None:
        """Remove every file of the cluster."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def wait_for_exit(self) -> None:
        """Wait until the killed server has exited, so that another can be started."""
        if self.process is not None:
            self.process.wait(TIMEOUT_S)

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
                **self._process_options(),
            )

    def _status(self) -> str:
        """Return the status in line 8 of the lock file, if that file belongs to the started process."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return ""
        ours = self.process is not None and lines[:1] == [str(self.process.pid)]
        return lines[7].strip() if ours and len(lines) > 7 else ""

    def _log_tail(self) -> str:
        with contextlib.suppress(OSError):
            return self._log().read_text(errors="replace").strip()[-2000:]
        return "no log was written"

    def _log(self) -> Path:
        return self.folder / "log"

    def _make_folder(self, folders: list[str]) -> Path:
        """Create a folder with a short path that the server's user owns and can enter."""
        tried = []
        for parent in folders:
            if len(parent.encode()) > MAX_FOLDER_BYTES - 16:
                tried.append(f"{parent}: the path is too long for a socket")
                continue
            try:
                folder = Path(tempfile.mkdtemp(prefix="pg-", dir=parent))
            except OSError as error:
                tried.append(str(error))
                continue
            if self.run_as is None:
                return folder
            os.chown(folder, *self.run_as)
            if self._runs(["/bin/sh", "-c", 'cd "$1"', "sh", str(folder)]):
                return folder
            folder.rmdir()
            tried.append(f"{parent}: the user {self.run_as[0]} cannot enter it")
        raise StartFailed(f"no folder for the data: {'; '.join(tried)}")

    def _reachable(self, home: Path) -> Path:
        """Return the binaries' folder, or a copy beside the data if the server's user cannot reach it."""
        if self.run_as is None or self._runs([home / "bin" / "postgres", "--version"]):
            return home
        copy = self._copied(home.resolve())
        if self._runs([copy / "bin" / "postgres", "--version"]):
            return copy
        raise StartFailed(f"the user {self.run_as[0]} cannot run {copy / 'bin' / 'postgres'}")

    def _copied(self, home: Path) -> Path:
        """Copy the binaries, and the libraries that the package keeps two folders above them."""
        site, package = self.folder / "site", home.parent
        copy = site / package.name / home.name
        shutil.copytree(home, copy, symlinks=True)
        for libraries in package.parent.glob(f"{package.name}*.libs"):
            shutil.copytree(libraries, site / libraries.name, symlinks=True)
        for path in [site, *site.rglob("*")]:
            if not path.is_symlink():
                # As chmod a+rX: what the owner may read or enter, everybody may.
                path.chmod(path.stat().st_mode | 0o444 | (0o111 if path.stat().st_mode & 0o100 else 0))
        return copy

    def _runs(self, command: list[Any]) -> bool:
        try:
            done = subprocess.run(command, capture_output=True, check=False, **self._process_options())
        except (OSError, subprocess.SubprocessError):
            return False
        return done.returncode == 0

    def _process_options(self) -> dict[str, Any]:
        """Environment and user for child processes.

        PostgreSQL refuses root, so root switches to another user.
        """
        who = (
            {}
            if self.run_as is None
            else {"user": self.run_as[0], "group": self.run_as[1], "extra_groups": []}
        )
        return {"env": {"LC_ALL": "C.UTF-8", "HOME": str(self.folder)}, "cwd": "/", **who}


def sleep_briefly() -> float:
    """Sleep for one poll interval; return its length."""
    select.select([], [], [], POLL_S)
    return POLL_S


def serve(options: dict[str, Any]) -> None:
    """Run the server until no user is left."""
    server = GuardedServer(options)
    ready = Path(options["ready"]) if options["ready"] else None
    try:
        server.init_cluster()
        server.start()
        announce(server, ready)
        if options["users"]:
            with Path(options["users"]).open("rb") as users:
                _wait_for_last_user(users, server, ready)
        else:
            for _ in sys.stdin:
                server.wait_for_exit()
                server.start(tries=MAX_RESTARTS)
                announce(server, ready)
    finally:
        server.stop()
        server.remove_files()


def _wait_for_last_user(users: IO[bytes], server: GuardedServer, ready: Path | None) -> None:
    """Wait for the exclusive lock: the kernel grants it when the last user has ended or was killed."""
    fcntl.flock(users, fcntl.LOCK_EX)
    if ready is not None:
        ready.unlink(missing_ok=True)
    # A user who arrives now waits for the lock and then finds no server: stop it before releasing the lock.
    server.stop()


def announce(server: GuardedServer, ready: Path | None) -> None:
    """Report the server's address on standard output and in the ready file."""
    assert server.process is not None
    line = json.dumps({"host": str(server.folder), "pid": server.process.pid})
    if ready is not None:
        fresh = ready.with_suffix(".new")
        fresh.write_text(line, encoding="utf-8")
        fresh.replace(ready)
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(argument: str) -> int:
    """Serve until done; print the reason if the server cannot start. SIGTERM ends it cleanly."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        serve(json.loads(argument))
    except (StartFailed, OSError) as error:
        sys.stdout.write(json.dumps({"failed": str(error)}) + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
