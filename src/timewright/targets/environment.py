"""The environment of a process we start: clean of our own secrets, and with the facts of its run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from timewright.core.moments import spell_instant
from timewright.targets.context import Facts

# Where programs are, who we are, and how text and time are spelled; nothing else of ours is passed on.
KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "VIRTUAL_ENV")
STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PREFIX = "TIMEWRIGHT_RUN_"
LONGEST_PAYLOAD = 100_000


def clean_environment(
    passed: Iterable[str] = (), *, source: Mapping[str, str] | None = None
) -> dict[str, str]:
    """What every child gets: a few harmless names, and those an administrator passes on by name."""
    ours = os.environ if source is None else source
    kept = {name: ours[name] for name in (*KEPT, *passed) if name in ours}
    return {"PATH": STANDARD_PATH, **kept}


def run_environment(facts: Facts) -> dict[str, str]:
    """The facts of a run, each under `TIMEWRIGHT_RUN_…`; those that are not known are not there."""
    told: dict[str, Any] = {
        "ID": facts.run_id,
        "NAMESPACE": facts.namespace,
        "SCHEDULE": facts.schedule_name,
        "SCHEDULE_ID": facts.schedule_id,
        "KEY": facts.key,
        "FENCE": facts.fence,
        "ATTEMPT": facts.attempt,
        "PLANNED_AT": spell_instant(facts.planned_at),
        "FIRE_AT": spell_instant(facts.fire_at),
        "PREVIOUS_AT": spell_instant(facts.previous_at) if facts.previous_at else None,
        "NEXT_AT": spell_instant(facts.next_at) if facts.next_at else None,
        "ZONE": facts.zone,
        "MISSED": facts.missed,
        "FIRED_BY": ",".join(map(str, facts.fired_by)),
        "SOURCE": facts.source,
        "TIME_LIMIT": f"{facts.time_limit.total_seconds():g}",
        "PAYLOAD": _payload(facts.payload),
    }
    named = {PREFIX + name: _plain(value) for name, value in told.items() if value not in (None, "")}
    # The name that programs which trace look for.
    return {**named, "TRACEPARENT": facts.traceparent} if facts.traceparent else named


def _payload(payload: Any) -> str | None:
    """As JSON, if it is short enough for an environment."""
    if payload is None:
        return None
    encoded = msgspec.json.encode(payload)
    return encoded.decode() if len(encoded) <= LONGEST_PAYLOAD else None


def _plain(value: object) -> str:
    # A zero byte ends a text in an environment, and half a character cannot be written there at all.
    return str(value).replace("\0", "").encode("utf-8", "replace").decode()
