"""Opens and inspects stores by URL; facts about the host, private files and notifications."""

from __future__ import annotations

import os
import platform
import re
import stat
import zoneinfo
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from timewright.access.keyring import ENV_SECRET_KEY, load_keyring, private_file_path
from timewright.clocks import SystemClock
from timewright.errors import InvalidInput
from timewright.operations.access.auth_cache import AuthCache
from timewright.operations.access.service_tokens import load_service_token_verifier
from timewright.ports import ChangeListener, Clock, Store
from timewright.ports.host_info import HostInfo, PrivateFile, StoreStatus, package_version
from timewright.settings import Settings

# A module that each extra installs.
EXTRA_MODULES = {
    "postgres": "psycopg_pool",
    "mcp": "mcp",
    "otel": "opentelemetry.sdk",
    "jwt": "jwt",
    "secrets": "cryptography",
    "apprise": "apprise",
    "artifacts": "fsspec",
    "calendars": "holidays",
    "fast": "uvloop",
    "redis": "redis",
    "nats": "nats",
    "amqp": "aio_pika",
    "celery": "celery",
    "rq": "rq",
    "dramatiq": "dramatiq",
    "temporal": "temporalio",
    "sqs": "boto3",
    "kubernetes": "kubernetes_asyncio",
    "flask": "flask",
    "django": "django",
}
_VERSION = re.compile(r"\b(20\d\d[a-z]+)\b")


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
    """`sqlite:///x.db` is the relative path x.db, `sqlite:////x.db` is /x.db; `~` is the home folder."""
    if not scheme:
        # A shell expands it only without quotes, and a settings file not at all.
        return str(Path(text).expanduser()) if text.startswith("~/") else text
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


def inspect_host(condition: StoreStatus, files: Mapping[str, Path | None]) -> HostInfo:
    """Inspect the host of an instance; files that do not exist are left out."""
    return HostInfo(
        version=package_version(),
        python=platform.python_version(),
        store_status=condition,
        files=tuple(found for what, path in files.items() if path and (found := _file(what, path))),
        extras={extra: _has(module) for extra, module in EXTRA_MODULES.items()},
        zone_data=_system_zone_data(),
        bundled_zone_data=_bundled_zone_data(),
    )


def _file(what: str, path: Path) -> PrivateFile | None:
    try:
        found = path.stat()
    except OSError:
        return None
    mine = os.name != "posix" or found.st_uid in (os.getuid(), 0)
    return PrivateFile(label=what, path=str(path), owned_by_us=mine, mode=stat.S_IMODE(found.st_mode))


def _has(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _system_zone_data() -> str:
    """The version of the system's time zone data, which is read first; empty if unknown."""
    for folder in map(Path, zoneinfo.TZPATH):
        for name in ("tzdata.zi", "+VERSION"):
            try:
                with (folder / name).open(encoding="utf-8") as file:
                    found = _VERSION.search(file.readline(200))
            except OSError:
                continue
            if found:
                return found[1]
    return ""


def _bundled_zone_data() -> str:
    try:
        return str(import_module("tzdata").IANA_VERSION)
    except (ImportError, AttributeError):
        return ""
