"""One call of the command line: where the store is, who asks, and how the answer shall look."""

from __future__ import annotations

import getpass
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
from msgspec.structs import replace

from timewright.core.names import check_name
from timewright.doors.cli.table import clean
from timewright.errors import InvalidInput, NotFound, Unauthorized
from timewright.operations import Context, Operation
from timewright.settings import Settings

DEFAULT_STORE = "timewright.db"
DEFAULT_CONFIG = "timewright.toml"
MEMORY = ":memory:"
MAKES = frozenset({"create", "put", "add", "set"})
# Valid inside JSON text, where these characters stand in strings alone.
_MARKS = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

Opening = Callable[["Session", Operation[Any], Mapping[str, Any]], AbstractContextManager[Context]]


class Session:
    """What the global options say, and what follows from it."""

    def __init__(self, opening: Opening | None = None) -> None:
        self.given: dict[str, Any] = {}
        self._opening = opening or opened

    @property
    def place(self) -> str:
        """Where the store is."""
        place: str | None = self.given.get("store")
        return place if place is not None else os.environ.get("TIMEWRIGHT_STORE") or DEFAULT_STORE

    @property
    def server(self) -> str:
        """The server that is asked instead of the store, if one was named; a store named beside it wins."""
        if self.place.startswith(("http://", "https://")):
            return self.place
        named: str | None = self.given.get("server")
        usual = "" if self.given.get("store") else os.environ.get("TIMEWRIGHT_SERVER", "")
        return named or usual

    @property
    def namespace(self) -> str:
        """Whose things are meant."""
        named = self.given.get("namespace") or os.environ.get("TIMEWRIGHT_NAMESPACE") or "default"
        return check_name(named, field="namespace", longest=64)

    @property
    def output(self) -> str:
        """Table, json or yaml."""
        return str(self.given.get("output") or "table")

    @property
    def config(self) -> str:
        """The file with settings: the one that is named, or the one that lies here."""
        return str(self.given.get("config") or os.environ.get("TIMEWRIGHT_CONFIG") or DEFAULT_CONFIG)

    @property
    def quiet(self) -> bool:
        """Whether only names and ids are wanted."""
        return bool(self.given.get("quiet"))

    def settings(
        self, given: Mapping[str, Any] | None = None, *, strict: bool = False, base: Settings | None = None
    ) -> Settings:
        """The settings of the file and the environment, under those that are given and over the base."""
        from timewright.doors.cli.settings import load_settings

        return load_settings(self.given.get("config"), given or {}, strict=strict, base=base)

    def context(
        self, operation: Operation[Any], request: Mapping[str, Any]
    ) -> AbstractContextManager[Context]:
        """What an operation works with."""
        return self._opening(self, operation, request)

    def elsewhere(self) -> Session:
        """The same call on a store that is only imagined."""
        other = Session(self._opening)
        other.given = {**self.given, "store": MEMORY}
        return other

    def say(self, lines: Sequence[str]) -> None:
        """What was asked for, on the standard output."""
        for line in lines:
            click.echo(line)

    def note(self, *sentences: str) -> None:
        """What is good to know, on the standard error, unless nobody wants to."""
        # Whoever closed this stream does not want the words; what is done goes on.
        with suppress(OSError):
            for sentence in () if self.quiet else sentences:
                click.echo(clean(sentence), err=True)

    def detail(self, sentence: str) -> None:
        """What is only of interest to those who asked for more words."""
        if self.given.get("verbose"):
            self.note(sentence)

    def command(self, words: str) -> str:
        """A command to try next, for the same store."""
        place = self.given.get("store")
        return f"timewright {words}" + (f" --store {shlex.quote(shown_place(place))}" if place else "")


@contextmanager
def opened(session: Session, operation: Operation[Any], request: Mapping[str, Any]) -> Iterator[Context]:
    """A context on the store itself; it is closed when the command is done."""
    from timewright.assembly import (
        announced,
        check_target,
        doorkeeper_for,
        open_store,
        policies_of,
        surroundings_for,
        trial_on,
    )
    from timewright.clocks import SystemClock
    from timewright.ids import TimedIds

    if session.server:
        yield _elsewhere(session)
        return
    settings, namespace = session.settings(), session.namespace
    place = _place_for(session, operation, request)
    path = file_of(place)
    is_new = path is not None and place != MEMORY and not path.exists()
    store = open_store(place)
    session.detail(f"asking the store itself: {shown_place(place)}")
    if is_new:
        session.note(f"note: {place} is new")
    try:
        context = Context(
            store=announced(store),
            ids=TimedIds(),
            settings=settings,
            namespace=namespace,
            tell=_nobody_listens,
        )
        keeper = doorkeeper_for(place, settings)
        policies = policies_of(settings, namespace=namespace, clock=SystemClock())
        if policies is not None and not operation.reads_only and not request.get("dry_run"):
            policies.keep(store)
        yield replace(
            context,
            policy_file=policies.look if policies is not None else None,
            by=replace(context.by, actor=_who()),
            doorkeeper=keeper,
            surroundings=surroundings_for(place, settings, config=session.config),
            trial=trial_on(store, settings, doorkeeper=keeper),
            check=check_target,
        )
    finally:
        store.close()


