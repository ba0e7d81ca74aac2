"""Redis: streams, and jobs of RQ and Dramatiq; each key is sent once."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from timewright.core.run.run import Outcome, Succeeded
from timewright.targets.outcomes import failed, to_json_value
from timewright.targets.publish.protocol import (
    CONNECT_TIMEOUT_S,
    RESPONSE_TIMEOUT_S,
    SENT_KEY_TTL_S,
    BlockingBroker,
    BrokerAddress,
    BrokerMessage,
    BrokerOptions,
    Receipt,
    poll_until,
)

REDIS_SCHEMES = ("redis", "rediss")
REDIS_EXAMPLE = "redis://localhost:6379/0"

# Runs atomically on the server: the key is stored if and only if its entry was added.
_ADD_ONCE = """
local known = redis.call('GET', KEYS[2])
if known then return {known, 1} end
local command = {'XADD', KEYS[1]}
if ARGV[2] ~= '0' then
  command[#command + 1] = 'MAXLEN'; command[#command + 1] = '~'; command[#command + 1] = ARGV[2]
end
command[#command + 1] = '*'
for place = 3, #ARGV do command[#command + 1] = ARGV[place] end
local id = redis.call(unpack(command))
redis.call('SET', KEYS[2], id, 'EX', ARGV[1])
return {id, 0}
"""

_FAILED_STATES = frozenset({"failed", "stopped", "canceled"})
_NOT_AN_ID = re.compile(r"[^A-Za-z0-9_-]")
_REGISTRIES = ("failed", "canceled", "finished")
_MAX_ERROR_CHARS = 500
_STOP_POLL_S = 0.02


class RedisStreamOptions(BrokerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Maximum length of the stream (0: unlimited), and how many seconds a key is stored."""

    maxlen: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0
    remember: Annotated[int, Meta(ge=60, le=2_592_000)] = SENT_KEY_TTL_S


class RedisStreamBroker(BlockingBroker):
    """Adds entries to streams. `name` is the stream."""

    name = "redis"
    extra = "redis"
    modules = ("redis",)
    schemes = REDIS_SCHEMES
    example_url = REDIS_EXAMPLE
    options_type = RedisStreamOptions

    def __init__(self, address: BrokerAddress, options: RedisStreamOptions) -> None:
        client = redis_client(address)
        super().__init__(client.close)
        self._add_once = client.register_script(_ADD_ONCE)

    def send(self, message: BrokerMessage) -> Receipt:
        """Add the entry, unless there is one with its key."""
        options: RedisStreamOptions = message.options
        fields = [part for pair in stream_entry(message).items() for part in pair]
        # In a cluster both keys must be on one node; the hash tag in braces decides which.
        names = [message.name, f"{{{message.name}}}:timewright:{message.key}"]
        made, known = self._add_once(keys=names, args=[options.remember, options.maxlen, *fields])
        return Receipt(id=made.decode(), duplicate=bool(known), detail={"stream": message.name})


def stream_entry(message: BrokerMessage) -> dict[str, bytes | str]:
    """The fields of an entry: the key, the payload as JSON, and which run it is for."""
    return {"key": message.key, "payload": message.body, **message.headers}


def redis_client(address: BrokerAddress) -> Any:
    """A blocking Redis client with timeouts."""
    from redis import Redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    # One immediate retry replaces a connection that was lost while idle; further retries are the run's.
    return Redis.from_url(
        address.url,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        socket_timeout=RESPONSE_TIMEOUT_S,
        retry=Retry(NoBackoff(), 1),
    )


class SentKeys:
    """The keys of sent messages. Stored after sending: a crash in between sends twice, but loses nothing."""

    def __init__(self, client: Any, *, broker: str) -> None:
        self._client = client
        self._prefix = f"timewright:sent:{broker}:"

    def get(self, key: str) -> str | None:
        """The id of the accepted message with this key; None if there is none, "" if it was cancelled."""
        found = self._client.get(self._prefix + key)
        return None if found is None else str(found.decode())

    def put(self, key: str, remote_id: str) -> None:
        """Store the id for a day."""
        self._client.set(self._prefix + key, remote_id, ex=SENT_KEY_TTL_S)

    def close(self) -> None:
        """Close the client."""
        self._client.close()


class DramatiqOptions(BrokerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Queue of the actor, and key prefix of the broker in Redis."""

    connection_options: ClassVar[tuple[str, ...]] = ("prefix",)

    queue: Annotated[str, Meta(min_length=1, max_length=255)] = "default"
    prefix: Annotated[str, Meta(min_length=1, max_length=255)] = "dramatiq"
    max_retries: Annotated[int, Meta(ge=0, le=1000)] | None = None


class DramatiqBroker(BlockingBroker):
    """Enqueues messages. A message with an accepted key is not enqueued again."""

    name = "dramatiq"
    extra = "dramatiq"
    modules = ("dramatiq", "redis")
    schemes = REDIS_SCHEMES
    example_url = REDIS_EXAMPLE
    options_type = DramatiqOptions

    def __init__(self, address: BrokerAddress, options: DramatiqOptions) -> None:
        from dramatiq.brokers import redis

        library: Any = redis  # it has no type hints
        self._client = redis_client(address)
        self._broker = library.RedisBroker(client=self._client, middleware=[], namespace=options.prefix)
        super().__init__(self._client.close)
        self._sent_keys = SentKeys(self._client, broker="dramatiq")

    def send(self, message: BrokerMessage) -> Receipt:
        """Enqueue the message, unless one with its key was accepted."""
        known = bool(self._sent_keys.get(message.key))
        if not known:
            self._broker.enqueue(actor_message(message))
            self._sent_keys.put(message.key, message.key)
        return Receipt(id=message.key, duplicate=known, detail={"queue": message.options.queue})


def actor_message(message: BrokerMessage) -> Any:
    """Build the Dramatiq message."""
    import dramatiq

    options: DramatiqOptions = message.options
    extra: dict[str, Any] = {"timewright": dict(message.headers)}
    if options.max_retries is not None:
        extra["max_retries"] = options.max_retries
    return dramatiq.Message(
        queue_name=options.queue,
        actor_name=message.name,
        args=tuple(message.args),
        kwargs=message.kwargs,
        options=extra,
        message_id=message.key,
    )


class RqOptions(BrokerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Queue, serializer of its workers, and how many seconds a finished job is kept."""

    queue: Annotated[str, Meta(min_length=1, max_length=255)] = "default"
    serializer: Literal["pickle", "json"] = "pickle"
    result_ttl: Annotated[int, Meta(ge=60, le=31_536_000)] = 3600
    at_front: bool = False


class RqBroker(BlockingBroker):
    """Enqueues jobs. A job with the same key is not enqueued again.

    Never unpickles data of a worker: the state of a job is plain text, and its result is read only with the
    JSON serializer.
    """

    name = "rq"
    extra = "rq"
    modules = ("rq", "redis")
    schemes = REDIS_SCHEMES
    example_url = REDIS_EXAMPLE
    options_type = RqOptions
    has_results = True

    def __init__(self, address: BrokerAddress, options: RqOptions) -> None:
        self._client = redis_client(address)
        super().__init__(self._client.close)

    async def cancel(self, message: BrokerMessage, remote_id: str) -> None:
        """Remove the job from its queue, or ask its worker to stop it and wait for that."""
        if await poll_until(lambda: self.run_in_thread(self._stop, message), interval_s=_STOP_POLL_S):
            await poll_until(lambda: self.run_in_thread(self._has_stopped, message), interval_s=_STOP_POLL_S)

    def send(self, message: BrokerMessage) -> Receipt:
        """Enqueue the job, unless it exists and has not failed."""
        status = self._status(message)
        has_ended = status in _FAILED_STATES or self._is_abandoned(message, status)
        if has_ended:
            self._forget(message)
        known = status is not None and not has_ended
        if not known:
            self._queue(message).enqueue_call(message.name, **enqueue_options(message))
        return Receipt(id=job_id(message.key), duplicate=known, detail={"queue": message.options.queue})

    def find_outcome(self, message: BrokerMessage, remote_id: str) -> Outcome | None:
        """The outcome of the job according to Redis."""
        status = self._status(message)
        if status == "finished":
            return Succeeded(result=self._value(message))
        if status == "failed":
            return failed(f"the job failed: {self._error(message)}")
        if status in _FAILED_STATES:
            return failed(f"the job was {status}")
        if status is None:
            return failed("the job does not exist any more: it was deleted, or its result_ttl has passed")
        if self._is_abandoned(message, status):
            return failed("the worker that ran the job has died")
        return None

    def _stop(self, message: BrokerMessage) -> bool | None:
        """Remove the job from its queue (False), or ask its worker to stop it (True).

        None if a worker has taken the job from the queue and has not marked it as started yet.
        """
        from rq.command import send_command

        status, worker = self._status(message), self._client.hget(_job_name(message), "worker_name")
        if status == "started" and worker:
            send_command(self._client, worker.decode(), "stop-job", job_id=job_id(message.key))
            return True
        removed = self._client.lrem(f"rq:queue:{message.options.queue}", 0, job_id(message.key))
        if not removed and status in ("queued", "started"):
            return None
        self._forget(message)
        return False

    def _has_stopped(self, message: BrokerMessage) -> bool | None:
        return self._status(message) != "started" or None

    def _is_abandoned(self, message: BrokerMessage, status: str | None) -> bool:
        """Whether the job was started, and no worker has reported that it still runs it."""
        key = job_id(message.key)
        if status != "started":
            return False
        executions = self._client.zrange(f"rq:executions:{key}", 0, -1)
        # A worker renews this name every 30 s; without it, Redis removes it after 90 s.
        if any(self._client.exists(f"rq:execution:{key}:{one.decode()}") for one in executions):
            return False
        # A job that ended since the first look has no executions either.
        return self._status(message) == "started"

    def _forget(self, message: BrokerMessage) -> None:
        """Delete the job ourselves, because the library would unpickle it first."""
        key = job_id(message.key)
        self._client.lrem(f"rq:queue:{message.options.queue}", 0, key)
        for registry in _REGISTRIES:
            self._client.zrem(f"rq:{registry}:{message.options.queue}", key)
        started = f"rq:wip:{message.options.queue}"
        for execution in self._client.zrange(f"rq:executions:{key}", 0, -1):
            self._client.zrem(started, f"{key}:{execution.decode()}")
        self._client.delete(f"rq:job:{key}", f"rq:results:{key}", f"rq:executions:{key}")

    def _status(self, message: BrokerMessage) -> str | None:
        status = self._client.hget(_job_name(message), "status")
        return None if status is None else status.decode()

    def _value(self, message: BrokerMessage) -> dict[str, Any]:
        if message.options.serializer != "json":
            return {}
        result = self._latest(message)
        return {"value": to_json_value(result.return_value)} if result is not None else {}

    def _error(self, message: BrokerMessage) -> str:
        result = self._latest(message)
        lines = (result.exc_string or "").strip().splitlines() if result is not None else []
        return lines[-1][:_MAX_ERROR_CHARS] if lines else "its worker did not say why"

    def _latest(self, message: BrokerMessage) -> Any:
        from rq.job import Job
        from rq.results import Result
        from rq.serializers import JSONSerializer

        job: Any = Job(id=job_id(message.key), connection=self._client, serializer=JSONSerializer)
        return Result.fetch_latest(job, serializer=JSONSerializer)

    def _queue(self, message: BrokerMessage) -> Any:
        from rq import Queue
        from rq.serializers import DefaultSerializer, JSONSerializer

        options: RqOptions = message.options
        reads: Any = JSONSerializer if options.serializer == "json" else DefaultSerializer
        return Queue(options.queue, connection=self._client, serializer=reads)


def job_id(key: str) -> str:
    """The key as a valid RQ id: letters, digits, `_` and `-`."""
    return _NOT_AN_ID.sub("-", key)


def enqueue_options(message: BrokerMessage) -> dict[str, Any]:
    """The arguments of `enqueue_call`, without the function name."""
    options: RqOptions = message.options
    return {
        "args": message.args,
        "kwargs": message.kwargs,
        "job_id": job_id(message.key),
        "timeout": max(1, round(message.time_limit)) if message.wait else None,
        "result_ttl": options.result_ttl,
        "failure_ttl": options.result_ttl,
        "at_front": options.at_front,
        "meta": dict(message.headers),
    }


def _job_name(message: BrokerMessage) -> str:
    return f"rq:job:{job_id(message.key)}"
