"""References to secrets in targets (`secret://name`), their values during one launch, and HMAC signatures."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote, quote_plus

from msgspec import Struct

from timewright.core.input.input_errors import SECRET_NAME_PATTERN
from timewright.core.moments import to_micros
from timewright.core.target import RUN_TOKEN, SECRET_PREFIX, SecretDestination
from timewright.errors import InvalidInput, NotAllowed, NotFound
from timewright.ports import Launch

# (namespace, name, destination) -> value. A secret is looked up in the namespace of its schedule only.
SecretLookup = Callable[[str, str, SecretDestination], str]

# (run id, fence) -> the token of that attempt, which `secret://run-token` refers to.
RunTokens = Callable[[str, int], str]

SIGNATURE_HEADER = "X-Timewright-Signature"
TIMESTAMP_HEADER = "X-Timewright-Timestamp"
MIN_REDACTED_LINE_CHARS = 8

_REFERENCE = re.compile(rf"((?:[A-Za-z][A-Za-z0-9-]{{0,31}} )?)secret://({SECRET_NAME_PATTERN})")
_SENDABLE = re.compile(r"[\t\x20-\x7e]+")


class SecretReference(Struct, frozen=True):
    """A text that refers to a secret, alone or after a prefix: `Bearer secret://crm-token`."""

    prefix: str
    name: str


class RevealedSecrets(Struct, frozen=True):
    """The secret values of one launch, by name. Never stored, logged or shown."""

    values: dict[str, str] = {}

    def fill(self, text: str) -> str:
        """Replace a reference by its value. Other text is returned unchanged."""
        found = parse_reference(text)
        return text if found is None else found.prefix + self.values[found.name]

    def fill_data(self, data: Any) -> Any:
        """Replace every reference in nested data by its value."""
        if isinstance(data, str):
            return self.fill(data)
        if isinstance(data, Mapping):
            return {key: self.fill_data(value) for key, value in data.items()}
        return [self.fill_data(value) for value in data] if isinstance(data, list | tuple) else data

    def redact(self, data: bytes) -> bytes:
        """Replace secret values by their references, also where they are JSON- or URL-encoded."""
        for name, value in self.values.items():
            for form in sorted(_encoded_forms(value), key=len, reverse=True):
                data = data.replace(form.encode(), f"{SECRET_PREFIX}{name}".encode())
        return data

    def redact_text(self, text: str) -> str:
        """Replace secret values in text by their references."""
        return self.redact(text.encode(errors="replace")).decode(errors="replace")

    def drop_partial_end(self, data: bytes) -> bytes:
        """Remove the beginning of a secret at the end of data that was truncated there."""
        for value in map(str.encode, self.values.values()):
            for size in range(min(len(value) - 1, len(data)), 0, -1):
                if data.endswith(value[:size]):
                    data = data[:-size]
                    break
        return data

    def drop_partial_start(self, data: bytes) -> bytes:
        """Remove the end of a secret at the start of data that was truncated there.

        A whole secret at the start stays for `redact`. If it lost a letter that ends another secret, it
        would not be recognised any more.
        """
        values = [value.encode() for value in self.values.values()]
        for value in values:
            if data.startswith(tuple(values)):
                break
            for size in range(min(len(value) - 1, len(data)), 0, -1):
                if data.startswith(value[-size:]):
                    data = data[size:]
                    break
        return data


def find_references(data: Any) -> frozenset[str]:
    """The names of all secrets that nested data refers to."""
    if isinstance(data, str):
        found = parse_reference(data)
        return frozenset({found.name} if found is not None else ())
    inner = data.values() if isinstance(data, Mapping) else data if isinstance(data, list | tuple) else ()
    return frozenset().union(*map(find_references, inner))


def parse_reference(text: str) -> SecretReference | None:
    """Parse a reference to a secret; None if the text is not one."""
    found = _REFERENCE.fullmatch(text)
    return SecretReference(found[1], found[2]) if found else None


def with_run_token(
    lookup: SecretLookup | None, run_tokens: RunTokens | None, launch: Launch
) -> SecretLookup | None:
    """Return a lookup that also knows the token of this attempt."""
    if run_tokens is None:
        return lookup

    def find(namespace: str, name: str, destination: SecretDestination) -> str:
        if name == RUN_TOKEN:
            return run_tokens(launch.run_id, launch.fence)
        if lookup is None:
            raise NotFound("no secrets are configured", field="secret", value=name)
        return lookup(namespace, name, destination)

    return find


def reveal_secrets(
    names: frozenset[str],
    *,
    namespace: str,
    lookup: SecretLookup | None,
    destination: SecretDestination,
    multiline: bool = False,
) -> RevealedSecrets:
    """Look up secrets by name. Raises NotFound or InvalidInput with the reference, never with a value.

    A header value is one line. `multiline` allows more, for environment variables.
    """
    found = {name: _value(name, namespace, lookup, destination, lines=multiline) for name in sorted(names)}
    return RevealedSecrets(found)


async def reveal_secrets_async(
    names: frozenset[str], *, namespace: str, lookup: SecretLookup | None, destination: SecretDestination
) -> RevealedSecrets:
    """Look up secrets on another thread, because a lookup may read a file or query the store."""
    if not names:
        return RevealedSecrets()
    return await asyncio.to_thread(
        reveal_secrets, names, namespace=namespace, lookup=lookup, destination=destination
    )


def sign_body(body: bytes, *, key: str, at: datetime) -> dict[str, str]:
    """The signature headers of a body: HMAC-SHA256 over `<unix seconds>.<body>`."""
    second = str(to_micros(at) // 1_000_000)
    digest = hmac.new(key.encode(), second.encode() + b"." + body, hashlib.sha256).hexdigest()
    return {TIMESTAMP_HEADER: second, SIGNATURE_HEADER: f"v1={digest}"}


def _encoded_forms(value: str) -> set[str]:
    """A value as it is, JSON-encoded, URL-encoded, and each of its lines."""
    lines = {line.strip() for line in value.splitlines() if len(line.strip()) >= MIN_REDACTED_LINE_CHARS}
    return {value, json.dumps(value)[1:-1], quote(value, safe=""), quote_plus(value), *lines}


def _value(
    name: str, namespace: str, lookup: SecretLookup | None, destination: SecretDestination, *, lines: bool
) -> str:
    if lookup is None:
        raise _missing(name, "but no secrets are configured")
    try:
        value = lookup(namespace, name, destination)
    except NotAllowed as error:
        raise InvalidInput(error.message, field=error.field, value=error.value, rule=error.rule) from None
    except Exception:  # noqa: BLE001 - the message may contain the secret, so only its name is shown
        raise _missing(name, "but could not be read") from None
    if lines and isinstance(value, str) and value and "\0" not in value:
        return value
    if not isinstance(value, str) or not _SENDABLE.fullmatch(value):
        raise _missing(name, "but is empty, or has a line break or a character that a header cannot carry")
    return value


def _missing(name: str, why: str) -> NotFound:
    return NotFound(
        f"{SECRET_PREFIX}{name} is needed {why}",
        field="secrets",
        value=f"{SECRET_PREFIX}{name}",
        rule="the secret must exist in the namespace of the schedule",
        fix=f"timewright secret set {name}",
    )
