"""Questions that are answered on the loop itself: they look at few rows, and wait for nobody.

To hand a question to a thread and its answer back costs more than most of these answers.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.doors.http.asked import payload_from
from timewright.doors.http.beside import headers_for
from timewright.doors.http.places import Place
from timewright.doors.http.recent import Asked, Recent
from timewright.doors.http.replies import Reply
from timewright.doors.http.sending import sendable
from timewright.doors.http.visits import Visit
from timewright.operations import Context
from timewright.operations.access import demand
from timewright.operations.at_once import AtOnce
from timewright.operations.identity import once_for_each
from timewright.operations.views import ScheduleDetail

Until = Callable[[Any], datetime | None]


def _until_next(detail: ScheduleDetail) -> datetime | None:
    """Until the first of what it says comes next; at that instant something else does."""
    return min((one.fire_at or one.planned_at for one in detail.next), default=detail.standing.wake_at)


def _for_good(_answer: Struct) -> None:
    return None


# Those whose work is bounded, and until when their answers are true if nothing is written meanwhile.
BRIEF: dict[str, Until] = {
    "schedule get": _until_next,
    "schedule list": _for_good,
    "run get": _for_good,
    "run list": _for_good,
}


class Brief:
    """Answers what is asked at one place at once, or raises `NotAtOnce`."""

    def __init__(self, place: Place, recent: Recent) -> None:
        self._place = place
        self._recent = recent
        self._name = place.operation.name
        self._until = BRIEF[self._name]

    def __call__(self, visit: Visit, context: Context) -> Reply:
        """What was answered before if that is still true, or a new answer."""
        demand(context.caller, self._place.operation.scope, of=self._name)
        asked: Asked = (context.namespace, visit.root, visit.segments, visit.query)
        return self._recent.recall(asked) or self._new(visit, context, asked)

    def _new(self, visit: Visit, context: Context, asked: Asked) -> Reply:
        payload = payload_from(self._place, path=visit.path, query=visit.query, body=None)
        inside = replace(context, store=AtOnce(self._recent.glimpses))
        value = self._place.operation.answered(inside, payload)
        body = _of_a_schedule(value) if isinstance(value, ScheduleDetail) else _body(value)
        said = {name: getattr(value, name) for name in value.__struct_fields__}
        reply = Reply(body, headers=headers_for(visit, said, self._place.operation.noun))
        self._recent.keep(asked, reply, until=self._until(value))
        return reply


def brief_at(place: Place, recent: Recent | None) -> Brief | None:
    """Who answers at once at a place, where the store allows it and the question is brief."""
    if recent is None or place.method != "GET" or place.operation.name not in BRIEF:
        return None
    return Brief(place, recent)


def _body(value: Struct) -> bytes:
    return msgspec.json.encode(sendable(value))


_of_a_schedule = once_for_each(_body, most=1_024)
