"""What we ask of a store about workflow runs: counts for each step, and the runs that steps became."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from timewright.core.run import Run


class StepRow(Struct, frozen=True, kw_only=True):
    """Where a step of a workflow run stands; the empty step is the run as a whole.

    `met` counts its needs that are settled, and for the whole the steps that are. `live` counts its runs that
    move by themselves, `parked` those that wait for a person.
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


class TakeOver(Struct, frozen=True, kw_only=True):
    """A lease in other hands: the run with its new holder, and who must still have it."""

    run: Run
    was: str


class StepVerbs(Protocol):
    """The verbs of a transaction that workflows need; each takes and gives back many rows."""

    def take_over(self, rows: Sequence[TakeOver]) -> set[str]:
        """Pass leases on, with their fence; gives back the ids of runs that were still held so."""
        ...

    def prolong(self, run_id: str, *, until: datetime, started_at: datetime | None = None) -> bool:
        """Move the end of a lease that was not asked to stop; it also began, if an instant says so."""
        ...

    def hold_wholes(self, parents: Iterable[str]) -> dict[str, StepRow]:
        """The rows of whole workflow runs, held until the transaction ends."""
        ...

    def add_to_steps(self, rows: Sequence[StepRow]) -> list[StepRow]:
        """Add to the counts of steps, and set a state or a run where one is named; gives back the sums."""
        ...

    def get_steps(self, parent: str, steps: Iterable[str] | None = None) -> dict[str, StepRow]:
        """The rows of some steps of a workflow run by name, or of all."""
        ...

    def delete_steps(self, parents: Iterable[str]) -> None:
        """Forget where the steps of workflow runs stand."""
        ...

    def child_runs(self, parent: str, *, unfinished: bool = False) -> list[Run]:
        """The runs that the steps of a workflow run became, in the order they came; or those not over."""
        ...

    def lane_runs(self, planned_at: datetime, *, first: str, last: str) -> list[Run]:
        """The runs of no schedule, of one planned instant, in the lanes from `first` up to before `last`."""
        ...
