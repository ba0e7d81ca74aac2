"""Groups: which there are; stopping one as a whole, and letting go on what was stopped so."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from msgspec import Struct

from timewright.core.schedule import ScheduleState
from timewright.core.vocabulary import check_name
from timewright.errors import OverQuota
from timewright.ledger.replan import pause, resume
from timewright.operations.at_once import may_take_long
from timewright.operations.context import Context, together
from timewright.operations.find import MOST_COMPARED, no_such
from timewright.operations.pages import paged
from timewright.operations.registry import Listing, Named, Write, operations
from timewright.operations.views import ScheduleRow, schedule_row
from timewright.ports import Due, Page, ScheduleFilter, Transaction
from timewright.ports.glance import Membership

MOST_IN_GROUP = 5000


class List(Listing, frozen=True, kw_only=True):
    """Which page of the groups."""


class Groups(Struct, frozen=True, kw_only=True):
    """Groups by name, and how many of their schedules stand where."""

    groups: tuple[Membership, ...]
    cursor: str = ""


class Pause(Write, frozen=True, kw_only=True):
    """Which group, and until when; without an end until someone resumes it."""

    group: Named
    until: datetime | None = None


class Resume(Write, frozen=True, kw_only=True):
    """Which group."""

    group: Named


class Group(Struct, frozen=True, kw_only=True):
    """The schedules of a group that were changed, and those that were left as they were."""

    group: str
    changed: tuple[ScheduleRow, ...]
    left: tuple[ScheduleRow, ...]


@operations.add("group", "list", List, scope="read", examples=({},))
def list_groups(context: Context, ask: List) -> Groups:
    """List the groups that schedules belong to."""

    def find(tx: Transaction, limit: int, place: str) -> Page:
        found = tx.groups(context.namespace, after=place, limit=limit + 1)
        return Page(tuple(found[:limit]), found[limit - 1].name if len(found) > limit else "")

    may_take_long(context)
    rows, cursor = context.store.read(lambda tx: paged(context, ask, partial(find, tx)))
    return Groups(groups=tuple(rows), cursor=cursor)


@operations.add("group", "pause", Pause, scope="write", examples=({"group": "reports", "reason": "audit"},))
def pause_group(context: Context, ask: Pause) -> Group:
    """Pause every active schedule of a group; those that stand still already are left alone."""
    now = context.now()

    def work(inside: Context) -> Group:
        rows = inside.store.read(lambda tx: _members(tx, inside.namespace, ask.group))
        by = inside.because(_mark(ask.group) + ask.reason)
        going = [due for due in rows if due.standing.state is ScheduleState.ACTIVE]
        for due in going:
            inside.tell(pause(inside.store, due.schedule.id, by=by, now=now, until=ask.until).facts)
        return _answer(inside, ask.group, rows, going)

    return together(context, work)


@operations.add("group", "resume", Resume, scope="write", examples=({"group": "exports"},))
def resume_group(context: Context, ask: Resume) -> Group:
    """Resume what the pause of the group stopped; what someone paused or parked by itself stays so."""
    now = context.now()

    def work(inside: Context) -> Group:
        rows = inside.store.read(lambda tx: _members(tx, inside.namespace, ask.group))
        by = inside.because(ask.reason)
        waiting = [due for due in rows if _paused_with_group(due, ask.group)]
        for due in waiting:
            inside.tell(resume(inside.store, due.schedule.id, ids=inside.ids, by=by, now=now).facts)
        return _answer(inside, ask.group, rows, waiting)

    return together(context, work)


def _members(tx: Transaction, namespace: str, group: str) -> list[Due]:
    group = check_name(group, field="group")
    found: list[Due] = []
    cursor = ""
    while True:
        which = ScheduleFilter(namespace=namespace, group=group, limit=MOST_COMPARED, cursor=cursor)
        page = tx.find_schedules(which)
        found += page.rows
        cursor = page.cursor
        if len(found) > MOST_IN_GROUP:
            raise _too_many(group)
        if not cursor:
            break
    if not found:
        known = [one.name for one in tx.groups(namespace, after="", limit=MOST_COMPARED)]
        raise no_such("group", group, known, lister="group list")
    return found


def _too_many(group: str) -> OverQuota:
    return OverQuota(
        f"group {group} has more than {MOST_IN_GROUP} schedules",
        field="group",
        value=group,
        rule=f"at most {MOST_IN_GROUP} are changed at once",
        fix="smaller groups",
    )


def _mark(group: str) -> str:
    """What the reason of a pause begins with when the group was paused, and not the schedule alone."""
    return f"group {group}: "


def _paused_with_group(due: Due, group: str) -> bool:
    return due.standing.state is ScheduleState.PAUSED and due.standing.reason.startswith(_mark(group))


def _answer(context: Context, group: str, rows: list[Due], changed: list[Due]) -> Group:
    ids = {due.schedule.id for due in changed}
    after = context.store.read(lambda tx: tx.get_schedules(sorted(ids))) if ids else {}
    return Group(
        group=group,
        changed=tuple(schedule_row(after[due.schedule.id]) for due in changed),
        left=tuple(schedule_row(due) for due in rows if due.schedule.id not in ids),
    )
