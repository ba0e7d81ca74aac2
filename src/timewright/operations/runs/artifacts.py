"""The artifacts of a run: list them, and read one in parts."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct

from timewright.core.run.run import Artifact
from timewright.errors import NotAllowed, NotFound
from timewright.operations.context import OperationContext
from timewright.operations.lookup import find_run
from timewright.operations.registry import FAILED_RUN, ObjectName, OperationRequest, operations
from timewright.ports import Transaction

MAX_PART_BYTES = 1024**2


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
        return RunArtifacts(run=run.id, artifacts=tuple(tx.get_artifacts([run.id])))

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
