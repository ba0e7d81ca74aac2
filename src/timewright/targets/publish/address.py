"""Where a broker is: its URL, read strictly, and shown without anything that is private."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote, unquote, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.refusals import refused

LONGEST_URL = 8192
FIELD = "target.url"
# Where a broker listens that is not told otherwise.
PORTS = {
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


class Address(Struct, frozen=True, kw_only=True):
    """A broker's address; the user and the password are kept apart, so that they are never shown."""

    scheme: str = ""
    host: str = ""
    port: int | None = None
    path: str = ""
    user: str = ""
    password: str = ""

    @property
    def place(self) -> str:
        """The scheme, the host and the port: what is allowed or not."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}{f':{self.port}' if self.port else ''}"

    @property
    def shown(self) -> str:
        """The address as a message may name it."""
        return f"{self.place}{self.path}" if self.host else "its default address"

    @property
    def text(self) -> str:
        """The whole URL, as a client library takes it."""
        if not self.user and not self.password:
            return f"{self.place}{self.path}"
        secret = f":{quote(self.password, safe='')}" if self.password else ""
        who = f"{quote(self.user, safe='')}{secret}@"
        return f"{self.place}{self.path}".replace("://", f"://{who}", 1)

    def signed_in(self, user: str, password: str) -> Address:
        """The same address for that user; what is not given stays."""
        return replace(self, user=user or self.user, password=password or self.password)


def read_address(text: str, *, schemes: Sequence[str], fix: str, field: str = FIELD) -> Address:
    """Read a broker's URL; anything that is not plainly `scheme://host:port/path` is refused."""
    rule = f"{' or '.join(f'{one}://' for one in schemes)}, a host, a port and a path"
    if len(text) > LONGEST_URL or not text.isprintable() or any(letter in text for letter in " \\?#"):
        why = "is too long, or holds a blank, a query or a letter that cannot be printed"
        raise refused(field, shown(text), why, rule=rule, fix=fix)
    try:
        split = urlsplit(text)
        number = split.port
    except ValueError:
        raise refused(field, shown(text), "cannot be read", rule=rule, fix=fix) from None
    if split.scheme not in schemes or not split.hostname or "," in split.netloc:
        raise refused(field, shown(text), "is not the address of one such broker", rule=rule, fix=fix)
    return Address(
        scheme=split.scheme,
        host=split.hostname,
        port=number or PORTS.get(split.scheme),
        path=split.path,
        user=unquote(split.username or ""),
        password=unquote(split.password or ""),
    )


def place_of(entry: str) -> str:
    """An entry of the list of what is allowed, as `Address.place` spells it; a word stays a word."""
    if "://" not in entry:
        return entry
    try:
        split = urlsplit(entry)
        port = split.port
    except ValueError:
        return entry
    host, scheme = split.hostname or "", split.scheme
    return Address(scheme=scheme, host=host, port=port or PORTS.get(scheme)).place


def shown(text: str) -> str:
    """A URL that could not be read, without what stands before its host."""
    head, mark, rest = text[:LONGEST_URL].partition("://")
    return f"{head}{mark}{rest.rpartition('@')[2]}".partition("?")[0]
