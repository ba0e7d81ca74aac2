"""Opens and inspects stores by URL, and finds their private files and notifications."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from timewright.access.keyring import ENV_SECRET_KEY, load_keyring, private_file_path
from timewright.clocks import SystemClock
from timewright.errors import InvalidInput
from timewright.operations.access.auth_cache import AuthCache
from timewright.operations.access.service_tokens import load_service_token_verifier
from timewright.ports import ChangeListener, Clock, Store
from timewright.ports.host_info import HostInfo
from timewright.settings import Settings

if TYPE_CHECKING:
    from timewright.stores.store_info import StoreInfo
    from timewright.targets.artifacts.store import ArtifactStore

SQLITE_SCHEMES = ("sqlite", "file")
POSTGRES_SCHEMES = ("postgresql", "postgres")
MEMORY_PATH = ":memory:"
ARTIFACTS_SUFFIX = ".artifacts"


def open_store(url: str | os.PathLike[str], *, clock: Clock | None = None) -> Store:
    """Open a store from a path, `sqlite:///path` or `postgresql://…`, and migrate its schema."""
    path = sqlite_path(url)
    if path is None:
        from timewright.stores.postgres.store import PostgresStore

        return PostgresStore(os.fspath(url), clock=clock)
    from timewright.stores.sqlite.store import SqliteStore

    return SqliteStore(path, clock=clock)


def with_notifications(store: Store, *, wake: Callable[[], None] | None = None) -> Store:
    """Wrap a store so that every write wakes this instance and notifies other processes."""
    from timewright.stores.listeners import NotifyingStore

    calls = [notify for notify in (wake, notifier_of(store)) if notify is not None]
    return NotifyingStore(store, lambda: [notify() for notify in calls]) if calls else store


def inspect_store(url: str | os.PathLike[str]) -> StoreInfo:
    """Read without changes which database is at the URL, whether it holds a store, and its schema version."""
    from timewright.stores.store_info import read_file_info, read_server_info

    path = sqlite_path(url)
    return read_server_info(os.fspath(url)) if path is None else read_file_info(Path(path))


def sqlite_path(url: str | os.PathLike[str]) -> str | None:
    """The file of an SQLite URL or path; None for PostgreSQL."""
    text = os.fspath(url)
    scheme = urlsplit(text).scheme if "://" in text else ""
    if scheme in POSTGRES_SCHEMES:
        return None
    if scheme and scheme not in SQLITE_SCHEMES:
        raise InvalidInput(
            f"store {text!r} has an unknown scheme",
            field="store",
            value=text,
            rule="a file, sqlite:///file or postgresql://…",
            fix="timewright.db, or postgresql://user@host/database",
        )
    return _sqlite_path(text, scheme)


def private_file(url: str | os.PathLike[str], kind: str) -> Path | None:
    """The path of a private file of a store: `key` holds its secret key, `admin` the local API key."""
    return private_file_path(sqlite_path(url), os.fspath(url), kind=kind, environment=os.environ)


def build_auth_cache(url: str | os.PathLike[str], settings: Settings) -> AuthCache:
    """Build the authentication cache of a store. Its secret key is read on first use."""
    return AuthCache(
        lambda: load_keyring(
            given=os.environ.get(ENV_SECRET_KEY, ""),
            file=settings.secret_key_file,
            beside=private_file(url, "key"),
        ),
        services=lambda: load_service_token_verifier(settings),
    )


def host_inspector(
    url: str | os.PathLike[str], settings: Settings, *, config: str | None = None
) -> Callable[[], HostInfo]:
    """Return a function that inspects the files and the machine of an instance, without changes."""

    def inspect() -> HostInfo:
        from timewright.stores.store_info import read_store_status
        from timewright.telemetry.host_info import inspect_host

        path = sqlite_path(url)
        found = read_store_status(os.fspath(url) if path is None else path, now=SystemClock().now())
        key = Path(settings.secret_key_file) if settings.secret_key_file else private_file(url, "key")
        file = Path(path) if path not in (None, MEMORY_PATH) else None
        return inspect_host(found, {"settings": Path(config) if config else None, "file": file, "key": key})

    return inspect


def artifact_store_of(store: Store, settings: Settings) -> ArtifactStore | None:
    """Where the artifacts of a store are: as set, or beside its file; None without a place for them."""
    path = str(getattr(store, "path", "") or "")
    location = settings.artifacts or (f"{path}{ARTIFACTS_SUFFIX}" if path and path != MEMORY_PATH else "")
    if not location or location == "off":
        return None
    from timewright.targets.artifacts.store import open_artifact_store

    return open_artifact_store(location)


def change_listener_of(store: Store) -> ChangeListener | None:
    """The store's listener for external writes. Stores without one are polled."""
    open_listener: Callable[[], ChangeListener | None] | None = getattr(store, "change_listener", None)
    return open_listener() if open_listener is not None else None


def notifier_of(store: Store) -> Callable[[], None] | None:
    """The store's function to notify other processes; None for SQLite, where they poll the file."""
    notify: Callable[[], None] | None = getattr(store, "notify", None)
    return notify


def _sqlite_path(text: str, scheme: str) -> str:
    """`sqlite:///x.db` is the relative path x.db, `sqlite:////x.db` is /x.db; a plain path is unchanged."""
    if not scheme:
        return text
    split = urlsplit(text)
    path = unquote(split.path)
    if split.netloc:
        raise InvalidInput(
            f"store {text!r} has a host",
            field="store",
            value=text,
            rule="sqlite:///relative/path or sqlite:////absolute/path",
            fix=f"sqlite:///{split.netloc}{path}",
        )
    return str(Path(path[1:])) if path.startswith("/") else path
