"""Queries for runs: one row per occurrence, found by key, by schedule history, or by time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from timewright.core.moments import to_micros
from timewright.core.run.needs import ANSWER, EVENT
from timewright.core.run.run import TERMINAL_STATES, Run, RunState
from timewright.errors import UnreadableRow
from timewright.ids import first_id
from timewright.ports import (
    Page,
    RunChange,
    RunFilter,
    Unreadable,
)
from timewright.stores.queries.base import LAST_KEY, SqlQueries, page_limit
from timewright.stores.rows import (
    Row,
    changed_row,
    read_run,
    run_row,
    split_bucket,
)
from timewright.stores.statements import RUN_COLUMNS

FIRST_WALK_ROWS, MAX_WALK_ROWS = 16, 10_000
_SCHEDULE_ID, _PREVIOUS = (RUN_COLUMNS.split().index(name) for name in ("schedule_id", "previous"))
# Column numbers in `run_row`.
_READY_BUCKET, _HANDOFF = 12, 15

# A run's id encodes its planned instant or a later one, rounded to a millisecond; one second covers that.
ID_ROUNDING = timedelta(seconds=1)
FOREVER = 2**62
OLDEST = datetime(1970, 1, 2, tzinfo=UTC)
# One statement per state, because each partial index is used only if the statement names its state.
_STATEMENTS_BY_STATE: dict[RunState | None, str] = {
    RunState.READY: "list_ready_runs",
    RunState.LEASED: "list_leased_runs",
    RunState.HELD: "list_held_runs",
    RunState.PARKED: "list_parked_runs",
    RunState.FAILED: "list_failed_runs",
}


_MAY_HAVE_ENDED = TERMINAL_STATES | {RunState.PARKED}


class SqlRunQueries(SqlQueries):
    """Runs and their ended attempts."""

    def add_runs(self, runs: Sequence[Run]) -> set[str]:
        """Insert runs; returns the ids that were new. An occurrence that exists is skipped."""
        if not runs:
            return set()
        rows = [run_row(run) for run in runs]
        self._add_buckets(
            row[_READY_BUCKET]
            for row in rows
            if not row[_HANDOFF] and not row[_READY_BUCKET].startswith((ANSWER, EVENT))
        )
        if all(run.is_manual and run.state is not RunState.LEASED for run in runs):
            # Nothing can be skipped, so nothing is returned, and PostgreSQL need not be waited for.
            statement = "insert_manual_runs" if any(run.schedule_id for run in runs) else "insert_unique_runs"
            self._execute_many(statement, rows)
            return {run.id for run in runs}
        new = {row[0] for row in self._execute_many("insert_runs", rows)}
        self._insert_limit_holds(
            [run for run in runs if run.state is RunState.LEASED and run.limit_keys and run.id in new]
        )
        return new

    def shorten_leases(self, *, now: datetime, until: datetime, latest: datetime) -> None:
        """End every lease at `until` that was granted beyond `latest`, by a clock that was wrong."""
        instants = {"now": now, "until": until, "latest": latest}
        self._query("shorten_leases", {name: to_micros(instant) for name, instant in instants.items()})

    def repair_history(
        self,
        *,
        delete: Sequence[str] = (),
        fold: Sequence[Run] = (),
        relink: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Repair the history of schedules: delete runs, let runs count several occurrences, link runs."""
        self._request_recounts([*delete, *(run.id for run in fold)])
        deleted = [row[0] for row in self._query("delete_runs", {"ids": list(delete)})] if delete else []
        if deleted:
            self._query("delete_attempts", {"ids": deleted})
            self._query("delete_dependency_waits", {"ids": deleted})
        folded = [
            (run.id, to_micros(run.planned_at), to_micros(run.last_of), run.dropped, run.previous)
            for run in fold
            if run.last_of is not None
        ]
        if folded:
            self._execute_many("fold_runs", folded)
        if relink:
            self._execute_many("relink_runs", relink)

    def get_runs(self, ids: Iterable[str], *, lock: bool = False) -> dict[str, Run]:
        """Return existing runs by id."""
        wanted = list(ids)
        if lock and self._executor.is_remote:
            self._query("lock_runs", {"ids": wanted})
        return {row[0]: read_run(row) for row in self._query("get_runs", {"ids": wanted})}

    def find_occurrence(self, schedule_id: str, planned_at: datetime) -> Run | None:
        """Return the run of an occurrence, or the row that counts it as dropped."""
        exact = self._query(
            "find_occurrence", {"schedule_id": schedule_id, "planned_at": to_micros(planned_at)}
        )
        if exact:
            return read_run(exact[0])
        newest = self._newest_run(schedule_id)
        # Mostly the newest rows answer, and admission asks for every occurrence that replaces a run.
        for max_rows in (FIRST_WALK_ROWS, MAX_WALK_ROWS):
            rows = self._follow_history(newest, max_rows=max_rows)
            for run in _decode_runs(rows)[0]:
                if run.last_of is not None and run.planned_at <= planned_at <= run.last_of:
                    return run
                if run.planned_at < planned_at and not run.dedupe_scope:
                    return None
            if len(rows) < max_rows:
                return None
        return None

    def find_runs(self, which: RunFilter) -> Page:
        """Return a page of runs, newest first; unreadable rows are listed apart."""
        limit = page_limit(which.limit)
        if which.namespace == "":
            return Page(())  # no run has this namespace; in the statement '' would mean every namespace
        if which.schedule_id is not None:
            return self._page_of_schedule(which, limit=limit)
        rows = self._query(
            _STATEMENTS_BY_STATE.get(which.state, "list_runs"),
            {
                "before": which.cursor or LAST_KEY,
                **since_parameters(which.since),
                "namespace": which.namespace or "",
                "queue": which.queue or "",
                **(
                    {}
                    if which.state in _STATEMENTS_BY_STATE
                    else {"state": which.state.value if which.state else ""}
                ),
                "until": to_micros(which.until) if which.until else FOREVER,
                "limit": limit + 1,
            },
        )
        found, unreadable = _decode_runs(rows[:limit])
        return Page(tuple(found), str(rows[limit - 1][0]) if len(rows) > limit else "", tuple(unreadable))

    def first_of_each_bucket(self) -> list[Run]:
        """The first ready run of each bucket with needs."""
        buckets = [row[0] for row in self._query("ready_buckets", {"handoff": 0}) if split_bucket(row[0])[0]]
        if not buckets:
            return []
        rows = self._query("first_ready_of_buckets", {"buckets": self._list_parameter(buckets)})
        return list(self.get_runs(row[0] for row in rows if row[0] is not None).values())

    def find_lease(self, lease_id: str) -> list[Run]:
        """The run with a lease, by the instant in its id first, for which leases have an index."""
        for since, until in (_lease_instant_range(lease_id), (0, FOREVER)):
            parameters = {"lease_id": lease_id, "since": since, "until": until}
            if rows := self._query("find_lease", parameters):
                return [read_run(rows[0])]
        return []

    def change_runs(self, changes: Sequence[RunChange]) -> set[str]:
        """Rewrite runs that are not leased; returns the ids whose state and fence still matched."""
        if not changes:
            return set()
        rows = [
            changed_row(c.run, expected_state=c.expected_state, expected_fence=c.expected_fence)
            for c in changes
        ]
        self._request_recounts([c.run.id for c in changes if c.expected_state in _MAY_HAVE_ENDED])
        return {row[0] for row in self._execute_many("change_runs", rows)}

    def _request_recounts(self, ids: Sequence[str]) -> None:
        """Ask for the minutes in which these runs ended to be counted again: they change, or are deleted."""
        if ids:
            self._query("request_recounts", {"ids": list(ids)})

    def _follow_history(self, start: str, *, max_rows: int) -> list[Row]:
        return self._query("walk_schedule", {"start": start, "max_rows": max_rows}) if start else []

    def _newest_run(self, schedule_id: str) -> str:
        rows = self._query("last_run", {"id": schedule_id})
        return str(rows[0][0]) if rows else ""

    def _newest_unfinished(self, schedule_id: str, before: str) -> str:
        """The newest unfinished run older than a pruned one; unfinished runs are never pruned."""
        ((found,),) = self._query("newest_unfinished_run", {"id": schedule_id, "before": before})
        return str(found or "")

    def _page_of_schedule(self, which: RunFilter, *, limit: int) -> Page:
        """A page of the chain of occurrences merged with the manual runs: of both, the larger id comes first.

        The cursor names the next run of each, because after a step of the clock the ids of a chain go back.
        """
        schedule_id, size = which.schedule_id or "", limit + 1
        start, _, manual_start = which.cursor.partition(".")
        if not which.cursor:
            start, manual_start = self._newest_run(schedule_id), LAST_KEY
        chain = self._occurrences(schedule_id, "" if which.only_manual else start, size=size)
        manual = self._manual_runs(schedule_id, manual_start, size=size)
        next_run, next_manual = next(chain, None), next(manual, None)
        found: list[Run] = []
        unreadable: list[Unreadable] = []
        for _ in range(MAX_WALK_ROWS):
            if len(found) == limit or (next_run is None and next_manual is None):
                break
            if next_manual is None or (next_run is not None and next_run[0] > next_manual[0]):
                row, next_run = next_run, next(chain, None)
            else:
                row, next_manual = next_manual, next(manual, None)
            runs, skipped = _decode_runs([row] if row is not None else [])
            found += [run for run in runs if _matches(run, which)]
            unreadable += skipped
        ids = [row[0] if row is not None else "" for row in (next_run, next_manual)]
        return Page(tuple(found), ".".join(ids) if any(ids) else "", tuple(unreadable))

    def _occurrences(self, schedule_id: str, start: str, *, size: int) -> Iterator[Row]:
        """The rows of a schedule's chain from a run back, read in steps."""
        oldest = start
        while start:
            step = self._follow_history(start, max_rows=size)
            if step and step[0][_SCHEDULE_ID] != schedule_id:
                return  # a cursor of another schedule's history
            yield from step
            # After a step of the clock, a run may have a smaller id than the one before it.
            oldest = min(oldest, start, *(row[0] for row in step))
            # The history before a pruned run continues at the newest older run that is unfinished.
            start = step[-1][_PREVIOUS] if step else self._newest_unfinished(schedule_id, oldest)

    def _manual_runs(self, schedule_id: str, last: str, *, size: int) -> Iterator[Row]:
        """The rows of a schedule's manual runs, newest first, from an id on; read in steps."""
        while last:
            step = self._query("list_manual_runs", {"id": schedule_id, "last": last, "limit": size + 1})
            yield from step[:size]
            last = step[size][0] if len(step) > size else ""


