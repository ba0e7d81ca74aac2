"""Watches a policy file: checks it every second, and stores its policies when it has changed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from timewright.errors import Conflict
from timewright.ledger.queues.policies import PolicyFile, apply_policy_file, load_policy_file
from timewright.ports import Store

READ_INTERVAL_S = 1.0
# Apply an unchanged file again this often, because another process may have changed the stored policies.
APPLY_INTERVAL_S = 30.0

_FileState = tuple[int, ...]


class PolicyFileWatcher:
    """Watches one policy file for the queues of one namespace."""

    def __init__(self, path: str, *, namespace: str, monotonic: Callable[[], float]) -> None:
        self._path = path
        self._namespace = namespace
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._read_at: float | None = None
        self._file_state: _FileState = ()
        self._file = PolicyFile(path=path, namespace=namespace, absent=True)
        self._applied: PolicyFile | None = None
        self._applied_at = 0.0

    def read(self) -> PolicyFile:
        """Return the contents of the file; reads it again if it has changed; uses no store."""
        with self._lock:
            moment = self._monotonic()
            if self._read_at is None or not 0 <= moment - self._read_at < READ_INTERVAL_S:
                # Stat before reading: a change in between is noticed next time.
                state = _file_state(self._path)
                if self._read_at is None or state != self._file_state:
                    self._file = replace(load_policy_file(self._path), namespace=self._namespace)
                self._file_state, self._read_at = state, moment
            return self._file

    def apply(self, store: Store) -> PolicyFile:
        """Read the file and store its policies; an unreadable file changes nothing."""
        file, moment = self.read(), self._monotonic()
        is_applied = file is self._applied and 0 <= moment - self._applied_at < APPLY_INTERVAL_S
        if not is_applied and file.error is None:
            try:
                apply_policy_file(store, file, namespace=self._namespace, now=store.now())
            except Conflict:
                # Another instance stores the same file at the same time; write what is left.
                apply_policy_file(store, file, namespace=self._namespace, now=store.now())
            self._applied, self._applied_at = file, moment
        return file


def _file_state(path: str) -> _FileState:
    """Attributes that change when the file changes; empty while it does not exist."""
    try:
        found = Path(path).stat()
    except OSError:
        return ()
    return (found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode)
