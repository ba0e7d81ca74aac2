"""Celery: sends a task by name, without importing its code."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from timewright.core.run.run import Failed, Outcome, Succeeded
from timewright.core.target import SECRET_PREFIX
from timewright.targets.outcomes import failed, to_json_value
from timewright.targets.publish.protocol import (
    CONNECT_TIMEOUT_S,
    MAX_CONCURRENT_CALLS,
    RESPONSE_TIMEOUT_S,
    BlockingBroker,
    BrokerAddress,
    BrokerMessage,
    BrokerOptions,
    Receipt,
    parse_broker_url,
)
from timewright.targets.publish.redis import (
    REDIS_EXAMPLE,
    REDIS_SCHEMES,
    SentKeys,
    redis_client,
)

_FAILED_STATES = frozenset({"FAILURE", "REVOKED"})


class CeleryOptions(BrokerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Queue, priority and expiry of the task. `result_backend` is the URL its result is read from."""

    connection_options: ClassVar[tuple[str, ...]] = ("result_backend",)
    secret_options: ClassVar[tuple[str, ...]] = ("password", "result_backend")

    queue: Annotated[str, Meta(min_length=1, max_length=255)] = "celery"
    priority: Annotated[int, Meta(ge=0, le=255)] | None = None
    expires: Annotated[float, Meta(gt=0, le=31_536_000)] | None = None
    result_backend: Annotated[str, Meta(max_length=8192)] = ""
    terminate: bool = True

    def other_addresses(self) -> tuple[BrokerAddress, ...]:
        """The address of the result backend."""
        if not self.result_backend or self.result_backend.startswith(SECRET_PREFIX):
            return ()
        fix, field = "redis://localhost:6379/1", "target.options.result_backend"
        return (parse_broker_url(self.result_backend, schemes=REDIS_SCHEMES, fix=fix, field=field),)


class CeleryBroker(BlockingBroker):
    """Sends tasks with `task_id` = key, and reads their results.

    Workers discard a revoked id, and an old result would be taken for a new one. So a task that is sent again
    after a failure or a cancellation gets the id `key.fence`.
    """

    name = "celery"
    extra = "celery"
    modules = ("celery", "redis")
    schemes = (*REDIS_SCHEMES, "amqp", "amqps")
    example_url = REDIS_EXAMPLE
    options_type = CeleryOptions
    has_results = True

    def __init__(self, address: BrokerAddress, options: CeleryOptions) -> None:
        super().__init__(self._close_clients)
        self._app = sending_app(address)
        # An own pool: that of the app is shared with every other app in this process.
        self._pool = self._app.connection_for_write().Pool(MAX_CONCURRENT_CALLS)
        # Read once: the app creates another backend, with its own connections, for every thread.
        self._results = reading_app(options.result_backend).backend if options.result_backend else None
        on_redis = address.scheme in REDIS_SCHEMES
        self._sent_keys = SentKeys(redis_client(address), broker="celery") if on_redis else None

    async def cancel(self, message: BrokerMessage, remote_id: str) -> None:
        """Revoke the task, and terminate it if `terminate` is set."""
        await self.run_in_thread(self._cancel, message, remote_id)

    def send(self, message: BrokerMessage) -> Receipt:
        """Send the task, unless one with its key was accepted and has not failed."""
        task_id, known = self._task_id(message)
        if not known:
            with self._pool.acquire(block=True, timeout=RESPONSE_TIMEOUT_S) as connection:
                self._app.send_task(
                    message.name, task_id=task_id, connection=connection, **send_options(message)
                )
            if self._sent_keys is not None:
                self._sent_keys.put(message.key, task_id)
        return Receipt(id=task_id, duplicate=known, detail={"queue": message.options.queue})

    def find_outcome(self, message: BrokerMessage, remote_id: str) -> Outcome | None:
        """The outcome of the task according to the result backend."""
        return task_outcome(self._meta(remote_id))

    def _task_id(self, message: BrokerMessage) -> tuple[str, bool]:
        """The id to use, and whether a task with it was accepted and has not failed."""
        sent = self._sent_keys.get(message.key) if self._sent_keys is not None else None
        if sent is None and not message.wait:
            return message.key, False
        if sent and not message.wait:
            return sent, True
        status = self._meta(sent or message.key).get("status")
        if sent == "" or status in _FAILED_STATES:
            return f"{message.key}.{message.headers['timewright-fence']}", False
        return sent or message.key, bool(sent) or status == "SUCCESS"

    def _meta(self, task_id: str) -> dict[str, Any]:
        """Read the state of a task from the backend, without the app's cache."""
        if self._results is None:
            return {}
        return dict(self._results.get_task_meta(task_id, cache=False))

    def _cancel(self, message: BrokerMessage, task_id: str) -> None:
        if self._sent_keys is not None:
            self._sent_keys.put(message.key, "")
        with self._pool.acquire(block=True, timeout=RESPONSE_TIMEOUT_S) as connection:
            self._app.control.revoke(task_id, terminate=message.options.terminate, connection=connection)

    def _close_clients(self) -> None:
        if self._sent_keys is not None:
            self._sent_keys.close()
        if self._results is not None:
            self._results.client.connection_pool.disconnect()
        self._pool.force_close_all()
        self._app.close()


def sending_app(address: BrokerAddress) -> Any:
    """An app without a result backend: with one, it would subscribe to the result of every task it sends."""
    app = _app(broker=address.url)
    within = {"socket_connect_timeout": CONNECT_TIMEOUT_S, "socket_timeout": RESPONSE_TIMEOUT_S}
    app.conf.broker_connection_timeout = CONNECT_TIMEOUT_S
    app.conf.broker_transport_options = within if address.scheme in REDIS_SCHEMES else {}
    return app


def reading_app(result_backend: str) -> Any:
    """An app that only reads results."""
    app = _app(backend=result_backend)
    app.conf.result_backend_always_retry = False
    app.conf.redis_socket_connect_timeout = CONNECT_TIMEOUT_S
    app.conf.redis_socket_timeout = RESPONSE_TIMEOUT_S
    app.conf.redis_retry_on_timeout = False
    return app


def _app(**urls: str) -> Any:
    """An app that uses JSON only, and does not become the current app."""
    from celery import Celery

    app = Celery("timewright", set_as_current=False, **urls)
    app.conf.update(task_serializer="json", result_serializer="json", accept_content=["json"])
    return app


def send_options(message: BrokerMessage) -> dict[str, Any]:
    """The arguments of `send_task`. One immediate retry replaces a connection that was lost while idle."""
    options: CeleryOptions = message.options
    return {
        "args": message.args,
        "kwargs": message.kwargs,
        "queue": options.queue,
        "priority": options.priority,
        "expires": options.expires,
        "ignore_result": False if message.wait else None,
        "headers": message.headers,
        "retry": True,
        "retry_policy": {"max_retries": 1, "interval_start": 0, "interval_max": 0},
    }


def task_outcome(meta: dict[str, Any]) -> Outcome | None:
    """The outcome of a task's state; None while it has not ended."""
    status, result = meta.get("status"), meta.get("result")
    if status == "SUCCESS":
        return Succeeded(result={"value": to_json_value(result)})
    if status == "REVOKED":
        return failed("the task was revoked, or expired before a worker took it")
    if status != "FAILURE":
        return None
    why = f"{type(result).__name__}: {result}" if isinstance(result, BaseException) else str(result)
    outcome = failed(f"the task failed: {why}")
    return Failed(error=outcome.error, result={"traceback": to_json_value(meta.get("traceback"))})
