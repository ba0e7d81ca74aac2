"""Temporal: a workflow by its name, under the key as its id."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from timewright.targets.publish.address import Address
from timewright.targets.publish.broker import ANSWER_SECONDS
from timewright.targets.publish.message import Message, Options, Receipt


class TemporalOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The queue of its workers, the namespace, and whether to use TLS; the password is an API key."""

    joined: ClassVar[tuple[str, ...]] = ("namespace", "tls")

    task_queue: Annotated[str, Meta(min_length=1, max_length=1000)]
    namespace: Annotated[str, Meta(min_length=1, max_length=255)] = "default"
    tls: bool = False


class TemporalBroker:
    """Starts workflows; one that runs or has ended under the key is not started again."""

    def __init__(self, address: Address, options: TemporalOptions) -> None:
        from temporalio.client import Client

        self._connect = Client.connect
        self._address = address
        self._namespace = options.namespace
        self._tls = options.tls
        self._client: Any = None
        self._opening = asyncio.Lock()

    async def publish(self, message: Message) -> Receipt:
        """Start the workflow, and return when the server has it."""
        from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
        from temporalio.exceptions import WorkflowAlreadyStartedError

        client = await self._connected()
        try:
            handle: Any = await client.start_workflow(
                message.name,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                rpc_timeout=timedelta(seconds=ANSWER_SECONDS),
                **starting(message),
            )
        except WorkflowAlreadyStartedError:
            return Receipt(id=message.key, duplicate=True)
        return Receipt(id=message.key, detail={"run_id": handle.first_execution_run_id})

    async def close(self) -> None:
        """Let the connection go: the library closes it when nobody holds it."""
        self._client = None

    async def _connected(self) -> Any:
        async with self._opening:
            if self._client is None:
                self._client = await self._connect(
                    self._address.place.partition("://")[2],
                    namespace=self._namespace,
                    api_key=self._address.password or None,
                    tls=self._tls or bool(self._address.password),
                )
        return self._client


def starting(message: Message) -> dict[str, Any]:
    """What the server is told beside the name of the workflow."""
    options: TemporalOptions = message.options
    return {
        "args": [message.payload] if isinstance(message.payload, dict) else message.args,
        "id": message.key,
        "task_queue": options.task_queue,
        "memo": dict(message.headers),
    }
