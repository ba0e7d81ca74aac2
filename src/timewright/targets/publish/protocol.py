"""What a broker adapter works with: its address, options and messages, and the methods it has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote, unquote, urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.core.input.input_errors import input_error
from timewright.core.moments import SECOND, format_instant
from timewright.core.run.run import Outcome
from timewright.core.target import Publish
from timewright.ports import Launch

T = TypeVar("T")

MEBIBYTE = 1_048_576

CONNECT_TIMEOUT_S = 5.0
RESPONSE_TIMEOUT_S = 10.0
# Concurrent blocking calls per connection: a broker that hangs must not use up all threads.
MAX_CONCURRENT_CALLS = 8
# How long the key of an accepted message is stored where the broker does not deduplicate itself.
SENT_KEY_TTL_S = 86_400
_MIN_POLL_INTERVAL_S = 0.05
_MAX_POLL_INTERVAL_S = 1.0

DEFAULT_TIME_LIMIT = 300 * SECOND

MAX_URL_CHARS = 8192
URL_FIELD = "target.url"
# Default ports by scheme.
DEFAULT_PORTS = {
    "redis": 6379,
    "rediss": 6379,
    "amqp": 5672,
    "amqps": 5671,
    "nats": 4222,
    "tls": 4222,
    "temporal": 7233,
    "http": 80,
    "https": 443,
}


class Broker:
    """A connection that accepts messages until it is closed. Some brokers also report how the work ended."""

    name: ClassVar[str]
    # The extra of our package that installs these modules.
    extra: ClassVar[str]
    modules: ClassVar[tuple[str, ...]]
    schemes: ClassVar[tuple[str, ...]]
    example_url: ClassVar[str]
    options_type: ClassVar[type[BrokerOptions]]
    max_bytes: ClassVar[int] = MEBIBYTE
    has_results: ClassVar[bool] = False
    # Whether the client library finds an address by itself.
    has_default_address: ClassVar[bool] = False
    remedy: ClassVar[str] = "check that the server runs, the address and the credentials"

    def __init__(self, address: BrokerAddress, options: Any) -> None:
        raise NotImplementedError

    async def publish(self, message: BrokerMessage) -> Receipt:
        """Send the message and wait until the broker has accepted it. Raises the error of the library."""
        raise NotImplementedError

    async def read_outcome(self, message: BrokerMessage, remote_id: str) -> Outcome | None:
        """The outcome of the work with this id, or None while it is running."""
        raise NotImplementedError

    async def cancel(self, message: BrokerMessage, remote_id: str) -> None:
        """Cancel the work where that is possible, so that a later attempt can start it again."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close all sockets and threads."""
        raise NotImplementedError


class AsyncBroker(Broker):
    """A broker with an async library. It connects at the first message, and again after a lost connection."""

    def __init__(self, address: BrokerAddress, options: Any) -> None:
        self._address = address
        self._options = options
        self._client: Any = None
        self._opening = asyncio.Lock()

    async def connect(self) -> Any:
        """Connect, or raise the error of the library."""
        raise NotImplementedError

    def is_lost(self, client: Any) -> bool:
        """Whether the connection cannot be used any more; many libraries reconnect by themselves."""
        return False

    async def connected(self) -> Any:
        """The client of the library."""
        async with self._opening:
            if self._client is None or self.is_lost(self._client):
                self._client = await self.connect()
        return self._client

    async def close(self) -> None:
        """Close the client."""
        if self._client is not None:
            await self._client.close()


