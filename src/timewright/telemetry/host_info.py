"""Facts about the host: versions, installed extras, time zone data, and permissions of private files."""

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

from timewright.ports.host_info import HostInfo, PrivateFile, StoreStatus

# A module that each extra installs.
EXTRA_MODULES = {
    "postgres": "psycopg_pool",
    "mcp": "mcp",
    "otel": "opentelemetry.sdk",
    "jwt": "jwt",
    "secrets": "cryptography",
    "apprise": "apprise",
    "artifacts": "fsspec",
    "calendars": "holidays",
    "fast": "uvloop",
    "redis": "redis",
    "nats": "nats",
    "amqp": "aio_pika",
    "celery": "celery",
    "rq": "rq",
    "dramatiq": "dramatiq",
    "temporal": "temporalio",
    "sqs": "boto3",
    "kubernetes": "kubernetes_asyncio",
    "flask": "flask",
    "django": "django",
}
_VERSION = re.compile(r"\b(20\d\d[a-z]+)\b")


def inspect_host(condition: StoreStatus, files: Mapping[str, Path | None]) -> HostInfo:
    """Inspect the host of an instance; files that do not exist are left out."""
    return HostInfo(
        version=version("timewright"),
        python=platform.python_version(),
        store_status=condition,
        files=tuple(found for what, path in files.items() if path and (found := _file(what, path))),
        extras={extra: _has(module) for extra, module in EXTRA_MODULES.items()},
        zone_data=_system_zone_data(),
        bundled_zone_data=_bundled_zone_data(),
    )


def _file(what: str, path: Path) -> PrivateFile | None:
    try:
        found = path.stat()
    except OSError:
        return None
    mine = os.name != "posix" or found.st_uid in (os.getuid(), 0)
    return PrivateFile(label=what, path=str(path), owned_by_us=mine, mode=stat.S_IMODE(found.st_mode))


def _has(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _system_zone_data() -> str:
    """The version of the system's time zone data, which is read first; empty if unknown."""
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
