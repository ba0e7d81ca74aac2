"""Ends whole process trees: SIGTERM, then SIGKILL, until no descendant is left."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from timewright.targets.io_thread import IoThread
from timewright.targets.processes.child import LIVE_CHILDREN, MIN_CHECK_INTERVAL_S, START_LOCK, ChildProcess
from timewright.targets.processes.table import ProcessInfo, ProcessTable, kill_marked, read_table, send_signal

# Time between SIGTERM and SIGKILL for descendants of a process that ended by itself.
LEFTOVER_GRACE_S = 1.0
# How long to repeat SIGKILL before reporting survivors and giving up.
KILL_TIMEOUT_S = 10.0
# How long to look again after the last descendant was seen, when a table may have missed one.
RECHECK_FOR_S = 1.0
MAX_CHECK_INTERVAL_S = 0.25
NO_LEADER = -1


class TreeTerminator:
    """Finds and signals what is left of process trees. One table serves all trees. Runs on the I/O thread."""

    def __init__(
        self,
        io_thread: IoThread,
        *,
        own_process: bool,
        proc: Path,
        drain: Callable[[ChildProcess], None],
        finish: Callable[[ChildProcess, int], None],
    ) -> None:
        self._io_thread = io_thread
        self._own_process = own_process
        self._proc = proc
        self._drain = drain
        self._finish = finish
        self._to_check: set[ChildProcess] = set()
        self._to_kill_by_mark: dict[str, ChildProcess] = {}
        self._check_scheduled = False
        self._unreaped: set[tuple[int, int]] = set()

    def terminate(self, child: ChildProcess, *, grace: float) -> None:
        """Send SIGTERM to the tree, and SIGKILL after `grace`. A second call can only shorten the grace."""
        at = self._io_thread.monotonic() + grace
        if child.kill_at is None or at < child.kill_at:
            child.kill_at = at
            self.check_tree_soon(child)

    def check_tree_soon(self, child: ChildProcess) -> None:
        """Find soon what is left of a tree, and end it. Trees that end together share one read of /proc."""
        if child.is_finished:
            return
        self._to_check.add(child)
        if not self._check_scheduled:
            self._check_scheduled = True
            self._io_thread.call_soon(self._check)

    def _check(self) -> None:
        self._check_scheduled = False
        children, self._to_check = self._to_check, set()
        try:
            table = read_table(self._proc)
        except OSError:  # no descriptor available now
            for child in children:
                self._check_later(child)
            return
        # An orphan that ended may have started another process first, so the table may be incomplete.
        reaped = self.reap_adopted(table) if self._own_process else []
        before, self._unreaped = self._unreaped, table.unreaped(except_parent=os.getpid())
        table.is_incomplete = table.is_incomplete or bool(reaped) or not self._unreaped <= before
        for child in children:
            found = self._find_descendants(child, table)
            if found or any(orphan.started >= child.started for orphan in reaped):
                child.last_seen_at = self._io_thread.monotonic()
            self._signal_or_finish(child, found, table)
        if self._to_kill_by_mark:
            self._kill_by_mark(table)

    def _kill_by_mark(self, table: ProcessTable) -> None:
        """Kill processes by mark for all trees that are past their grace but had no visible process."""
        trees, self._to_kill_by_mark = self._to_kill_by_mark, {}
        for mark in kill_marked(trees, set(table.processes), proc=self._proc):
            trees[mark].last_seen_at = self._io_thread.monotonic()

    def _find_descendants(self, child: ChildProcess, table: ProcessTable) -> list[ProcessInfo]:
        # After reaping, the pid may belong to another process: then only the mark identifies the tree.
        leader = NO_LEADER if child.is_reaped else child.pid
        found = table.descendants(leader, started=child.started, mark=child.mark)
        if self._own_process:
            found += self._unassigned_orphans(child, table, found)
        return found

    def _unassigned_orphans(
        self, child: ChildProcess, table: ProcessTable, found: list[ProcessInfo]
    ) -> list[ProcessInfo]:
        """Adopted orphans of unknown origin: the last running tree that may have started them gets them."""
        with START_LOCK:
            adopted = table.adopted_orphans(os.getpid(), known=LIVE_CHILDREN)
            others = [
                other for other in LIVE_CHILDREN.values() if other is not child and not other.is_finished
            ]
        known_pids = {process.pid for process in found}
        return [
            orphan
            for orphan in adopted
            if not orphan.is_dead
            and orphan.pid not in known_pids
            and orphan.started >= child.started
            and not any(other.started <= orphan.started for other in others)
        ]

    def _signal_or_finish(self, child: ChildProcess, found: list[ProcessInfo], table: ProcessTable) -> None:
        """Send SIGTERM, or SIGKILL after the grace; finish when nothing is left."""
        if child.is_finished:
            return
        now = self._io_thread.monotonic()
        if child.status is not None and not found:
            if self._needs_recheck(child, table, now=now):
                self._check_later(child)
            else:
                self._finish(child, 0 if child.is_output_closed else 1)
            return
        if child.kill_at is None:
            child.kill_at = now + LEFTOVER_GRACE_S
        if now >= child.kill_at + KILL_TIMEOUT_S:
            self._finish(child, len(found) + (child.status is None))
            return
        if now >= child.kill_at:
            self._signal(child, found, signal.SIGKILL)
        else:
            new = [process for process in found if process.pid not in child.signalled_pids]
            self._signal(child, new, signal.SIGTERM)
            child.signalled_pids.update(process.pid for process in new)
        self._check_later(child)

    def _needs_recheck(self, child: ChildProcess, table: ProcessTable, *, now: float) -> bool:
        """Whether to check again although nothing was found: a process that forks often is easily missed."""
        self._drain(child)
        if child.is_output_closed and not table.is_incomplete:
            return False
        child.check_interval_s = MIN_CHECK_INTERVAL_S
        if child.uncertain_since is None:
            child.uncertain_since = child.last_seen_at = now
            return True
        if child.is_output_closed and child.kill_at is None and child.last_seen_at <= child.uncertain_since:
            return False  # it ended by itself and never had a descendant: one recheck is enough
        if child.kill_at is not None and now >= child.kill_at:
            self._to_kill_by_mark[child.mark] = child
        return now < min(child.last_seen_at + RECHECK_FOR_S, child.uncertain_since + KILL_TIMEOUT_S)

    def _signal(self, child: ChildProcess, found: list[ProcessInfo], signum: int) -> None:
        # The leader is not reaped before its tree is gone, so its pid still identifies the group.
        if not child.is_reaped and (signum == signal.SIGKILL or child.pid not in child.signalled_pids):
            child.signalled_pids.add(child.pid)
            with suppress(OSError):
                os.killpg(child.pid, signum)
                os.killpg(child.pid, signal.SIGCONT)
        outside = found if child.is_reaped else [process for process in found if process.group != child.pid]
        for process in outside:
            send_signal(process, signum, proc=self._proc)

    def _check_later(self, child: ChildProcess) -> None:
        if child.check_timer is not None:
            child.check_timer.cancel()
        pause = child.check_interval_s
        if child.kill_at is not None and (left := child.kill_at - self._io_thread.monotonic()) > 0:
            pause = min(pause, left)
        is_killing = child.kill_at is not None and child.kill_at <= self._io_thread.monotonic()
        child.check_interval_s = (
            MIN_CHECK_INTERVAL_S if is_killing else min(2 * child.check_interval_s, MAX_CHECK_INTERVAL_S)
        )
        child.check_timer = self._io_thread.call_later(pause, lambda: self.check_tree_soon(child))

    def reap_adopted(self, table: ProcessTable) -> list[ProcessInfo]:
        """Reap orphans that have ended, and return them."""
        with START_LOCK:
            reaped = [
                orphan for orphan in table.adopted_orphans(os.getpid(), known=LIVE_CHILDREN) if orphan.is_dead
            ]
        for orphan in reaped:
            with suppress(ChildProcessError):
                os.waitpid(orphan.pid, os.WNOHANG)
        return reaped
