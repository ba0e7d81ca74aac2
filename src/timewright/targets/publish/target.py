"""The publish target: sends one message per attempt, and waits for its result if asked to."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

from timewright.core.moments import format_duration
from timewright.core.run.run import Failed, Outcome, Succeeded, TimedOut
from timewright.core.target import Publish, secret_destination
from timewright.errors import InvalidInput, MissingExtra, NotAllowed, NotFound
from timewright.ports import Launch
from timewright.targets.loop_thread import CANCEL_GRACE, AsyncAttempt, AsyncAttempts, LoopThread
from timewright.targets.outcomes import failed, released_on_close, with_result
from timewright.targets.publish.broker_types import (
    PreparedPublish,
    check_installed,
    is_allowed,
    prepare_publish,
)
from timewright.targets.publish.protocol import (
    Broker,
    BrokerAddress,
    BrokerMessage,
    Receipt,
    normalize_endpoint,
    poll_until,
)
from timewright.targets.secret_references import RevealedSecrets, SecretLookup, reveal_secrets_async

# After these stop reasons the run continues elsewhere or later: the remote work is not cancelled, and the
# next attempt finds it by its key.
RUN_CONTINUES_REASONS = frozenset({"stopping", "lease lost", "lease not renewed in time"})

MAX_ERROR_CHARS = 500
# How long a broker may be unreachable while the work that it has accepted goes on.
MAX_AWAY_S = 60.0

MAX_IDLE_CONNECTIONS = 32
CLOSE_TIMEOUT_S = 2.0


class PublishTarget:
    """Sends messages to brokers. Every result and every error becomes an outcome.

    `allowed` lists the brokers that may be used: by name (`celery`), or by scheme, host and port
    (`redis://queue:6379`). All others are refused.
    """

    def __init__(
        self, loop: LoopThread, *, allowed: Sequence[str] = (), secrets: SecretLookup | None = None
    ) -> None:
        self._loop = loop
        self._allowed = tuple(map(normalize_endpoint, allowed))
        self._secrets = secrets
        self._connections = BrokerConnections()
        self._attempts = AsyncAttempts(loop, released=released_on_close())

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> AsyncAttempt:
        """Send the message and return immediately. `done` is called once, on the loop's thread."""
        return self._attempts.start(lambda attempt: self._attempt(launch, attempt), done)

    def close(self, *, grace: timedelta) -> None:
        """Wait up to `grace` for running attempts, release the rest, and close all connections."""
        self._attempts.close(grace=grace)
        with suppress(NotAllowed, RuntimeError, TimeoutError):
            self._loop.call(self._connections.close(), timeout=2 * CANCEL_GRACE)

    async def _attempt(self, launch: Launch, attempt: AsyncAttempt) -> Outcome:
        """Turn every exception into an outcome."""
        target = launch.target
        if not isinstance(target, Publish):
            return Failed(error="this is not a publish target", final=True)
        try:
            prepared = prepare_publish(target)
            check_installed(prepared.broker_type)
            revealed = await reveal_secrets_async(
                prepared.secrets,
                namespace=launch.namespace,
                lookup=self._secrets,
                destination=secret_destination(target),
            )
            address, options = prepared.with_secrets(revealed)
            if not is_allowed(prepared.broker_type, (address, *options.other_addresses()), self._allowed):
                return _not_allowed(prepared, address)
            message = prepared.message(target, launch, options)
        except InvalidInput as error:
            return Failed(error=f"{error.message}; {error.rule}", final=True)
        except MissingExtra as error:
            return Failed(error=f"{error.message}; {error.fix}", unresolved=True)
        except NotFound as error:
            return Failed(error=error.message)
        except Exception as error:  # noqa: BLE001 - a target never raises
            return failed(f"the message could not be built: {type(error).__name__}")
        return await self._deliver(prepared, message, address=address, revealed=revealed, attempt=attempt)

    async def _deliver(
        self,
        prepared: PreparedPublish,
        message: BrokerMessage,
        *,
        address: BrokerAddress,
        revealed: RevealedSecrets,
        attempt: AsyncAttempt,
    ) -> Outcome:
        named, options = f"{prepared.broker_type.name} at {address.display}", message.options
        key = (prepared.broker_type.name, address, *options.connection_key)
        deadline = asyncio.timeout(message.time_limit)
        try:
            async with (
                deadline,
                self._connections.use(key, lambda: prepared.broker_type(address, options)) as broker,
            ):
                return await _send_and_wait(broker, message, named=named, attempt=attempt)
        except InvalidInput as error:
            return Failed(error=f"{error.message}; {error.rule}", final=True)
        except Exception as error:  # noqa: BLE001 - every client library has errors of its own
            if deadline.expired():
                return _timed_out(message, named)
            error_text = revealed.redact_text(_error_text(error))
            return failed(f"{named} did not accept the message: {error_text}; {prepared.broker_type.remedy}")


