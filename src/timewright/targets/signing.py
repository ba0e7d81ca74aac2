"""Secrets that a target names and never holds, and the signature that proves a request is ours."""

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

from timewright.core.moments import micros
from timewright.core.names import SECRET_NAME
from timewright.errors import NotFound

# A namespace and a name become a value; a name is looked up in its own namespace and nowhere else.
SecretLookup = Callable[[str, str], str]

SIGNATURE = "X-Timewright-Signature"
TIMESTAMP = "X-Timewright-Timestamp"
MARK = "secret://"
SHORTEST_LINE = 8

_REFERENCE = re.compile(rf"((?:[A-Za-z][A-Za-z0-9-]{{0,31}} )?)secret://({SECRET_NAME})")
_SENDABLE = re.compile(r"[\t\x20-\x7e]+")


class Reference(Struct, frozen=True):
    """A value that names a secret, alone or after a word: `Bearer secret://crm-token`."""

    before: str
    name: str


class Revealed(Struct, frozen=True):
    """The secrets of one request, by name; it lives as long as the request and is never shown."""

    values: dict[str, str] = {}

    def fill(self, text: str) -> str:
        """The text as it is sent: a reference becomes its value, anything else stays."""
        found = parse_reference(text)
        return text if found is None else found.before + self.values[found.name]

    def fill_in(self, data: Any) -> Any:
        """The same data with every text that names a secret filled."""
        if isinstance(data, str):
            return self.fill(data)
        if isinstance(data, Mapping):
            return {key: self.fill_in(value) for key, value in data.items()}
        return [self.fill_in(value) for value in data] if isinstance(data, list | tuple) else data

    def hide(self, data: bytes) -> bytes:
        """Put the reference back wherever an answer repeats a secret, as it is or as others spell it."""
        for name, value in self.values.items():
            for spelled in sorted(_spellings(value), key=len, reverse=True):
                data = data.replace(spelled.encode(), f"{MARK}{name}".encode())
        return data

    def hide_text(self, text: str) -> str:
        """The same for text."""
        return self.hide(text.encode(errors="replace")).decode(errors="replace")

    def hide_end(self, data: bytes) -> bytes:
        """Cut the first letters of a secret off the end of an answer that was itself cut there."""
        for value in map(str.encode, self.values.values()):
            for size in range(min(len(value) - 1, len(data)), 0, -1):
                if data.endswith(value[:size]):
                    data = data[:-size]
                    break
        return data

    def hide_start(self, data: bytes) -> bytes:
        """Cut the last letters of a secret off the start of what was cut there."""
        for value in map(str.encode, self.values.values()):
            for size in range(min(len(value) - 1, len(data)), 0, -1):
                if data.startswith(value[-size:]):
                    data = data[size:]
                    break
        return data


def references_in(data: Any) -> frozenset[str]:
    """The names of all secrets that texts anywhere in some data name."""
    if isinstance(data, str):
        found = parse_reference(data)
        return frozenset({found.name} if found is not None else ())
    inner = data.values() if isinstance(data, Mapping) else data if isinstance(data, list | tuple) else ()
    return frozenset().union(*map(references_in, inner))


def parse_reference(text: str) -> Reference | None:
    """The secret that a value names, if it names one."""
    found = _REFERENCE.fullmatch(text)
    return Reference(found[1], found[2]) if found else None


def reveal(
    names: frozenset[str], *, namespace: str, lookup: SecretLookup | None, lines: bool = False
) -> Revealed:
    """Look the secrets up; NotFound names the reference, and nothing ever names a value.

    What is sent in a header has one line; `lines` allows more, for an environment.
    """
    return Revealed({name: _value(name, namespace, lookup, lines=lines) for name in sorted(names)})


async def reveal_aside(names: frozenset[str], *, namespace: str, lookup: SecretLookup | None) -> Revealed:
    """The same from a loop, on another thread: a lookup may read a file or ask a store."""
    if not names:
        return Revealed()
    return await asyncio.to_thread(reveal, names, namespace=namespace, lookup=lookup)


def sign(body: bytes, *, key: str, at: datetime) -> dict[str, str]:
    """The headers that sign a body: HMAC-SHA256 over the second, a dot, and the bytes that are sent."""
    second = str(micros(at) // 1_000_000)
    digest = hmac.new(key.encode(), second.encode() + b"." + body, hashlib.sha256).hexdigest()
    return {TIMESTAMP: second, SIGNATURE: f"v1={digest}"}


def _spellings(value: str) -> set[str]:
    """A value, and how it looks inside JSON, inside a URL, and line by line."""
    lines = {line.strip() for line in value.splitlines() if len(line.strip()) >= SHORTEST_LINE}
    return {value, json.dumps(value)[1:-1], quote(value, safe=""), quote_plus(value), *lines}


def _value(name: str, namespace: str, lookup: SecretLookup | None, *, lines: bool) -> str:
    if lookup is None:
        raise _missing(name, "and no secrets are set up")
    try:
        value = lookup(namespace, name)
    except Exception:  # noqa: BLE001 - whatever a lookup says may hold the secret; only its name is told
        raise _missing(name, "and could not be looked up") from None
    if lines and isinstance(value, str) and value and "\0" not in value:
        return value
    if not isinstance(value, str) or not _SENDABLE.fullmatch(value):
        raise _missing(name, "because it is empty or holds a line break or other letters a header cannot")
    return value


def _missing(name: str, why: str) -> NotFound:
    return NotFound(
        f"{MARK}{name} is needed {why}",
        field="secrets",
        value=f"{MARK}{name}",
        rule="a secret exists in the namespace of the schedule before a target may name it",
        fix=f"timewright secret set {name}",
    )
