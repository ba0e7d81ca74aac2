"""Creates Kubernetes Jobs and starts Temporal workflows, named after the idempotency key."""

from __future__ import annotations

import hashlib
import os
import re
from datetime import timedelta
from typing import Annotated, Any, ClassVar

from msgspec import Meta, field

from timewright.core.input.input_errors import input_error
from timewright.core.run.run import Failed, Outcome, Succeeded
from timewright.targets.outcomes import MAX_ERROR_CHARS, failed, to_json_value
from timewright.targets.publish.protocol import (
    RESPONSE_TIMEOUT_S,
    AsyncBroker,
    BrokerAddress,
    BrokerMessage,
    BrokerOptions,
    Receipt,
    poll_until,
)

_NOT_A_NAME = re.compile(r"[^a-z0-9]+")
_CONFLICT = 409
_NOT_FOUND = 404
MAX_NAME_CHARS = 63
KEY_DIGEST_CHARS = 20


class KubernetesOptions(BrokerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The container to run, or `spec`, a complete Job spec. The password is a bearer token."""

    connection_options: ClassVar[tuple[str, ...]] = ("context",)

    namespace: Annotated[str, Meta(min_length=1, max_length=63)] = "default"
    context: Annotated[str, Meta(max_length=255)] = ""
    image: Annotated[str, Meta(max_length=1024)] = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    service_account: Annotated[str, Meta(max_length=253)] = ""
    backoff_limit: Annotated[int, Meta(ge=0, le=1000)] = 0
    keep_seconds: Annotated[int, Meta(ge=0, le=31_536_000)] = 86_400
    spec: dict[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Require exactly one of `image` and `spec`."""
        if bool(self.image) == bool(self.spec):
            rule, fix = "exactly one of image and spec", "image: ghcr.io/acme/report:1"
            raise input_error(
                "target.options.image",
                self.image,
                "or spec must be given",
                rule=rule,
                fix=fix,
            )


class KubernetesBroker(AsyncBroker):
    """Creates Jobs. A Job with the same name is not created again."""

    name = "kubernetes"
    extra = "kubernetes"
    modules = ("kubernetes_asyncio",)
    schemes = ("https", "http")
    example_url = "leave it out, or https://kubernetes.example.com:6443"
    options_type = KubernetesOptions
    has_results = True
    max_bytes = 100_000
    has_default_address = True
    remedy = "check that the API server is reachable, and that the account may create jobs"

    def __init__(self, address: BrokerAddress, options: KubernetesOptions) -> None:
        import kubernetes_asyncio

        super().__init__(address, options)
        self._library: Any = kubernetes_asyncio  # it has no type hints

    async def publish(self, message: BrokerMessage) -> Receipt:
        """Create the Job. A conflict means that it exists."""
        job, namespace = build_job(message), message.options.namespace
        name, detail = job["metadata"]["name"], {"namespace": namespace}
        if message.wait and isinstance(await self.read_outcome(message, name), Failed):
            # It has failed or was deleted: this attempt starts it again.
            await self.cancel(message, name)
        created = await self._jobs("create", namespace, job, refused=_CONFLICT)
        if created is None:
            return Receipt(id=name, duplicate=True, detail=detail)
        return Receipt(id=name, detail={**detail, "uid": created.metadata.uid})

    async def read_outcome(self, message: BrokerMessage, remote_id: str) -> Outcome | None:
        """The outcome of the Job according to its conditions."""
        job = await self._jobs("read", remote_id, message.options.namespace, refused=_NOT_FOUND)
        if job is None:
            return failed("the Job does not exist any more: it was deleted, or its keep_seconds have passed")
        for condition in (job.status.conditions if job.status is not None else None) or ():
            if condition.status == "True" and condition.type == "Complete":
                return Succeeded()
            if condition.status == "True" and condition.type == "Failed":
                why = ": ".join(filter(None, [condition.reason, condition.message]))
                return failed(f"the Job failed: {why or 'it gives no reason'}")
        return None

    async def cancel(self, message: BrokerMessage, remote_id: str) -> None:
        """Delete the Job with its pods, and wait until it is gone."""
        named = (remote_id, message.options.namespace)
        foreground = self._library.client.V1DeleteOptions(propagation_policy="Foreground")

        async def is_gone() -> bool | None:
            return await self._jobs("read", *named, refused=_NOT_FOUND) is None or None

        if await self._jobs("delete", *named, body=foreground, refused=_NOT_FOUND) is not None:
            await poll_until(is_gone)

    async def connect(self) -> Any:
        """Create the client; it connects at the first request."""
        return self._library.client.ApiClient(configuration=await self._configuration())

    async def _jobs(self, verb: str, *args: Any, refused: int, **options: Any) -> Any:
        """Call the API of Jobs; None if the server answers with the status `refused`."""
        batch = self._library.client.BatchV1Api(await self.connected())
        call = getattr(batch, f"{verb}_namespaced_job")
        try:
            return await call(*args, _request_timeout=RESPONSE_TIMEOUT_S, **options)
        except self._library.client.ApiException as error:
            if error.status != refused:
                raise
            return None

    async def _configuration(self) -> Any:
        """The given address and token, else those of the pod we run in, else the kubeconfig of the user."""
        configuration = self._library.client.Configuration()
        if self._address.host:
            configuration.host = self._address.endpoint + self._address.path
            if self._address.password:
                configuration.api_key = {"BearerToken": f"Bearer {self._address.password}"}
        elif "KUBERNETES_SERVICE_HOST" in os.environ and not self._options.context:
            self._library.config.load_incluster_config(client_configuration=configuration)
        else:
            await self._library.config.load_kube_config(
                context=self._options.context or None, client_configuration=configuration
            )
        return configuration


def job_name(message: BrokerMessage) -> str:
    """A stable name: the target's name and a digest of the key."""
    key = hashlib.sha256(message.key.encode()).hexdigest()[:KEY_DIGEST_CHARS]
    head = _NOT_A_NAME.sub("-", message.name.lower()).strip("-")[: MAX_NAME_CHARS - KEY_DIGEST_CHARS - 1]
    return f"{head.rstrip('-')}-{key}" if head else key


def build_job(message: BrokerMessage) -> dict[str, Any]:
    """Build the manifest of the Job. With `spec` in the options, that is its spec, unchanged.

    Only the container of the generated spec gets the payload and the run's headers, such as its key, as
    environment variables; the annotations have the headers in both cases.
    """
    options: KubernetesOptions = message.options
    labels = {"app.kubernetes.io/managed-by": "timewright"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(message),
            "labels": labels,
            "annotations": {
                f"timewright/{name.removeprefix('timewright-')}": value
                for name, value in message.headers.items()
            },
        },
        "spec": dict(options.spec) or _job_spec(message, options),
    }


