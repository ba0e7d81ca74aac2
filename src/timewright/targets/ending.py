"""Ends whole trees of processes: asks, waits, kills, and looks until nothing is left of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from timewright.targets.child import FIRST_LOOK, STARTED, STARTING, Child
from timewright.targets.process import Process, Table, hunt, read_table, send
from timewright.targets.watch import Watch

# What a process left behind by a leader that ended by itself gets between TERM and KILL.
LEFT_BEHIND = 1.0
# How long we go on killing what does not die before we say so and let go.
GIVE_UP = 10.0
# How long after the last trace of a tree we go on looking, while something may have slipped through.
DOUBT = 1.0
SLOWEST_LOOK = 0.25
NOBODY = -1


class Ending:
    """Looks for what is left of trees, many of them with one reading of the table; on the watch's thread."""

    def __init__(
        self,
        watch: Watch,
        *,
        own_process: bool,
        proc: Path,
        drain: Callable[[Child], None],
        finish: Callable[[Child, int], None],
    ) -> None:
        self._watch = watch
        self._own_process = own_process
        self._proc = proc
        self._drain = drain
        self._finish = finish
        self._to_look: set[Child] = set()
        self._to_hunt: dict[str, Child] = {}
        self._looks = False
        self._dead: set[tuple[int, int]] = set()

    def begin(self, child: Child, *, grace: float) -> None:
        """TERM to the whole tree, KILL to what is left after the grace; asking again can only hasten it."""
        at = self._watch.monotonic() + grace
        if child.kill_at is None or at < child.kill_at:
            child.kill_at = at
            self.look_soon(child)

    def look_soon(self, child: Child) -> None:
        """Look for what is left of a tree; one reading of the table serves all that end together."""
        if child.is_over:
            return
        self._to_look.add(child)
        if not self._looks:
            self._looks = True
            self._watch.call(self._look)

    def _look(self) -> None:
        self._looks = False
        children, self._to_look = self._to_look, set()
        try:
            table = read_table(self._proc)
        except OSError:  # no descriptor free just now
            for child in children:
                self._look_later(child)
            return
        # One that has ended may have started another first; if it was adopted by us it is a sure trace.
        ended = self.reap_adopted(table) if self._own_process else []
        dead, self._dead = self._dead, table.dead(except_of=os.getpid())
        table.torn = table.torn or bool(ended) or not self._dead <= dead
        for child in children:
            rest = self._rest_of(child, table)
            if rest or any(orphan.started >= child.started for orphan in ended):
                child.traced_at = self._watch.monotonic()
            self._press(child, rest, table)
        if self._to_hunt:
            self._hunt(table)

    def _hunt(self, table: Table) -> None:
        """Once for all that may be killed, and of which nothing was found that could be."""
        hunted, self._to_hunt = self._to_hunt, {}
        for mark in hunt(hunted, set(table.processes), proc=self._proc):
            hunted[mark].traced_at = self._watch.monotonic()

    def _rest_of(self, child: Child, table: Table) -> list[Process]:
        # Once it is reaped its number may be a stranger's: then only the mark tells.
        leader = NOBODY if child.is_reaped else child.pid
        rest = table.kin(leader, started=child.started, mark=child.mark)
        if self._own_process:
            rest += self._strangers(child, table, rest)
        return rest

    def _strangers(self, child: Child, table: Table, kin: list[Process]) -> list[Process]:
        """Orphans nobody can be named for; they go when the last tree goes that can have borne them."""
        with STARTING:
            adopted = table.adopted(os.getpid(), known=STARTED)
            others = [other for other in STARTED.values() if other is not child and not other.is_over]
        named = {process.pid for process in kin}
        return [
            orphan
            for orphan in adopted
            if not orphan.is_gone
            and orphan.pid not in named
            and orphan.started >= child.started
            and not any(other.started <= orphan.started for other in others)
        ]

    def _press(self, child: Child, rest: list[Process], table: Table) -> None:
        """One more push: TERM first, KILL when the grace is over, and the end when nothing is left."""
        if child.is_over:
            return
        now = self._watch.monotonic()
        if child.status is not None and not rest:
            if self._is_doubtful(child, table, now=now):
                self._look_later(child)
            else:
                self._finish(child, 0 if child.is_silent else 1)
            return
        if child.kill_at is None:
            child.kill_at = now + LEFT_BEHIND
        if now >= child.kill_at + GIVE_UP:
            self._finish(child, len(rest) + (child.status is None))
            return
        if now >= child.kill_at:
            self._signal(child, rest, signal.SIGKILL)
        else:
            new = [process for process in rest if process.pid not in child.told]
            self._signal(child, new, signal.SIGTERM)
            child.told.update(process.pid for process in new)
        self._look_later(child)

    def _is_doubtful(self, child: Child, table: Table, *, now: float) -> bool:
        """Whether to look again, although nothing was found: one that jumps about is easily missed."""
        self._drain(child)
        if child.is_silent and not table.torn:
            return False
        child.pause = FIRST_LOOK
        if child.doubted_at is None:
            child.doubted_at = child.traced_at = now
            return True
        if child.is_silent and child.kill_at is None and child.traced_at <= child.doubted_at:
            return False  # it ended by itself, quietly, and never had company: a second look was enough
        if child.kill_at is not None and now >= child.kill_at:
            self._to_hunt[child.mark] = child
        return now < min(child.traced_at + DOUBT, child.doubted_at + GIVE_UP)

    def _signal(self, child: Child, rest: list[Process], signum: int) -> None:
        # The leader is not reaped before its tree is gone, so its number still means this group.
        if not child.is_reaped and (signum == signal.SIGKILL or child.pid not in child.told):
            child.told.add(child.pid)
            with suppress(OSError):
                os.killpg(child.pid, signum)
                os.killpg(child.pid, signal.SIGCONT)
        outside = rest if child.is_reaped else [process for process in rest if process.group != child.pid]
        for process in outside:
            send(process, signum, proc=self._proc)

    def _look_later(self, child: Child) -> None:
        if child.look is not None:
            child.look.cancel()
        pause = child.pause
        if child.kill_at is not None and (left := child.kill_at - self._watch.monotonic()) > 0:
            pause = min(pause, left)
        is_killing = child.kill_at is not None and child.kill_at <= self._watch.monotonic()
        child.pause = FIRST_LOOK if is_killing else min(2 * child.pause, SLOWEST_LOOK)
        child.look = self._watch.later(pause, lambda: self.look_soon(child))

    def reap_adopted(self, table: Table) -> list[Process]:
        """Reap orphans that have ended; says which."""
        with STARTING:
            ended = [orphan for orphan in table.adopted(os.getpid(), known=STARTED) if orphan.is_gone]
        for orphan in ended:
            with suppress(ChildProcessError):
                os.waitpid(orphan.pid, os.WNOHANG)
        return ended
