"""The HTTP door of a process: who may reach it, the key of the first start, and what is said about it."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from timewright import doors
from timewright.assembly import House, private_place
from timewright.doors.cli.session import Session
from timewright.doors.cli.whereabouts import (
    Whereabouts,
    read_whereabouts,
    remove_whereabouts,
    write_whereabouts,
)
from timewright.doors.http.addresses import EVERYWHERE, is_loopback, own_addresses
from timewright.doors.http.app import HttpDoor
from timewright.doors.http.events import Hub
from timewright.doors.http.gate import LOOPBACK, Gate
from timewright.doors.http.server import Server
from timewright.errors import Conflict, NotAllowed
from timewright.operations import Context, operations
from timewright.operations.access import authenticate, doorkeeper_of
from timewright.operations.local_key import local_key
from timewright.settings import Settings

DASHBOARD = Path(doors.__file__).parent / "dashboard"


class Door:
    """A server that is about to answer, answers, and ends."""

    def __init__(self, session: Session, settings: Settings, *, hub: Hub) -> None:
        check_bind(settings)
        self._session = session
        self._settings = settings
        self.hub = hub
        self.addresses = own_addresses(settings.bind)
        self.server = _listening(session, settings)

    @property
    def url(self) -> str:
        """Where it answers."""
        scheme = "https" if self._settings.tls_cert else "http"
        bind = self._settings.bind
        shown = "127.0.0.1" if bind in ("localhost", *EVERYWHERE) else bind
        return f"{scheme}://{f'[{shown}]' if ':' in shown else shown}:{self.server.port}"

    def open(self, house: House, *, engine: bool) -> list[str]:
        """Begin to answer; gives back what a person is told about it."""
        context = house.context()
        doorkeeper_of(context).ready()
        lines = self._lines(context)
        app = HttpDoor(
            context,
            gate=gate_for(self._settings),
            hub=self.hub,
            pulse=house.loop.pulse if engine else None,
            metrics=house.metrics_text if self._settings.metrics else None,
            dashboard=DASHBOARD,
            secure=bool(self._settings.tls_cert) or self._settings.behind_proxy,
        )
        self.hub.hear(house.ear)
        self.server.start(app)
        write_whereabouts(self._session.place, Whereabouts(self.url, os.getpid()))
        return lines

    def close(self) -> None:
        """End every stream and request within a moment."""
        remove_whereabouts(self._session.place)
        self.hub.close()
        self.server.stop()

    def _lines(self, context: Context) -> list[str]:
        link = new_link(context, self._session.place)
        alone = is_loopback(self._settings.bind)
        if not alone:
            _check_key(context)
        api = f"  api         {self.url}/api/v1      (OpenAPI: /openapi.json)"
        wide = "only this machine can connect; to open it: timewright key create, then timewright up --bind"
        front = "dashboard" if DASHBOARD.is_dir() else "reference"
        path = f"/?key={link}"
        agents = f"  mcp         timewright mcp               (or {self.url}/mcp)"
        lines = [f"  {front}   {self.url}{path}    (one-time link)", api]
        lines += [agents] if find_spec("mcp") is not None else []
        return [*lines, f"  {wide}"] if alone else lines


def gate_for(settings: Settings) -> Gate:
    """The names a server answers to."""
    bind = f"[{settings.bind}]" if ":" in settings.bind else settings.bind
    named = {name.lower().removesuffix(".") for name in (*LOOPBACK, bind, *settings.hosts)}
    return Gate(names=frozenset(named), open=not is_loopback(settings.bind))


def new_link(context: Context, place: str) -> str:
    """A link for the local administrator, whose key is made at the first start."""
    keeper = doorkeeper_of(context)
    path = private_place(place, "admin")
    if path is None:
        asked = {"key": "this-process", "role": "admin", "within": ["*"], "expires_in": "1d"}
        token = str(operations["key create"](context, asked)["token"])
    else:
        token = local_key(context, path)
    return keeper.new_link(authenticate(context, token), now=context.now())


def check_bind(settings: Settings) -> None:
    """Refuse to speak in the clear to other machines, unless a proxy is said to do it for us."""
    if bool(settings.tls_key) and not settings.tls_cert:
        raise NotAllowed("a private key needs its certificate", field="tls_key", fix="--tls-cert server.pem")
    if settings.tls_client_ca and not settings.tls_cert:
        raise NotAllowed(
            "certificates of clients need TLS here",
            field="tls_client_ca",
            rule="whoever does TLS asks for them",
            fix="--tls-cert server.pem --tls-key server.key",
        )
    if is_loopback(settings.bind) or settings.tls_cert or settings.behind_proxy:
        return
    raise NotAllowed(
        f"{settings.bind} can be reached by other machines, and nothing is encrypted",
        field="bind",
        value=settings.bind,
        rule="wider than this machine only with TLS, or behind a proxy that does it",
        fix="--tls-cert server.pem --tls-key server.key, or --behind-proxy",
    )


def _check_key(context: Context) -> None:
    rows = operations["key list"](context, {"limit": 1000})["keys"]
    if any(row["name"] != "local-admin" for row in rows):
        return
    raise NotAllowed(
        "nobody could come in from another machine: there is no key",
        field="bind",
        rule="wider than this machine only with a key for those who come",
        fix="timewright key create NAME --role operator, and start again",
    )


def _listening(session: Session, settings: Settings) -> Server:
    tls = (settings.tls_cert, settings.tls_key) if settings.tls_cert else None
    try:
        return Server(bind=settings.bind, port=settings.port, tls=tls, client_ca=settings.tls_client_ca)
    except Conflict as taken:
        ours = read_whereabouts(session.place)
        if ours is None or not ours.url.endswith(f":{settings.port}"):
            raise
        raise Conflict(
            f"port {settings.port} is taken by Timewright itself, for this store (process {ours.pid})",
            field="port",
            value=settings.port,
            rule=taken.rule,
            fix="use that one, or: timewright worker for a second engine, --port 0 for a second server",
        ) from None
