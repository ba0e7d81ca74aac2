"""Questions that are answered on the loop itself: they look at few rows, and wait for nobody.

To hand a question to a thread and its answer back costs more than most of these answers.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec import inspect as mi
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
from timewright.operations.reading import read_request
from timewright.operations.registry import Request
from timewright.operations.views import ScheduleDetail

LONGEST_NAME = 255
MOST_ACTING = 64
MOST_READ = 1_024

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
        self._operation = place.operation
        self._until = BRIEF[place.operation.name]
        self._name = _only_name(place)
        self._requests: dict[tuple[str, str], Request] = {}
        self._inside = once_for_each(self._looking, most=MOST_ACTING)

    def __call__(self, visit: Visit, context: Context) -> Reply:
        """What was answered before if that is still true, or a new answer."""
        demand(context.caller, self._operation.scope, of=self._operation.name)
        asked: Asked = (context.namespace, visit.root, visit.segments, visit.query)
        return self._recent.recall(asked) or self._new(visit, context, asked)

    def _new(self, visit: Visit, context: Context, asked: Asked) -> Reply:
        value = self._operation.looked(self._inside(context), self._request(visit))
        reply = self._recent.same(asked, value)
        if reply is None:
            said = {name: getattr(value, name) for name in value.__struct_fields__}
            headers = headers_for(visit, said, self._operation.noun)
            reply = Reply(msgspec.json.encode(sendable(value)), headers=headers)
            self._recent.keep(asked, reply, value=value, until=self._until(value))
        return reply

    def _looking(self, context: Context) -> Context:
        """The context of someone who must not wait."""
        return replace(context, store=AtOnce(self._recent.glimpses))

    def _request(self, visit: Visit) -> Request:
        """What is asked; the same words mean the same again."""
        named = visit.path.get(self._place.subject, "")
        if self._name and not visit.query and _is_plain(named):
            request: Request = self._operation.request(**{self._name: named})
            return request
        known = self._requests.get((named, visit.query))
        if known is None:
            payload = payload_from(self._place, path=visit.path, query=visit.query, body=None)
            known = read_request(payload, self._operation.request)
            if len(self._requests) >= MOST_READ:
                self._requests.clear()
            self._requests[named, visit.query] = known
        return known


def brief_at(place: Place, recent: Recent | None) -> Brief | None:
    """Who answers at once at a place, where the store allows it and the question is brief."""
    if recent is None or place.method != "GET" or place.operation.name not in BRIEF:
        return None
    return Brief(place, recent)


def _is_plain(name: str) -> bool:
    """Whether a name is read as it is written, without a look at each of its letters."""
    return name.isascii() and 0 < len(name) <= LONGEST_NAME and "\0" not in name


def _only_name(place: Place) -> str:
    """The one field of a request that has no other, where that is a name and stands in the path."""
    info = mi.type_info(place.operation.request)
    assert isinstance(info, mi.StructType)
    named = mi.StrType(min_length=1, max_length=LONGEST_NAME)
    is_only = [(one.encode_name, one.type) for one in info.fields] == [(place.subject, named)]
    return place.subject if is_only and not place.leaves_out else ""
