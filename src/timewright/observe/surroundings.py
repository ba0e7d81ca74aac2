"""What a process sees of its machine: versions, extras, zone data, and files that others should not touch."""

from __future__ import annotations

import os
import platform
import re
import stat
import zoneinfo
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from timewright.ports.surroundings import Condition, OwnFile, Surroundings

# Extra → a module that it brings.
EXTRAS = {
    "postgres": "psycopg_pool",
    "mcp": "mcp",
    "otel": "opentelemetry.sdk",
    "jwt": "jwt",
    "secrets": "cryptography",
    "calendars": "holidays",
    "fast": "uvloop",
    "tui": "textual",
    "redis": "redis",
    "nats": "nats",
    "amqp": "aio_pika",
    "celery": "celery",
    "rq": "rq",
    "dramatiq": "dramatiq",
    "temporal": "temporalio",
    "sqs": "boto3",
    "kubernetes": "kubernetes_asyncio",
}
_VERSION = re.compile(r"\b(20\d\d[a-z]+)\b")


def look_around(condition: Condition, files: Mapping[str, Path | None]) -> Surroundings:
    """Everything around an instance; a file that is not there is not told of."""
    return Surroundings(
        version=version("timewright"),
        python=platform.python_version(),
        condition=condition,
        files=tuple(found for what, path in files.items() if path and (found := _file(what, path))),
        extras={extra: _has(module) for extra, module in EXTRAS.items()},
        zone_data=_system_zone_data(),
        bundled_zone_data=_bundled_zone_data(),
    )


def _file(what: str, path: Path) -> OwnFile | None:
    try:
        found = path.stat()
    except OSError:
        return None
    mine = os.name != "posix" or found.st_uid in (os.getuid(), 0)
    return OwnFile(what=what, path=str(path), mine=mine, mode=stat.S_IMODE(found.st_mode))


def _has(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _system_zone_data() -> str:
    """The version of the data that zones are read from first; empty if the system has none that says."""
    for folder in map(Path, zoneinfo.TZPATH):
        for name in ("tzdata.zi", "+VERSION"):
            try:
                with (folder / name).open(encoding="utf-8") as file:
                    found = _VERSION.search(file.readline(200))
            except OSError:
                continue
            if found:
                return found[1]
    return ""


def _bundled_zone_data() -> str:
    try:
        return str(import_module("tzdata").IANA_VERSION)
    except (ImportError, AttributeError):
        return ""
