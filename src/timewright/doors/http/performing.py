"""An operation over HTTP: its request from path, query and body, its answer with ETag, Link and Location."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from starlette.responses import Response

from timewright.doors.http.asked import payload_from, read_body, split_query
from timewright.doors.http.places import Place, places_of
from timewright.doors.http.problems import Refused
from timewright.doors.http.sending import sendable
from timewright.doors.http.threads import Threads
from timewright.doors.http.visits import Visit
from timewright.errors import Conflict, InvalidInput, TimewrightError
from timewright.operations import Context, operations
from timewright.operations.access import acting
from timewright.operations.context import rehearse, together
from timewright.operations.quotas import OUTSIDE
from timewright.operations.repeats import Broom, once

NAMESPACE = "timewright-namespace"
_TAG = re.compile(r'"([0-9]{1,15})"')


class Performing:
    """Answers one place of one operation."""

    def __init__(self, place: Place, threads: Threads, broom: Broom) -> None:
        self._place = place
        self._threads = threads
        self._broom = broom
        self._noun = place.operation.noun

    async def __call__(self, visit: Visit) -> Response:
        """Read, perform on a thread, answer."""
        place = self._place
        context = acting(visit.context, visit.context.caller, visit.headers.get(NAMESPACE))
        body = await self._body(visit)
        payload = payload_from(place, path=visit.path, query=visit.query, body=body)
        match = self._expected(visit, payload)
        key = visit.headers.get("idempotency-key")
        answer, repeated = await self._threads.run(lambda: self._perform(context, payload, match, key))
        return self._answer(visit, payload, answer, repeated=repeated)

    async def _body(self, visit: Visit) -> Mapping[str, Any] | None:
        raw = await visit.body()
        if self._place.takes == "query":
            if raw:
                raise Refused(
                    400, "unexpected_body", f"{visit.method} takes no body", fix="say it in the query"
                )
            return None
        return read_body(raw, visit.headers.get("content-type"))

    def _expected(self, visit: Visit, payload: dict[str, Any]) -> int | None:
        """The revision that If-Match asks for; where the operation itself knows of revisions, it checks."""
        said = visit.headers.get("if-match")
        if said is None or said.strip() == "*" or self._place.operation.reads_only:
            return None
        tag = _TAG.fullmatch(said.strip())
        if tag is None or self._noun not in versioned() or self._place.operation.name in OUTSIDE:
            raise InvalidInput(
                "If-Match cannot be met here",
                field="if-match",
                value=said[:64],
                rule="the ETag that getting the same thing gave, of a thing that has revisions",
                fix='If-Match: "7"',
            )
        if "revision" in self._place.operation.request.__struct_fields__:
            payload.setdefault("revision", int(tag[1]))
        return int(tag[1])

    def _perform(
        self, context: Context, payload: dict[str, Any], match: int | None, key: str | None
    ) -> tuple[dict[str, Any], bool]:
        operation = self._place.operation
        dry = payload.get("dry_run") is True
        known = "revision" in operation.request.__struct_fields__
        try:
            if match is not None and not known:
                around = rehearse if dry else together
                return around(context, lambda inside: self._checked(inside, payload, match)), False
            if key is not None and not operation.reads_only and not dry:
                self._broom.sweep(context)
                return once(context, operation, payload, key=key)
            return operation.spelled(context, payload, sendable), False
        except Conflict as error:
            if match is None:
                raise
            raise _not_matched(error) from error

    def _checked(self, context: Context, payload: dict[str, Any], match: int) -> dict[str, Any]:
        """Perform only if the thing is still at a revision, in one transaction with the look."""
        named = {self._noun: payload.get(self._noun, "")}
        found = revision_in(operations[f"{self._noun} get"](context, named), self._noun)
        if found != match:
            raise Conflict(
                f"{self._noun} {named[self._noun]!r} is at revision {found}, not {match}",
                field="if-match",
                value=match,
                rule="the revision it is at",
                fix=f"get it again, then: {found}",
            )
        return self._place.operation(context, payload)

    def _answer(
        self, visit: Visit, payload: Mapping[str, Any], answer: dict[str, Any], *, repeated: bool
    ) -> Response:
        headers: dict[str, str] = {}
        revision = revision_in(answer, self._noun) if self._noun in versioned() else None
        if revision is not None:
            headers["etag"] = f'"{revision}"'
        if answer.get("cursor"):
            headers["link"] = f'<{_next(visit, str(answer["cursor"]))}>; rel="next"'
        if repeated:
            headers["idempotency-replayed"] = "true"
        made = self._place.operation.verb == "create" or answer.get("change") == "created"
        status = 201 if made and payload.get("dry_run") is not True else 200
        return Response(
            msgspec.json.encode(answer), status_code=status, media_type="application/json", headers=headers
        )


def performers(threads: Threads) -> list[tuple[Place, Performing]]:
    """Every place of every operation on the list."""
    broom = Broom()
    return [(place, Performing(place, threads, broom)) for one in operations for place in places_of(one)]


@cache
def versioned() -> frozenset[str]:
    """The nouns whose things have revisions that a write may name."""
    return frozenset(one.noun for one in operations if "revision" in one.request.__struct_fields__)


def revision_in(answer: Mapping[str, Any], noun: str) -> int | None:
    """The revision of the thing that an answer shows."""
    for part in (answer, answer.get("kept")):
        revision = _in(_in(part, noun), "revision")
        if isinstance(revision, int):
            return revision
    return None


def _in(part: object, name: str) -> object:
    """What a part of an answer has under a name, whether it is spelled already or not."""
    return part.get(name) if isinstance(part, Mapping) else getattr(part, name, None)


def _next(visit: Visit, cursor: str) -> str:
    pairs = [(name, value) for name, value in split_query(visit.query) if name != "cursor"]
    path = "/".join(quote(part, safe="") for part in visit.segments)
    return f"{visit.root}/{path}?{urlencode([*pairs, ('cursor', cursor)])}"


def _not_matched(error: TimewrightError) -> Refused:
    return Refused(
        412,
        "conflict",
        error.message,
        field=error.field,
        value=error.value,
        rule=error.rule,
        fix=error.fix,
    )
