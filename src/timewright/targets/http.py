"""The HTTP target: one request for each attempt, thousands in flight on one loop."""

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

from timewright.core.moments import SECOND, spell_duration
from timewright.core.refusals import refused
from timewright.core.run import Failed, Outcome, Released, TimedOut
from timewright.core.target import Http
from timewright.errors import InvalidInput, NotAllowed, NotFound
from timewright.ports import Clock, Launch
from timewright.targets.costs import named_headers, with_cost
from timewright.targets.egress import Egress
from timewright.targets.errands import Attempt, Errands
from timewright.targets.guard import ASKED, Asked, GuardedConnector
from timewright.targets.http_answer import Answer, outcome_of, read_answer
from timewright.targets.http_failure import NoAnswer, failure_of
from timewright.targets.http_request import (
    REDIRECTS,
    Hop,
    Prepared,
    Redirect,
    Signed,
    first_hop,
    next_hop,
    prepare,
)
from timewright.targets.loop import LAST_WORD, LoopThread
from timewright.targets.signing import SecretLookup, reveal_aside, sign

CONNECT = 5 * SECOND
# Many requests to one name in the same instant ask the resolver once.
LOOKUP_SECONDS = 5
# What may be read besides the body: headers, and the overhead of a body that comes one byte a chunk.
HEAD_BYTES = 1_048_576
CHUNK_OVERHEAD = 8

_STOPPED = Released(reason="stopped before an answer came")


class HttpTarget:
    """Calls HTTP endpoints; however a call ends, it ends in an outcome.

    `limit` bounds the requests in flight, `limit_per_host` those to one host (0: no bound of its own). Those
    beyond wait; that counts against the time limit of the run, and not against the request's own timeout.
    """

    def __init__(
        self,
        loop: LoopThread,
        *,
        egress: Egress,
        clock: Clock,
        secrets: SecretLookup | None = None,
        limit: int = 4000,
        limit_per_host: int = 0,
        connect: timedelta = CONNECT,
        tls: ssl.SSLContext | None = None,
        resolver: AbstractResolver | None = None,
    ) -> None:
        _check_tls(tls)
        self._loop = loop
        self._egress = egress
        self._clock = clock
        self._secrets = secrets
        self._slots = asyncio.Semaphore(limit)
        self._slots_per_host = limit_per_host
        self._slots_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._connect = connect
        self._tls = tls
        self._resolver = resolver
        self._agent = _agent()
        self._session: ClientSession | None = None
        self._errands = Errands(loop, given_back=_STOPPED)

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> Attempt:
        """Send the request and return at once; `done` is called once, from the loop's thread.

        A request that is stopped has its connection closed, and what the other side made of it is not known.
        """
        return self._errands.begin(lambda _: self._attempt(launch), done)

    def close(self, *, grace: timedelta) -> None:
        """Let requests end by themselves for that long, give the rest back, and close every connection."""
        self._errands.close(grace=grace)
        if self._session is not None:
            try:
                self._loop.call(self._session.close(), timeout=LAST_WORD)
            except (NotAllowed, TimeoutError):
                self._session.detach()

    async def _attempt(self, launch: Launch) -> Outcome:
        """The boundary: whatever goes wrong in here is an outcome, and tells no more than its kind."""
        try:
            return await self._bounded(launch)
        except InvalidInput as error:
            return Failed(error=error.message, final=True)
        except NotFound as error:
            return Failed(error=error.message)
        except Exception as error:  # noqa: BLE001 - a target never raises
            return Failed(error=f"the request could not be made: {type(error).__name__}")

    async def _bounded(self, launch: Launch) -> Outcome:
        """Wait for a slot within the run's time limit, then call within the request's own timeout."""
        target = launch.target
        if not isinstance(target, Http):
            return Failed(error="this is not an HTTP target", final=True)
        ready = prepare(target)
        within = spell_duration(min(target.timeout, launch.time_limit))
        ends = asyncio.get_running_loop().time() + launch.time_limit.total_seconds()
        try:
            async with asyncio.timeout_at(ends) as deadline, self._slot(ready.url.host):
                timeout = asyncio.get_running_loop().time() + target.timeout.total_seconds()
                deadline.reschedule(min(ends, timeout))
                return await self._call(target, ready, launch)
        except TimeoutError:
            return TimedOut(error=f"{ready.url.place} gave no complete answer within {within}")

    async def _call(self, target: Http, ready: Prepared, launch: Launch) -> Outcome:
        started, now = self._clock.monotonic(), self._clock.now()
        revealed = await reveal_aside(ready.secrets, namespace=launch.namespace, lookup=self._secrets)

        def signed(body: bytes) -> Mapping[str, str]:
            return sign(body, key=revealed.values[ready.signer], at=now) if ready.signer is not None else {}

        hop = first_hop(ready, launch, revealed=revealed, agent=self._agent, signed=signed)
        try:
            answer = await self._follow(hop, target, signed)
        except NoAnswer as failed:
            return replace(failed.outcome, error=revealed.hide_text(failed.outcome.error))
        took = round(1000 * (self._clock.monotonic() - started))
        outcome = outcome_of(answer, duration_ms=took, revealed=revealed, now=self._clock.now())
        return with_cost(outcome, target)

    async def _follow(self, hop: Hop, target: Http, signed: Signed) -> Answer:
        """Make the request, and as many more as redirects are allowed; the last answer counts."""
        left, most_bytes, also = target.redirects, target.max_response_kb * 1024, named_headers(target)
        answer = await self._send(hop, most_bytes=most_bytes, follow=left > 0, also=also)
        while isinstance(answer, Redirect):
            hop, left = next_hop(hop, answer, signed=signed), left - 1
            answer = await self._send(hop, most_bytes=most_bytes, follow=left > 0, also=also)
        return answer

    async def _send(
        self, hop: Hop, *, most_bytes: int, follow: bool, also: tuple[str, ...]
    ) -> Answer | Redirect:
        """Make one request; a redirect that is to be followed is given back without its body."""
        asked = Asked(hop.url, most_bytes=HEAD_BYTES + CHUNK_OVERHEAD * most_bytes)
        ASKED.set(asked)
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
                if follow and location is not None and response.status in REDIRECTS:
                    return Redirect(response.status, location)
                return await read_answer(response, most_bytes=most_bytes, asked=asked, also=also)
            finally:
                response.close()
        except (ClientError, OSError) as error:
            raise NoAnswer(failure_of(error, asked)) from None
        finally:
            asked.part()

    def _open_session(self) -> ClientSession:
        if self._session is None:
            connector = GuardedConnector(
                self._egress, resolver=self._resolver or ThreadedResolver(), ttl_dns_cache=LOOKUP_SECONDS
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
        """Hold a place among all requests, and one among those to the host if it has a bound of its own."""
        async with AsyncExitStack() as held:
            if self._slots_per_host:
                own = self._slots_of.setdefault(host, asyncio.Semaphore(self._slots_per_host))
                await held.enter_async_context(own)
            await held.enter_async_context(self._slots)
            yield


def _check_tls(tls: ssl.SSLContext | None) -> None:
    """A context may bring its own authorities; it may not stop looking."""
    if tls is not None and not (tls.check_hostname and tls.verify_mode is ssl.CERT_REQUIRED):
        raise refused(
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
