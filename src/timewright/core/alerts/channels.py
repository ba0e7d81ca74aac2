"""Channels: a filter over facts and incidents, and a sender; the message that a sender gets."""

from __future__ import annotations

import re
import shlex
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

from msgspec import Meta, Struct
from msgspec.structs import asdict

from timewright.core.alerts.incidents import LINK_PATTERN, CheckIn, IncidentKind
from timewright.core.finding import Severity
from timewright.core.moments import format_instant
from timewright.errors import InvalidInput

MAIL_PATTERN = r"^[^\s@]+@[^\s@]+$"
SECRET_PATTERN = r"^secret://\S+$"  # noqa: S105 - a pattern, not a secret
Address = Annotated[str, Meta(max_length=320, pattern=MAIL_PATTERN)]
SecretReference = Annotated[str, Meta(max_length=255, pattern=SECRET_PATTERN)]
# A Slack address is a secret itself.
Link = Annotated[str, Meta(min_length=1, max_length=2000, pattern=LINK_PATTERN)]
Words = Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=255)], ...], Meta(max_length=100)]

Kinds = Annotated[tuple[IncidentKind, ...], Meta(max_length=100)]
Severities = Annotated[tuple[Severity, ...], Meta(max_length=3)]

INCIDENT_EVENTS = ("incident-opened", "incident-repeated", "incident-closed")
# Facts that a channel may ask for by name, besides `incident`.
EVENTS = (
    *INCIDENT_EVENTS,
    "run-succeeded",
    "run-failed",
    "run-will-retry",
    "run-parked",
    "run-cancelled",
    "run-skipped",
    "occurrences-dropped",
    "run-admitted",
    "run-leased",
    "lease-lost",
    "schedule-parked",
    "schedule-finished",
    "run-missed",
    "reminder-due",
    "approval-wanted",
    "answer-wanted",
    "budget-low",
)
QUEUE_PREFIX = "channel."
TLS_PORT = 465
# Where the store keeps the address of its dashboard, for links in messages.
DASHBOARD_URL = "dashboard_url"


def is_delivery(queue: str) -> bool:
    """Whether a queue holds messages to a channel."""
    return queue.startswith(QUEUE_PREFIX)


class Webhook(Struct, frozen=True, kw_only=True, tag="webhook", tag_field="kind", forbid_unknown_fields=True):
    """A POST with JSON, signed as Standard Webhooks describes it if `secret` names a secret."""

    url: Link
    secret: SecretReference | None = None
    headers: dict[str, str] = {}


class Slack(Struct, frozen=True, kw_only=True, tag="slack", tag_field="kind", forbid_unknown_fields=True):
    """A POST with `{"text": …}`: Slack, Mattermost, Discord (`/slack`), Rocket.Chat, Google Chat."""

    url: Link


class Ntfy(Struct, frozen=True, kw_only=True, tag="ntfy", tag_field="kind", forbid_unknown_fields=True):
    """A topic of ntfy.sh or of an own server, by its whole URL; `token` is `secret://name`."""

    url: Link
    token: SecretReference | None = None


class Email(Struct, frozen=True, kw_only=True, tag="email", tag_field="kind", forbid_unknown_fields=True):
    """A mail over SMTP. `tls` is `starttls` (port 587), `tls` (port 465) or `off`, for a relay nearby."""

    to: Annotated[tuple[Address, ...], Meta(min_length=1, max_length=50)]
    host: Annotated[str, Meta(min_length=1, max_length=255)]
    port: Annotated[int, Meta(ge=1, le=65_535)] = 587
    tls: Literal["starttls", "tls", "off"] = "starttls"
    sender: Address = "timewright@localhost.localdomain"
    user: Annotated[str, Meta(max_length=255)] = ""
    password: SecretReference | None = None


class Command(Struct, frozen=True, kw_only=True, tag="command", tag_field="kind", forbid_unknown_fields=True):
    """A command on the instance; ALERT_TITLE, ALERT_TEXT and ALERT_MESSAGE (JSON) are in its environment."""

    command: Annotated[
        tuple[Annotated[str, Meta(max_length=10_000)], ...], Meta(min_length=1, max_length=100)
    ]


