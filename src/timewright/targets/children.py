"""Processes we start: their output is read, their end is noticed, and nothing that grew out of them stays."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from timewright.targets.child import FIRST_LOOK, STARTED, STARTING, Child, Spawn, status_of
from timewright.targets.ending import GIVE_UP, Ending
from timewright.targets.excerpt import Excerpt
from timewright.targets.process import MARK, adopt_orphans, offer_first, read_process, read_table
from timewright.targets.watch import Timer, Watch

# What may still come through the pipe after its first process has ended: somebody else holds it open.
LINGER = 1.0
POLL_EVERY = 0.05
TIDY_EVERY = 30.0
_PIECE = 256 * 1024

# One entry for each `Children` of this process that wants orphans to come to us: what was so before it.
_ADOPTING: list[bool] = []


class Children:
    """Starts processes and ends whole trees of them; everything but `close` happens on the watch's thread.

    In a process that is ours alone (`own_process`) orphans come to us, so even one that left its session
    and threw its environment away is found. Elsewhere that would adopt strangers: there the tree is known
    by birth, session, group and the mark in its environment.
    """

    def __init__(
        self, *, watch: Watch | None = None, own_process: bool = False, proc: Path = Path("/proc")
    ) -> None:
        self._owns_watch = watch is None
        self.watch = watch or Watch()
        self._own_process = own_process
        self._proc = proc
        self._living: set[Child] = set()
        self._ending = Ending(
            self.watch, own_process=own_process, proc=proc, drain=self.drain, finish=self._finish
        )
        self._tidying: Timer | None = None
        if own_process:
            with STARTING:
                _ADOPTING.append(adopt_orphans(True))

    def start(self, spawn: Spawn, *, on_end: Callable[[Child], None]) -> Child:
        """Start a process; `on_end` is called once, when it and all that grew out of it are gone."""
        mark = os.urandom(8).hex()
        with STARTING:
            process = subprocess.Popen(
                spawn.argv,
                env={**spawn.env, MARK: mark},
                cwd=spawn.cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                start_new_session=True,
                pass_fds=() if spawn.keep_fd is None else (spawn.keep_fd,),
            )
            child = Child(process, mark=mark, output=Excerpt(spawn.output_bytes), on_end=on_end)
            STARTED[process.pid] = child
        self._living.add(child)
        try:
            self._begin(child)
        except BaseException:
            self._abort(child)
            raise
        return child

    def end(self, child: Child, *, grace: float) -> None:
        """TERM to the whole tree, KILL to what is left after the grace; asking again can only hasten it."""
        self._ending.begin(child, grace=grace)

    def drain(self, child: Child) -> None:
        """Read what its pipe holds now; not for ever, because it may be filled again meanwhile."""
        for _ in range(4):
            if not self._read_output(child):
                return

    def close(self, *, grace: float) -> None:
        """End what is left, wait until it is gone, and free the watch if nobody else has it."""
        ended = threading.Event()

        def finish() -> None:
            for child in self._living:
                self.end(child, grace=grace)
            self._when_empty(ended.set)

        if self._living:
            self.watch.call(finish)
            ended.wait(grace + GIVE_UP + 2 * LINGER)
        if self._tidying is not None:
            self._tidying.cancel()
        if self._own_process:
            self._own_process = False
            with STARTING:
                before = _ADOPTING.pop(0)
                if _ADOPTING:
                    _ADOPTING[0] = before  # others still want them; the last one restores what was
                else:
                    adopt_orphans(before)
        if self._owns_watch:
            self.watch.close()

    def _when_empty(self, action: Callable[[], None]) -> None:
        if self._living:
            self.watch.later(FIRST_LOOK, lambda: self._when_empty(action))
        else:
            action()

    def _begin(self, child: Child) -> None:
        offer_first(child.pid, proc=self._proc)
        born = read_process(child.pid, proc=self._proc)
        child.started = born.started if born is not None else 0
        assert child.process.stdout is not None
        pipe = child.process.stdout.fileno()
        os.set_blocking(pipe, False)
        widen(pipe)
        self.watch.when_readable(pipe, lambda: self._read_output(child))
        try:
            child.handle = os.pidfd_open(child.pid)
        except (OSError, AttributeError):
            self._poll(child)  # no such thing here, or no descriptor left: look from time to time instead
        else:
            self.watch.when_readable(child.handle, lambda: self._notice_end(child))
        if self._own_process and self._tidying is None:
            self._tidying = self.watch.later(TIDY_EVERY, self._tidy)

    def _abort(self, child: Child) -> None:
        """Undo a start that could not be finished, as if there had been none."""
        child.is_over = True
        with suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
        if child.process.stdout is not None:
            self.watch.forget(child.process.stdout.fileno())
            child.process.stdout.close()
        self._bury(child)

    def _read_output(self, child: Child) -> bool:
        """Read once; says whether there may be more at once."""
        pipe = child.process.stdout
        if pipe is None or pipe.closed:
            return False
        try:
            piece = os.read(pipe.fileno(), _PIECE)
        except BlockingIOError:
            return False
        except OSError:
            piece = b""
        if piece:
            child.output.feed(piece)
            return True
        self.watch.forget(pipe.fileno())
        pipe.close()
        if child.status is not None:
            self._ending.look_soon(child)
        return False

    def _poll(self, child: Child) -> None:
        self._notice_end(child)
        if child.status is None:
            self.watch.later(POLL_EVERY, lambda: self._poll(child))

    def _notice_end(self, child: Child) -> None:
        child.status = status_of(child.process)
        if child.status is None:
            return
        if child.handle is not None:
            self.watch.forget(child.handle)
            os.close(child.handle)
            child.handle = None
        if child.is_over:
            self._bury(child)
            return
        self.drain(child)
        if child.kill_at is not None or child.is_silent:
            self._ending.look_soon(child)
        else:
            child.look = self.watch.later(LINGER, lambda: self._ending.look_soon(child))

    def _finish(self, child: Child, survivors: int) -> None:
        child.is_over = True
        child.survivors = survivors
        if child.look is not None:
            child.look.cancel()
        if not self._proc.is_dir():
            # Without a table nobody can say what is left of the group: nothing shall be.
            with suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
        self.drain(child)
        pipe = child.process.stdout
        if pipe is not None and not pipe.closed:
            self.watch.forget(pipe.fileno())
            pipe.close()
        if child.status is not None:
            self._bury(child)
        child.on_end(child)

    def _bury(self, child: Child) -> None:
        child.process.wait()
        self._living.discard(child)
        with STARTING:
            STARTED.pop(child.pid, None)

    def _tidy(self) -> None:
        self._tidying = None
        if self._living:
            self._tidying = self.watch.later(TIDY_EVERY, self._tidy)
            with suppress(OSError):
                self._ending.reap_adopted(read_table(self._proc))


def widen(pipe: int) -> None:
    """Let the pipe hold more, where the system can: fewer turns for an output of gigabytes."""
    with suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIECE)
