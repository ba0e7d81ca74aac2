"""Celery: a task by its name, without importing the code that has it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from timewright.core.run import Failed, Outcome, Succeeded
from timewright.targets.answers import failed, plain_result
from timewright.targets.publish.address import Address, read_address
from timewright.targets.publish.broker import ANSWER_SECONDS, AT_ONCE, CONNECT_SECONDS, Blocking
from timewright.targets.publish.marks import Marks, redis_client
from timewright.targets.publish.message import Message, Options, Receipt
from timewright.targets.signing import MARK

REDIS_SCHEMES = ("redis", "rediss")
_GONE = frozenset({"FAILURE", "REVOKED"})


class CeleryOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the task waits and how urgent it is; `result_backend` is where its result is read."""

    joined: ClassVar[tuple[str, ...]] = ("result_backend",)
    private: ClassVar[tuple[str, ...]] = ("password", "result_backend")

    queue: Annotated[str, Meta(min_length=1, max_length=255)] = "celery"
    priority: Annotated[int, Meta(ge=0, le=255)] | None = None
    expires: Annotated[float, Meta(gt=0, le=31_536_000)] | None = None
    result_backend: Annotated[str, Meta(max_length=8192)] = ""
    terminate: bool = True

    def elsewhere(self) -> tuple[Address, ...]:
        """The result backend, which is an address of its own."""
        if not self.result_backend or self.result_backend.startswith(MARK):
            return ()
        fix, field = "redis://localhost:6379/1", "target.options.result_backend"
        return (read_address(self.result_backend, schemes=REDIS_SCHEMES, fix=fix, field=field),)


class CeleryBroker(Blocking):
    """Sends tasks with `task_id` = key, and reads how they ended.

    Workers discard an id that was revoked, and an old result would be read as a new one: so a task that is
    sent again, because it failed or was given up, has the fence of its attempt behind the key.
    """

    def __init__(self, address: Address, options: CeleryOptions) -> None:
        super().__init__(self._free)
        self._app = sending_app(address)
        # Connections of our own: those of the app are shared with every other app of this process.
        self._pool = self._app.connection_for_write().Pool(AT_ONCE)
        # Taken once: the app would make another one, with its own connections, for every thread that asks.
        self._results = reading_app(options.result_backend).backend if options.result_backend else None
        on_redis = address.scheme in REDIS_SCHEMES
        self._marks = Marks(redis_client(address), word="celery") if on_redis else None

    async def publish(self, message: Message) -> Receipt:
        """Send the task, unless one with its key was accepted and has not failed."""
        return await self.aside(self._publish, message)

    async def look(self, message: Message, work: str) -> Outcome | None:
        """How the task ended, as the result backend says."""
        return outcome_of(await self.aside(self._meta, work))

    async def abandon(self, message: Message, work: str) -> None:
        """Revoke the task, and end it where its worker can."""
        await self.aside(self._abandon, message, work)

    def _publish(self, message: Message) -> Receipt:
        work, known = self._work(message)
        if not known:
            with self._pool.acquire(block=True, timeout=ANSWER_SECONDS) as connection:
                self._app.send_task(message.name, task_id=work, connection=connection, **sending(message))
            if self._marks is not None:
                self._marks.put(message.key, work)
        return Receipt(id=work, duplicate=known, detail={"queue": message.options.queue})

    def _work(self, message: Message) -> tuple[str, bool]:
        """The id of the task, and whether it was accepted and may still come to a good end."""
        sent = self._marks.get(message.key) if self._marks is not None else None
        if sent is None and not message.wait:
            return message.key, False
        if sent and not message.wait:
            return sent, True
        status = self._meta(sent or message.key).get("status")
        if sent == "" or status in _GONE:
            return f"{message.key}.{message.headers['timewright-fence']}", False
        return sent or message.key, bool(sent) or status == "SUCCESS"

    def _meta(self, work: str) -> dict[str, Any]:
        """What the backend knows of a task, read anew: the app remembers only what has ended."""
        if self._results is None:
            return {}
        return dict(self._results.get_task_meta(work, cache=False))

    def _abandon(self, message: Message, work: str) -> None:
        if self._marks is not None:
            self._marks.put(message.key, "")
        with self._pool.acquire(block=True, timeout=ANSWER_SECONDS) as connection:
            self._app.control.revoke(work, terminate=message.options.terminate, connection=connection)

    def _free(self) -> None:
        if self._marks is not None:
            self._marks.close()
        if self._results is not None:
            self._results.client.connection_pool.disconnect()
        self._pool.force_close_all()
        self._app.close()


def sending_app(address: Address) -> Any:
    """An app that knows no task and no result backend: one that did would listen for every task it sends."""
    app = _app(broker=address.text)
    within = {"socket_connect_timeout": CONNECT_SECONDS, "socket_timeout": ANSWER_SECONDS}
    app.conf.broker_connection_timeout = CONNECT_SECONDS
    app.conf.broker_transport_options = within if address.scheme in REDIS_SCHEMES else {}
    return app


def reading_app(result_backend: str) -> Any:
    """An app that only reads results."""
    app = _app(backend=result_backend)
    app.conf.result_backend_always_retry = False
    app.conf.redis_socket_connect_timeout = CONNECT_SECONDS
    app.conf.redis_socket_timeout = ANSWER_SECONDS
    app.conf.redis_retry_on_timeout = False
    return app


def _app(**places: str) -> Any:
    """An app that reads and writes nothing but JSON, and is never made the current one."""
    from celery import Celery

    app = Celery("timewright", set_as_current=False, **places)
    app.conf.update(task_serializer="json", result_serializer="json", accept_content=["json"])
    return app


def sending(message: Message) -> dict[str, Any]:
    """What `send_task` is told beside name and id; one retry at once replaces a connection that died idle."""
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


def outcome_of(meta: dict[str, Any]) -> Outcome | None:
    """A task's state as an outcome; nothing while it has not ended."""
    status, result = meta.get("status"), meta.get("result")
    if status == "SUCCESS":
        return Succeeded(result={"value": plain_result(result)})
    if status == "REVOKED":
        return failed("the task was revoked, or expired before a worker took it")
    if status != "FAILURE":
        return None
    why = f"{type(result).__name__}: {result}" if isinstance(result, BaseException) else str(result)
    told = failed(f"the task failed: {why}")
    return Failed(error=told.error, result={"traceback": plain_result(meta.get("traceback"))})
