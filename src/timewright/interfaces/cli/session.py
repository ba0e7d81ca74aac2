"""One invocation of the command line: store or server, user, namespace and output format."""

from __future__ import annotations

import getpass
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from timewright.clocks import SystemClock, system_zone
from timewright.core.input.input_errors import check_name
from timewright.core.sensitive_keys import redact_store_url
from timewright.errors import InvalidInput, NotFound, Unauthorized
from timewright.ids import TimedIds
from timewright.interfaces.cli.output.table import Screen, current_screen, escape_control, supports_unicode
from timewright.interfaces.cli.settings import DEFAULT_CONFIG, load_settings, store_in_config
from timewright.interfaces.program import program, with_program
from timewright.operations import Operation, OperationContext
from timewright.settings import Settings

DEFAULT_STORE = "timewright.db"
MEMORY_STORE = ":memory:"
CREATING_VERBS = frozenset({"create", "put", "add", "set", "apply"})
# Reads that make sense without a store.
STORELESS_VERBS = frozenset({"plan", "schema"})
# Invisible characters; in JSON text they only occur in strings, where they can be escaped.
_INVISIBLE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class Session:
    """The global options, and the store or server they select."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}
        self.file_zone = ""
        # Set to `agent` by a process that acts for one, so that a server does not take it for a person.
        self.origin = ""
        self._config_store: tuple[str | None, str] | None = None

    @property
    def store_url(self) -> str:
        """The store, a file name or URL: the given one, else that of the environment or the settings file."""
        store: str | None = self.given.get("store")
        if store is None:
            store = os.environ.get("TIMEWRIGHT_STORE") or self._store_in_config() or DEFAULT_STORE
        return store

    @property
    def server(self) -> str:
        """The server to use instead of the store, or an empty string; --store wins over TIMEWRIGHT_SERVER."""
        if self.store_url.startswith(("http://", "https://")):
            return self.store_url
        named: str | None = self.given.get("server")
        default = "" if self.given.get("store") else os.environ.get("TIMEWRIGHT_SERVER", "")
        server = named or default
        if server and not re.match(r"https?://[^/\s]", server, re.IGNORECASE):
            raise InvalidInput(
                f"--server {server[:255]!r} is not a URL",
                field="server",
                value=server[:255],
                rule="http:// or https://, and a host",
                fix="--server http://127.0.0.1:7411",
            )
        return server

    @property
    def namespace(self) -> str:
        """The namespace."""
        named = self.given.get("namespace") or os.environ.get("TIMEWRIGHT_NAMESPACE") or "default"
        return check_name(named, field="namespace", max_length=64)

    @property
    def output(self) -> str:
        """The output format: table, json or yaml."""
        return str(self.given.get("output") or "table")

    @property
    def config(self) -> str:
        """The settings file: the given one, or timewright.toml in the current directory."""
        return str(self.given.get("config") or os.environ.get("TIMEWRIGHT_CONFIG") or DEFAULT_CONFIG)

    @property
    def quiet(self) -> bool:
        """Whether to print only names and ids."""
        return bool(self.given.get("quiet"))

    def settings(
        self, given: Mapping[str, Any] | None = None, *, strict: bool = False, base: Settings | None = None
    ) -> Settings:
        """Return the settings: given values win over the environment, the file and the base."""
        return load_settings(self.given.get("config"), given or {}, strict=strict, base=base)

    def _store_in_config(self) -> str:
        config = self.given.get("config")
        if self._config_store is None or self._config_store[0] != config:
            self._config_store = config, store_in_config(config)
        return self._config_store[1]

    def context(
        self, operation: Operation[Any], request: Mapping[str, Any]
    ) -> AbstractContextManager[OperationContext]:
        """Open the context of an operation."""
        return open_context(self, operation, request)

    def in_memory(self) -> Session:
        """Return a copy of this session on an empty in-memory store."""
        other = Session()
        other.given = {**self.given, "store": MEMORY_STORE}
        return other

    def print(self, lines: Sequence[str]) -> None:
        """Print lines to standard output."""
        for line in lines:
            click.echo(line)

    def print_data(self, data: Any, lines: Sequence[str]) -> None:
        """Print lines for a person, or the data itself with -o json and -o yaml."""
        self.print(lines if self.output == "table" else [serialize(data, self.output)])

    def print_note(self, *sentences: str) -> None:
        """Print notes to standard error, unless --quiet."""
        # A closed stream must not stop the command.
        with suppress(OSError):
            for sentence in () if self.quiet else sentences:
                click.echo(escape_control(with_program(sentence)), err=True)

    def print_detail(self, sentence: str) -> None:
        """Print a note if --verbose."""
        if self.given.get("verbose"):
            self.print_note(sentence)

    def command(self, words: str) -> str:
        """Return a command to suggest, for the same store, as it can be typed in this shell."""
        return " ".join(filter(None, (program(), words, self.store_option)))

    @property
    def store_option(self) -> str:
        """The option that names this store in another shell; empty for the default store of the folder."""
        store = self.given.get("store") or os.environ.get("TIMEWRIGHT_STORE")
        return f"--store {shlex.quote(redact_store_url(store))}" if store else ""

    def screen(self, now: datetime) -> Screen:
        """Return the terminal; commands on it get the options by which this one selects its store."""
        given = {name: self.given.get(name) for name in ("config", "store", "server", "namespace")}
        options = (
            f"--{name} {shlex.quote(redact_store_url(str(value)))}" for name, value in given.items() if value
        )
        return current_screen(now, options=tuple(options))


@contextmanager
def open_context(
    session: Session, operation: Operation[Any], request: Mapping[str, Any]
) -> Iterator[OperationContext]:
    """Open a context on the store or server; the store is closed after the command."""
    from timewright.wiring import (
        artifact_store_of,
        build_auth_cache,
        check_payload,
        check_target,
        host_inspector,
        open_store,
        policy_file_watcher,
        target_tester,
        with_notifications,
    )

    if session.server:
        yield _remote_context(session)
        return
    settings, namespace = session.settings(), session.namespace
    url = _store_for(session, operation, request)
    path = store_path(url)
    is_new = path is not None and url != MEMORY_STORE and not path.exists()
    store = open_store(url)
    session.print_detail(f"using the store {redact_store_url(url)}")
    if is_new:
        session.print_note(f"note: created {url}")
    try:
        context = OperationContext(
            store=with_notifications(store),
            ids=TimedIds(),
            settings=settings,
            namespace=namespace,
            notify=_ignore_facts,
        )
        auth_cache = build_auth_cache(url, settings)
        policies = policy_file_watcher(settings, namespace=namespace, clock=SystemClock())
        if policies is not None and not operation.read_only and not request.get("dry_run"):
            policies.apply(store)
        yield replace(
            context,
            policy_file=policies.read if policies is not None else None,
            by=replace(context.by, name=current_user()),
            auth_cache=auth_cache,
            host_info=host_inspector(url, settings, config=session.config),
            artifacts=artifact_store_of(store, settings),
            run_target_test=target_tester(store, settings, auth_cache=auth_cache),
            check_target=check_target,
            check_payload=check_payload,
        )
    finally:
        store.close()


def key_for(session: Session, server: str) -> str:
    """Return the API key for a server: TIMEWRIGHT_KEY, else the local administrator's key of its store.

    The administrator's key is only for the running server of the store; any other server could steal it.
    """
    from timewright.interfaces.cli.process.server_file import is_same_server, read_server_file
    from timewright.operations.access.keys import read_local_key
    from timewright.wiring import private_file

    given = os.environ.get("TIMEWRIGHT_KEY", "")
    store = DEFAULT_STORE if session.store_url.startswith(("http://", "https://")) else session.store_url
    running = read_server_file(store) if not given else None
    path = private_file(store, "admin")
    if path is not None and running is not None and is_same_server(running.url, server):
        given = read_local_key(path) or ""
    if given:
        return given
    own = (
        f", or use the server of {redact_store_url(store)}: --server {running.url}"
        if running is not None
        else ""
    )
    raise Unauthorized(
        f"no API key for the server {server[:255]}",
        field="key",
        rule="the local administrator's key is sent only to the running server of its store",
        fix=f"TIMEWRIGHT_KEY=tw_… with a key from: timewright key create{own}",
    )


def _remote_context(session: Session) -> OperationContext:
    from timewright.interfaces.cli.api_client import ApiClient, NoLocalStore

    given = session.given.get("namespace") or os.environ.get("TIMEWRIGHT_NAMESPACE")
    namespace = session.namespace if given else None
    client = ApiClient(
        session.server,
        key=key_for(session, session.server),
        namespace=namespace,
        system_zone=system_zone(),
        file_zone=session.file_zone,
        origin=session.origin,
    )
    session.print_detail(f"using the server {client.url}")
    return OperationContext(
        store=NoLocalStore(),
        ids=TimedIds(),
        settings=session.settings(),
        namespace=session.namespace,
        notify=_ignore_facts,
        remote=client.call,
    )


def inspect_store(url: str) -> Any:
    """Return information about a store without opening it; an unreachable database fails fast."""
    import logging

    from timewright.wiring import inspect_store as inspect

    store_path(url)
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    return inspect(url)


def serialize(answer: Any, output: str, *, compact: bool = False) -> str:
    """Return an answer as JSON or YAML."""
    if output == "yaml":
        # Imported late because YAML is slow to import.
        from timewright.core.input.strict_yaml import dump_yaml

        has_invisible = _INVISIBLE.search(json.dumps(answer, ensure_ascii=False)) is not None
        return dump_yaml(answer, ascii_only=has_invisible or not supports_unicode()).rstrip("\n")
    text = json.dumps(answer, indent=None if compact else 2, ensure_ascii=not supports_unicode())
    return _INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def store_path(url: str) -> Path | None:
    """Return the file of a store, or None for a database URL."""
    from timewright.wiring import sqlite_path

    if not url.strip():
        raise InvalidInput(
            "store is empty", field="store", value=url, rule="a file or postgresql://…", fix=DEFAULT_STORE
        )
    try:
        path = sqlite_path(url)
    except ValueError as error:
        raise InvalidInput(
            f"store is invalid: {error}",
            field="store",
            rule="a file or postgresql://…",
            fix=DEFAULT_STORE,
        ) from None
    return Path(path) if path is not None else None


def _store_for(session: Session, operation: Operation[Any], request: Mapping[str, Any]) -> str:
    """Return the store to open: an in-memory one if a missing file is not needed or must not be created."""
    path = store_path(session.store_url)
    if path is None:
        inspect_store(session.store_url)
    if path is None or path.exists() or session.store_url == MEMORY_STORE:
        return session.store_url
    flattened: tuple[str, Any] | None = operation.request_type.flattens
    needs_no_store = operation.read_only and flattened is not None and not request.get("schedule")
    creates = operation.verb.split()[-1] in CREATING_VERBS
    if needs_no_store or operation.name in STORELESS_VERBS or (creates and request.get("dry_run")):
        return MEMORY_STORE
    if not creates:
        raise NotFound(
            f"no store at {session.store_url}",
            field="store",
            value=session.store_url,
            rule="--store or TIMEWRIGHT_STORE must name an existing store",
            fix=f"{session.command('up')} creates one",
        )
    # Try it in memory first, so that an error does not leave an empty file behind.
    with open_context(session.in_memory(), operation, request) as in_memory:
        operation(in_memory, {**request, "dry_run": True})
    return session.store_url


def current_user() -> str:
    """Return the name of the user who runs the command."""
    try:
        return getpass.getuser()[:255] or "local"
    except (KeyError, OSError, ImportError):
        return "local"


def _ignore_facts(facts: Sequence[Any]) -> None:
    """Do nothing: a command has no observers, and engines notice the commit."""
