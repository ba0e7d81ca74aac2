"""Store queries for workflow runs and for dependencies between schedules."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Literal, Protocol

from msgspec import Struct

from timewright.core.moments import ZERO
from timewright.core.run.run import Run
from timewright.core.schedule.upstream import EndKind
from timewright.ports.rows import Selection

LinkKind = Literal["after", "needs"]
FollowUpState = Literal["open", "done", "void"]


class StepRow(Struct, frozen=True, kw_only=True):
    """The counters of a step of a workflow run; the row with an empty step is the run as a whole.

    `met` counts settled needs; for the whole run it counts settled steps. `live` counts runs that continue by
    themselves, `parked` runs that wait for a person.
    """

    parent: str
    step: str
    met: int = 0
    live: int = 0
    parked: int = 0
    failed: int = 0
    cancelled: int = 0
    round: int = 0
    state: str = ""
    run_id: str = ""


class LeaseTransfer(Struct, frozen=True, kw_only=True):
    """A lease to transfer: the run with its new holder, and the holder it must still have."""

    run: Run
    previous_holder: str


class WorkflowQueries(Protocol):
    """Queries for workflow runs and for dependencies between schedules; most handle many rows."""

    def lock_parents(self, parents: Iterable[str]) -> dict[str, StepRow]:
        """Lock the rows of whole workflow runs until the transaction ends and return them by parent."""
        ...

    def add_to_steps(self, rows: Sequence[StepRow]) -> list[StepRow]:
        """Add to the counters of steps; set state and run where given. Returns the new rows."""
        ...

    def get_steps(self, parent: str, steps: Iterable[str] | None = None) -> dict[str, StepRow]:
        """Return the rows of some or all steps of a workflow run, by step name."""
        ...

    def read_run_end_effects(self, schedule_ids: Iterable[str] = ()) -> RunEndEffects:
        """Return what the end of runs may affect, in constant time, and which of the schedules fail."""
        ...

    def replace_links(
        self, downstream: str, links: Sequence[Link], *, delete_follow_ups: bool = False
    ) -> None:
        """Replace all upstream links of a schedule; optionally delete its undecided follow-ups."""
        ...

    def mark_links_met(self, links: Sequence[Link]) -> None:
        """Record the end that met each link, unless a later one is recorded."""
        ...


class RunEndEffects(Struct, frozen=True):
    """Whether any run is held and any schedule depends on another; the schedules whose last run failed."""

    has_held_runs: bool
    has_links: bool
    failing: frozenset[str] = frozenset()


class Link(Struct, frozen=True, kw_only=True):
    """A dependency of one schedule on the end of another, and the last end that met it."""

    upstream: str
    downstream: str
    kind: LinkKind
    on: EndKind
    delay: timedelta = ZERO
    met_at: datetime | None = None
    met_by: str = ""


class UpstreamLinks(Selection[Link], frozen=True):
    """The links of schedules to those that they follow or need.

    `lock` keeps a run that ends from meeting the links until the transaction ends.
    """

    downstreams: Collection[str]
    lock: bool = False


class DownstreamLinks(Selection[Link], frozen=True):
    """The links of schedules to those that follow or need them."""

    upstreams: Collection[str]


class FollowUp(Struct, frozen=True, kw_only=True):
    """An ended run and a schedule that follows it: when the follow-up is due, and the run it led to.

    It is `open` until decided, then `done`, or `void` if it makes no occurrence.
    """

    downstream: str
    upstream_run: str
    upstream: str
    on: EndKind
    due_at: datetime
    state: FollowUpState = "open"
    run_id: str = ""


class DependencyWait(Struct, frozen=True):
    """A run that waits for a dependency, and its schedule."""

    run_id: str
    schedule_id: str


class OpenFollowUps(Selection[FollowUp], frozen=True):
    """Undecided follow-ups of schedules, earliest first, at most `limit` of each."""

    downstreams: Collection[str]
    limit: int


class FollowUpsOfRun(Selection[FollowUp], frozen=True):
    """The follow-ups that led to a run or came from it, earliest first."""

    run_id: str
