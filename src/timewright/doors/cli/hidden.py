"""What is better not typed on a command line: asked for without showing it, or read from the input."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from timewright.operations import Operation

LARGEST = 1_048_576


def hidden_of(operation: Operation[Any], request: Mapping[str, Any]) -> dict[str, str]:
    """The hidden fields of a request that were not given, as someone types them or pipes them in."""
    missing = [name for name in operation.request.hides if name not in request]
    return {name: _ask(name) for name in missing}


def _ask(name: str) -> str:
    if sys.stdin is not None and sys.stdin.isatty():
        return str(click.prompt(name, hide_input=True, err=True))
    raw = sys.stdin.buffer.read(LARGEST) if sys.stdin is not None else b""
    return raw.decode("utf-8", "surrogateescape").removesuffix("\n").removesuffix("\r")
