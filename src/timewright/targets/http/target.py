"""The HTTP target: one request per attempt, thousands concurrently on one loop."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from weakref import WeakValueDictionary

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, ThreadedResolver
from aiohttp.abc import AbstractResolver
from msgspec.structs import replace
from yarl import URL

from timewright.core.input.input_errors import input_error
from timewright.core.moments import SECOND, format_duration
from timewright.core.run.run import Failed, Outcome, Released, TimedOut
from timewright.core.target import Http, SecretDestination
from timewright.errors import InvalidInput, NotAllowed, NotFound
from timewright.ports import Clock, Launch
from timewright.targets.http.connector import (
    CURRENT_REQUEST,
    GuardedConnector,
    OutgoingRequest,
    RequestFailed,
    failure_outcome,
)
from timewright.targets.http.egress import EgressPolicy
from timewright.targets.http.request import (
    REDIRECT_STATUSES,
    BodySigner,
    PreparedRequest,
    Redirect,
    RequestHop,
    add_payload,
    first_hop,
    next_hop,
    prepare_request,
)
from timewright.targets.http.response import (
    HttpResponse,
    cost_headers,
    read_response,
    response_outcome,
    with_response_cost,
)
from timewright.targets.loop_thread import CANCEL_GRACE, AsyncAttempt, AsyncAttempts, LoopThread
from timewright.targets.secret_references import (
    RunTokens,
    SecretLookup,
    reveal_secrets_async,
    sign_body,
    with_run_token,
)

CONNECT_TIMEOUT = 5 * SECOND
# A request without a time limit of its run may wait this long for a connection slot.
SLOT_WAIT = 10 * SECOND
# Many requests to one host at the same instant need one DNS lookup.
DNS_CACHE_S = 5
# Bytes allowed besides the body: headers, and the overhead of a chunked body with 1-byte chunks.
MAX_HEADER_BYTES = 1_048_576
CHUNK_OVERHEAD_FACTOR = 8

_STOPPED = Released(reason="stopped before a response arrived")


class HttpTarget:
    """Sends HTTP requests. Every result and every error becomes an outcome.

    `limit` is the maximum of concurrent requests, `limit_per_host` that to one host (0: no limit). Further
    requests wait. Waiting counts against the time limit of the run, not against the timeout of the request.
    """

    def __init__(
        self,
        loop: LoopThread,
        *,
        egress: EgressPolicy,
        clock: Clock,
        secrets: SecretLookup | None = None,
        run_tokens: RunTokens | None = None,
        limit: int = 4000,
        limit_per_host: int = 0,
        connect: timedelta = CONNECT_TIMEOUT,
        tls: ssl.SSLContext | None = None,
        resolver: AbstractResolver | None = None,
    ) -> None:
        _check_tls(tls)
        self._loop = loop
        self._egress = egress
        self._clock = clock
        self._secrets = secrets
        self._run_tokens = run_tokens
        self._slots = asyncio.Semaphore(limit)
        self._slots_per_host = limit_per_host
        self._slots_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._connect = connect
        self._tls = tls
        self._resolver = resolver
        self._agent = _agent()
        self._session: ClientSession | None = None
        self._attempts = AsyncAttempts(loop, released=_STOPPED)

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> AsyncAttempt:
        """Send the request and return immediately. `done` is called once, on the loop's thread.

        Stopping a request closes its connection. Whether the server processed it is unknown.
        """
        return self._attempts.start(lambda _: self._attempt(launch), done)

    def close(self, *, grace: timedelta) -> None:
        """Wait up to `grace` for running requests, release the rest, and close all connections."""
        self._attempts.close(grace=grace)
        if self._session is not None:
            try:
                self._loop.call(self._session.close(), timeout=CANCEL_GRACE)
            except (NotAllowed, TimeoutError):
                self._session.detach()

    async def _attempt(self, launch: Launch) -> Outcome:
        """Turn every exception into an outcome. Unexpected ones show only their type, never a secret."""
        try:
            return await self._wait_and_send(launch)
        except InvalidInput as error:
            return Failed(error=error.message, final=True)
        except NotFound as error:
            return Failed(error=error.message)
        except Exception as error:  # noqa: BLE001 - a target never raises
            return Failed(error=f"the request could not be sent: {type(error).__name__}")

    async def _wait_and_send(self, launch: Launch) -> Outcome:
        """Wait for a slot within the run's time limit, then send within the timeout of the request."""
        target = launch.target
        if not isinstance(target, Http):
            return Failed(error="this is not an HTTP target", final=True)
        prepared = prepare_request(add_payload(target, launch.given_payload))
        limit = launch.time_limit or target.timeout + SLOT_WAIT
        within = format_duration(min(target.timeout, limit))
        ends = asyncio.get_running_loop().time() + limit.total_seconds()
        try:
            async with asyncio.timeout_at(ends) as deadline, self._slot(prepared.url.host):
                timeout = asyncio.get_running_loop().time() + target.timeout.total_seconds()
                deadline.reschedule(min(ends, timeout))
                return await self._call(target, prepared, launch)
        except TimeoutError:
            return TimedOut(error=f"{prepared.url.host_port} sent no complete response within {within}")

    async def _call(self, target: Http, prepared: PreparedRequest, launch: Launch) -> Outcome:
        started, now = self._clock.monotonic(), self._clock.now()
        revealed = await reveal_secrets_async(
            prepared.secrets,
            namespace=launch.namespace,
            lookup=with_run_token(self._secrets, self._run_tokens, launch),
            destination=SecretDestination("host", prepared.url.host),
        )

        def sign(body: bytes) -> Mapping[str, str]:
            return (
                sign_body(body, key=revealed.values[prepared.signing_secret], at=now)
                if prepared.signing_secret is not None
                else {}
            )

        hop = first_hop(prepared, launch, revealed=revealed, agent=self._agent, sign=sign)
        try:
            response = await self._follow(hop, target, sign)
        except RequestFailed as failed:
            return replace(failed.outcome, error=revealed.redact_text(failed.outcome.error))
        duration_ms = round(1000 * (self._clock.monotonic() - started))
        outcome = response_outcome(
            response, duration_ms=duration_ms, revealed=revealed, now=self._clock.now()
        )
        return with_response_cost(outcome, target)

    async def _follow(self, hop: RequestHop, target: Http, sign: BodySigner) -> HttpResponse:
        """Send the request and follow the allowed number of redirects; returns the last response."""
        left, max_bytes, extra_headers = target.redirects, target.max_response_kb * 1024, cost_headers(target)
        response = await self._send(hop, max_bytes=max_bytes, follow=left > 0, extra_headers=extra_headers)
        while isinstance(response, Redirect):
            hop, left = next_hop(hop, response, sign=sign), left - 1
            response = await self._send(
                hop, max_bytes=max_bytes, follow=left > 0, extra_headers=extra_headers
            )
        return response

    async def _send(
        self, hop: RequestHop, *, max_bytes: int, follow: bool, extra_headers: tuple[str, ...]
    ) -> HttpResponse | Redirect:
        """Send one request. A redirect to be followed is returned without its body."""
        request = OutgoingRequest(hop.url, max_bytes=MAX_HEADER_BYTES + CHUNK_OVERHEAD_FACTOR * max_bytes)
        CURRENT_REQUEST.set(request)
        try:
            response = await self._open_session().request(
                hop.method,
                URL(hop.url.text, encoded=True),
                headers=hop.headers,
                data=hop.body,
                allow_redirects=False,
                skip_auto_headers=("Content-Type",),
                ssl=self._tls or True,
            )
            try:
                location = response.headers.get("Location")
                if follow and location is not None and response.status in REDIRECT_STATUSES:
                    return Redirect(response.status, location)
                return await read_response(
                    response, max_bytes=max_bytes, request=request, extra_headers=extra_headers
                )
            finally:
                response.close()
        except (ClientError, OSError) as error:
            raise RequestFailed(failure_outcome(error, request)) from None
        finally:
            request.abort_connection()

    def _open_session(self) -> ClientSession:
        if self._session is None:
            connector = GuardedConnector(
                self._egress, resolver=self._resolver or ThreadedResolver(), ttl_dns_cache=DNS_CACHE_S
            )
            self._session = ClientSession(
                connector=connector,
                cookie_jar=DummyCookieJar(),
                timeout=ClientTimeout(total=None, connect=self._connect.total_seconds()),
                trust_env=False,
                auto_decompress=False,
            )
        return self._session

    @asynccontextmanager
    async def _slot(self, host: str) -> AsyncIterator[None]:
        """Hold a slot of the total limit, and one of the host's limit if there is one."""
        async with AsyncExitStack() as held:
            if self._slots_per_host:
                own = self._slots_of.setdefault(host, asyncio.Semaphore(self._slots_per_host))
                await held.enter_async_context(own)
            await held.enter_async_context(self._slots)
            yield


def _check_tls(tls: ssl.SSLContext | None) -> None:
    """Refuse a TLS context that does not verify certificates and host names."""
    if tls is not None and not (tls.check_hostname and tls.verify_mode is ssl.CERT_REQUIRED):
        raise input_error(
            "tls",
            "a context",
            "does not verify certificates",
            rule="every certificate and its name are verified",
            fix="ssl.create_default_context(cafile=...)",
        )


def _agent() -> str:
    try:
        return f"timewright/{version('timewright')}"
    except PackageNotFoundError:
        return "timewright"
