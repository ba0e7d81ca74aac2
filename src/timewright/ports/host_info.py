"""Data about the host of an instance: store, files, clocks, zone data, extras."""

from __future__ import annotations

from functools import cache

from msgspec import Struct


class OpenSnapshot(Struct, frozen=True):
    """A session that keeps a snapshot open, so that the server removes no row deleted since."""

    session: str
    """Who it is, for a person: its process id, user, program and address."""
    seconds: float
    end_with: str
    """The statement that ends it."""


class TableStatus(Struct, frozen=True):
    """How many rows of a table are live and dead, and whether the planner has statistics of it."""

    name: str
    live: int
    dead: int
    has_statistics: bool


class StoreStatus(Struct, frozen=True, kw_only=True):
    """The status of a store, read without changing it."""

    engine: str
    location: str
    settings: dict[str, str] = {}
    """Durability settings as the database reports them."""
    required_settings: dict[str, str] = {}
    """The settings that a durable commit needs."""
    file_system: str = ""
    free_bytes: int | None = None
    store_bytes: int | None = None
    wal_bytes: int | None = None
    schema: int = 0
    pending_migrations: tuple[str, ...] = ()
    clock_offset: float | None = None
    """Seconds by which the store's clock is ahead of ours."""
    notified_after: float | None = None
    """Seconds until a NOTIFY arrived; None if it did not."""
    pooled: bool = False
    """Whether a connection pooler changes the session between transactions."""
    snapshots: tuple[OpenSnapshot, ...] = ()
    """Snapshots that other sessions keep open, longest first."""
    tables: tuple[TableStatus, ...] = ()


class PrivateFile(Struct, frozen=True, kw_only=True):
    """A file that only its owner should access: its label, owner and permissions."""

    label: str
    path: str
    owned_by_us: bool
    mode: int


class HostInfo(Struct, frozen=True, kw_only=True):
    """Everything about an instance that needs no rows of its store."""

    version: str
    python: str
    store_status: StoreStatus
    files: tuple[PrivateFile, ...] = ()
    extras: dict[str, bool] = {}
    zone_data: str = ""
    bundled_zone_data: str = ""


@cache
def package_version() -> str:
    """The installed version of Timewright; cached, because reading it parses the package's metadata."""
    from importlib.metadata import version

    return version("timewright")
