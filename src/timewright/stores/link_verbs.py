"""How a store keeps what schedules ask of each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from timewright.core.moments import from_micros, micros
from timewright.core.run import Run
from timewright.core.upstream import On
from timewright.ports.links import FollowUp, Link, Waiting
from timewright.stores.rows import MICROSECOND, Row, read_run, to_instant, to_int
from timewright.stores.verbs import Verbs


class SqlLinkVerbs(Verbs):
    """The verbs of `ports.links.LinkVerbs`."""

    def what_waits(self) -> Waiting:
        """What the end of a run may concern; costs the same however much waits."""
        ((held, linked, failing),) = self._ask("what_waits", {})
        return Waiting(bool(held), bool(linked), bool(failing))

    def hold_links(self) -> None:
        """Hold the right to change links until the transaction ends."""
        self._ask("hold_meta", {"name": "links"})

    def put_links(self, downstream: str, links: Sequence[Link]) -> None:
        """Write all that one schedule asks for, in place of what it asked for before."""
        self._ask("delete_links", {"downstream": downstream})
        if links:
            self._tell("insert_links", [_link_row(link) for link in links])

    def links_of(self, downstreams: Iterable[str], *, lock: bool = False) -> list[Link]:
        """What schedules ask for; held against those who bring an end, when asked."""
        asked = {"ids": sorted(set(downstreams))}
        return [_link(row) for row in self._ask("hold_links_of" if lock else "links_of", asked)]

    def links_from(self, upstreams: Iterable[str]) -> list[Link]:
        """Who asks for the ends of schedules."""
        return [_link(row) for row in self._ask("links_from", {"ids": sorted(set(upstreams))})]

    def meet_links(self, links: Sequence[Link]) -> None:
        """Note that an end came, unless a later one is noted already."""
        rows = [
            (link.upstream, link.downstream, link.kind, link.on.value, to_int(link.met_at), link.met_by)
            for link in links
        ]
        # Of several ends of one link a server would take any: it is told of the last one alone.
        last = {row[:4]: row for row in sorted(rows, key=lambda row: (row[:4], row[4] or 0))}
        if last:
            self._tell("meet_links", list(last.values()))

    def add_follow_ups(self, rows: Sequence[FollowUp]) -> None:
        """Note ended runs for those who follow; one that is noted already stays as it is."""
        if rows:
            told = [
                (one.downstream, one.upstream_run, one.upstream, one.on.value, micros(one.due_at))
                for one in rows
            ]
            self._tell("insert_follow_ups", told)

    def rouse(self, wakes: Sequence[tuple[str, datetime]]) -> None:
        """Let schedules that follow be looked at by an instant, if they are not looked at before."""
        earliest: dict[str, int] = {}
        for schedule_id, at in wakes:
            earliest[schedule_id] = min(micros(at), earliest.get(schedule_id, micros(at)))
        if earliest:
            self._tell("rouse", sorted(earliest.items()))

    def open_follow_ups(self, downstreams: Iterable[str], *, limit: int) -> dict[str, list[FollowUp]]:
        """The ends that schedules have not decided yet, at most `limit` of each, the earliest first."""
        found: dict[str, list[FollowUp]] = {one: [] for one in sorted(set(downstreams))}
        if found:
            for row in self._tell("open_follow_ups", [(one, limit) for one in found]):
                found[row[0]].append(_follow_up(row))
        return found

    def close_follow_ups(self, rows: Sequence[FollowUp]) -> None:
        """Note what became of ends."""
        if rows:
            told = [(one.downstream, one.upstream_run, one.state, one.run_id) for one in rows]
            self._tell("close_follow_ups", told)

    def drop_follow_ups(self, downstream: str) -> None:
        """Forget the ends that a schedule has not decided."""
        self._ask("drop_follow_ups", {"downstream": downstream})

    def follow_ups_of(
        self, *, run_ids: Iterable[str] = (), upstream_runs: Iterable[str] = ()
    ) -> list[FollowUp]:
        """The ends that runs came from, or that came from runs, the earliest first."""
        asked = {"ids": list(run_ids), "upstream_runs": list(upstream_runs)}
        return [_follow_up(row) for row in self._ask("follow_ups_of", asked)]

    def runs_ahead(self, schedule_ids: Iterable[str], *, limit: int) -> list[Run]:
        """Runs of schedules made by hand for an instant that has not come, the earliest first."""
        asked = {"ids": list(schedule_ids), "limit": limit}
        return [read_run(row) for row in self._ask("runs_ahead", asked)]

    def add_waits(self, waits: Sequence[tuple[str, str]]) -> None:
        """Note runs that wait for what they need, each with its schedule."""
        if waits:
            self._tell("insert_waits", list(waits))

    def waits_of(self, schedule_ids: Iterable[str]) -> list[str]:
        """The runs of schedules that wait for what they need."""
        return [row[0] for row in self._ask("waits_of", {"ids": list(schedule_ids)})]

    def drop_waits(self, run_ids: Iterable[str]) -> None:
        """Forget that runs wait."""
        wanted = list(run_ids)
        if wanted:
            self._ask("delete_waits", {"ids": wanted})


def _link_row(link: Link) -> Row:
    named = (link.upstream, link.downstream, link.kind, link.on.value)
    return (*named, link.delay // MICROSECOND, to_int(link.met_at), link.met_by)


def _link(row: Row) -> Link:
    return Link(
        upstream=row[0],
        downstream=row[1],
        kind=row[2],
        on=On(row[3]),
        delay=row[4] * MICROSECOND,
        met_at=to_instant(row[5]),
        met_by=row[6],
    )


def _follow_up(row: Row) -> FollowUp:
    return FollowUp(
        downstream=row[0],
        upstream_run=row[1],
        upstream=row[2],
        on=On(row[3]),
        due_at=from_micros(row[4]),
        state=row[5],
        run_id=row[6],
    )
