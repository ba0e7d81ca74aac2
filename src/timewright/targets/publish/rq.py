"""RQ: a job by the name of its function, under the key as its id."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from msgspec import Meta

from timewright.core.run import Outcome, Succeeded
from timewright.targets.answers import failed, plain_result
from timewright.targets.publish.address import Address
from timewright.targets.publish.broker import Blocking, until
from timewright.targets.publish.marks import redis_client
from timewright.targets.publish.message import Message, Options, Receipt

_GONE = frozenset({"failed", "stopped", "canceled"})
_NOT_AN_ID = re.compile(r"[^A-Za-z0-9_-]")
_REGISTRIES = ("failed", "canceled", "finished")
_LAST_LINE = 500
_STOPS_SOON = 0.02


class RqOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The queue, how its workers read jobs, and how many seconds a job that ended is kept."""

    queue: Annotated[str, Meta(min_length=1, max_length=255)] = "default"
    serializer: Literal["pickle", "json"] = "pickle"
    result_ttl: Annotated[int, Meta(ge=60, le=31_536_000)] = 3600
    at_front: bool = False


class RqBroker(Blocking):
    """Enqueues jobs; a job that is there under its key is not enqueued again.

    Nothing that a worker pickled is ever read: the state of a job is plain text, and its value is told
    only where the serializer is JSON.
    """

    def __init__(self, address: Address, options: RqOptions) -> None:
        self._client = redis_client(address)
        super().__init__(self._client.close)

    async def publish(self, message: Message) -> Receipt:
        """Enqueue the job, unless it is there and has not failed."""
        return await self.aside(self._publish, message)

    async def look(self, message: Message, work: str) -> Outcome | None:
        """How the job ended, as Redis says."""
        return await self.aside(self._look, message)

    async def abandon(self, message: Message, work: str) -> None:
        """Take the job out of its queue, or tell its worker to stop it and wait until it has."""
        if await self.aside(self._stop, message):
            await until(lambda: self.aside(self._has_stopped, message), first=_STOPS_SOON)

    def _publish(self, message: Message) -> Receipt:
        status = self._status(message)
        if status in _GONE:
            self._forget(message)
        known = status is not None and status not in _GONE
        if not known:
            self._queue(message).enqueue_call(message.name, **enqueuing(message))
        return Receipt(id=job_id(message.key), duplicate=known, detail={"queue": message.options.queue})

    def _look(self, message: Message) -> Outcome | None:
        status = self._status(message)
        if status == "finished":
            return Succeeded(result=self._value(message))
        if status == "failed":
            return failed(f"the job failed: {self._error(message)}")
        if status in _GONE:
            return failed(f"the job was {status}")
        if status is None:
            return failed("the job is gone: it was deleted, or outlived its result_ttl")
        return None

    def _stop(self, message: Message) -> bool:
        """Tell the worker that has the job, if one has."""
        from rq.command import send_command

        worker = self._client.hget(_job_name(message), "worker_name")
        is_under_way = self._status(message) == "started" and bool(worker)
        if is_under_way:
            send_command(self._client, worker.decode(), "stop-job", job_id=job_id(message.key))
        else:
            self._forget(message)
        return is_under_way

    def _has_stopped(self, message: Message) -> bool | None:
        return self._status(message) != "started" or None

    def _forget(self, message: Message) -> None:
        """Delete the job by hand: the library would unpickle it first."""
        key = job_id(message.key)
        self._client.lrem(f"rq:queue:{message.options.queue}", 0, key)
        for registry in _REGISTRIES:
            self._client.zrem(f"rq:{registry}:{message.options.queue}", key)
        self._client.delete(f"rq:job:{key}", f"rq:results:{key}")

    def _status(self, message: Message) -> str | None:
        status = self._client.hget(_job_name(message), "status")
        return None if status is None else status.decode()

    def _value(self, message: Message) -> dict[str, Any]:
        if message.options.serializer != "json":
            return {}
        result = self._latest(message)
        return {"value": plain_result(result.return_value)} if result is not None else {}

    def _error(self, message: Message) -> str:
        result = self._latest(message)
        lines = (result.exc_string or "").strip().splitlines() if result is not None else []
        return lines[-1][:_LAST_LINE] if lines else "its worker did not say why"

    def _latest(self, message: Message) -> Any:
        from rq.job import Job
        from rq.results import Result
        from rq.serializers import JSONSerializer

        job: Any = Job(id=job_id(message.key), connection=self._client, serializer=JSONSerializer)
        return Result.fetch_latest(job, serializer=JSONSerializer)

    def _queue(self, message: Message) -> Any:
        from rq import Queue
        from rq.serializers import DefaultSerializer, JSONSerializer

        options: RqOptions = message.options
        reads: Any = JSONSerializer if options.serializer == "json" else DefaultSerializer
        return Queue(options.queue, connection=self._client, serializer=reads)


def job_id(key: str) -> str:
    """The key as RQ takes an id: letters, digits, `_` and `-`."""
    return _NOT_AN_ID.sub("-", key)


def enqueuing(message: Message) -> dict[str, Any]:
    """What the queue is told beside the name of the function."""
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


def _job_name(message: Message) -> str:
    return f"rq:job:{job_id(message.key)}"
