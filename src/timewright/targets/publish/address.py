"""Broker addresses: strict URL parsing, and display without credentials."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote, unquote, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.input.input_errors import input_error

MAX_URL_CHARS = 8192
URL_FIELD = "target.url"
# Default ports by scheme.
DEFAULT_PORTS = {
    "redis": 6379,
    "rediss": 6379,
    "amqp": 5672,
    "amqps": 5671,
    "nats": 4222,
    "tls": 4222,
    "temporal": 7233,
    "http": 80,
    "https": 443,
}


class BrokerAddress(Struct, frozen=True, kw_only=True):
    """A broker address. User and password are separate fields, so that they are never shown."""

    scheme: str = ""
    host: str = ""
    port: int | None = None
    path: str = ""
    user: str = ""
    password: str = ""

    @property
    def endpoint(self) -> str:
        """Scheme, host and port, as in the list of allowed brokers."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}{f':{self.port}' if self.port else ''}"

    @property
    def display(self) -> str:
        """The address without credentials, for messages."""
        return f"{self.endpoint}{self.path}" if self.host else "its default address"

    @property
    def url(self) -> str:
        """The complete URL with credentials, for client libraries."""
        if not self.user and not self.password:
            return f"{self.endpoint}{self.path}"
        secret = f":{quote(self.password, safe='')}" if self.password else ""
        credentials = f"{quote(self.user, safe='')}{secret}@"
        return f"{self.endpoint}{self.path}".replace("://", f"://{credentials}", 1)

    def with_credentials(self, user: str, password: str) -> BrokerAddress:
        """Return the address with this user and password; empty values change nothing."""
        return replace(self, user=user or self.user, password=password or self.password)


def parse_broker_url(text: str, *, schemes: Sequence[str], fix: str, field: str = URL_FIELD) -> BrokerAddress:
    """Parse a broker URL of the form `scheme://host:port/path`, or refuse it."""
    rule = f"{' or '.join(f'{one}://' for one in schemes)}, a host, a port and a path"
    if len(text) > MAX_URL_CHARS or not text.isprintable() or any(letter in text for letter in " \\?#"):
        why = "is too long, or contains a space, a query or a non-printable character"
        raise input_error(field, without_credentials(text), why, rule=rule, fix=fix)
    try:
        split = urlsplit(text)
        number = split.port
    except ValueError:
        raise input_error(
            field, without_credentials(text), "is not a valid URL", rule=rule, fix=fix
        ) from None
    if split.scheme not in schemes or not split.hostname or "," in split.netloc:
        raise input_error(
            field,
            without_credentials(text),
            "is not the URL of a single broker of this kind",
            rule=rule,
            fix=fix,
        )
    return BrokerAddress(
        scheme=split.scheme,
        host=split.hostname,
        port=number or DEFAULT_PORTS.get(split.scheme),
        path=split.path,
        user=unquote(split.username or ""),
        password=unquote(split.password or ""),
    )


def normalize_endpoint(entry: str) -> str:
    """Normalize an entry of the list of allowed brokers to an endpoint; a plain name is unchanged."""
    if "://" not in entry:
        return entry
    try:
        split = urlsplit(entry)
        port = split.port
    except ValueError:
        return entry
    host, scheme = split.hostname or "", split.scheme
    return BrokerAddress(scheme=scheme, host=host, port=port or DEFAULT_PORTS.get(scheme)).endpoint


def without_credentials(text: str) -> str:
    """An invalid URL for messages, without credentials and query."""
    head, mark, rest = text[:MAX_URL_CHARS].partition("://")
    return f"{head}{mark}{rest.rpartition('@')[2]}".partition("?")[0]
