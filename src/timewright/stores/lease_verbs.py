"""What a store does with leases: lines, gates, and the fence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby, islice
from operator import itemgetter

from msgspec.structs import replace

from timewright.core.leasing import Gate
from timewright.core.moments import micros
from timewright.core.run import Attempt, Run, RunState
from timewright.errors import UnreadableRow
from timewright.ports import (
    Grant,
    Renewal,
    Renewed,
    Turn,
)
from timewright.stores.rows import (
    Row,
    attempt_columns,
    clean,
    gates_of,
    line_of,
    read_new_run,
    read_run,
    settled_columns,
    shared_int,
    to_instant,
)
from timewright.stores.verbs import LONGEST_PAGE, Verbs

CAUTIOUS_CEILING = 1
FOREVER = 2**62

# So many who wait are read in one go; where there are more, line by line.
FEW = 32

_BY_ID = _BY_LINE = itemgetter(0)
# Where the row of one who waits says that nothing has happened to it yet, in which line, and who sleeps.
_IS_NEW, _LINE, _WAKE = 16, 17, 18


class LeaseVerbs(Verbs):
    """Leases, and the ceilings they stand under."""

    def take_turn(self, *, patience: timedelta) -> Turn:
        """Until this transaction ends nobody else takes a turn; whoever waits too long goes on without."""
        return self._speaker.take_turn(patience=patience)

    def ready_runs(self, *, now: datetime, limit: int, handoff: bool = False, queue: str = "") -> list[Run]:
        """Runs that may start, best first, at most `limit` of each line of runs that share their gates.

        With a queue (its gate's name) only the lines behind that gate are asked.
        """
        if self._speaker.is_far and not queue:
            return self._ready_everywhere(now=now, limit=limit, handoff=handoff)
        if self._ask("any_asleep", {"now": micros(now)}):
            self._awaken(now=now, limit=limit)
        found: list[Run] = []
        for line, rows in self._lines(limit=limit, handoff=handoff, queue=queue):
            found += self._waiting(rows, gates_of(line))
        return found

    def _lines(self, *, limit: int, handoff: bool, queue: str) -> Iterator[tuple[str, Sequence[Row]]]:
        """Who waits, line by line; where few do, all of them are read in one go."""
        if limit < FEW and not self._speaker.is_far:
            first = self._ask("ready_first", {"handoff": int(handoff), "most": FEW})
            if len(first) < FEW:
                for line, rows in groupby(first, key=_BY_LINE):
                    if not queue or queue in line.split("\n"):
                        yield line, [row[1:] for row in islice(rows, limit)]
                return
        for (line,) in self._ask("ready_lines", {"handoff": int(handoff)}):
            if not queue or queue in line.split("\n"):
                parameters = {"handoff": int(handoff), "line": line, "limit": limit}
                yield line, self._ask("ready_runs", parameters)

    def oldest_ready_runs(self, *, gates: tuple[str, ...], limit: int, handoff: bool = False) -> list[Run]:
        """The longest waiting runs of one line whatever their priority, for queues that age."""
        parameters = {"handoff": int(handoff), "line": line_of(gates), "limit": limit}
        return self._readable(self._ask("oldest_ready_runs", parameters))

    def set_gates(self, limits: Mapping[str, int]) -> None:
        """Say how many leases each gate admits."""
        if limits:
            self._tell("set_gates", sorted(limits.items()))

    def hold_gates(self, gates: Iterable[str]) -> dict[str, Gate]:
        """Hold the gates until the transaction ends, and read how full they are."""
        names = sorted(set(gates))
        if not names:
            return {}
        if not self._speaker.is_far:
            return self._full_gates(names)
        self._tell("ensure_gates", [(name, CAUTIOUS_CEILING) for name in names])
        limits = {row[0]: row[1] for row in self._ask("hold_gates", {"gates": names})}
        held = {row[0]: row[1] for row in self._ask("count_holds", {"gates": names})}
        return {name: Gate(limits[name], held.get(name, 0)) for name in names}

    def _full_gates(self, names: list[str]) -> dict[str, Gate]:
        rows = self._ask("full_gates", {"gates": names})
        if len(rows) < len(names):
            self._tell("ensure_gates", [(name, CAUTIOUS_CEILING) for name in names])
            rows = self._ask("full_gates", {"gates": names})
        return {gate: Gate(most, held) for gate, most, held in rows}

    def read_gates(self, gates: Iterable[str]) -> dict[str, Gate]:
        """How full gates are, for a plan; nothing is held and nothing is written."""
        names = sorted(set(gates))
        limits = {row[0]: row[1] for row in self._ask("gate_limits", {"gates": names})}
        held = {row[0]: row[1] for row in self._ask("count_holds", {"gates": names})}
        return {name: Gate(limits.get(name, CAUTIOUS_CEILING), held.get(name, 0)) for name in names}

    def lease_runs(self, grants: Sequence[Grant]) -> list[Run]:
        """Turn ready runs into leased ones; gives back those that were."""
        if not grants:
            return []
        columns = (
            [grant.run.id for grant in grants],
            [grant.run.fence for grant in grants],
            [grant.lease_id for grant in grants],
            [grant.holder for grant in grants],
            [shared_int(grant.leased_at) for grant in grants],
            [shared_int(grant.lease_until) for grant in grants],
        )
        kept = self._keep("lease_runs", columns)
        if len(kept) < len(grants):
            ids = set(kept)
            grants = [grant for grant in grants if grant.run.id in ids]
        leased = [_leased(grant) for grant in grants]
        self._hold_for([run for run in leased if run.gates])
        return leased

    def renew_leases(self, renewals: Sequence[Renewal], *, now: datetime) -> list[Renewed]:
        """Prolong leases; gives back those whose fence still held."""
        if not renewals:
            return []
        rows = [(r.run_id, r.fence, micros(r.lease_until)) for r in renewals]
        return [Renewed(row[0], row[1], to_instant(row[2])) for row in self._tell("renew_leases", rows)]

    def next_lease_end(self) -> datetime | None:
        """The earliest instant at which a live lease may be over."""
        return to_instant(self._ask("next_lease_end", {})[0][0])

    def expired_leases(self, *, now: datetime, limit: int) -> list[Run]:
        """Leased runs whose lease is over, locked; rows that another holds are passed over."""
        return self._readable(self._ask("expired_leases", {"now": micros(now), "limit": limit}))

    def leased_runs(self, *, holder: str = "") -> list[Run]:
        """Every live lease, or those of one holder."""
        return [read_run(row) for row in sorted(self._ask("leased_runs", {"holder": holder}), key=_BY_ID)]

    def find_lease(self, lease_id: str) -> Run | None:
        """A live lease by its id."""
        for since, until in (_made_within(lease_id), (0, FOREVER)):
            parameters = {"lease_id": lease_id, "since": since, "until": until}
            rows = self._ask("find_lease", parameters)
            if rows:
                return read_run(rows[0])
        return None

    def asked_to_stop(self, *, holder: str) -> list[Run]:
        """The live leases of a holder whose runs were asked to stop."""
        return [read_run(row) for row in sorted(self._ask("asked_to_stop", {"holder": holder}), key=_BY_ID)]

    def settle_runs(self, settled: Sequence[tuple[Run, Attempt]]) -> set[str]:
        """Write the end of leases; gives back the ids whose fence still held."""
        if not settled:
            return set()
        kept = set(self._keep("settle_runs", settled_columns(settled)))
        ended = [attempt for run, attempt in settled if run.id in kept]
        if ended:
            self._keep("insert_attempts", attempt_columns(ended))
        gated = [run.id for run, _ in settled if run.gates and run.id in kept]
        if gated:
            self._ask("delete_holds", {"ids": gated})
        return kept

    def ask_to_cancel(self, asked: Sequence[tuple[str, datetime]], *, at: datetime, reason: str) -> set[str]:
        """Mark leased runs as asked to stop by an instant; gives back those that were marked."""
        if not asked:
            return set()
        rows = [(run_id, micros(at), micros(until), clean(reason)) for run_id, until in asked]
        return {row[0] for row in self._tell("ask_to_cancel", rows)}

    def _ready_everywhere(self, *, now: datetime, limit: int, handoff: bool) -> list[Run]:
        """The runs of all lines in one journey; a second one where someone had to be woken first."""
        parameters = {"now": micros(now), "handoff": int(handoff), "limit": limit}
        rows = self._ask("ready_everywhere", parameters)
        if rows[0][_WAKE]:
            self._awaken(now=now, limit=limit)
            rows = self._ask("ready_everywhere", parameters)
        lines: dict[str, list[Row]] = {}
        for row in rows:
            if row[_LINE] is not None:
                lines.setdefault(row[_LINE], []).append(row)
        found: list[Run] = []
        for line in sorted(lines):
            found += self._waiting(lines[line], gates_of(line))
        return found

    def _awaken(self, *, now: datetime, limit: int) -> None:
        self._ask("awaken", {"now": micros(now), "limit": max(limit, LONGEST_PAGE)})

    def _waiting(self, rows: Sequence[Row], gates: tuple[str, ...]) -> list[Run]:
        """The runs of one line in order; those to which something has happened are read in full."""
        try:
            new = [read_new_run(row, gates) for row in rows if row[_IS_NEW]]
        except UnreadableRow:
            new = []
        if len(new) == len(rows):
            return new
        known = {run.id: run for run in new}
        others = [row[0] for row in rows if row[0] not in known]
        known |= {run.id: run for run in self._readable(self._ask("get_runs", {"ids": others}))}
        return [known[row[0]] for row in rows if row[0] in known]

    def _readable(self, rows: Sequence[Row]) -> list[Run]:
        """The runs we understand; the others are parked, so that they hold up nobody."""
        found: list[Run] = []
        unreadable: list[str] = []
        for row in rows:
            try:
                found.append(read_run(row))
            except UnreadableRow:
                unreadable.append(row[0])
        if unreadable:
            self._ask("park_runs", {"ids": unreadable})
            self._ask("delete_holds", {"ids": unreadable})
        return found


def _made_within(lease_id: str) -> tuple[int, int]:
    """The millisecond with which an id of ours begins, in microseconds; nothing for another's."""
    milliseconds = 0
    for letter in lease_id.removeprefix("lease_")[:10]:
        milliseconds = milliseconds * 32 + max("0123456789ABCDEFGHJKMNPQRSTVWXYZ".find(letter), 0)
    return milliseconds * 1000, milliseconds * 1000 + 1000


def _leased(grant: Grant) -> Run:
    return replace(
        grant.run,
        state=RunState.LEASED,
        fence=grant.run.fence + 1,
        lease_id=grant.lease_id,
        holder=grant.holder,
        leased_at=grant.leased_at,
        lease_until=grant.lease_until,
        started_at=None,
        cancel_at=None,
        reason="",
    )
