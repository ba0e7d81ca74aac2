"""An operation over HTTP: its request from path, query and body, its answer with ETag, Link and Location."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from timewright.doors.http.asked import payload_from, read_body
from timewright.doors.http.beside import headers_for, revision_in, versioned
from timewright.doors.http.brief import Brief, brief_at
from timewright.doors.http.places import Place, places_of
from timewright.doors.http.problems import Refused
from timewright.doors.http.recent import Recent
from timewright.doors.http.replies import Reply
from timewright.doors.http.sending import sendable
from timewright.doors.http.threads import Threads
from timewright.doors.http.visits import Visit
from timewright.errors import Conflict, InvalidInput, TimewrightError
from timewright.operations import Context, operations
from timewright.operations.access import acting
from timewright.operations.context import rehearse, together
from timewright.operations.quotas import OUTSIDE
from timewright.operations.repeats import Broom, once
from timewright.ports.glimpse import Glimpses, NotAtOnce

NAMESPACE = "timewright-namespace"
_NAMESPACE = NAMESPACE.encode()
_TAG = re.compile(r'"([0-9]{1,15})"')


class Performing:
    """Answers one place of one operation."""

    def __init__(self, place: Place, threads: Threads, broom: Broom, *, brief: Brief | None = None) -> None:
        self._place = place
        self._brief = brief
        self._threads = threads
        self._broom = broom
        self._noun = place.operation.noun

    @property
    def is_brief(self) -> bool:
        """Whether what is asked here may be answered at once."""
        return self._brief is not None

    def at_once(self, visit: Visit) -> Reply:
        """Answer what is asked without a body, or raise `NotAtOnce`."""
        if self._brief is None:
            raise NotAtOnce
        return self._brief(visit, _acting(visit))

    async def __call__(self, visit: Visit) -> Reply:
        """Read, perform at once or on a thread, answer."""
        place = self._place
        context = _acting(visit)
        if self._brief is not None and visit.is_bare:
            try:
                return self._brief(visit, context)
            except NotAtOnce:
                pass
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
    ) -> Reply:
        headers = headers_for(visit, answer, self._noun)
        if repeated:
            headers["idempotency-replayed"] = "true"
        made = self._place.operation.verb == "create" or answer.get("change") == "created"
        status = 201 if made and payload.get("dry_run") is not True else 200
        return Reply(msgspec.json.encode(answer), status=status, headers=headers)


def performers(threads: Threads, *, glimpses: Glimpses | None) -> list[tuple[Place, Performing]]:
    """Every place of every operation on the list."""
    broom = Broom()
    recent = Recent(glimpses) if glimpses is not None else None
    return [
        (place, Performing(place, threads, broom, brief=brief_at(place, recent)))
        for one in operations
        for place in places_of(one)
    ]


def _acting(visit: Visit) -> Context:
    context = visit.context
    if _NAMESPACE in visit.said:
        return acting(context, context.caller, visit.headers.get(NAMESPACE))
    return context


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
