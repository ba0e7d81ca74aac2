"""What schedules ask of each other: written with their words; a ring, or a name nobody has, is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches

from msgspec.structs import replace

from timewright.core.following import ends_as, follows
from timewright.core.schedule import Schedule, ScheduleState
from timewright.core.triggers import After
from timewright.core.upstream import On
from timewright.errors import InvalidInput, NotAllowed, NotFound
from timewright.ports import Due, RunFilter, ScheduleFilter, Transaction
from timewright.ports.links import Link

MOST_LINKED = 10_000
# How far back the last end that counts is looked for when a link is made.
MOST_LOOKED_BACK = 1_000

Met = dict[tuple[str, On], datetime]

_GONE = (ScheduleState.ARCHIVED,)


def link(tx: Transaction, schedules: Sequence[Schedule], *, before: Schedule | None = None) -> None:
    """Write what new or changed schedules ask of others; a name nobody has, or a ring, is refused."""
    asked = before is not None and asks(before)
    wanted = [schedule for schedule in schedules if asked or asks(schedule)]
    if not wanted:
        return
    tx.hold_links()
    for schedule in wanted:
        known = tx.links_of([schedule.id])
        links = _links(tx, schedule, known=known)
        if _followed(known) != _followed(links):
            tx.drop_follow_ups(schedule.id)
        tx.put_links(schedule.id, links)
    for schedule in wanted:
        _refuse_ring(tx, schedule)


def asks(schedule: Schedule) -> bool:
    """Whether a schedule asks anything of another."""
    return bool(schedule.needs) or follows(schedule.trigger)


def unlink(tx: Transaction, due: Due) -> None:
    """Forget what a schedule asks for; one that others ask for is not retired."""
    refuse_while_asked_for(tx, due, verb="archived")
    if tx.links_of([due.schedule.id]):
        tx.put_links(due.schedule.id, ())
        tx.drop_follow_ups(due.schedule.id)


def refuse_while_asked_for(tx: Transaction, due: Due, *, verb: str) -> None:
    """Refuse what would leave others waiting for a schedule that has gone."""
    asking = tx.links_from([due.schedule.id])
    if not asking:
        return
    names = sorted(one.schedule.name for one in tx.get_schedules({a.downstream for a in asking}).values())
    name, first = due.schedule.name, names[0] if names else ""
    others = f" and {len(names) - 1} more" if len(names) > 1 else ""
    raise NotAllowed(
        f"schedule {name} cannot be {verb}: {first}{others} waits for its ends",
        field="schedule",
        value=name,
        rule="what others run after, or need, stays under its name",
        fix=f"schedule update {first} with another trigger or needs, or schedule archive {first}, first",
    )


def upstream_names(schedule: Schedule) -> dict[str, str]:
    """The schedules that one asks for, each with the field that names it."""
    named = {f"needs[{i}].schedule": need.schedule for i, need in enumerate(schedule.needs)}
    if isinstance(schedule.trigger, After) and schedule.trigger.schedule:
        named = {"trigger.schedule": schedule.trigger.schedule, **named}
    return named


def _links(tx: Transaction, schedule: Schedule, *, known: Sequence[Link]) -> list[Link]:
    """The links that a schedule's words mean; one that was there keeps what it has met."""
    ids = {name: _upstream(tx, schedule, name, field=f) for f, name in upstream_names(schedule).items()}
    kept = {(one.upstream, one.kind, one.on): one for one in known}
    found: dict[tuple[str, str, On], Link] = {}
    trigger = schedule.trigger
    if isinstance(trigger, After) and trigger.schedule:
        up = ids[trigger.schedule]
        one = Link(upstream=up, downstream=schedule.id, kind="after", on=trigger.on, delay=trigger.delay)
        last = kept.get((up, "after", trigger.on)) or _last_met(tx, one)
        found[up, "after", trigger.on] = replace(one, met_at=last.met_at, met_by=last.met_by)
    for need in schedule.needs:
        up = ids[need.schedule]
        one = Link(upstream=up, downstream=schedule.id, kind="needs", on=need.on)
        found[up, "needs", need.on] = kept.get((up, "needs", need.on)) or _last_met(tx, one)
    return list(found.values())


