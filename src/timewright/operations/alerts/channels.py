"""Channels: who is told about incidents and events, and how."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from timewright.access.secret_records import find_secrets
from timewright.core.alerts.channels import (
    QUEUE_PREFIX,
    Channel,
    Command,
    Kinds,
    Message,
    Poll,
    SecretReference,
    Severities,
    Words,
    parse_sender,
)
from timewright.core.input.decode import decode
from timewright.core.input.input_errors import check_name
from timewright.core.moments import format_instant
from timewright.core.run.run import RunState
from timewright.core.target import Http
from timewright.errors import NotAllowed
from timewright.ledger.alerts.deliveries import deliver_to
from timewright.ledger.records.instances import is_alive, read_offers
from timewright.ledger.settle import cancel
from timewright.operations.access.secret_checks import secret_names
from timewright.operations.context import OperationContext
from timewright.operations.health.start_warnings import guarded_address
from timewright.operations.lookup import find_object, not_found
from timewright.operations.pagination import paginate_rows
from timewright.operations.queues.policies import register_queue
from timewright.operations.registry import ListRequest, ObjectName, WriteRequest, operations
from timewright.ports import RunFilter, StoredObject, Transaction

CHANNEL = "channel"
MAX_CANCELLED = 1000


class CreateChannel(WriteRequest, frozen=True, kw_only=True):
    """A name, where to send, and what: by default every incident of the namespace.

    `to` is a URL (a webhook), `slack:URL`, `ntfy:URL`, `mailto:ADDRESS?host=…`, `command:…`, `apprise:URL`
    or `poll`, or a mapping with `kind`. `sign_with` signs a webhook: `secret://NAME`.
    """

    channel: ObjectName
    to: Any
    sign_with: SecretReference | None = None
    events: Words = ("incident",)
    kinds: Kinds = ()
    severities: Severities = ()
    schedules: Words = ()
    groups: Words = ()
    link: Annotated[str, Meta(max_length=2000)] = ""


class ChannelDetail(Struct, frozen=True, kw_only=True):
    """A channel, and how many of its messages wait or are parked."""

    name: str
    channel: Channel | None
    queue: str
    waiting: int = 0
    parked: int = 0
    warnings: tuple[str, ...] = ()


class ListChannels(ListRequest, frozen=True, kw_only=True):
    """List the channels of the namespace."""


class ChannelList(Struct, frozen=True, kw_only=True):
    """A page of channels, by name."""

    channels: tuple[ChannelDetail, ...]
    cursor: str = ""


class ChannelAction(WriteRequest, frozen=True, kw_only=True):
    """Which channel."""

    channel: ObjectName


class ChannelTest(Struct, frozen=True, kw_only=True):
    """The run that delivers the test message; `run get` shows whether it arrived."""

    channel: str
    run: str


class DeletedChannel(Struct, frozen=True, kw_only=True):
    """The channel that was deleted, and how many waiting messages were cancelled."""

    channel: str
    cancelled: int


@operations.write(
    "channel create",
    scope="admin",
    examples=(
        {"channel": "ops", "to": "https://example.com/hooks/timewright", "sign_with": "secret://hook"},
        {"channel": "billing", "to": "slack:secret://slack-url", "schedules": ["billing-*"]},
        {"channel": "audit", "to": "poll", "events": ["run-failed", "run-parked"]},
    ),
)
def create_channel(context: OperationContext, tx: Transaction, request: CreateChannel) -> ChannelDetail:
    """Create or replace a channel; it gets what happens from now on."""
    now = context.now()
    name = check_name(request.channel, field="channel")
    fields = {
        "to": parse_sender(request.to, secret=request.sign_with or ""),
        **{one: getattr(request, one) for one in ("events", "kinds", "severities", "schedules", "groups")},
        "link": request.link,
    }
    channel = decode(fields, Channel)
    _check(context, tx, channel, now=now)
    if isinstance(channel.to, Poll):
        register_queue(context, f"{QUEUE_PREFIX}{name}", now=now)
    written = _write(tx, context, name, channel, now=now)
    return replace(written, warnings=tuple(_warnings(context, tx, channel)))


@operations.read("channel list", scope="read", examples=({},))
def list_channels(context: OperationContext, tx: Transaction, request: ListChannels) -> ChannelList:
    """List the channels with the number of messages that wait or failed."""
    rows = [one for one in tx.read_channels() if one.namespace == context.namespace]
    page, cursor = paginate_rows(context, request, rows, key=attrgetter("name"))
    shown = tuple(_detail(tx, context.namespace, row.name, row.channel) for row in page)
    return ChannelList(channels=shown, cursor=cursor)


@operations.write("channel test", scope="trigger", examples=({"channel": "ops"},))
def test_channel(context: OperationContext, tx: Transaction, request: ChannelAction) -> ChannelTest:
    """Send a test message through a channel; it is delivered like every other."""
    now = context.now()
    message = Message(
        type="test",
        at=now,
        namespace=context.namespace,
        severity="ok",
        subject="test",
        sentence=f"this is a test of the channel {request.channel}, sent by {context.by.name}",
        remedy="nothing to do",
    )
    find_channel(tx, context.namespace, request.channel)
    run = deliver_to(tx, context.namespace, request.channel, message, now=now)
    assert run is not None
    context.audit(tx, "channel.test", request.channel, after=format_instant(now))
    return ChannelTest(channel=request.channel, run=run.id)


@operations.write("channel delete", scope="admin", examples=({"channel": "ops"},))
def delete_channel(context: OperationContext, tx: Transaction, request: ChannelAction) -> DeletedChannel:
    """Delete a channel; messages that wait are cancelled."""
    now, by = context.now(), context.by
    find_object(tx, CHANNEL, context.namespace, request.channel)
    tx.delete_object(CHANNEL, namespace=context.namespace, name=request.channel)
    context.audit(tx, "channel.delete", request.channel, after=format_instant(now))
    waiting = list(_waiting(tx, context.namespace, request.channel))
    for run in waiting:
        facts = cancel(context.store, run.id, actor=by.name, reason="the channel was deleted", now=now)
        context.notify(facts)
    return DeletedChannel(channel=request.channel, cancelled=len(waiting))


def _write(
    tx: Transaction, context: OperationContext, name: str, channel: Channel, *, now: datetime
) -> ChannelDetail:
    rows = tx.get_objects(CHANNEL, namespace=context.namespace, names=[name])
    revision = rows[0].revision + 1 if rows else 1
    channel = replace(channel, revision=revision)
    row = StoredObject(
        kind=CHANNEL,
        namespace=context.namespace,
        name=name,
        revision=revision,
        body=msgspec.json.encode(channel),
        at=now,
    )
    tx.put_objects([row], replaces={name: revision - 1})
    context.audit(tx, "channel.create", name, after=format_instant(now))
    return _detail(tx, context.namespace, name, channel)


def _check(context: OperationContext, tx: Transaction, channel: Channel, *, now: datetime) -> None:
    """Refuse what could never be sent: an address that is blocked, a command where none may run."""
    if isinstance(channel.to, Command) and not context.settings.shell:
        need = (f"shell:{channel.to.command[0]}",)
        live = [one.offer for one in read_offers(tx) if is_alive(one.seen, now=now)]
        if all(offer.lacks(need) for offer in live):
            raise NotAllowed(
                f"no running instance may run the command {channel.to.command[0]!r}",
                field="to",
                rule="a command channel needs an instance that allows commands",
                fix="start one first: timewright up --shell; or use another kind of channel",
            )
    url = getattr(channel.to, "url", "")
    if context.check_target is not None and url.startswith(("http://", "https://")):
        context.check_target(Http(url=url, method="POST"))


def _warnings(context: OperationContext, tx: Transaction, channel: Channel) -> Iterator[str]:
    """What keeps messages from being sent until it is changed: a blocked address, a missing secret."""
    fields = msgspec.to_builtins(channel.to)
    yield from guarded_address(context.settings, fields.get("url") or f"smtp://{fields.get('host', '')}")
    names = secret_names(channel.to)
    known = {one.name for one in find_secrets(tx, context.namespace, names)} if names else set()
    for name in sorted(set(names) - known):
        yield f"there is no secret {name}; nothing is sent without it: timewright secret set {name}"


def _detail(tx: Transaction, namespace: str, name: str, channel: Channel | None) -> ChannelDetail:
    parked = RunFilter(namespace=namespace, queue=f"{QUEUE_PREFIX}{name}", state=RunState.PARKED, limit=1000)
    return ChannelDetail(
        name=name,
        channel=channel,
        queue=f"{QUEUE_PREFIX}{name}",
        waiting=len(_waiting(tx, namespace, name)),
        parked=len(tx.find(parked).rows),
    )


def _waiting(tx: Transaction, namespace: str, name: str) -> tuple[Any, ...]:
    which = RunFilter(
        namespace=namespace, queue=f"{QUEUE_PREFIX}{name}", state=RunState.READY, limit=MAX_CANCELLED
    )
    return tx.find(which).rows


def find_channel(tx: Transaction, namespace: str, name: str) -> Channel:
    """Return the channel of a name; one that is missing or cannot be read raises NotFound."""
    stored = {one.name: one.channel for one in tx.read_channels() if one.namespace == namespace}
    found = stored.get(name)
    if found is None:
        raise not_found("channel", name, stored, list_command="channel list")
    return found