class Apprise(Struct, frozen=True, kw_only=True, tag="apprise", tag_field="kind", forbid_unknown_fields=True):
    """Anything that Apprise knows, by its URL or `secret://name`; needs the extra `apprise`."""

    url: Annotated[str, Meta(min_length=3, max_length=2000, pattern=r"^\S+://\S+$")]


class Poll(Struct, frozen=True, kw_only=True, tag="poll", tag_field="kind", forbid_unknown_fields=True):
    """Nothing is sent: a client leases and completes messages from the queue `channel.NAME`."""


class Ping(Struct, frozen=True, kw_only=True, tag="ping", tag_field="kind", forbid_unknown_fields=True):
    """A check-in at an outside monitor."""

    check_in: CheckIn
    status: Literal["in_progress", "ok", "failed"]


AnySender = Webhook | Slack | Ntfy | Email | Command | Apprise | Poll


_EXAMPLES = {
    "slack": "slack:https://hooks.slack.com/services/…",
    "ntfy": "ntfy:https://ntfy.sh/TOPIC",
    "apprise": "apprise:discord://ID/TOKEN",
    "command": "command:notify-send",
    "email": "mailto:ops@example.com?host=smtp.example.com",
    "mailto": "mailto:ops@example.com?host=smtp.example.com",
}


def parse_sender(raw: Any, *, secret: str = "") -> Any:
    """Expand the short form of a sender: a URL, `slack:URL`, `mailto:…`, `command:…`, `poll`."""
    if not isinstance(raw, str):
        return {**raw, "secret": secret} if secret and isinstance(raw, dict) else raw
    kind, _, rest = raw.partition(":")
    if raw == "poll":
        return {"kind": "poll"}
    if kind in ("slack", "ntfy", "apprise") and rest:
        return {"kind": kind, "url": rest}
    if kind == "command" and rest:
        return {"kind": kind, "command": shlex.split(rest)}
    if kind == "mailto":
        return _parse_mailto(rest) or raw
    if "://" not in raw:
        return raw
    return {"kind": "webhook", "url": raw, **({"secret": secret} if secret else {})}


def _parse_mailto(rest: str) -> dict[str, Any] | None:
    """The sender of `ADDRESS?host=SERVER:PORT&…`; None without a server. A plus sign is no space here."""
    address, _, query = rest.partition("?")
    options: dict[str, Any] = dict(parse_qsl(query.replace("+", "%2B")))
    host, _, port = options.pop("host", "").partition(":")
    if not host:
        return None
    if "from" in options:
        options["sender"] = options.pop("from")
    number = port or options.pop("port", "")
    if number:
        options["port"] = int(number) if number.isdecimal() else number
    # Port 465 is the port of TLS from the first byte on, and the other way round.
    if options.get("port") == TLS_PORT:
        options.setdefault("tls", "tls")
    elif options.get("tls") == "tls":
        options.setdefault("port", TLS_PORT)
    return {"kind": "email", "to": address.split(","), "host": host, **options}


def expand_sender(raw: Any, path: str) -> dict[str, Any]:
    """Return a sender as a mapping with its kind, or refuse it."""
    found = parse_sender(raw)
    if not isinstance(found, dict) or "kind" not in found:
        shown = str(raw)[:60]
        is_mail = re.fullmatch(r"(?:mailto:)?[^\s@:?]+@[^\s@:?]+", shown)
        mail = f"mailto:{shown.removeprefix('mailto:')}?host=smtp.example.com"
        raise InvalidInput(
            f"{path} {shown!r} " + ("names no mail server" if is_mail else "names no receiver"),
            field=path,
            value=shown,
            rule="a URL, slack:URL, ntfy:URL, mailto:ADDRESS?host=SERVER, command:…, poll, or a mapping",
            fix=mail if is_mail else _EXAMPLES.get(shown.strip(":"), "https://example.com/hook"),
        )
    return found


