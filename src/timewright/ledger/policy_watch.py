"""A policy file that somebody edits: looked at every second, and kept in the store when it has changed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from timewright.errors import Conflict
from timewright.ledger.policy import apply_policy_file
from timewright.ledger.policy_file import PolicyFile, load_policy_file
from timewright.ports import Store

LOOK_EVERY = 1.0
# Someone who does not know the file may have said otherwise in the store.
KEEP_EVERY = 30.0

_Seen = tuple[int, ...]


class PolicyWatch:
    """One policy file, for the queues of one namespace."""

    def __init__(self, path: str, *, namespace: str, monotonic: Callable[[], float]) -> None:
        self._path = path
        self._namespace = namespace
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._looked_at: float | None = None
        self._seen: _Seen = ()
        self._file = PolicyFile(path=path, namespace=namespace, absent=True)
        self._kept: PolicyFile | None = None
        self._kept_at = 0.0

    def look(self) -> PolicyFile:
        """What the file says now; it is read again when it was changed, and touches no store."""
        with self._lock:
            moment = self._monotonic()
            if self._looked_at is None or not 0 <= moment - self._looked_at < LOOK_EVERY:
                # Seen before it is read: what is written in between is read the next time.
                seen = _seen(self._path)
                if self._looked_at is None or seen != self._seen:
                    self._file = replace(load_policy_file(self._path), namespace=self._namespace)
                self._seen, self._looked_at = seen, moment
            return self._file

    def keep(self, store: Store) -> PolicyFile:
        """The same, and what it says is in force from here on; one that cannot be read changes nothing."""
        file, moment = self.look(), self._monotonic()
        is_kept = file is self._kept and 0 <= moment - self._kept_at < KEEP_EVERY
        if not is_kept and file.refusal is None:
            try:
                apply_policy_file(store, file, namespace=self._namespace, now=store.now())
            except Conflict:
                # Another instance has just read the same file; what it left undone is done here.
                apply_policy_file(store, file, namespace=self._namespace, now=store.now())
            self._kept, self._kept_at = file, moment
        return file


def _seen(path: str) -> _Seen:
    """What tells one state of a file from another, without reading it; nothing while it is not there."""
    try:
        found = Path(path).stat()
    except OSError:
        return ()
    return (found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode)
