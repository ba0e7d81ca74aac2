"""The HTTP server of a process: bind checks, login link and startup messages."""

from __future__ import annotations

import os
import time
from functools import partial
from importlib.util import find_spec

from timewright.core.alerts.channels import DASHBOARD_URL
from timewright.errors import Conflict, InvalidInput, MissingExtra, NotAllowed
from timewright.interfaces.cli.process.server_file import (
    RunningServer,
    read_server_file,
    remove_server_file,
    write_server_file,
)
from timewright.interfaces.cli.session import Session
from timewright.interfaces.http.app import DASHBOARD_FOLDER, HttpApp
from timewright.interfaces.http.authentication import (
    WILDCARD_ADDRESSES,
    HostOriginCheck,
    own_addresses,
)
from timewright.interfaces.http.events import EventHub
from timewright.interfaces.http.openid import OpenIdProvider
from timewright.interfaces.http.server import ServerThread
from timewright.interfaces.program import NAME, program
from timewright.operations import OperationContext, operations
from timewright.operations.access.authentication import authenticate, require_auth_cache
from timewright.operations.access.keys import ensure_local_key
from timewright.settings import OpenIdTerms, Settings, is_loopback
from timewright.wiring import Instance, check_remote_key, private_file

DEFAULT_PORT = Settings().port


class HttpServer:
    """The HTTP server of one process: bound when created, then opened and closed."""

    def __init__(self, session: Session, settings: Settings, *, hub: EventHub) -> None:
        check_bind(settings)
        self._session = session
        self._settings = settings
        self.hub = hub
        self.addresses = own_addresses(settings.bind)
        self.server = _bind(session, settings)

    @property
    def url(self) -> str:
        """The URL of the server."""
        scheme = "https" if self._settings.tls_cert else "http"
        bind = self._settings.bind
        host = "127.0.0.1" if bind in ("localhost", *WILDCARD_ADDRESSES) else bind
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.server.port}"

    @property
    def _public_url(self) -> str:
        """The URL that others use: with the first name of `hosts`; our port only if it is needed."""
        if not self._settings.hosts:
            return self.url
        is_secure = bool(self._settings.tls_cert) or self._settings.behind_proxy
        is_default = self.server.port == (443 if is_secure else 80)
        port = "" if is_default or self._settings.behind_proxy else f":{self.server.port}"
        return f"{'https' if is_secure else 'http'}://{self._settings.hosts[0]}{port}"

    def open(self, instance: Instance, *, engine: bool) -> list[str]:
        """Start to serve and return the startup messages."""
        context = instance.context()
        require_auth_cache(context).load_keys()
        lines = self._lines(context)
        app = HttpApp(
            context,
            host_check=host_check_for(self._settings),
            hub=self.hub,
            engine_health=instance.loop.health if engine else None,
            metrics=instance.metrics_text if self._settings.metrics else None,
            dashboard=DASHBOARD_FOLDER,
            secure=bool(self._settings.tls_cert) or self._settings.behind_proxy,
            command=self._command(),
            provider=provider_for(self._settings.oidc),
        )
        self.hub.watch_store(instance.store, instance.change_listener)
        self.server.start(app)
        write_server_file(self._session.store_url, RunningServer(self.url, os.getpid()))
        instance.store.write(lambda tx: tx.put_meta(DASHBOARD_URL, self._public_url))
        return lines

    def close(self) -> None:
        """Close all streams and stop the server."""
        remove_server_file(self._session.store_url)
        self.hub.close()
        self.server.stop()

    def _command(self) -> tuple[str, str | None]:
        """The program and the option for this store in a shell; other machines know only the server."""
        if not is_loopback(self._settings.bind):
            return NAME, None
        return program(), self._session.store_option

    def _lines(self, context: OperationContext) -> list[str]:
        link = login_link(context, self._session.store_url)
        is_local = is_loopback(self._settings.bind)
        if not is_local:
            check_remote_key(context, field="bind")
        api = f"  api         {self.url}/api/v1      (OpenAPI: /openapi.json)"
        note = "only this machine can connect; to allow others: key create, then up --bind"
        front = "dashboard" if DASHBOARD_FOLDER.is_dir() else "reference"
        path = f"/?key={link}"
        agents = f"  mcp         {self._session.command('mcp')}               (or {self.url}/mcp)"
        lines = [f"  {front}   {self.url}{path}    (one-time link)", api]
        lines += [agents] if find_spec("mcp") is not None else []
        return [*lines, f"  {note}"] if is_local else lines


