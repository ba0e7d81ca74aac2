"""Kubernetes: a Job whose object name is made from the key."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from typing import Annotated, Any, ClassVar

from msgspec import Meta, field

from timewright.core.refusals import refused
from timewright.targets.publish.address import Address
from timewright.targets.publish.broker import ANSWER_SECONDS
from timewright.targets.publish.message import Message, Options, Receipt

_NOT_A_NAME = re.compile(r"[^a-z0-9]+")
_CONFLICT = 409
LONGEST_NAME = 63
KEY_LETTERS = 20


class KubernetesOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The container to run, or `spec`, a whole Job spec; the password is a bearer token."""

    joined: ClassVar[tuple[str, ...]] = ("context",)

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
        """Refuse a Job that would run nothing."""
        if bool(self.image) == bool(self.spec):
            rule, fix = "one of image and spec", "image: ghcr.io/acme/report:1"
            raise refused("target.options.image", self.image, "does not say what to run", rule=rule, fix=fix)


class KubernetesBroker:
    """Creates Jobs; one that is there under its name is not created again."""

    def __init__(self, address: Address, options: KubernetesOptions) -> None:
        import kubernetes_asyncio

        self._library: Any = kubernetes_asyncio  # it has no types to speak of
        self._address = address
        self._context = options.context
        self._client: Any = None
        self._opening = asyncio.Lock()

    async def publish(self, message: Message) -> Receipt:
        """Create the Job; a conflict means that it is there."""
        batch = self._library.client.BatchV1Api(await self._connected())
        job, namespace = job_of(message), message.options.namespace
        name = job["metadata"]["name"]
        detail = {"namespace": namespace}
        try:
            made: Any = await batch.create_namespaced_job(namespace, job, _request_timeout=ANSWER_SECONDS)
        except self._library.client.ApiException as error:
            if error.status != _CONFLICT:
                raise
            return Receipt(id=name, duplicate=True, detail=detail)
        return Receipt(id=name, detail={**detail, "uid": made.metadata.uid})

    async def close(self) -> None:
        """Close the client."""
        if self._client is not None:
            await self._client.close()

    async def _connected(self) -> Any:
        async with self._opening:
            if self._client is None:
                self._client = self._library.client.ApiClient(configuration=await self._configuration())
        return self._client

    async def _configuration(self) -> Any:
        """The address and token we were given, else those of the pod we are in, else of the user's file."""
        made = self._library.client.Configuration()
        if self._address.host:
            made.host = self._address.place + self._address.path
            if self._address.password:
                made.api_key = {"BearerToken": f"Bearer {self._address.password}"}
        elif "KUBERNETES_SERVICE_HOST" in os.environ and not self._context:
            self._library.config.load_incluster_config(client_configuration=made)
        else:
            await self._library.config.load_kube_config(
                context=self._context or None, client_configuration=made
            )
        return made


def job_name(message: Message) -> str:
    """A name that the same key always gives: what is run, and a digest of the key."""
    key = hashlib.sha256(message.key.encode()).hexdigest()[:KEY_LETTERS]
    head = _NOT_A_NAME.sub("-", message.name.lower()).strip("-")[: LONGEST_NAME - KEY_LETTERS - 1]
    return f"{head.rstrip('-')}-{key}" if head else key


def job_of(message: Message) -> dict[str, Any]:
    """The Job: the payload and the key are in the environment of its container."""
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
        "spec": dict(options.spec) or _spec(message, options),
    }


def _spec(message: Message, options: KubernetesOptions) -> dict[str, Any]:
    told = {name.upper().replace("-", "_"): value for name, value in message.headers.items()}
    environment = {**options.env, **told, "TIMEWRIGHT_PAYLOAD": message.body.decode()}
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