def _job_spec(message: BrokerMessage, options: KubernetesOptions) -> dict[str, Any]:
    """Generate the spec from image, command, args and env of the options."""
    run_variables = {name.upper().replace("-", "_"): value for name, value in message.headers.items()}
    environment = {**options.env, **run_variables, "TIMEWRIGHT_PAYLOAD": message.body.decode()}
    container: dict[str, Any] = {
        "name": "work",
        "image": options.image,
        "env": [{"name": name, "value": value} for name, value in environment.items()],
    }
    container |= {"command": list(options.command)} if options.command else {}
    container |= {"args": list(options.args)} if options.args else {}
    pod: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    pod |= {"serviceAccountName": options.service_account} if options.service_account else {}
    return {
        "backoffLimit": options.backoff_limit,
        "ttlSecondsAfterFinished": options.keep_seconds,
        "template": {"spec": pod},
    }


class TemporalOptions(BrokerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Task queue, namespace, and whether to use TLS. The password is an API key."""

    connection_options: ClassVar[tuple[str, ...]] = ("namespace", "tls")

    task_queue: Annotated[str, Meta(min_length=1, max_length=1000)]
    namespace: Annotated[str, Meta(min_length=1, max_length=255)] = "default"
    tls: bool = False


class TemporalBroker(AsyncBroker):
    """Starts workflows. A workflow with the same key is not started again, also after it ended.

    Only a run that waits for the result, and is tried again, starts a failed one again.
    """

    name = "temporal"
    extra = "temporal"
    modules = ("temporalio",)
    schemes = ("temporal",)
    example_url = "temporal://localhost:7233"
    options_type = TemporalOptions
    has_results = True

    def __init__(self, address: BrokerAddress, options: TemporalOptions) -> None:
        from temporalio.client import Client

        super().__init__(address, options)
        self._connect = Client.connect

    async def publish(self, message: BrokerMessage) -> Receipt:
        """Start the workflow, and wait until the server has accepted it."""
        from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
        from temporalio.exceptions import WorkflowAlreadyStartedError

        client = await self.connected()
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

        handle = (await self.connected()).get_workflow_handle(remote_id)
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
        handle = (await self.connected()).get_workflow_handle(remote_id)
        await handle.cancel(rpc_timeout=timedelta(seconds=RESPONSE_TIMEOUT_S))
        await poll_until(lambda: self.read_outcome(message, remote_id))

    async def close(self) -> None:
        """Drop the client; the library closes its connection when it is garbage collected."""
        self._client = None

    async def connect(self) -> Any:
        """Connect to the server."""
        return await self._connect(
            self._address.endpoint.partition("://")[2],
            namespace=self._options.namespace,
            api_key=self._address.password or None,
            tls=self._options.tls or bool(self._address.password),
        )


def start_parameters(message: BrokerMessage) -> dict[str, Any]:
    """The arguments of `start_workflow`, without the name."""
    options: TemporalOptions = message.options
    return {
        "args": [message.payload] if isinstance(message.payload, dict) else message.args,
        "id": message.key,
        "task_queue": options.task_queue,
        "memo": dict(message.headers),
    }