def _upstream(tx: Transaction, schedule: Schedule, name: str, *, field: str) -> str:
    if name == schedule.name:
        raise _ring((name, name), field=field)
    found = tx.find_schedule(schedule.namespace, name)
    due = tx.get_schedules([found]).get(found) if found is not None else None
    if found is not None and due is not None and due.standing.state not in _GONE:
        return found
    page = tx.find_schedules(ScheduleFilter(namespace=schedule.namespace, limit=1000))
    living = [one.schedule.name for one in page.rows if one.standing.state not in _GONE]
    near = get_close_matches(name, [one for one in living if one != schedule.name], n=1, cutoff=0.4)
    raise NotFound(
        f"{field} names {name!r}, and there is no such schedule",
        field=field,
        value=name,
        rule="a schedule waits for one that exists, in its own namespace",
        fix=f"did you mean {near[0]}?" if near else f"make {name} first",
    )


def _last_met(tx: Transaction, one: Link) -> Link:
    """The link with the last end that counts, looked for in the newest history of the one it asks for."""
    which = RunFilter(schedule_id=one.upstream, limit=MOST_LOOKED_BACK)
    ends = [(run.finished_at, run.id) for run in tx.find_runs(which).rows if one.on in ends_as(run)]
    met = max(((at, run_id) for at, run_id in ends if at is not None), default=None)
    return replace(one, met_at=met[0], met_by=met[1]) if met is not None else one


def _followed(links: Iterable[Link]) -> set[tuple[str, On]]:
    return {(one.upstream, one.on) for one in links if one.kind == "after"}


def _refuse_ring(tx: Transaction, schedule: Schedule) -> None:
    """Walk from what a schedule asks for to what those ask for, until nothing is left or it comes back."""
    came: dict[str, str] = {}
    edge, seen = [schedule.id], {schedule.id}
    while edge:
        links = tx.links_of(edge)
        edge = []
        for one in links:
            if one.upstream == schedule.id:
                raise _ring(_names(tx, [schedule.id, *_path(came, one.downstream), schedule.id]))
            if one.upstream not in seen:
                seen.add(one.upstream)
                came[one.upstream] = one.downstream
                edge.append(one.upstream)
        if len(seen) > MOST_LINKED:
            raise InvalidInput(
                f"more than {MOST_LINKED} schedules stand before {schedule.name}",
                field="trigger",
                value=schedule.name,
                rule=f"at most {MOST_LINKED} in one chain",
                fix="a shorter chain",
            )


def _path(came: Mapping[str, str], last: str) -> list[str]:
    """From where a walk began to where it is, without its beginning."""
    path = [last] if last in came else []
    while path and came[path[-1]] in came:
        path.append(came[path[-1]])
    return path[::-1]


def _names(tx: Transaction, ids: Sequence[str]) -> tuple[str, ...]:
    found = tx.get_schedules(set(ids))
    return tuple(found[i].schedule.name if i in found else i for i in ids)


def _ring(path: tuple[str, ...], *, field: str = "trigger") -> InvalidInput:
    return InvalidInput(
        f"a schedule cannot wait for itself: {' waits for '.join(path)}",
        field=field,
        value=path[0],
        rule="what waits for what makes no ring",
        fix="take one of them out of the ring",
    )


def names_by_id(tx: Transaction, ids: Iterable[str]) -> dict[str, str]:
    """What schedules are called today."""
    wanted = sorted(set(ids))
    return {i: due.schedule.name for i, due in tx.get_schedules(wanted).items()} if wanted else {}


def last_ends(tx: Transaction, schedule_ids: Iterable[str], *, lock: bool = False) -> dict[str, Met]:
    """When what schedules need last came, for each by name and end."""
    found: dict[str, Met] = {one: {} for one in schedule_ids}
    links = [one for one in tx.links_of(found, lock=lock) if one.kind == "needs"]
    names = names_by_id(tx, {one.upstream for one in links})
    for one in links:
        if one.met_at is not None and one.upstream in names:
            found[one.downstream][names[one.upstream], one.on] = one.met_at
    return found
