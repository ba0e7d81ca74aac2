"""The environment of child processes: without our own variables, with the facts of the run."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from timewright.core.moments import format_instant
from timewright.settings import EnvironmentRules
from timewright.targets.context import RunInfo

# Paths, user, locale and time zone. Commands get no other variable of this process.
INHERITED_VARIABLES = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "VIRTUAL_ENV",
)
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OWN_PREFIX = "TIMEWRIGHT_"  # keys, and the address of the store with its password
RUN_VARIABLE_PREFIX = "TIMEWRIGHT_RUN_"
MAX_PAYLOAD_BYTES = 100_000


def clean_environment(
    passed: Iterable[str] = (), *, source: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment of a command: harmless variables, and those an administrator allows by name."""
    variables = os.environ if source is None else source
    kept = {name: variables[name] for name in (*INHERITED_VARIABLES, *passed) if name in variables}
    return {"PATH": DEFAULT_PATH, **kept}


def function_environment(
    rules: EnvironmentRules = EnvironmentRules(),  # noqa: B008 - frozen
    *,
    always: Collection[str] = (),
    withheld: Collection[str] = (),
    source: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment of a worker process: that of this process, within the rules and without our secrets.

    `withheld` are our secrets without our prefix; `pass` with their full name passes them.
    """
    variables = os.environ if source is None else source

    def is_passed(name: str) -> bool:
        if name.startswith(OWN_PREFIX) or _matches(name, rules.deny):
            return name in always
        if name in withheld:
            return name in rules.passed
        return name in INHERITED_VARIABLES or _matches(name, rules.passed)

    return {"PATH": DEFAULT_PATH, **{name: text for name, text in variables.items() if is_passed(name)}}


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def run_environment(info: RunInfo) -> dict[str, str]:
    """The facts of a run as `TIMEWRIGHT_RUN_…` variables, without empty ones."""
    values: dict[str, Any] = {
        "ID": info.run_id,
        "NAMESPACE": info.namespace,
        "SCHEDULE": info.schedule_name,
        "SCHEDULE_ID": info.schedule_id,
        "KEY": info.key,
        "FENCE": info.fence,
        "ATTEMPT": info.attempt,
        "PLANNED_AT": format_instant(info.planned_at),
        "FIRE_AT": format_instant(info.fire_at),
        "PREVIOUS_AT": format_instant(info.previous_at) if info.previous_at else None,
        "NEXT_AT": format_instant(info.next_at) if info.next_at else None,
        "ZONE": info.zone,
        "MISSED": info.missed,
        "FIRED_BY": ",".join(map(str, info.fired_by)),
        "SOURCE": info.source,
        "TIME_LIMIT": f"{info.time_limit.total_seconds():g}" if info.time_limit is not None else None,
        "PAYLOAD": _payload(info.payload),
        "TOKEN": info.token,
    }
    named = {
        RUN_VARIABLE_PREFIX + name: _plain(value) for name, value in values.items() if value not in (None, "")
    }
    # Tracing libraries read this name.
    return {**named, "TRACEPARENT": info.traceparent} if info.traceparent else named


def _payload(payload: Any) -> str | None:
    """The payload as JSON, or None if it is too long for an environment."""
    if payload is None:
        return None
    encoded = msgspec.json.encode(payload)
    return encoded.decode() if len(encoded) <= MAX_PAYLOAD_BYTES else None


def _plain(value: object) -> str:
    # An environment cannot hold zero bytes or lone surrogates.
    return str(value).replace("\0", "").encode("utf-8", "replace").decode()
