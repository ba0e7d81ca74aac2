"""Dramatiq on Redis: a message for an actor by its name, under the key as its id."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from timewright.targets.publish.address import Address
from timewright.targets.publish.broker import Blocking
from timewright.targets.publish.marks import Marks, redis_client
from timewright.targets.publish.message import Message, Options, Receipt


class DramatiqOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The queue of the actor, and the prefix of its broker's names in Redis."""

    joined: ClassVar[tuple[str, ...]] = ("prefix",)

    queue: Annotated[str, Meta(min_length=1, max_length=255)] = "default"
    prefix: Annotated[str, Meta(min_length=1, max_length=255)] = "dramatiq"
    max_retries: Annotated[int, Meta(ge=0, le=1000)] | None = None


class DramatiqBroker(Blocking):
    """Enqueues messages; one whose key was accepted is not enqueued again."""

    def __init__(self, address: Address, options: DramatiqOptions) -> None:
        from dramatiq.brokers import redis

        library: Any = redis  # it has no types to speak of
        self._client = redis_client(address)
        self._broker = library.RedisBroker(client=self._client, middleware=[], namespace=options.prefix)
        super().__init__(self._client.close)
        self._marks = Marks(self._client, word="dramatiq")

    async def publish(self, message: Message) -> Receipt:
        """Enqueue the message, unless one with its key was accepted."""
        return await self.aside(self._publish, message)

    def _publish(self, message: Message) -> Receipt:
        known = bool(self._marks.get(message.key))
        if not known:
            self._broker.enqueue(actor_message(message))
            self._marks.put(message.key, message.key)
        return Receipt(id=message.key, duplicate=known, detail={"queue": message.options.queue})


def actor_message(message: Message) -> Any:
    """The message as Dramatiq knows it."""
    import dramatiq

    options: DramatiqOptions = message.options
    told: dict[str, Any] = {"timewright": dict(message.headers)}
    if options.max_retries is not None:
        told["max_retries"] = options.max_retries
    return dramatiq.Message(
        queue_name=options.queue,
        actor_name=message.name,
        args=tuple(message.args),
        kwargs=message.kwargs,
        options=told,
        message_id=message.key,
    )
