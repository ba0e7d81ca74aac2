"""The output of a run: its logs, also while an attempt is running, and its artifacts."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from timewright.core.run.run import Artifact, Attempt, Run, RunState
from timewright.errors import InvalidInput, NotAllowed, NotFound
from timewright.operations.context import OperationContext
from timewright.operations.lookup import find_run, find_schedule, is_run_id
from timewright.operations.registry import FAILED_RUN, ObjectName, OperationRequest, answer_from, operations
from timewright.ports import RunFilter, Transaction
from timewright.ports.attempt_output import AttemptOutput, OutputExcerpt

# The fields of a result that contain output, in the order they are shown.
RESULT_STREAMS = ("output", "stdout", "stderr", "body", "traceback")
# Output that arrives while an attempt runs: printed by a command or worker, or logged by a function.
OUTPUT_STREAM = "output"
RUNNING = "running"

_GAP = re.compile(r"\n… (\d{1,18}) bytes left out …\n")
_CURSOR = re.compile(r"(\d{1,18})-(\d{1,18})")
_NOT_STARTED = frozenset({RunState.SKIPPED, RunState.HELD, RunState.READY})

MAX_PART_BYTES = 1024**2


class GetRunLogs(OperationRequest, frozen=True, kw_only=True):
    """Which run, or which schedule's newest run; which attempt, by default all; after which cursor."""

    run: ObjectName
    attempt: int | None = None
    after: str = ""


class AttemptLog(Struct, frozen=True, kw_only=True):
    """The output of one attempt: each stream as far as it is stored, and the error it ended with."""

    attempt: int
    fence: int
    outcome: str
    started_at: datetime | None
    ended_at: datetime | None
    error: str
    streams: dict[str, str]


class RunLogs(Struct, frozen=True, kw_only=True):
    """The output of a run's attempts, oldest first; pass `cursor` as `after` to get only what is new."""

    run: str
    state: RunState
    attempts: tuple[AttemptLog, ...]
    cursor: str = ""


@operations.read(
    "run logs", scope="read", examples=({"run": FAILED_RUN}, {"run": "nightly-report", "after": "1-0"})
)
def run_logs(context: OperationContext, tx: Transaction, request: GetRunLogs) -> RunLogs:
    """Show the output of a run's attempts: head and tail, also while an attempt is running."""
    seen = parse_cursor(request.after)
    run = _find_run(tx, context.namespace, request.run)
    ended = tx.get_run_rows(Attempt, [run.id]).get(run.id, ())
    output = {one.fence: one for one in tx.get_run_rows(AttemptOutput, [run.id]).get(run.id, ())}
    logs = [_ended_log(one, output.get(one.fence)) for one in ended]
    if run.state is RunState.LEASED and run.fence not in {one.fence for one in ended}:
        logs.append(_running_log(run, output.get(run.fence)))
    shown = [one for one in logs if request.attempt is None or one.output.attempt == request.attempt]
    return RunLogs(
        run=run.id,
        state=run.state,
        attempts=tuple(one.after(*seen) for one in shown if one.output.fence >= seen[0]),
        cursor=f"{shown[-1].output.fence}-{shown[-1].size}" if shown else request.after,
    )


class _PositionedLog(Struct, frozen=True, kw_only=True):
    """An attempt's log, and its output with byte positions."""

    output: AttemptLog
    excerpt: OutputExcerpt | None = None

    @property
    def size(self) -> int:
        return self.excerpt.size if self.excerpt is not None else 0

    def after(self, fence: int, position: int) -> AttemptLog:
        """Return the log after a byte position, if the position is in this attempt; else the whole log."""
        if self.output.fence != fence or self.excerpt is None:
            return self.output
        fresh = {OUTPUT_STREAM: self.excerpt.text_after(position)}
        streams = {name: fresh.get(name, text) for name, text in self.output.streams.items()}
        return msgspec.structs.replace(
            self.output, streams={name: text for name, text in streams.items() if text}
        )


def _find_run(tx: Transaction, namespace: str, named: str) -> Run:
    """Return the run with this id, or the active or last run of the schedule with this name."""
    if is_run_id(named):
        return find_run(tx, namespace, named)
    schedule = find_schedule(tx, namespace, named).schedule
    found = [*_newest(tx, schedule.id, state=RunState.LEASED), *_newest(tx, schedule.id)]
    ran = next((run for run in found if run.state not in _NOT_STARTED or run.attempts), None)
    return ran or (found[0] if found else find_run(tx, namespace, named))


def _newest(tx: Transaction, schedule_id: str, *, state: RunState | None = None) -> list[Run]:
    page = tx.find(RunFilter(schedule_id=schedule_id, state=state, limit=50))
    return [run for run in page.rows if isinstance(run, Run)]


def parse_cursor(cursor: str) -> tuple[int, int]:
    """Return the fence and the byte position of a cursor; an empty one precedes every attempt."""
    found = _CURSOR.fullmatch(cursor)
    if cursor and found is None:
        raise InvalidInput(
            f"after {cursor[:60]!r} is not a cursor",
            field="after",
            value=cursor[:60],
            rule="`after` is the cursor of the previous answer",
            fix="leave it out to start with the first attempt",
        )
    return (int(found[1]), int(found[2])) if found else (-1, 0)


