"""Places: where a store is, what lies beside it, and who hears of what is written there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from timewright.clocks import SystemClock
from timewright.errors import InvalidInput
from timewright.ledger.keyring_file import GIVEN, load_keyring, private_path
from timewright.operations.doorkeeper import Doorkeeper
from timewright.operations.signed_tokens import load_service_tokens
from timewright.ports import Clock, Ear, Store
from timewright.ports.surroundings import Surroundings
from timewright.settings import Settings

if TYPE_CHECKING:
    from timewright.stores.outside import Outside

SQLITE_SCHEMES = ("sqlite", "file")
POSTGRES_SCHEMES = ("postgresql", "postgres")
MEMORY = ":memory:"


def open_store(place: str | os.PathLike[str], *, clock: Clock | None = None) -> Store:
    """A store from a path, `sqlite:///path` or `postgresql://…`; its schema is brought up to date."""
    path = path_of(place)
    if path is None:
        from timewright.stores.postgres import PostgresStore

        return PostgresStore(os.fspath(place), clock=clock)
    from timewright.stores.sqlite import SqliteStore

    return SqliteStore(path, clock=clock)


def announced(store: Store, *, also: Callable[[], None] | None = None) -> Store:
    """The same store, and everyone who rests on it hears soon of what is written through it."""
    from timewright.stores.announced import Announced

    calls = [call for call in (also, call_of(store)) if call is not None]
    return Announced(store, lambda: [call() for call in calls]) if calls else store


def look_at(place: str | os.PathLike[str]) -> Outside:
    """What a place holds, without changing it: its engine, whether a store is there, and its schema."""
    from timewright.stores.outside import look_at_file, look_at_server

    path = path_of(place)
    return look_at_server(os.fspath(place)) if path is None else look_at_file(Path(path))


def copy_store(place: str | os.PathLike[str], to: str | os.PathLike[str]) -> int:
    """Copy a store in a file to another file, while it is in use; gives back how many bytes that are."""
    from timewright.stores.outside import copy_file

    path = path_of(place)
    if path is None:
        raise InvalidInput(
            "a backup of PostgreSQL is made with its own tools",
            field="store",
            rule="backup copies a store that is a file",
            fix="pg_dump --format=custom --file=timewright.dump, and the database",
        )
    return copy_file(Path(path), Path(to))


def path_of(place: str | os.PathLike[str]) -> str | None:
    """The file that a place names, or nothing if it is a database on a server."""
    text = os.fspath(place)
    scheme = urlsplit(text).scheme if "://" in text else ""
    if scheme in POSTGRES_SCHEMES:
        return None
    if scheme and scheme not in SQLITE_SCHEMES:
        raise InvalidInput(
            f"store {text!r} is of a kind we do not know",
            field="store",
            value=text,
            rule="a file, sqlite:///file or postgresql://…",
            fix="timewright.db, or postgresql://user@host/database",
        )
    return _sqlite_path(text, scheme)


def private_place(place: str | os.PathLike[str], kind: str) -> Path | None:
    """Where a private file of a store lies: `key` holds its secret key, `admin` the local key."""
    return private_path(path_of(place), os.fspath(place), kind=kind, environment=os.environ)


def doorkeeper_for(place: str | os.PathLike[str], settings: Settings) -> Doorkeeper:
    """Who keeps the doors of a store; its secret key is read when it is first needed."""
    return Doorkeeper(
        lambda: load_keyring(
            given=os.environ.get(GIVEN, ""),
            file=settings.secret_key_file,
            beside=private_place(place, "key"),
        ),
        services=lambda: load_service_tokens(settings),
    )


def surroundings_for(
    place: str | os.PathLike[str], settings: Settings, *, config: str | None = None
) -> Callable[[], Surroundings]:
    """How to look around an instance on a store: its files and its machine, without changing anything."""

    def look() -> Surroundings:
        from timewright.observe.surroundings import look_around
        from timewright.stores.condition import condition_of

        path = path_of(place)
        found = condition_of(os.fspath(place) if path is None else path, now=SystemClock().now())
        key = Path(settings.secret_key_file) if settings.secret_key_file else private_place(place, "key")
        file = Path(path) if path not in (None, MEMORY) else None
        return look_around(found, {"settings": Path(config) if config else None, "file": file, "key": key})

    return look


def ear_of(store: Store) -> Ear | None:
    """A store may hear of what others write; one that cannot is looked at now and then."""
    ear: Callable[[], Ear | None] | None = getattr(store, "ear", None)
    return ear() if ear is not None else None


def call_of(store: Store) -> Callable[[], None] | None:
    """A store may call others; those on a file look for themselves."""
    call: Callable[[], None] | None = getattr(store, "notify", None)
    return call


def _sqlite_path(text: str, scheme: str) -> str:
    """`sqlite:///x.db` is x.db here, `sqlite:////x.db` is /x.db, and a bare path is itself."""
    if not scheme:
        return text
    split = urlsplit(text)
    path = unquote(split.path)
    if split.netloc:
        raise InvalidInput(
            f"store {text!r} names a host",
            field="store",
            value=text,
            rule="sqlite:/// and a path: three slashes for one from here, four for one from the root",
            fix=f"sqlite:///{split.netloc}{path}",
        )
    return str(Path(path[1:])) if path.startswith("/") else path