class Channel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Who is told what: the sender, and which events about what. An empty filter matches everything.

    `schedules` are name patterns such as `billing-*`. `link` is the address of the dashboard, for messages.
    """

    to: AnySender
    events: Words = ("incident",)
    kinds: Kinds = ()
    severities: Severities = ()
    schedules: Words = ()
    groups: Words = ()
    link: Annotated[str, Meta(max_length=2000)] = ""
    revision: int = 1

    def __post_init__(self) -> None:
        unknown = [one for one in self.events if _event(one) not in EVENTS and one != "incident"]
        if unknown:
            raise InvalidInput(
                f"events {unknown[0]!r} is unknown",
                field="events",
                value=unknown[0],
                rule=f"incident, or any of {', '.join(EVENTS)}",
                fix="events: incident",
            )

    def wants(self, event: str) -> bool:
        """Whether the channel asks for an event, whatever it is about; `run.failed` is `run-failed`."""
        return event in map(_event, self.events) or ("incident" in self.events and event in INCIDENT_EVENTS)

    def matches(self, message: Message) -> bool:
        """Whether the channel wants a message."""
        wanted = self.wants(message.type)
        return (
            wanted
            and (not self.kinds or message.kind in self.kinds)
            and (not self.severities or message.severity in self.severities)
            and (not self.groups or message.group in self.groups)
            and (not self.schedules or any(fnmatchcase(message.schedule, one) for one in self.schedules))
        )


def _event(name: str) -> str:
    return name.replace(".", "-")


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a receiver is told. `remedy` is the command that would help, `link` leads to the run."""

    type: str
    at: datetime
    namespace: str
    severity: Severity = "warn"
    kind: str = ""
    subject: str = ""
    sentence: str
    schedule: str = ""
    group: str = ""
    queue: str = ""
    run: str = ""
    incident: str = ""
    reason: str = ""
    error: str = ""
    remedy: str = ""
    link: str = ""
    count: int = 1
    others: tuple[str, ...] = ()

    def title(self) -> str:
        """One line: what happened to what."""
        mark = {"incident-closed": "Resolved", "incident-repeated": "Still"}.get(self.type, "")
        name = self.schedule or self.subject
        text = f"{name}: {self.sentence}" if name and not self.sentence.startswith(name) else self.sentence
        return f"[timewright] {mark + ': ' if mark else ''}{text}".replace("\n", " ")[:200]

    def text(self) -> str:
        """The whole message as plain text."""
        lines = [self.sentence, *self.others]
        parts = {
            "schedule": self.schedule,
            "run": self.run,
            "reason": self.reason,
            "error": self.error,
            "since": format_instant(self.at),
            "see": self.link,
            "try": self.remedy,
        }
        return "\n".join([*lines, "", *(f"{name}: {value}" for name, value in parts.items() if value)])

    def to_json(self) -> dict[str, Any]:
        """The message as it is sent and stored."""
        fields = {name: value for name, value in asdict(self).items() if value not in ("", ())}
        return {**fields, "at": format_instant(self.at)}


def digest(messages: list[Message]) -> Message:
    """Many messages of one moment as one."""
    first = messages[0]
    worst: Severity = "fail" if any(one.severity == "fail" for one in messages) else "warn"
    opened = sum(one.type != "incident-closed" for one in messages)
    ended = len(messages) - opened
    parts = [f"{opened} incidents are open"] * bool(opened) + [f"{ended} incidents ended"] * bool(ended)
    if first.type == "answer-wanted":
        parts = [f"{len(messages)} questions wait for an answer"]
    return Message(
        type=first.type,
        at=first.at,
        namespace=first.namespace,
        severity=worst,
        sentence=" and ".join(parts),
        remedy=f"timewright {'approval' if first.type == 'answer-wanted' else 'incident'} list",
        link=first.link,
        count=len(messages),
        others=tuple(one.title().removeprefix("[timewright] ") for one in messages[:20]),
    )