def _ended_log(attempt: Attempt, output: AttemptOutput | None) -> _PositionedLog:
    streams, excerpt = _streams(attempt.result), output.excerpt if output is not None else None
    if OUTPUT_STREAM in streams:
        excerpt = _with_positions(streams[OUTPUT_STREAM])
    elif excerpt is not None:
        streams = {OUTPUT_STREAM: excerpt.text, **streams}
    return _PositionedLog(
        output=answer_from(AttemptLog, attempt, attempt=attempt.number, streams=streams), excerpt=excerpt
    )


def _running_log(run: Run, output: AttemptOutput | None) -> _PositionedLog:
    return _PositionedLog(
        output=AttemptLog(
            attempt=run.attempts + 1,
            fence=run.fence,
            outcome=RUNNING,
            started_at=run.started_at or run.leased_at,
            ended_at=None,
            error="",
            streams={OUTPUT_STREAM: output.excerpt.text} if output is not None else {},
        ),
        excerpt=output.excerpt if output is not None else None,
    )


def _with_positions(text: str) -> OutputExcerpt:
    """Return an output with its byte positions; a cut output contains how many bytes were left out."""
    gap = _GAP.search(text)
    if gap is None:
        return OutputExcerpt(text=text, size=len(text.encode()))
    head, before = len(text[: gap.start()].encode()), len(text[: gap.end()].encode())
    return OutputExcerpt(text=text, size=head + int(gap[1]) + len(text.encode()) - before, tail_offset=before)


def _streams(result: Any) -> dict[str, str]:
    if isinstance(result, str):
        return {"result": result}
    if not isinstance(result, Mapping):
        return {}
    return {name: _text(result[name]) for name in RESULT_STREAMS if result.get(name)}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class ListArtifacts(OperationRequest, frozen=True, kw_only=True):
    """Which run; with a name, also the data of that artifact from `offset` on, at most 1 MiB.

    If several attempts wrote an artifact with this name, the last one is read, or that of `fence`.
    """

    run: ObjectName
    name: Annotated[str, Meta(max_length=128)] = ""
    fence: Annotated[int, Meta(ge=1)] | None = None
    offset: Annotated[int, Meta(ge=0)] = 0
    limit: Annotated[int, Meta(ge=1, le=MAX_PART_BYTES)] = MAX_PART_BYTES


class ArtifactPart(Struct, frozen=True, kw_only=True):
    """Data of an artifact in base64; the next part begins at `next_offset`, which is empty at the end."""

    name: str
    fence: int
    offset: int
    data: str
    next_offset: int | None = None


class RunArtifacts(Struct, frozen=True, kw_only=True):
    """The artifacts of a run, by attempt and name, and a part of the one that was asked for."""

    run: str
    artifacts: tuple[Artifact, ...]
    part: ArtifactPart | None = None


@operations.add("run artifacts", scope="read", examples=({"run": FAILED_RUN},))
def list_artifacts(context: OperationContext, request: ListArtifacts) -> RunArtifacts:
    """List the artifacts of a run, or read one of them in parts."""

    def work(tx: Transaction) -> RunArtifacts:
        run = find_run(tx, context.namespace, request.run)
        return RunArtifacts(run=run.id, artifacts=tx.get_run_rows(Artifact, [run.id]).get(run.id, ()))

    found = context.store.read(work)
    if not request.name:
        return found
    artifact = find_artifact_by_name(found, request.name, fence=request.fence)
    data = next(read_parts(context, artifact, offset=request.offset, size=request.limit), b"")
    end = request.offset + len(data)
    part = ArtifactPart(
        name=artifact.name,
        fence=artifact.fence,
        offset=request.offset,
        data=b64encode(data).decode(),
        next_offset=end if data and end < artifact.size else None,
    )
    return RunArtifacts(run=found.run, artifacts=(artifact,), part=part)


def find_artifact_by_name(found: RunArtifacts, name: str, *, fence: int | None = None) -> Artifact:
    """The artifact with this name that the last attempt wrote, or the attempt with this fence."""
    named = [one for one in found.artifacts if one.name == name and fence in (None, one.fence)]
    if not named:
        known = sorted({one.name for one in found.artifacts})
        raise NotFound(
            f"run {found.run} has no artifact {name!r}",
            field="name",
            value=name,
            rule="an artifact of this run",
            fix=f"one of {', '.join(known[:20])}" if known else "the run has none",
        )
    return named[-1]


def read_parts(
    context: OperationContext, artifact: Artifact, *, offset: int = 0, size: int = MAX_PART_BYTES
) -> Iterator[bytes]:
    """Yield the data of an artifact in parts of at most `size` bytes; never more than it had when written."""
    if context.artifacts is None:
        raise NotAllowed(
            "this process has no place for artifacts",
            field="artifacts",
            rule="the setting of the instance that wrote them",
            fix="set artifacts in timewright.toml to the same folder or object store",
        )
    left = artifact.size - offset
    with context.artifacts.open(artifact, namespace=context.namespace) as file:
        file.seek(offset)
        while left > 0 and (data := file.read(min(size, left))):
            left -= len(data)
            yield data
