"""The message of one attempt: name, payload, and the key that makes a duplicate harmless."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from timewright.core.input.input_errors import input_error
from timewright.core.moments import SECOND, format_instant
from timewright.core.target import Publish
from timewright.ports import Launch
from timewright.targets.publish.address import BrokerAddress

DEFAULT_TIME_LIMIT = 300 * SECOND


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
    payload = target.payload if launch.payload is None else launch.payload
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
