"""What surrounds an instance, as data: the store from outside, files, clocks, zone data, extras."""

from __future__ import annotations

from msgspec import Struct


class Condition(Struct, frozen=True, kw_only=True):
    """A store seen from outside, without changing it."""

    engine: str
    place: str
    settings: dict[str, str] = {}
    """What the database answers when it is asked how it runs."""
    wanted: dict[str, str] = {}
    """What it must answer for a commit to outlast a power cut."""
    file_system: str = ""
    free_bytes: int | None = None
    store_bytes: int | None = None
    wal_bytes: int | None = None
    schema: int = 0
    waiting: tuple[str, ...] = ()
    clock_offset: float | None = None
    """How many seconds the store's clock is ahead of ours."""
    notified_after: float | None = None
    """After how many seconds a call between instances came through; nothing if it did not."""
    pooled: bool = False
    """Whether a pooler stands between, that gives each transaction another session."""


class OwnFile(Struct, frozen=True, kw_only=True):
    """A file that only its owner should touch: what it is, whose, and what others may do with it."""

    what: str
    path: str
    mine: bool
    mode: int


class Surroundings(Struct, frozen=True, kw_only=True):
    """Everything that can be told of an instance without asking its store for rows."""

    version: str
    python: str
    condition: Condition
    files: tuple[OwnFile, ...] = ()
    extras: dict[str, bool] = {}
    zone_data: str = ""
    bundled_zone_data: str = ""
