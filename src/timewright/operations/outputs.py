"""What the attempts of a run say: the head and tail of their output, also of one that is under way."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from timewright.core.run import Attempt, Run, RunState
from timewright.errors import InvalidInput
from timewright.operations.context import Context
from timewright.operations.examples import FAILED_RUN
from timewright.operations.find import find_run, find_schedule, is_run_id
from timewright.operations.registry import Named, Request, operations
from timewright.ports import RunFilter, Transaction
from timewright.ports.said import Said, Spoken

# The parts of a result that hold what work said, in the order it is read.
SAID = ("output", "stdout", "stderr", "body", "traceback")
# What comes while work runs: printed by a command or a worker, or logged by a function of this process.
OUTPUT = "output"
RUNNING = "running"

_GAP = re.compile(r"\n… (\d{1,18}) bytes left out …\n")
_CURSOR = re.compile(r"(\d{1,18})-(\d{1,18})")
_NOT_RUN = frozenset({RunState.SKIPPED, RunState.HELD, RunState.READY})


class Logs(Request, frozen=True, kw_only=True):
    """Which run, or of which schedule the newest that ran; which attempt, else all; from where on."""

    run: Named
    attempt: int | None = None
    after: str = ""


class Output(Struct, frozen=True, kw_only=True):
    """What one attempt said: each stream as far as it is kept, and the error it ended with."""

    attempt: int
    fence: int
    outcome: str
    started_at: datetime | None
    ended_at: datetime | None
    error: str
    streams: dict[str, str]


class Outputs(Struct, frozen=True, kw_only=True):
    """What the attempts of a run said, oldest first; `cursor`, asked for as `after`, gives what is new."""

    run: str
    state: RunState
    attempts: tuple[Output, ...]
    cursor: str = ""


@operations.add(
    "run",
    "logs",
    Logs,
    scope="read",
    examples=({"run": FAILED_RUN}, {"run": "nightly-report", "after": "1-0"}),
)
def run_logs(context: Context, ask: Logs) -> Outputs:
    """Show what the attempts of a run say: the head and the tail of their output, also while one runs."""
    seen = _place(ask.after)

    def work(tx: Transaction) -> Outputs:
        run = _wanted(tx, context.namespace, ask.run)
        ended = tx.get_attempts([run.id]).get(run.id, ())
        said = {one.fence: one for one in tx.get_said([run.id]).get(run.id, ())}
        told = [_ended(one, said.get(one.fence)) for one in ended]
        if run.state is RunState.LEASED and run.fence not in {one.fence for one in ended}:
            told.append(_under_way(run, said.get(run.fence)))
        shown = [one for one in told if ask.attempt is None or one.output.attempt == ask.attempt]
        return Outputs(
            run=run.id,
            state=run.state,
            attempts=tuple(one.after(*seen) for one in shown if one.output.fence >= seen[0]),
            cursor=f"{shown[-1].output.fence}-{shown[-1].size}" if shown else ask.after,
        )

    return context.store.read(work)


class _Told(Struct, frozen=True, kw_only=True):
    """An attempt as it is shown, and what it said as places are counted in it."""

    output: Output
    spoken: Spoken | None = None

    @property
    def size(self) -> int:
        return self.spoken.size if self.spoken is not None else 0

    def after(self, fence: int, place: int) -> Output:
        """The attempt with what it said after a place, if the place is in it; with all of it otherwise."""
        if self.output.fence != fence or self.spoken is None:
            return self.output
        fresh = {OUTPUT: self.spoken.after(place)}
        streams = {name: fresh.get(name, text) for name, text in self.output.streams.items()}
        return msgspec.structs.replace(
            self.output, streams={name: text for name, text in streams.items() if text}
        )


def _wanted(tx: Transaction, namespace: str, named: str) -> Run:
    """The run with that id; else, of the schedule with that name, the one that runs or ran last."""
    if is_run_id(named):
        return find_run(tx, namespace, named)
    schedule = find_schedule(tx, namespace, named).schedule
    found = [*_newest(tx, schedule.id, state=RunState.LEASED), *_newest(tx, schedule.id)]
    ran = next((run for run in found if run.state not in _NOT_RUN or run.attempts), None)
    return ran or (found[0] if found else find_run(tx, namespace, named))


def _newest(tx: Transaction, schedule_id: str, *, state: RunState | None = None) -> list[Run]:
    page = tx.find_runs(RunFilter(schedule_id=schedule_id, state=state, limit=50))
    return [run for run in page.rows if isinstance(run, Run)]


def _place(cursor: str) -> tuple[int, int]:
    found = _CURSOR.fullmatch(cursor)
    if cursor and found is None:
        raise InvalidInput(
            f"after {cursor[:60]!r} is no place in an output",
            field="after",
            value=cursor[:60],
            rule="the cursor of the answer before, as it was given",
            fix="leave it out to begin with the first attempt",
        )
    return (int(found[1]), int(found[2])) if found else (-1, 0)


def _ended(attempt: Attempt, said: Said | None) -> _Told:
    streams, spoken = _streams(attempt.result), said.spoken if said is not None else None
    if OUTPUT in streams:
        spoken = _whole(streams[OUTPUT])
    elif spoken is not None:
        streams = {OUTPUT: spoken.text, **streams}
    return _Told(
        output=Output(
            attempt=attempt.number,
            fence=attempt.fence,
            outcome=attempt.outcome,
            started_at=attempt.started_at,
            ended_at=attempt.ended_at,
            error=attempt.error,
            streams=streams,
        ),
        spoken=spoken,
    )


def _under_way(run: Run, said: Said | None) -> _Told:
    return _Told(
        output=Output(
            attempt=run.attempts + 1,
            fence=run.fence,
            outcome=RUNNING,
            started_at=run.started_at or run.leased_at,
            ended_at=None,
            error="",
            streams={OUTPUT: said.spoken.text} if said is not None else {},
        ),
        spoken=said.spoken if said is not None else None,
    )


def _whole(text: str) -> Spoken:
    """An output as places are counted in it; one that was cut says how much was left out, and where."""
    gap = _GAP.search(text)
    if gap is None:
        return Spoken(text=text, size=len(text.encode()))
    head, before = len(text[: gap.start()].encode()), len(text[: gap.end()].encode())
    return Spoken(text=text, size=head + int(gap[1]) + len(text.encode()) - before, cut=before)


def _streams(result: Any) -> dict[str, str]:
    if isinstance(result, str):
        return {"result": result}
    if not isinstance(result, Mapping):
        return {}
    return {name: _text(result[name]) for name in SAID if result.get(name)}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