def key_for(session: Session) -> str:
    """The key to show a server: the one in the environment, else that of this machine's administrator."""
    from timewright.assembly import private_place
    from timewright.operations.local_key import find_local_key

    given = os.environ.get("TIMEWRIGHT_KEY", "")
    store = DEFAULT_STORE if session.place.startswith(("http://", "https://")) else session.place
    path = private_place(store, "admin") if not given else None
    found = given or (find_local_key(path) if path is not None else None)
    if found:
        return found
    raise Unauthorized(
        "there is no key to show to the server",
        field="key",
        rule="TIMEWRIGHT_KEY, or the key file beside a store on this machine",
        fix="TIMEWRIGHT_KEY=tw_… with a key made by: timewright key create",
    )


def _elsewhere(session: Session) -> Context:
    from timewright.doors.http.client import Client, Elsewhere
    from timewright.ids import TimedIds

    given = session.given.get("namespace") or os.environ.get("TIMEWRIGHT_NAMESPACE")
    client = Client(session.server, key=key_for(session), namespace=session.namespace if given else None)
    session.detail(f"asking the server at {client.url}")
    return Context(
        store=Elsewhere(),
        ids=TimedIds(),
        settings=session.settings(),
        namespace=session.namespace,
        tell=_nobody_listens,
        elsewhere=client.ask,
    )


def look(place: str) -> Any:
    """Look before opening: a server that is away says so at once, and its pool does not complain."""
    import logging

    from timewright.assembly import look_at

    file_of(place)
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    return look_at(place)


def as_text(answer: Any, output: str, *, compact: bool = False) -> str:
    """An answer as JSON or YAML, exactly."""
    if output == "yaml":
        import yaml

        hides = _MARKS.search(json.dumps(answer, ensure_ascii=False)) is not None
        letters = _speaks_unicode() and not hides
        return yaml.safe_dump(answer, sort_keys=False, allow_unicode=letters).rstrip("\n")
    text = json.dumps(answer, indent=None if compact else 2, ensure_ascii=not _speaks_unicode())
    return _MARKS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def shown_place(place: str) -> str:
    """A place without its password."""
    if "://" not in place:
        return place
    split = urlsplit(place)
    host = split.netloc.rpartition("@")[2]
    user = f"{split.username}@" if split.username else ""
    return f"{split.scheme}://{user}{host}{split.path}"


def file_of(place: str) -> Path | None:
    """The file a place names, if it names one."""
    from timewright.assembly import path_of

    if not place.strip():
        raise InvalidInput(
            "store is empty", field="store", value=place, rule="a file or postgresql://…", fix=DEFAULT_STORE
        )
    try:
        path = path_of(place)
    except ValueError as error:
        raise InvalidInput(
            f"store cannot be read: {error}",
            field="store",
            rule="a file or postgresql://…",
            fix=DEFAULT_STORE,
        ) from None
    return Path(path) if path is not None else None


def _place_for(session: Session, operation: Operation[Any], request: Mapping[str, Any]) -> str:
    """Where to look: a question that needs no store needs no file, and a rehearsal makes none."""
    path = file_of(session.place)
    if path is None:
        look(session.place)
    if path is None or path.exists() or session.place == MEMORY:
        return session.place
    spreads: tuple[str, Any] | None = operation.request.spreads
    imagined = operation.reads_only and spreads is not None and not request.get("schedule")
    makes = operation.verb.split()[-1] in MAKES
    if imagined or (makes and request.get("dry_run")):
        return MEMORY
    if not makes:
        raise NotFound(
            f"there is no store at {session.place}",
            field="store",
            value=session.place,
            rule="--store or TIMEWRIGHT_STORE names a file that is there",
            fix="timewright up makes one here",
        )
    # What is refused leaves no file behind.
    with opened(session.elsewhere(), operation, request) as rehearsal:
        operation(rehearsal, {**request, "dry_run": True})
    return session.place


def _who() -> str:
    try:
        return getpass.getuser()[:255] or "local"
    except (KeyError, OSError, ImportError):
        return "local"


def _speaks_unicode() -> bool:
    return "utf" in (getattr(sys.stdout, "encoding", None) or "utf-8").lower()


def _nobody_listens(facts: Sequence[Any]) -> None:
    """One call of the command line has no observers; engines hear of the commit itself."""
