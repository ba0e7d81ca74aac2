"""The one place that picks concrete things and joins them; it decides nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from timewright.clocks import SystemClock
from timewright.core.facts import Fact
from timewright.engine.launch import Launcher
from timewright.engine.loop import Loop
from timewright.engine.prune import Pruner
from timewright.engine.rest import EventWaker
from timewright.engine.tick import Limits, Tick
from timewright.errors import InvalidInput
from timewright.ids import TimedIds
from timewright.operations.context import Context
from timewright.ports import Clock, Observer, Store, Target
from timewright.settings import Settings

if TYPE_CHECKING:
    from timewright.stores.outside import Outside
    from timewright.targets.registry import Registry

SQLITE_SCHEMES = ("sqlite", "file")
POSTGRES_SCHEMES = ("postgresql", "postgres")
LAST_WORD = timedelta(seconds=1)


def open_store(place: str | os.PathLike[str], *, clock: Clock | None = None) -> Store:
    """A store from a path, `sqlite:///path` or `postgresql://…`; its schema is brought up to date."""
    path = path_of(place)
    if path is None:
        from timewright.stores.postgres import PostgresStore

        return PostgresStore(os.fspath(place), clock=clock)
    from timewright.stores.sqlite import SqliteStore

    return SqliteStore(path, clock=clock)


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


class Targets(Mapping[str, Target]):
    """Targets by kind, each built when it is first needed, so that an idle part costs nothing."""

    def __init__(self, makers: Mapping[str, Callable[[], Target]]) -> None:
        self._makers = dict(makers)
        self._made: dict[str, Target] = {}

    def __getitem__(self, kind: str) -> Target:
        if kind not in self._made:
            self._made[kind] = self._makers[kind]()
        return self._made[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def close(self, *, grace: timedelta) -> None:
        """Close those that were built."""
        for target in self._made.values():
            target.close(grace=grace)


class House:
    """Everything one instance is made of."""

    def __init__(
        self,
        store: Store,
        *,
        settings: Settings,
        registry: Registry,
        clock: Clock | None = None,
        observers: Sequence[Observer] = (),
        isolated: bool = False,
    ) -> None:
        self.store = store
        self.settings = settings
        self.registry = registry
        self.clock = clock or SystemClock()
        self.ids = TimedIds()
        self.waker = EventWaker()
        self.instance = self.ids.new("instance", now=store.now())
        self.targets = Targets(self._makers(isolated=isolated))
        self.launcher = Launcher(self.targets, monotonic=self.clock.monotonic, wake=self.waker.wake)
        limits = Limits(capacity=settings.capacity, batch=settings.batch)
        self.loop = Loop(
            store,
            Tick(store, self.launcher, ids=self.ids, holder=self.instance, limits=limits),
            self.launcher,
            clock=self.clock,
            waker=self.waker,
            observers=observers,
            longest_rest=settings.longest_rest,
            pruner=Pruner(store, keep=settings.keep_history),
        )
        self._loops: list[Any] = []

    def context(self) -> Context:
        """What an operation needs to work on this house."""
        return Context(store=self.store, ids=self.ids, settings=self.settings, tell=self.tell)

    def tell(self, facts: Sequence[Fact]) -> None:
        """Tell the observers, and let the engine look: an edit may have moved something nearer."""
        self.loop.tell(facts)
        self.waker.wake()

    def start(self) -> None:
        """Begin to run what is due."""
        self.loop.start()

    def stop(self, *, wait: timedelta | None = None) -> None:
        """Stop gracefully, then free every thread, process and socket."""
        self.loop.stop(wait=self.settings.stop_wait if wait is None else wait)
        # What is left was asked to stop and had its grace.
        self.targets.close(grace=LAST_WORD)
        for loop in self._loops:
            loop.close(grace=LAST_WORD)

    def close(self) -> None:
        """Give the store back."""
        self.store.close()

    def _makers(self, *, isolated: bool) -> dict[str, Callable[[], Target]]:
        return {
            "call": lambda: self._call(isolated=isolated),
            "http": self._http,
            "shell": self._shell,
            "note": _note,
        }

    def _call(self, *, isolated: bool) -> Target:
        from timewright.targets.call import CallTarget

        return CallTarget(
            self.registry,
            isolation="process" if isolated else "inherit",
            threads=self.settings.threads,
            workers=self.settings.workers,
            loop=self._loop_thread("timewright-calls"),
        )

    def _http(self) -> Target:
        from timewright.targets.egress import Egress
        from timewright.targets.http import HttpTarget

        egress = Egress.local() if self.settings.local else Egress()
        return HttpTarget(self._loop_thread("timewright-http"), egress=egress, clock=self.clock)

    def _shell(self) -> Target:
        from timewright.targets.shell import ShellTarget

        return ShellTarget(allowed=self.settings.shell)

    def _loop_thread(self, name: str) -> Any:
        from timewright.targets.loop import LoopThread

        loop = LoopThread(name)
        loop.start()
        self._loops.append(loop)
        return loop


def new_registry() -> Registry:
    """An empty list of functions by name."""
    from timewright.targets.registry import Registry

    return Registry()


def load_registry(reference: str) -> Registry:
    """The list of functions at `module:name`, of the scheduler there or of its own."""
    from timewright.targets.registry import load_app

    return load_app(reference)


def _note() -> Target:
    from timewright.targets.note import NoteTarget

    return NoteTarget()


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