def _decode_runs(rows: Sequence[Row]) -> tuple[list[Run], list[Unreadable]]:
    """Decode rows into runs and unreadable rows."""
    runs: list[Run] = []
    unreadable: list[Unreadable] = []
    for row in rows:
        try:
            runs.append(read_run(row))
        except UnreadableRow as error:
            unreadable.append(Unreadable(row[0], "", error.message))
    return runs, unreadable


def _lease_instant_range(lease_id: str) -> tuple[int, int]:
    """The millisecond encoded in a lease id, as a range in microseconds."""
    milliseconds = 0
    for letter in lease_id.removeprefix("lease_")[:10]:
        milliseconds = milliseconds * 32 + max("0123456789ABCDEFGHJKMNPQRSTVWXYZ".find(letter), 0)
    return milliseconds * 1000, milliseconds * 1000 + 1000


def _matches(run: Run, which: RunFilter) -> bool:
    return (
        (which.namespace is None or run.namespace == which.namespace)
        and (which.state is None or run.state is which.state)
        and (not which.queue or run.queue == which.queue)
        and (which.since is None or run.planned_at >= which.since)
        and (which.until is None or run.planned_at <= which.until)
    )


def since_parameters(since: datetime | None) -> dict[str, str | int]:
    """Parameters for `since`; no run planned from then on has an id smaller than `from`."""
    oldest = first_id("run", at=since - ID_ROUNDING) if since is not None and since > OLDEST else ""
    return {"from": oldest, "since": to_micros(since) if since is not None else 0}
