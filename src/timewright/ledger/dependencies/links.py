"""Links between schedules (`after`, `needs`), written with the schedule; cycles are errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches

from msgspec.structs import replace

from timewright.core.recurrence.triggers import After
from timewright.core.run.following import end_kinds, follows_upstream
from timewright.core.schedule.schedule import Schedule, ScheduleState
from timewright.core.schedule.upstream import EndKind
from timewright.errors import InvalidInput, NotAllowed, NotFound
from timewright.ports import RunFilter, ScheduleFilter, ScheduleRecord, Transaction
from timewright.ports.schedules import SchedulesNamed
from timewright.ports.workflow import DownstreamLinks, Link, UpstreamLinks

MAX_CHAIN_SCHEDULES = 10_000
# How many runs are searched for the last matching end when a link is created.
MAX_HISTORY_RUNS = 1_000

MetNeeds = dict[tuple[str, EndKind], datetime]

_ARCHIVED = (ScheduleState.ARCHIVED,)


def write_links(tx: Transaction, schedules: Sequence[Schedule], *, before: Schedule | None = None) -> None:
    """Write the links of new or changed schedules; an unknown name or a cycle is an error."""
    had_dependencies = before is not None and has_dependencies(before)
    wanted = [schedule for schedule in schedules if had_dependencies or has_dependencies(schedule)]
    if not wanted:
        return
    tx.lock("links")
    for schedule in wanted:
        known = tx.select(UpstreamLinks([schedule.id]))
        links = _links(tx, schedule, known=known)
        follows_others = _after_links(known) != _after_links(links)
        tx.replace_links(schedule.id, links, delete_follow_ups=follows_others)
    for schedule in wanted:
        _check_no_cycle(tx, schedule)


def has_dependencies(schedule: Schedule) -> bool:
    """Whether a schedule follows or needs another."""
    return bool(schedule.needs) or follows_upstream(schedule.trigger)


def remove_links(tx: Transaction, record: ScheduleRecord) -> None:
    """Remove the links of a schedule that is archived; if others depend on it, that is an error."""
    check_no_dependents(tx, record, verb="archived")
    if tx.select(UpstreamLinks([record.schedule.id])):
        tx.replace_links(record.schedule.id, (), delete_follow_ups=True)


def check_no_dependents(tx: Transaction, record: ScheduleRecord, *, verb: str) -> None:
    """Raise if other schedules depend on this one."""
    asking = tx.select(DownstreamLinks([record.schedule.id]))
    if not asking:
        return
    names = sorted(one.schedule.name for one in tx.get_schedules({a.downstream for a in asking}).values())
    name, first = record.schedule.name, names[0] if names else ""
    others = f" and {len(names) - 1} more" if len(names) > 1 else ""
    raise NotAllowed(
        f"schedule {name} cannot be {verb}: {first}{others} depends on it",
        field="schedule",
        value=name,
        rule="a schedule that others follow or need keeps its name and stays",
        fix=f"schedule update {first} with another trigger or needs, or schedule archive {first}, first",
    )


def upstream_names(schedule: Schedule) -> dict[str, str]:
    """The names of the upstream schedules, by the field that contains them."""
    named = {f"needs[{i}].schedule": need.schedule for i, need in enumerate(schedule.needs)}
    if isinstance(schedule.trigger, After) and schedule.trigger.schedule:
        named = {"trigger.schedule": schedule.trigger.schedule, **named}
    return named


def _links(tx: Transaction, schedule: Schedule, *, known: Sequence[Link]) -> list[Link]:
    """The links of a schedule; a link that existed keeps its last met end."""
    ids = {name: _upstream(tx, schedule, name, field=f) for f, name in upstream_names(schedule).items()}
    kept = {(one.upstream, one.kind, one.on): one for one in known}
    found: dict[tuple[str, str, EndKind], Link] = {}
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
        raise _cycle_error((name, name), field=field)
    for head in tx.select(SchedulesNamed(schedule.namespace, [name])):
        record = tx.get_schedules([head.id]).get(head.id)
        if record is not None and record.progress.state not in _ARCHIVED:
            return head.id
    page = tx.find(ScheduleFilter(namespace=schedule.namespace, limit=1000))
    living = [one.schedule.name for one in page.rows if one.progress.state not in _ARCHIVED]
    near = get_close_matches(name, [one for one in living if one != schedule.name], n=1, cutoff=0.4)
    raise NotFound(
        f"{field}: there is no schedule {name!r}",
        field=field,
        value=name,
        rule="an upstream schedule exists in the same namespace",
        fix=f"did you mean {near[0]}?" if near else f"create {name} first",
    )


def _last_met(tx: Transaction, one: Link) -> Link:
    """The link with the last matching end, searched in the newest history of the upstream schedule."""
    which = RunFilter(schedule_id=one.upstream, limit=MAX_HISTORY_RUNS)
    ends = [(run.finished_at, run.id) for run in tx.find(which).rows if one.on in end_kinds(run)]
    met = max(((at, run_id) for at, run_id in ends if at is not None), default=None)
    return replace(one, met_at=met[0], met_by=met[1]) if met is not None else one


def _after_links(links: Iterable[Link]) -> set[tuple[str, EndKind]]:
    return {(one.upstream, one.on) for one in links if one.kind == "after"}


def _check_no_cycle(tx: Transaction, schedule: Schedule) -> None:
    """Walk the links upstream; raise if the walk comes back to the schedule."""
    came_from: dict[str, str] = {}
    edge, seen = [schedule.id], {schedule.id}
    while edge:
        links = tx.select(UpstreamLinks(edge))
        edge = []
        for one in links:
            if one.upstream == schedule.id:
                raise _cycle_error(_names(tx, [schedule.id, *_path(came_from, one.downstream), schedule.id]))
            if one.upstream not in seen:
                seen.add(one.upstream)
                came_from[one.upstream] = one.downstream
                edge.append(one.upstream)
        if len(seen) > MAX_CHAIN_SCHEDULES:
            raise InvalidInput(
                f"more than {MAX_CHAIN_SCHEDULES} schedules are upstream of {schedule.name}",
                field="trigger",
                value=schedule.name,
                rule=f"a chain has at most {MAX_CHAIN_SCHEDULES} schedules",
                fix="shorten the chain",
            )


def _path(came_from: Mapping[str, str], last: str) -> list[str]:
    """The path from the start of a walk to `last`, without the start."""
    path = [last] if last in came_from else []
    while path and came_from[path[-1]] in came_from:
        path.append(came_from[path[-1]])
    return path[::-1]


def _names(tx: Transaction, ids: Sequence[str]) -> tuple[str, ...]:
    found = tx.get_schedules(set(ids))
    return tuple(found[i].schedule.name if i in found else i for i in ids)


def _cycle_error(path: tuple[str, ...], *, field: str = "trigger") -> InvalidInput:
    return InvalidInput(
        f"a schedule cannot depend on itself: {' depends on '.join(path)}",
        field=field,
        value=path[0],
        rule="dependencies have no cycle",
        fix="remove one of these dependencies",
    )


def schedule_names(tx: Transaction, ids: Iterable[str]) -> dict[str, str]:
    """The current names of schedules, by id."""
    wanted = sorted(set(ids))
    return {i: record.schedule.name for i, record in tx.get_schedules(wanted).items()} if wanted else {}


def last_upstream_ends(
    tx: Transaction, schedule_ids: Iterable[str], *, lock: bool = False
) -> dict[str, MetNeeds]:
    """When the needs of schedules were last met: for each schedule, by upstream name and kind of end."""
    found: dict[str, MetNeeds] = {one: {} for one in schedule_ids}
    links = [one for one in tx.select(UpstreamLinks(found, lock=lock)) if one.kind == "needs"]
    names = schedule_names(tx, {one.upstream for one in links})
    for one in links:
        if one.met_at is not None and one.upstream in names:
            found[one.downstream][names[one.upstream], one.on] = one.met_at
    return found
