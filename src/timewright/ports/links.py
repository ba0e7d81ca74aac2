"""What we ask of a store about schedules that wait for each other: links, ends to follow, runs that wait."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Literal, Protocol

from msgspec import Struct

from timewright.core.moments import ZERO
from timewright.core.run import Run
from timewright.core.upstream import On

LinkKind = Literal["after", "needs"]
Handled = Literal["open", "done", "void"]


class Waiting(Struct, frozen=True):
    """Whether any run is held behind another, any schedule asks for another's ends, or any has a streak."""

    held: bool
    linked: bool
    failing: bool = False


class Link(Struct, frozen=True, kw_only=True):
    """That one schedule asks for an end of another, and when such an end last came, of which run."""

    upstream: str
    downstream: str
    kind: LinkKind
    on: On
    delay: timedelta = ZERO
    met_at: datetime | None = None
    met_by: str = ""


class FollowUp(Struct, frozen=True, kw_only=True):
    """One ended run and one schedule that follows: the instant it asks for, and the run it became.

    It is `open` until that is decided, then `done`, or `void` where it makes no occurrence.
    """

    downstream: str
    upstream_run: str
    upstream: str
    on: On
    due_at: datetime
    state: Handled = "open"
    run_id: str = ""


class LinkVerbs(Protocol):
    """The verbs of a transaction that links need; each takes and gives back many rows."""

    def what_waits(self) -> Waiting:
        """What the end of a run may concern; costs the same however much waits."""
        ...

    def hold_links(self) -> None:
        """Hold the right to change links until the transaction ends, so that no two make a ring together."""
        ...

    def put_links(self, downstream: str, links: Sequence[Link]) -> None:
        """Write all that one schedule asks for, in place of what it asked for before."""
        ...

    def links_of(self, downstreams: Iterable[str], *, lock: bool = False) -> list[Link]:
        """What schedules ask for; held against those who bring an end, when asked."""
        ...

    def links_from(self, upstreams: Iterable[str]) -> list[Link]:
        """Who asks for the ends of schedules."""
        ...

    def meet_links(self, links: Sequence[Link]) -> None:
        """Note that an end came, unless a later one is noted already."""
        ...

    def add_follow_ups(self, rows: Sequence[FollowUp]) -> None:
        """Note ended runs for those who follow; one that is noted already stays as it is."""
        ...

    def rouse(self, wakes: Sequence[tuple[str, datetime]]) -> None:
        """Let schedules that follow be looked at by an instant, if they are not looked at before."""
        ...

    def open_follow_ups(self, downstreams: Iterable[str], *, limit: int) -> dict[str, list[FollowUp]]:
        """The ends that schedules have not decided yet, at most `limit` of each, the earliest first."""
        ...

    def close_follow_ups(self, rows: Sequence[FollowUp]) -> None:
        """Note what became of ends."""
        ...

    def drop_follow_ups(self, downstream: str) -> None:
        """Forget the ends that a schedule has not decided."""
        ...

    def follow_ups_of(
        self, *, run_ids: Iterable[str] = (), upstream_runs: Iterable[str] = ()
    ) -> list[FollowUp]:
        """The ends that runs came from, or that came from runs, the earliest first."""
        ...

    def runs_ahead(self, schedule_ids: Iterable[str], *, limit: int) -> list[Run]:
        """Runs of schedules made by hand for an instant that has not come, the earliest first."""
        ...

    def add_waits(self, waits: Sequence[tuple[str, str]]) -> None:
        """Note runs that wait for what they need, each with its schedule."""
        ...

    def waits_of(self, schedule_ids: Iterable[str]) -> list[str]:
        """The runs of schedules that wait for what they need."""
        ...

    def drop_waits(self, run_ids: Iterable[str]) -> None:
        """Forget that runs wait."""
        ...
