"""The one place that picks concrete things and joins them; it decides nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from timewright.clocks import SystemClock
from timewright.core.facts import Fact
from timewright.core.run import Outcome
from timewright.core.target import AnyTarget, Workflow
from timewright.engine.launch import Launcher
from timewright.engine.loop import Loop
from timewright.engine.presence import Presence
from timewright.engine.prune import Pruner
from timewright.engine.rest import EventWaker
from timewright.engine.targets import Targets
from timewright.engine.tick import Limits, Tick
from timewright.errors import InvalidInput, NotFound
from timewright.ids import TimedIds
from timewright.ledger.keyring_file import GIVEN, load_keyring, private_path
from timewright.ledger.secret_shelf import reveal
from timewright.observe.watch import Watch
from timewright.operations.context import Context
from timewright.operations.doorkeeper import Doorkeeper
from timewright.operations.redaction import Redaction
from timewright.operations.signed_tokens import load_service_tokens
from timewright.ports import Clock, Ear, Launch, Observer, Store, Target
from timewright.ports.surroundings import Surroundings
from timewright.settings import Settings

if TYPE_CHECKING:
    from timewright.stores.outside import Outside
    from timewright.targets.registry import Registry

SQLITE_SCHEMES = ("sqlite", "file")
POSTGRES_SCHEMES = ("postgresql", "postgres")
MEMORY = ":memory:"
# Names the store of the process that runs an app, for the app itself and for its worker processes.
HOSTED = "TIMEWRIGHT_HOSTED"
LAST_WORD = timedelta(seconds=1)


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

    calls = [call for call in (also, _call_of(store)) if call is not None]
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
        doorkeeper: Doorkeeper | None = None,
        own_ports: Sequence[int] = (),
        own_addresses: Sequence[str] = (),
        surroundings: Callable[[], Surroundings] | None = None,
    ) -> None:
        self._own = (frozenset(own_ports), frozenset(own_addresses))
        self.store = store
        self.doorkeeper = doorkeeper
        self.surroundings = surroundings
        self.settings = settings
        self.registry = registry
        self.clock = clock or SystemClock()
        self.ids = TimedIds()
        self.waker = EventWaker()
        self.instance = self.ids.new("instance", now=store.now())
        self.redaction = Redaction()
        self.watch = Watch(settings, clock=self.clock, redact=self.redaction.text)
        self.store = store = self.watch.timed(store)
        self.targets = Targets(self._makers(isolated=isolated), around=self._around)
        self.launcher = Launcher(self.targets, monotonic=self.clock.monotonic, wake=self.waker.wake)
        limits = Limits(capacity=settings.capacity, batch=settings.batch)
        capacity, work = limits.capacity, self.launcher
        self.presence = Presence(store, self.instance, clock=self.clock, capacity=capacity, work=work)
        self.loop = Loop(
            store,
            Tick(store, self.launcher, ids=self.ids, holder=self.instance, limits=limits),
            self.launcher,
            clock=self.clock,
            waker=self.waker,
            observers=[*observers, *self.watch.observers],
            longest_rest=settings.longest_rest,
            pruner=Pruner(store, keep=settings.keep_history),
            ear=_ear_of(store),
            call_others=_call_of(store),
            presence=self.presence,
        )
        self._loops: list[Any] = []
        self.watch.look_at(store, pulse=self.loop.pulse)

    def metrics_text(self) -> str:
        """Every number of this instance, as Prometheus reads it."""
        return self.watch.metrics_text()

    def context(self) -> Context:
        """What an operation needs to work on this house."""
        return Context(
            store=announced(self.store, also=self.waker.wake),
            ids=self.ids,
            doorkeeper=self.doorkeeper,
            settings=self.settings,
            surroundings=self.surroundings,
            trial=self.targets.try_once,
            check=check_target,
            functions=lambda: frozenset(one.name for one in self.registry),
            tell=self.tell,
        )

    def tell(self, facts: Sequence[Fact]) -> None:
        """Tell the observers, and let the engine look: an edit may have moved something nearer."""
        self.loop.tell(facts)
        self.waker.wake()

    def start(self) -> None:
        """Begin to run what is due."""
        self.watch.start()
        self.loop.start()

    def stop(self, *, wait: timedelta | None = None) -> str:
        """Stop gracefully, then free every thread, process and socket; says what was left undone."""
        ending = self.loop.stop(wait=self.settings.stop_wait if wait is None else wait)
        if not ending.trouble:
            self.presence.leave()
        self.free()
        return ending.in_words()

    def free(self) -> None:
        """Free every thread, process and socket; what is left was asked to stop and had its grace."""
        self.targets.close(grace=LAST_WORD)
        for loop in self._loops:
            loop.close(grace=LAST_WORD)
        self.watch.close()

    def ear(self) -> Ear | None:
        """What hears when another process writes into this store."""
        return _ear_of(self.store)

    def close(self) -> None:
        """Give the store back."""
        self.store.close()

    def _makers(self, *, isolated: bool) -> dict[str, Callable[[], Target]]:
        return {
            "call": lambda: self._call(isolated=isolated),
            "http": self._http,
            "shell": self._shell,
            "publish": self._publish,
            "note": _note,
            "workflow": self._workflow,
        }

    def _call(self, *, isolated: bool) -> Target:
        from timewright.targets.call import CallTarget

        return CallTarget(
            self.registry,
            isolation="process" if isolated else "inherit",
            threads=self.settings.threads,
            workers=self.settings.workers,
            passed=(HOSTED,) if isolated else (),
            loop=self._loop_thread("timewright-calls"),
        )

    def _http(self) -> Target:
        from timewright.targets.egress import Allow, Egress
        from timewright.targets.http import HttpTarget

        ports, addresses = self._own
        rules = self.settings.egress
        allow = [Allow(cidr=one.cidr, host=one.host, port=one.port) for one in rules.allow]
        egress = replace(
            Egress.local(allow=allow) if self.settings.local else Egress(allow=tuple(allow)),
            ports=frozenset(rules.ports) or None,
            own_ports=ports,
            own_addresses=addresses,
        )
        loop = self._loop_thread("timewright-http")
        return HttpTarget(loop, egress=egress, clock=self.clock, secrets=self._secret)

    def _shell(self) -> Target:
        from timewright.targets.shell import ShellTarget

        return ShellTarget(allowed=self.settings.shell, secrets=self._secret)

    def _publish(self) -> Target:
        from timewright.targets.publish.target import PublishTarget

        loop = self._loop_thread("timewright-publish")
        return PublishTarget(loop, allowed=self.settings.publish, secrets=self._secret)

    def _workflow(self) -> Target:
        from timewright.ledger.unfold_pin import dag_of
        from timewright.targets.launcher import Dag, WorkflowTarget

        def find(launch: Launch) -> Dag:
            assert isinstance(launch.target, Workflow)
            target = launch.target
            spec, pin = self.store.read(lambda tx: dag_of(tx, launch.run_id, target))
            return Dag(spec=spec, user=pin.user, input=pin.input)

        return WorkflowTarget(find, http=lambda: self.targets["http"])

    def _secret(self, namespace: str, name: str) -> str:
        """The value of a secret for one launch; whoever asks keeps it no longer than that."""
        if self.doorkeeper is None:
            raise NotFound("no secrets are set up", field="secret", value=name)
        value = reveal(self.store, self.doorkeeper.keyring, namespace=namespace, name=name)
        self.redaction.learn(name, value)
        return value

    def _around(self, kind: str, target: Target) -> Target:
        """The target, discreet about secrets, and traced if anyone traces."""
        from timewright.targets.discreet import Discreet

        return self.watch.around(kind, Discreet(target, self.redaction))

    def _loop_thread(self, name: str) -> Any:
        from timewright.targets.loop import LoopThread

        loop = LoopThread(name)
        loop.start()
        self._loops.append(loop)
        return loop


def check_target(target: AnyTarget) -> None:
    """Refuse a target that could never be started, as early as when its schedule is written."""
    from timewright.targets.checks import check

    check(target)


def trial_on(
    store: Store, settings: Settings, *, doorkeeper: Doorkeeper | None = None
) -> Callable[[Launch], Outcome]:
    """How a target is tried where no instance runs: everything it needs is made for it, and freed."""

    def try_once(launch: Launch) -> Outcome:
        house = House(store, settings=settings, registry=new_registry(), doorkeeper=doorkeeper)
        try:
            return house.targets.try_once(launch)
        finally:
            house.free()

    return try_once


def new_registry() -> Registry:
    """An empty list of functions by name."""
    from timewright.targets.registry import Registry

    return Registry()


def load_registry(reference: str) -> Registry:
    """The list of functions at `module:name`, of the scheduler there or of its own."""
    from timewright.targets.registry import load_app

    return load_app(reference)


def _ear_of(store: Store) -> Ear | None:
    """A store may hear of what others write; one that cannot is looked at now and then."""
    ear: Callable[[], Ear | None] | None = getattr(store, "ear", None)
    return ear() if ear is not None else None


def _call_of(store: Store) -> Callable[[], None] | None:
    """A store may call others; those on a file look for themselves."""
    call: Callable[[], None] | None = getattr(store, "notify", None)
    return call


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
