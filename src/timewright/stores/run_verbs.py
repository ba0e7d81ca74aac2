"""What a store does with runs: one row per occurrence, found again by key, by chain, by time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from timewright.core.admission import Flight
from timewright.core.moments import micros
from timewright.core.run import Attempt, Run, RunState
from timewright.errors import UnreadableRow
from timewright.ids import first_id
from timewright.ports import (
    Change,
    Page,
    RunFilter,
    Unreadable,
)
from timewright.stores.rows import (
    Row,
    changed_row,
    new_run_row,
    read_attempt,
    read_run,
)
from timewright.stores.statements import RUN_COLUMNS
from timewright.stores.verbs import LAST, Verbs, page_limit

LONGEST_WALK = 10_000
_SCHEDULE_ID, _PREVIOUS = (RUN_COLUMNS.split().index(name) for name in ("schedule_id", "previous"))

# The id of a run is made for its planned instant or later; this covers its rounding.
EARLY = timedelta(seconds=1)
OLDEST = datetime(1970, 1, 2, tzinfo=UTC)
# What lives has an index of its own for each state, which serves only where the statement names the state.
_LISTS: dict[RunState | None, str] = {
    RunState.READY: "list_ready_runs",
    RunState.LEASED: "list_leased_runs",
    RunState.HELD: "list_held_runs",
    RunState.PARKED: "list_parked_runs",
    RunState.FAILED: "list_failed_runs",
}


class RunVerbs(Verbs):
    """Runs and their ended leases."""

    def add_runs(self, runs: Sequence[Run]) -> set[str]:
        """Insert runs; gives back the ids that were new. The same occurrence twice is an ordinary no-op."""
        if not runs:
            return set()
        new = {row[0] for row in self._tell("insert_runs", [new_run_row(run) for run in runs])}
        self._hold_for([run for run in runs if run.state is RunState.LEASED and run.gates and run.id in new])
        return new

    def add_new_runs(self, runs: Sequence[Run]) -> None:
        """Insert runs that nobody holds, each in a lane of its own; one that is there already is refused."""
        if runs:
            self._tell("insert_new_runs", [new_run_row(run) for run in runs])

    def link_runs(self, links: Sequence[tuple[str, str]]) -> None:
        """Mend the chain of a schedule's history: each run names the one before it."""
        if links:
            self._tell("link_runs", links)

    def get_runs(self, ids: Iterable[str], *, lock: bool = False) -> dict[str, Run]:
        """Runs by id, those that exist."""
        wanted = list(ids)
        if lock and self._speaker.is_far:
            self._ask("lock_runs", {"ids": wanted})
        return {row[0]: read_run(row) for row in self._ask("get_runs", {"ids": wanted})}

    def find_occurrence(self, schedule_id: str, planned_at: datetime) -> Run | None:
        """The run of one occurrence, or the dropped row that counts it."""
        exact = self._ask("find_occurrence", {"schedule_id": schedule_id, "planned_at": micros(planned_at)})
        if exact:
            return read_run(exact[0])
        runs, _ = _readable(self._walk(self._newest(schedule_id), most=LONGEST_WALK))
        for run in runs:
            if run.last_of is not None and run.planned_at <= planned_at <= run.last_of:
                return run
            if run.planned_at < planned_at and not run.lane:
                return None
        return None

    def find_runs(self, which: RunFilter) -> Page:
        """A page of runs, newest first; a row that cannot be understood is named beside them."""
        limit = page_limit(which.limit)
        if which.schedule_id is not None:
            return self._page_of_schedule(which, limit=limit)
        if which.namespace == "":
            return Page(())  # nobody's; the statement would read it as everybody's
        rows = self._ask(
            _LISTS.get(which.state, "list_runs"),
            {
                "before": which.cursor or LAST,
                **since_parameters(which.since),
                "namespace": which.namespace or "",
                "queue": which.queue or "",
                **({} if which.state in _LISTS else {"state": which.state.value if which.state else ""}),
                "until": micros(which.until) if which.until else 2**62,
                "limit": limit + 1,
            },
        )
        found, lost = _readable(rows[:limit])
        return Page(tuple(found), str(rows[limit - 1][0]) if len(rows) > limit else "", tuple(lost))

    def in_flight(self, schedule_ids: Iterable[str]) -> dict[str, Flight]:
        """What each schedule has under way."""
        live: dict[str, int] = {}
        held: dict[str, int] = {}
        for schedule_id, state, count in self._ask("in_flight", {"ids": list(schedule_ids)}):
            counts = held if state == RunState.HELD.value else live
            counts[schedule_id] = counts.get(schedule_id, 0) + count
        return {i: Flight(live.get(i, 0), held.get(i, 0)) for i in live.keys() | held.keys()}

    def live_runs(self, schedule_ids: Iterable[str]) -> list[Run]:
        """The ready, leased and held runs of schedules, oldest first."""
        return [read_run(row) for row in self._ask("live_runs", {"ids": list(schedule_ids)})]

    def freeable_runs(self, *, limit: int, schedule_ids: Iterable[str] | None = None) -> list[Run]:
        """The first held run of each schedule that has nothing of its own ready or leased."""
        if schedule_ids is None:
            return [read_run(row) for row in self._ask("freeable", {"limit": limit})]
        parameters = {"limit": limit, "ids": list(schedule_ids)}
        return [read_run(row) for row in self._ask("freeable_of", parameters)]

    def change_runs(self, changes: Sequence[Change]) -> set[str]:
        """Rewrite runs that nobody holds; gives back the ids that still matched."""
        if not changes:
            return set()
        rows = [changed_row(c.run, was=c.was, fence=c.fence) for c in changes]
        return {row[0] for row in self._tell("change_runs", rows)}

    def get_attempts(self, run_ids: Iterable[str]) -> dict[str, tuple[Attempt, ...]]:
        """The ended leases of runs, oldest first."""
        found: dict[str, list[Attempt]] = {}
        for row in self._ask("get_attempts", {"ids": list(run_ids)}):
            found.setdefault(row[0], []).append(read_attempt(row))
        return {run_id: tuple(attempts) for run_id, attempts in found.items()}

    def queue_runs(self, namespace: str, queue: str, *, limit: int) -> list[Run]:
        """The unfinished and parked runs of a queue, in order; for a plan, so nothing is held."""
        parameters = {"namespace": namespace, "queue": queue, "limit": limit}
        return [read_run(row) for row in self._ask("queue_runs", parameters)]

    def _walk(self, start: str, *, most: int) -> list[Row]:
        return self._ask("walk_schedule", {"start": start, "most": most}) if start else []

    def _newest(self, schedule_id: str) -> str:
        rows = self._ask("last_run", {"id": schedule_id})
        return str(rows[0][0]) if rows else ""

    def _behind(self, schedule_id: str, before: str) -> str:
        """The newest run older than one that is gone, among those that wait and are never pruned."""
        ((found,),) = self._ask("newest_waiting", {"id": schedule_id, "before": before})
        return str(found or "")

    def _page_of_schedule(self, which: RunFilter, *, limit: int) -> Page:
        found: list[Run] = []
        lost: list[Unreadable] = []
        schedule_id = which.schedule_id or ""
        start, walked = which.cursor or self._newest(schedule_id), 0
        while start and len(found) <= limit and walked < LONGEST_WALK:
            step = self._walk(start, most=limit + 1)
            if step and step[0][_SCHEDULE_ID] != schedule_id:
                return Page(())  # a cursor from somebody else's history
            runs, unread = _readable(step)
            found += [run for run in runs if _fits(run, which)]
            lost += unread
            walked += len(step) or 1
            # Where the chain was pruned, what still waits lies behind the gap, and goes on from there.
            start = step[-1][_PREVIOUS] if step else self._behind(schedule_id, start)
        if start and len(found) <= limit:
            return Page(tuple(found), start, tuple(lost))
        cursor = found[limit].id if len(found) > limit else ""
        # What lies behind the cursor is told of with the next page.
        return Page(tuple(found[:limit]), cursor, tuple(one for one in lost if one.id > cursor))


def _readable(rows: Sequence[Row]) -> tuple[list[Run], list[Unreadable]]:
    """The runs among rows, and those that cannot be understood."""
    runs: list[Run] = []
    lost: list[Unreadable] = []
    for row in rows:
        try:
            runs.append(read_run(row))
        except UnreadableRow as error:
            lost.append(Unreadable(row[0], "", error.message))
    return runs, lost


def _fits(run: Run, which: RunFilter) -> bool:
    return (
        (which.namespace is None or run.namespace == which.namespace)
        and (which.state is None or run.state is which.state)
        and (which.queue is None or run.queue == which.queue)
        and (which.since is None or run.planned_at >= which.since)
        and (which.until is None or run.planned_at <= which.until)
    )


def since_parameters(since: datetime | None) -> dict[str, str | int]:
    """An instant as the statements ask for it: no run planned from then on has a smaller id than `from`."""
    oldest = first_id("run", at=since - EARLY) if since is not None and since > OLDEST else ""
    return {"from": oldest, "since": micros(since) if since is not None else 0}