class BlockingBroker(Broker):
    """A broker with a blocking library, called on threads, at most MAX_CONCURRENT_CALLS at a time."""

    def __init__(self, close_client: Callable[[], object]) -> None:
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_CALLS)
        self._close_client = close_client

    def send(self, message: BrokerMessage) -> Receipt:
        """Send the message."""
        raise NotImplementedError

    def find_outcome(self, message: BrokerMessage, remote_id: str) -> Outcome | None:
        """The outcome of the work with this id, or None while it is running."""
        raise NotImplementedError

    async def publish(self, message: BrokerMessage) -> Receipt:
        """Send the message on a thread."""
        return await self.run_in_thread(self.send, message)

    async def read_outcome(self, message: BrokerMessage, remote_id: str) -> Outcome | None:
        """Find the outcome on a thread."""
        return await self.run_in_thread(self.find_outcome, message, remote_id)

    async def run_in_thread(self, act: Callable[..., T], *args: Any) -> T:
        """Run a blocking call on a thread and return its result."""
        async with self._slots:
            return await asyncio.to_thread(act, *args)

    async def close(self) -> None:
        """Close all sockets, without waiting for calls that hang."""
        await asyncio.to_thread(self._close_client)


async def poll_until(
    found: Callable[[], Awaitable[T | None]], *, interval_s: float = _MIN_POLL_INTERVAL_S
) -> T:
    """Poll until there is a value, with intervals that grow from `interval_s` to 1 s."""
    rest = interval_s
    while (thing := await found()) is None:
        await asyncio.sleep(rest)
        rest = min(rest * 1.5, _MAX_POLL_INTERVAL_S)
    return thing


class BrokerOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of every broker: user and password."""

    # Options of the connection: messages with equal values share one connection.
    connection_options: ClassVar[tuple[str, ...]] = ()
    # Options that hold a reference to a secret, never its value.
    secret_options: ClassVar[tuple[str, ...]] = ("password",)

    user: str = ""
    password: str = ""

    @property
    def connection_key(self) -> tuple[Any, ...]:
        """The values that distinguish connections to the same address."""
        return tuple(getattr(self, name) for name in self.connection_options)

    def check(self) -> None:
        """Refuse options that contradict each other."""

    def other_addresses(self) -> tuple[BrokerAddress, ...]:
        """Further addresses in these options."""
        return ()


class BrokerMessage(Struct, frozen=True, kw_only=True):
    """A message for any broker."""

    key: str
    name: str
    payload: Any
    body: bytes
    headers: dict[str, str]
    schedule_id: str
    time_limit: float
    wait: bool
    options: Any

    @property
    def args(self) -> list[Any]:
        """The payload as positional arguments: the items of a list, or a single value."""
        if self.payload is None or isinstance(self.payload, dict):
            return []
        return list(self.payload) if isinstance(self.payload, list | tuple) else [self.payload]

    @property
    def kwargs(self) -> dict[str, Any]:
        """The payload as keyword arguments, if it is a mapping."""
        return dict(self.payload) if isinstance(self.payload, dict) else {}


class Receipt(Struct, frozen=True, kw_only=True):
    """The broker's confirmation. `duplicate` means the message had been accepted before."""

    id: str
    duplicate: bool = False
    detail: dict[str, Any] = {}


def build_message(
    target: Publish, launch: Launch, *, options: BrokerOptions, max_bytes: int
) -> BrokerMessage:
    """Build the message of a launch. The payload of the run takes precedence over that of the schedule."""
    payload = target.payload if launch.given_payload is None else launch.given_payload
    return BrokerMessage(
        key=launch.key,
        name=target.name,
        payload=payload,
        body=encode_payload(payload, max_bytes=max_bytes),
        headers=identity_headers(launch),
        schedule_id=launch.schedule_id,
        time_limit=(launch.time_limit or DEFAULT_TIME_LIMIT).total_seconds(),
        wait=target.wait,
        options=options,
    )


def encode_payload(payload: Any, *, max_bytes: int) -> bytes:
    """Encode the payload as JSON, or refuse it if it is larger than the broker allows."""
    field = "target.payload"
    try:
        body = msgspec.json.encode(payload)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        why = f"cannot be sent: {error}"
        raise input_error(field, payload, why, rule="a JSON value", fix='{"id": 1}') from None
    if len(body) > max_bytes:
        rule = f"at most {max_bytes} bytes of JSON"
        fix = "store it where the worker can fetch it, and send its URL"
        raise input_error(field, payload, f"has {len(body)} bytes", rule=rule, fix=fix)
    return body


