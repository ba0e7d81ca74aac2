"""Reads points in time on the command line, such as `tomorrow 09:00` or `in 2h`.

What a command writes is read in the default zone. What it only looks up is read in the zone of the terminal,
in which tables show times.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from timewright.core.input.instant_text import PAST_FIELDS, read_instant_text, zone_in
from timewright.core.moments import format_instant
from timewright.interfaces.cli.fields import options_of
from timewright.interfaces.cli.output.times import local_zone, today_at
from timewright.operations import Operation, OperationContext


def resolve_instants(
    operation: Operation[Any], request: Mapping[str, Any], context: OperationContext
) -> dict[str, Any]:
    """Return the request with instants in words replaced; a `zone` in the request overrides the default."""
    resolved, now = dict(request), context.now()
    if context.remote is not None and not operation.read_only:
        # Only the server knows the default zone of the key and of the namespace.
        return resolved
    zone = zone_in(request) or (local_zone(now) if operation.read_only else context.default_zone)
    for field in options_of(operation):
        text = resolved.get(field.key)
        if field.metavar != "INSTANT" or not isinstance(text, str):
            continue
        # `explain` handles a time of day itself, with its precision.
        if operation.name == "schedule explain" and today_at(text, now=now, zone=local_zone(now)) is not None:
            continue
        past = field.key in PAST_FIELDS or (operation.read_only and operation.name != "schedule next")
        read = read_instant_text(text, now=now, zone=zone, field=field.key, past=past)
        resolved[field.key] = read if isinstance(read, str) else format_instant(read)
    return resolved
