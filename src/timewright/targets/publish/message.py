"""What is sent for one attempt: the name, the payload, and the key that makes a second one harmless."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from timewright.core.moments import spell_instant
from timewright.core.refusals import refused
from timewright.core.target import Publish
from timewright.ports import Launch
from timewright.targets.publish.address import Address


class Options(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every broker may be told: who signs in, and the secret that proves it."""

    # The options that belong to the connection; messages that share them share one.
    joined: ClassVar[tuple[str, ...]] = ()
    # The options that may name a secret, and never hold one.
    private: ClassVar[tuple[str, ...]] = ("password",)

    user: str = ""
    password: str = ""

    @property
    def connection(self) -> tuple[Any, ...]:
        """What tells one connection to the same address from another."""
        return tuple(getattr(self, name) for name in self.joined)

    def check(self) -> None:
        """Refuse options that contradict each other."""

    def elsewhere(self) -> tuple[Address, ...]:
        """Other addresses that these options lead to."""
        return ()


class Message(Struct, frozen=True, kw_only=True):
    """One message, ready for any broker."""

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
        """The payload as positional arguments: a list as it is, any other single value alone."""
        if self.payload is None or isinstance(self.payload, dict):
            return []
        return list(self.payload) if isinstance(self.payload, list | tuple) else [self.payload]

    @property
    def kwargs(self) -> dict[str, Any]:
        """The payload as named arguments, if it is a mapping."""
        return dict(self.payload) if isinstance(self.payload, dict) else {}


class Receipt(Struct, frozen=True, kw_only=True):
    """What the broker said when it took a message; a duplicate was there already."""

    id: str
    duplicate: bool = False
    detail: dict[str, Any] = {}


def message_of(target: Publish, launch: Launch, *, options: Options, most_bytes: int) -> Message:
    """The message of a launch; the payload of the run itself goes before that of its schedule."""
    payload = target.payload if launch.payload is None else launch.payload
    return Message(
        key=launch.key,
        name=target.name,
        payload=payload,
        body=encoded(payload, most_bytes=most_bytes),
        headers=identity(launch),
        schedule_id=launch.schedule_id,
        time_limit=launch.time_limit.total_seconds(),
        wait=target.wait,
        options=options,
    )


def encoded(payload: Any, *, most_bytes: int) -> bytes:
    """The payload as JSON, within what the broker takes."""
    field = "target.payload"
    try:
        body = msgspec.json.encode(payload)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        why = f"cannot be sent: {error}"
        raise refused(field, payload, why, rule="what JSON can say", fix='{"id": 1}') from None
    if len(body) > most_bytes:
        rule = f"at most {most_bytes} bytes of JSON"
        fix = "put it where the worker can fetch it, and send its address"
        raise refused(field, payload, f"has {len(body)} bytes", rule=rule, fix=fix)
    return body


def identity(launch: Launch) -> dict[str, str]:
    """What travels with every message: the key, and which run and attempt this is."""
    told = {
        "timewright-key": launch.key,
        "timewright-run": launch.run_id,
        "timewright-schedule": launch.schedule_id,
        "timewright-schedule-name": launch.schedule_name,
        "timewright-namespace": launch.namespace,
        "timewright-planned-at": spell_instant(launch.planned_at),
        "timewright-fence": str(launch.fence),
        "timewright-attempt": str(launch.attempt),
        "traceparent": launch.traceparent,
    }
    return {name: value for name, value in told.items() if value}
