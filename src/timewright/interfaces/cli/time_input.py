"""Reads points in time on the command line, such as `tomorrow 09:00` or `in 2h`, in the local zone.

They are read here and not by the server, because its zone and its day may differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from timewright.core.input.instant_text import PAST_FIELDS, ZONE_FIELDS, read_instant_text
from timewright.core.moments import format_instant
from timewright.interfaces.cli.fields import options_of
from timewright.interfaces.cli.output.times import local_zone, today_at
from timewright.operations import Operation


def resolve_instants(
    operation: Operation[Any], request: Mapping[str, Any], *, now: datetime
) -> dict[str, Any]:
    """Return the request with instants in words replaced; `zone` in the request overrides the local zone."""
    resolved = dict(request)
    zone = next((request[key] for key in ZONE_FIELDS if isinstance(request.get(key), str)), None)
    for field in options_of(operation):
        text = resolved.get(field.key)
        if field.metavar != "INSTANT" or not isinstance(text, str):
            continue
        # `explain` handles a time of day itself, with its precision.
        if operation.name == "schedule explain" and today_at(text, now=now, zone=local_zone(now)) is not None:
            continue
        past = field.key in PAST_FIELDS or (operation.read_only and operation.name != "schedule next")
        read = read_instant_text(text, now=now, zone=zone or local_zone(now), field=field.key, past=past)
        resolved[field.key] = read if isinstance(read, str) else format_instant(read)
        if field.key in ("at", "once") and zone is not None and not isinstance(read, str):
            # The zone has served to read the instant; a single instant has none.
            resolved = {key: value for key, value in resolved.items() if key not in ZONE_FIELDS}
    return resolved