def provider_for(terms: OpenIdTerms) -> OpenIdProvider | None:
    """Return the OpenID Connect provider of the settings; None if none is set."""
    if not terms.issuer:
        return None
    if not terms.client_id or not terms.roles:
        missing = "roles" if terms.client_id else "client_id"
        raise InvalidInput(
            f"oidc needs {missing}",
            field=f"oidc.{missing}",
            rule="set issuer, client_id and roles together",
            fix="oidc: {issuer: https://login.example.com, client_id: timewright, roles: {ops: admin}}",
        )
    if find_spec("jwt") is None:
        raise MissingExtra(
            "OpenID Connect needs an extra that is not installed",
            field="oidc",
            rule="ID tokens need the extra `jwt`",
            fix="pip install 'timewright[jwt]'",
        )
    return OpenIdProvider(terms, monotonic=time.monotonic)


def host_check_for(settings: Settings) -> HostOriginCheck:
    """Return the check of the allowed host names."""
    bind = f"[{settings.bind}]" if ":" in settings.bind else settings.bind
    return HostOriginCheck((bind, *settings.hosts), allow_any_address=not is_loopback(settings.bind))


def login_link(context: OperationContext, store_url: str) -> str:
    """Return a login token of the local administrator; the first start creates the key."""
    cache = require_auth_cache(context)
    path = private_file(store_url, "admin")
    if path is None:
        request = {"key": "this-process", "role": "admin", "within": ["*"], "expires_in": "1d"}
        token = str(operations["key create"](context, request)["token"])
    else:
        token = ensure_local_key(context, path)
    return cache.create_login_link(authenticate(context, token), now=context.now())


def check_bind(settings: Settings) -> None:
    """Raise if other machines could connect without TLS and no proxy provides it."""
    if bool(settings.tls_key) and not settings.tls_cert:
        raise NotAllowed("a private key needs its certificate", field="tls_key", fix="--tls-cert server.pem")
    if settings.tls_client_ca and not settings.tls_cert:
        raise NotAllowed(
            "client certificates need TLS",
            field="tls_client_ca",
            rule="client certificates are checked by the server that terminates TLS",
            fix="--tls-cert server.pem --tls-key server.key",
        )
    if is_loopback(settings.bind) or settings.tls_cert or settings.behind_proxy:
        return
    raise NotAllowed(
        f"{settings.bind} is reachable by other machines without encryption",
        field="bind",
        value=settings.bind,
        rule="use TLS, or a proxy that terminates TLS",
        fix="--tls-cert server.pem --tls-key server.key, or --behind-proxy",
    )


def _bind(session: Session, settings: Settings) -> ServerThread:
    tls = (settings.tls_cert, settings.tls_key) if settings.tls_cert else None
    listen = partial(ServerThread, bind=settings.bind, tls=tls, client_ca=settings.tls_client_ca)
    try:
        return listen(port=settings.port)
    except Conflict as conflict:
        running = read_server_file(session.store_url)
        if running is None or not running.url.endswith(f":{settings.port}"):
            if settings.port != DEFAULT_PORT:
                raise
            # Another store may be served at the default port: `up` and the demo side by side.
            session.print_note(f"note: port {settings.port} is in use; using a free one")
            return listen(port=0)
        raise Conflict(
            f"port {settings.port} is in use by Timewright for this store (process {running.pid})",
            field="port",
            value=settings.port,
            rule=conflict.rule,
            fix="use that server, or start timewright worker, or use --port 0 for a second server",
        ) from None
