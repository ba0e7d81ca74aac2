"""What the attempts of a run left behind: the kept head and tail of their output, and what they answered."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from timewright.core.run import Attempt, RunState
from timewright.operations.context import Context
from timewright.operations.examples import FAILED_RUN
from timewright.operations.find import find_run
from timewright.operations.registry import Named, Request, operations

# The parts of a result that hold what work said, in the order it is read.
SAID = ("output", "stdout", "stderr", "body", "traceback")


class Logs(Request, frozen=True, kw_only=True):
    """Which run, and which of its attempts; without a number, all of them."""

    run: Named
    attempt: int | None = None


class Output(Struct, frozen=True, kw_only=True):
    """What one attempt said: each stream as far as it was kept, and the error it ended with."""

    attempt: int
    fence: int
    outcome: str
    started_at: datetime | None
    ended_at: datetime
    error: str
    streams: dict[str, str]


class Outputs(Struct, frozen=True, kw_only=True):
    """What the attempts of a run said, oldest first; one under way has said nothing yet."""

    run: str
    state: RunState
    attempts: tuple[Output, ...]


@operations.add("run", "logs", Logs, scope="read", examples=({"run": FAILED_RUN},))
def run_logs(context: Context, ask: Logs) -> Outputs:
    """Show what the attempts of a run said: the head and the tail that were kept of their output."""

    def work(tx: Any) -> Outputs:
        run = find_run(tx, context.namespace, ask.run)
        ended = tx.get_attempts([run.id]).get(run.id, ())
        wanted = [one for one in ended if ask.attempt is None or one.number == ask.attempt]
        return Outputs(run=run.id, state=run.state, attempts=tuple(map(_output, wanted)))

    return context.store.read(work)


def _output(attempt: Attempt) -> Output:
    return Output(
        attempt=attempt.number,
        fence=attempt.fence,
        outcome=attempt.outcome,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        error=attempt.error,
        streams=_streams(attempt.result),
    )


def _streams(result: Any) -> dict[str, str]:
    if isinstance(result, str):
        return {"result": result}
    if not isinstance(result, Mapping):
        return {}
    return {name: _text(result[name]) for name in SAID if result.get(name)}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