def identity_headers(launch: Launch) -> dict[str, str]:
    """The headers of every message: the key, the run, the schedule and the attempt."""
    headers = {
        "timewright-key": launch.key,
        "timewright-run": launch.run_id,
        "timewright-schedule": launch.schedule_id,
        "timewright-schedule-name": launch.schedule_name,
        "timewright-namespace": launch.namespace,
        "timewright-planned-at": format_instant(launch.planned_at),
        "timewright-fence": str(launch.fence),
        "timewright-attempt": str(launch.attempt),
        "traceparent": launch.traceparent,
    }
    return {name: value for name, value in headers.items() if value}


class BrokerAddress(Struct, frozen=True, kw_only=True):
    """A broker address. User and password are separate fields, so that they are never shown."""

    scheme: str = ""
    host: str = ""
    port: int | None = None
    path: str = ""
    user: str = ""
    password: str = ""

    @property
    def endpoint(self) -> str:
        """Scheme, host and port, as in the list of allowed brokers."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}{f':{self.port}' if self.port else ''}"

    @property
    def display(self) -> str:
        """The address without credentials, for messages."""
        return f"{self.endpoint}{self.path}" if self.host else "its default address"

    @property
    def url(self) -> str:
        """The complete URL with credentials, for client libraries."""
        if not self.user and not self.password:
            return f"{self.endpoint}{self.path}"
        secret = f":{quote(self.password, safe='')}" if self.password else ""
        credentials = f"{quote(self.user, safe='')}{secret}@"
        return f"{self.endpoint}{self.path}".replace("://", f"://{credentials}", 1)

    def with_credentials(self, user: str, password: str) -> BrokerAddress:
        """Return the address with this user and password; empty values change nothing."""
        return replace(self, user=user or self.user, password=password or self.password)


def parse_broker_url(text: str, *, schemes: Sequence[str], fix: str, field: str = URL_FIELD) -> BrokerAddress:
    """Parse a broker URL of the form `scheme://host:port/path`, or refuse it."""
    rule = f"{' or '.join(f'{one}://' for one in schemes)}, a host, a port and a path"
    if len(text) > MAX_URL_CHARS or not text.isprintable() or any(letter in text for letter in " \\?#"):
        why = "is too long, or contains a space, a query or a non-printable character"
        raise input_error(field, without_credentials(text), why, rule=rule, fix=fix)
    try:
        split = urlsplit(text)
        number = split.port
    except ValueError:
        raise input_error(
            field, without_credentials(text), "is not a valid URL", rule=rule, fix=fix
        ) from None
    if split.scheme not in schemes or not split.hostname or "," in split.netloc:
        raise input_error(
            field,
            without_credentials(text),
            "is not the URL of a single broker of this kind",
            rule=rule,
            fix=fix,
        )
    return BrokerAddress(
        scheme=split.scheme,
        host=split.hostname,
        port=number or DEFAULT_PORTS.get(split.scheme),
        path=split.path,
        user=unquote(split.username or ""),
        password=unquote(split.password or ""),
    )


def normalize_endpoint(entry: str) -> str:
    """Normalize an entry of the list of allowed brokers to an endpoint; a plain name is unchanged."""
    if "://" not in entry:
        return entry
    try:
        split = urlsplit(entry)
        port = split.port
    except ValueError:
        return entry
    host, scheme = split.hostname or "", split.scheme
    return BrokerAddress(scheme=scheme, host=host, port=port or DEFAULT_PORTS.get(scheme)).endpoint


def without_credentials(text: str) -> str:
    """An invalid URL for messages, without credentials and query."""
    head, mark, rest = text[:MAX_URL_CHARS].partition("://")
    return f"{head}{mark}{rest.rpartition('@')[2]}".partition("?")[0]