async def _send_and_wait(
    broker: Broker, message: BrokerMessage, *, named: str, attempt: AsyncAttempt
) -> Outcome:
    """Send the message, and wait for the outcome of the work if the target says so."""
    receipt = await _publish(broker, message, attempt)
    receipt_fields = {"broker": named, "id": receipt.id, "duplicate": receipt.duplicate, **receipt.detail}
    if not message.wait:
        return Succeeded(result=receipt_fields)
    try:
        outcome: Outcome = await poll_until(_tolerant_reader(broker, message, receipt.id))
    except asyncio.CancelledError:
        if _ends_remote(attempt):
            await _cancel_remote(broker, message, receipt.id)
        raise
    return with_result(outcome, {**receipt_fields, **(outcome.result or {})})


async def _publish(broker: Broker, message: BrokerMessage, attempt: AsyncAttempt) -> Receipt:
    """Send the message. If the run is cancelled before the broker answers, wait for that to cancel it."""
    if not message.wait:
        return await broker.publish(message)
    sending = asyncio.ensure_future(broker.publish(message))
    try:
        return await asyncio.shield(sending)
    except asyncio.CancelledError:
        if not _ends_remote(attempt):
            sending.cancel()
            raise
        with suppress(Exception):
            receipt = await asyncio.wait_for(sending, CANCEL_GRACE.total_seconds() / 2)
            await _cancel_remote(broker, message, receipt.id)
        raise


def _ends_remote(attempt: AsyncAttempt) -> bool:
    """Whether an attempt that is stopped ends its remote work too; otherwise the next one waits for it."""
    return not (attempt.is_released or attempt.reason in RUN_CONTINUES_REASONS)


def _tolerant_reader(
    broker: Broker, message: BrokerMessage, remote_id: str
) -> Callable[[], Awaitable[Outcome | None]]:
    """Return a function that reads the outcome; a broker may be away for a minute while the work goes on."""
    loop, away_since = asyncio.get_running_loop(), [0.0]

    async def read() -> Outcome | None:
        try:
            outcome = await broker.read_outcome(message, remote_id)
        except Exception:
            away_since[0] = away_since[0] or loop.time()
            if loop.time() - away_since[0] > MAX_AWAY_S:
                raise
            return None
        away_since[0] = 0.0
        return outcome

    return read


async def _cancel_remote(broker: Broker, message: BrokerMessage, remote_id: str) -> None:
    # The attempt ends soon in any case, so an unreachable broker is not told.
    with suppress(Exception):
        await asyncio.wait_for(broker.cancel(message, remote_id), CANCEL_GRACE.total_seconds() / 2)


def _error_text(error: Exception) -> str:
    """The error of a client library on one line, truncated."""
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(":")[:MAX_ERROR_CHARS]


def _timed_out(message: BrokerMessage, named: str) -> TimedOut:
    limit = format_duration(timedelta(seconds=message.time_limit))
    what = "did not finish the work" if message.wait else "did not accept the message"
    return TimedOut(error=f"{named} {what} within {limit}")


def _not_allowed(prepared: PreparedPublish, address: BrokerAddress) -> Failed:
    entry = address.endpoint if address.host else prepared.broker_type.name
    return Failed(
        error=f"publishing to {prepared.broker_type.name} at {address.display} is not allowed;"
        f" an administrator can allow it with the setting publish: [{entry}]",
        final=True,
    )


class _Connection:
    """A connection, its number of current users, and whether it failed."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.users = 0
        self.broken = False


class BrokerConnections:
    """The connections of one target. All methods run on the loop."""

    def __init__(self) -> None:
        self._connections: OrderedDict[tuple[Any, ...], _Connection] = OrderedDict()
        self._create_lock = asyncio.Lock()

    @asynccontextmanager
    async def use(self, key: tuple[Any, ...], create: Callable[[], Broker]) -> AsyncIterator[Broker]:
        """Use the connection of this key. After an error it is closed, and the next use creates a new one."""
        connection = await self._get(key, create)
        connection.users += 1
        try:
            yield connection.broker
        except BaseException:
            connection.broken = True
            if self._connections.get(key) is connection:
                del self._connections[key]
            raise
        finally:
            connection.users -= 1
            if connection.broken and not connection.users:
                await _close(connection)
            await self._close_idle()

    async def close(self) -> None:
        """Close all connections."""
        connections, self._connections = list(self._connections.values()), OrderedDict()
        await asyncio.gather(*map(_close, connections))

    async def _get(self, key: tuple[Any, ...], create: Callable[[], Broker]) -> _Connection:
        """Get or create a connection, on a thread because some libraries take long to import."""
        async with self._create_lock:
            if key not in self._connections:
                self._connections[key] = _Connection(await asyncio.to_thread(create))
            self._connections.move_to_end(key)
            return self._connections[key]

    async def _close_idle(self) -> None:
        """Close the least recently used idle connections beyond MAX_IDLE_CONNECTIONS."""
        idle = [key for key, connection in self._connections.items() if not connection.users]
        for key in idle[: max(len(self._connections) - MAX_IDLE_CONNECTIONS, 0)]:
            await _close(self._connections.pop(key))


async def _close(connection: _Connection) -> None:
    # Closing a lost connection may raise any error of its library.
    with suppress(Exception):
        await asyncio.wait_for(connection.broker.close(), CLOSE_TIMEOUT_S)
