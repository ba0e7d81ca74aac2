"""Put many schedules at once."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from timewright.core.input.decode import check_name
from timewright.core.input.input_errors import missing_field
from timewright.core.input.struct_decoder import canonical_fields
from timewright.core.schedule.schedule import Schedule
from timewright.errors import InvalidInput
from timewright.operations.context import OperationContext, in_transaction
from timewright.operations.definitions.schedules import ScheduleDraft, put_schedules
from timewright.operations.registry import WriteRequest, operations

MAX_SCHEDULES = 10_000

Change = Literal["created", "updated", "unchanged"]
_KINDS: dict[str, Change] = {"created": "created", "updated": "updated", "unchanged": "unchanged"}


class PutManySchedules(WriteRequest, frozen=True, kw_only=True):
    """Complete schedules, each with the fields of `schedule put`; the names differ."""

    schedules: Annotated[tuple[dict[str, Any], ...], Meta(min_length=1, max_length=MAX_SCHEDULES)]


class PutItem(Struct, frozen=True, kw_only=True):
    """A schedule that was put, and whether it was created, updated or unchanged."""

    name: str
    id: str
    change: Change


class PutManyResult(Struct, frozen=True, kw_only=True):
    """How many schedules were created, updated and unchanged, and each in the order of the request."""

    created: int
    updated: int
    unchanged: int
    schedules: tuple[PutItem, ...]


@operations.add(
    "schedule put-many",
    scope="write",
    examples=(
        {
            "schedules": [
                {"name": "nightly-report", "cron": "30 3 * * *", "http": "POST https://example.com/report"},
                {"name": "weekly", "cron": "0 8 * * 1", "note": "time to plan the week"},
            ]
        },
    ),
)
def put_many_schedules(context: OperationContext, request: PutManySchedules) -> PutManyResult:
    """Create or replace many schedules by their names, in one transaction: all of them or none."""
    now = context.now()
    drafts = [_draft(number, fields) for number, fields in enumerate(request.schedules)]
    twice = [name for name, times in Counter(draft.name for draft in drafts).items() if times > 1]
    if twice:
        raise InvalidInput(
            f"schedule {twice[0]} is given {sum(draft.name == twice[0] for draft in drafts)} times",
            field="schedules",
            value=twice[0],
            rule="one definition a name",
            fix="remove one of them",
        )
    changes = in_transaction(
        context, lambda nested: put_schedules(nested, drafts, reason=request.reason, now=now)
    )
    items = tuple(PutItem(name=one.name, id=one.id, change=_KINDS[one.change]) for one in changes)
    counts = Counter(item.change for item in items)
    return PutManyResult(
        created=counts["created"], updated=counts["updated"], unchanged=counts["unchanged"], schedules=items
    )


def _draft(number: int, fields: dict[str, Any]) -> ScheduleDraft:
    name = canonical_fields(fields, Schedule).get("name")
    if name is None:
        raise missing_field(
            f"schedules[{number}].name",
            rule="put identifies a schedule by its name",
            fix="name: nightly-report",
        )
    return ScheduleDraft(
        name=check_name(name), fields={key: value for key, value in fields.items() if key != "name"}
    )
