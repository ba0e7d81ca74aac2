"""Temporal: starts a workflow by name, with the key as its id."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from timewright.core.run.run import Outcome, Succeeded
from timewright.targets.outcomes import MAX_ERROR_CHARS, failed, to_json_value
from timewright.targets.publish.address import BrokerAddress
from timewright.targets.publish.message import BrokerMessage, BrokerOptions, Receipt
from timewright.targets.publish.protocol import RESPONSE_TIMEOUT_S, poll_until


class TemporalOptions(BrokerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Task queue, namespace, and whether to use TLS. The password is an API key."""

    connection_options: ClassVar[tuple[str, ...]] = ("namespace", "tls")

    task_queue: Annotated[str, Meta(min_length=1, max_length=1000)]
    namespace: Annotated[str, Meta(min_length=1, max_length=255)] = "default"
    tls: bool = False


class TemporalBroker:
    """Starts workflows. A workflow with the same key is not started again, also after it ended.

    Only a run that waits for the result, and is tried again, starts a failed one again.
    """

    def __init__(self, address: BrokerAddress, options: TemporalOptions) -> None:
        from temporalio.client import Client

        self._connect = Client.connect
        self._address = address
        self._namespace = options.namespace
        self._tls = options.tls
        self._client: Any = None
        self._opening = asyncio.Lock()

    async def publish(self, message: BrokerMessage) -> Receipt:
        """Start the workflow, and wait until the server has accepted it."""
        from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
        from temporalio.exceptions import WorkflowAlreadyStartedError

        client = await self._connected()
        # A run that waits and is tried again starts the workflow again if it has failed.
        reuse = (
            WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY
            if message.wait
            else WorkflowIDReusePolicy.REJECT_DUPLICATE
        )
        try:
            handle: Any = await client.start_workflow(
                message.name,
                id_reuse_policy=reuse,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                rpc_timeout=timedelta(seconds=RESPONSE_TIMEOUT_S),
                **start_parameters(message),
            )
        except WorkflowAlreadyStartedError:
            return Receipt(id=message.key, duplicate=True)
        return Receipt(id=message.key, detail={"run_id": handle.first_execution_run_id})

    async def read_outcome(self, message: BrokerMessage, remote_id: str) -> Outcome | None:
        """The outcome of the workflow according to the server."""
        from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError

        handle = (await self._connected()).get_workflow_handle(remote_id)
        found: Any = await handle.describe(rpc_timeout=timedelta(seconds=RESPONSE_TIMEOUT_S))
        if found.status == WorkflowExecutionStatus.RUNNING:
            return None
        try:
            value = await handle.result(rpc_timeout=timedelta(seconds=RESPONSE_TIMEOUT_S))
        except WorkflowFailureError as error:
            causes = [text for one in (error.cause, error.cause.__cause__) if (text := str(one or ""))]
            return failed(f"the workflow {found.status.name.lower()}: {': '.join(causes)}"[:MAX_ERROR_CHARS])
        return Succeeded(result={"value": to_json_value(value)})

    async def cancel(self, message: BrokerMessage, remote_id: str) -> None:
        """Ask the workflow to cancel itself, and wait until it has ended."""
        handle = (await self._connected()).get_workflow_handle(remote_id)
        await handle.cancel(rpc_timeout=timedelta(seconds=RESPONSE_TIMEOUT_S))
        await poll_until(lambda: self.read_outcome(message, remote_id))

    async def close(self) -> None:
        """Drop the client; the library closes its connection when it is garbage collected."""
        self._client = None

    async def _connected(self) -> Any:
        async with self._opening:
            if self._client is None:
                self._client = await self._connect(
                    self._address.endpoint.partition("://")[2],
                    namespace=self._namespace,
                    api_key=self._address.password or None,
                    tls=self._tls or bool(self._address.password),
                )
        return self._client


def start_parameters(message: BrokerMessage) -> dict[str, Any]:
    """The arguments of `start_workflow`, without the name."""
    options: TemporalOptions = message.options
    return {
        "args": [message.payload] if isinstance(message.payload, dict) else message.args,
        "id": message.key,
        "task_queue": options.task_queue,
        "memo": dict(message.headers),
    }
