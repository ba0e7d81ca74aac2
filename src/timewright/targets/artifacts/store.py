"""Artifacts: data of a run that is too large for its result, as files in a folder or objects in a bucket.

A file is written before its attempt ends, and its reference with the end of the attempt in one transaction:
a reference always has its file. A file without a reference is swept. The fence is part of the path, so
attempts never overwrite each other's files.
"""

from __future__ import annotations

import hashlib
import mimetypes
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from timewright.core.moments import HOUR
from timewright.core.run.run import Artifact, Run, RunState, find_artifact
from timewright.errors import InvalidInput, NotFound
from timewright.ports import Store, Transaction
from timewright.targets.artifacts.files import (
    RUN_ID,
    ArtifactFiles,
    BucketFiles,
    FolderFiles,
    open_regular_file,
)

if TYPE_CHECKING:
    from timewright.ports import Launch
    from timewright.targets.context import RunInfo

MAX_ARTIFACT_BYTES = 1024**3
MAX_ARTIFACTS = 100
# Larger results are read by the function itself, with ctx.open_artifact.
MAX_LOADED_BYTES = 64 * 1024**2
# The name of a result that was too large to be stored inline.
RESULT_NAME = "result.json"
JSON_TYPE = "application/json"
CHUNK_BYTES = 1024**2
SWEEP_RUNS = 1000
SWEEP_AFTER = HOUR

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,63}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,63}")


class ArtifactStore:
    """Reads and writes artifacts by run, fence and name, and checks their size and digest."""

    def __init__(self, files: ArtifactFiles) -> None:
        self._files = files

    @property
    def location(self) -> str:
        """The folder or the URL of the object store."""
        return self._files.location

    def write(self, artifact: Artifact, source: BinaryIO, *, namespace: str) -> Artifact:
        """Write what the source holds; return the artifact with its size and digest."""
        digest, size = hashlib.sha256(), 0

        def chunks() -> Iterator[bytes]:
            nonlocal size
            while chunk := source.read(CHUNK_BYTES):
                size += len(chunk)
                if size > MAX_ARTIFACT_BYTES:
                    raise InvalidInput(
                        f"artifact {artifact.name} has more than {MAX_ARTIFACT_BYTES} bytes",
                        field="data",
                        rule="at most 1 GiB",
                        fix="write several artifacts, or store the data elsewhere and return its address",
                    )
                digest.update(chunk)
                yield chunk

        self._files.create(_owner(namespace), *_path(artifact), chunks())
        return msgspec.structs.replace(artifact, size=size, digest=f"sha256:{digest.hexdigest()}")

    def open(self, artifact: Artifact, *, namespace: str) -> BinaryIO:
        """Open an artifact for reading."""
        try:
            return self._files.open(_owner(namespace), *_path(artifact))
        except FileNotFoundError:
            raise NotFound(
                f"the file of artifact {artifact.name} of run {artifact.run} is not at {self.location}",
                field="name",
                value=artifact.name,
                rule="all instances need the same folder or object store",
                fix="mount one folder on all hosts, or set artifacts to an object store",
            ) from None

    def read(self, artifact: Artifact, *, namespace: str, limit: int = MAX_LOADED_BYTES) -> bytes:
        """Read a whole artifact, and check its digest."""
        if artifact.size > limit:
            raise InvalidInput(
                f"artifact {artifact.name} has {artifact.size} bytes",
                field="artifact",
                value=artifact.size,
                rule=f"at most {limit} bytes are read at once",
                fix="read it in parts with ctx.open_artifact",
            )
        with self.open(artifact, namespace=namespace) as file:
            data = file.read(limit + 1)
        if f"sha256:{hashlib.sha256(data).hexdigest()}" != artifact.digest:
            raise InvalidInput(
                f"the file of artifact {artifact.name} of run {artifact.run} was changed",
                field="digest",
                value=artifact.digest,
                rule="an artifact is never changed after it was written",
                fix="timewright verify lists all such files; run the step again",
            )
        return data

    def check(self, artifact: Artifact, *, namespace: str) -> str:
        """What is wrong with the file of an artifact; "" if it is as it was written."""
        digest, size = hashlib.sha256(), 0
        try:
            with self._files.open(_owner(namespace), *_path(artifact)) as file:
                while chunk := file.read(CHUNK_BYTES):
                    digest.update(chunk)
                    size += len(chunk)
        except FileNotFoundError:
            return "its file is missing"
        except (OSError, InvalidInput) as error:
            return f"its file cannot be read: {error}"
        if size != artifact.size:
            return f"its file has {size} bytes instead of {artifact.size}"
        return "" if f"sha256:{digest.hexdigest()}" == artifact.digest else "its file was changed"

    def copy_to(self, other: ArtifactStore, artifact: Artifact, *, namespace: str) -> None:
        """Copy the file of an artifact to another place, and check it there."""
        with self.open(artifact, namespace=namespace) as file:
            if other.write(artifact, file, namespace=namespace) != artifact:
                raise InvalidInput(
                    f"the file of artifact {artifact.name} of run {artifact.run} was changed",
                    field="digest",
                    value=artifact.digest,
                    rule="a copy has the digest of the original",
                    fix="timewright verify lists all such files",
                )

    def runs(self, *, after: tuple[str, str], limit: int) -> list[tuple[str, str]]:
        """The folders of namespaces and the runs with files, in order, after one of them."""
        return self._files.runs(after=after, limit=limit)

    def sweep_run(self, owner: str, run_id: str, keep: Callable[[int, str], bool], *, before: float) -> int:
        """Delete the files of a run that are not kept and were written before an instant."""
        doomed = []
        for file, written_at in self._files.files(owner, run_id):
            fence, _, name = file.partition("-")
            is_kept = fence.isdecimal() and keep(int(fence), name)
            if not is_kept and written_at < before:
                doomed.append(file)
        self._files.delete(owner, run_id, doomed)
        return len(doomed)


class ArtifactSweeper:
    """Deletes files without a reference: of runs that were pruned, and of attempts that were killed.

    Each pass looks at some runs and continues after them the next time.
    """

    def __init__(self, files: ArtifactStore, store: Store, *, time: Callable[[], datetime]) -> None:
        self._files = files
        self._store = store
        self._time = time
        self._after = ("", "")

    def run(self, *, grace: timedelta = SWEEP_AFTER) -> int:
        """Look at the next runs; return how many files were deleted."""
        found = self._files.runs(after=self._after, limit=SWEEP_RUNS)
        self._after = found[-1] if len(found) == SWEEP_RUNS else ("", "")
        if not found:
            return 0
        ids = sorted({run for _, run in found})

        def read(tx: Transaction) -> tuple[dict[str, Run], dict[str, tuple[Artifact, ...]], str]:
            return tx.get_runs(ids), tx.get_run_rows(Artifact, ids), tx.get_meta("pruned_to") or ""

        runs, referenced, pruned_to = self._store.read(read)
        kept = {(one.run, one.fence, one.name) for files in referenced.values() for one in files}
        before = (self._time() - grace).timestamp()

        def is_kept(run_id: str, fence: int, name: str) -> bool:
            run = runs.get(run_id)
            if run is None:
                # A restored store does not know the newer runs of the one that it is a copy of.
                return run_id > pruned_to
            is_running = run.state is RunState.LEASED and run.fence == fence
            return is_running or (run_id, fence, name) in kept

        return sum(
            self._files.sweep_run(owner, run_id, partial(is_kept, run_id), before=before)
            for owner, run_id in found
        )


class AttemptArtifacts:
    """The artifacts that one attempt writes, and those that it reads. Thread-safe."""

    __slots__ = ("_facts", "_files", "_lock", "written")

    def __init__(self, files: ArtifactStore | None, facts: RunInfo | Launch) -> None:
        self._files = files
        self._facts = facts
        self._lock = threading.Lock()
        self.written: tuple[Artifact, ...] = ()

    @property
    def is_enabled(self) -> bool:
        """Whether there is a place for artifacts."""
        return self._files is not None

    def write(
        self, name: str, data: Any = None, *, path: str | os.PathLike[str] | None = None, media_type: str = ""
    ) -> Artifact:
        """Write bytes, text, JSON data or a file under a name that is new to this attempt."""
        files, facts = self._require_files(), self._facts
        if (data is None) == (path is None):
            raise InvalidInput(
                "an artifact needs data or a path",
                field="data",
                rule="bytes, text, JSON data, or the path of a file",
                fix="ctx.artifact('report.csv', text) or ctx.artifact('report.csv', path=file)",
            )
        source, guessed = _open_source(data, path)
        with source:
            media_type = media_type or mimetypes.guess_type(name)[0] or guessed
            artifact = Artifact(run=facts.run_id, fence=facts.fence, name=name, type=media_type)
            _check_names(artifact, known=self.written)
            written = files.write(artifact, source, namespace=facts.namespace)
        with self._lock:
            self.written = (*self.written, written)
        return written

    def write_result(self, encoded: bytes) -> Artifact:
        """Write a result that is too large for its run, as JSON."""
        return self.write(RESULT_NAME, encoded, media_type=JSON_TYPE)

    def open(self, reference: Artifact | Mapping[str, Any]) -> BinaryIO:
        """Open an artifact of the namespace for reading."""
        return self._require_files().open(_require_artifact(reference), namespace=self._facts.namespace)

    def read(self, reference: Artifact | Mapping[str, Any]) -> bytes:
        """Read a whole artifact of the namespace."""
        return self._require_files().read(_require_artifact(reference), namespace=self._facts.namespace)

    def load_results(self, args: dict[str, Any]) -> dict[str, Any]:
        """Replace each argument that refers to the large result of another step by that result."""
        found = {name: find_artifact(value) for name, value in args.items() if isinstance(value, dict)}
        large = {name: one for name, one in found.items() if one is not None and one.name == RESULT_NAME}
        if not large:
            return args
        return {**args, **{name: msgspec.json.decode(self.read(one)) for name, one in large.items()}}

    def _require_files(self) -> ArtifactStore:
        if self._files is None:
            raise InvalidInput(
                "no place for artifacts is set",
                field="artifacts",
                rule="a SQLite file has a folder beside it; PostgreSQL needs the setting",
                fix="artifacts = '/srv/timewright/artifacts' or 's3://bucket/artifacts' in timewright.toml",
            )
        return self._files


def open_artifact_store(location: str) -> ArtifactStore:
    """Open a folder, or an object store by its URL."""
    if "://" in location:
        return ArtifactStore(BucketFiles(location))
    return ArtifactStore(FolderFiles(Path(location)))


def _open_source(data: Any, path: str | os.PathLike[str] | None) -> tuple[BinaryIO, str]:
    """The data as a stream, and its media type if the name tells none."""
    if path is not None:
        return open_regular_file(Path(path)), "application/octet-stream"
    if isinstance(data, bytes | bytearray | memoryview):
        return BytesIO(data), "application/octet-stream"
    if isinstance(data, str):
        return BytesIO(data.encode()), "text/plain"
    return BytesIO(msgspec.json.encode(data)), JSON_TYPE


def _check_names(artifact: Artifact, *, known: Sequence[Artifact]) -> None:
    if _NAME.fullmatch(artifact.name) is None:
        raise InvalidInput(
            f"artifact name {artifact.name[:80]!r} is not allowed",
            field="name",
            value=artifact.name[:80],
            rule="1 to 128 letters, digits, dots, dashes and underscores, beginning with a letter or digit",
            fix="report.csv",
        )
    if _TYPE.fullmatch(artifact.type) is None:
        raise InvalidInput(
            f"type {artifact.type[:80]!r} is not a media type",
            field="type",
            value=artifact.type[:80],
            rule="type/subtype",
            fix="text/csv",
        )
    if any(one.name == artifact.name for one in known) or len(known) >= MAX_ARTIFACTS:
        raise InvalidInput(
            f"artifact {artifact.name} cannot be added",
            field="name",
            value=artifact.name,
            rule=f"each name once in an attempt, and at most {MAX_ARTIFACTS} artifacts",
            fix="another name, or one archive of many files",
        )


def _require_artifact(reference: Artifact | Mapping[str, Any]) -> Artifact:
    found = find_artifact(dict(reference) if isinstance(reference, Mapping) else reference)
    if found is None or not all(
        pattern.fullmatch(text) for pattern, text in ((RUN_ID, found.run), (_NAME, found.name))
    ):
        raise InvalidInput(
            "this is not a reference to an artifact",
            field="artifact",
            value=str(reference)[:80],
            rule="what ctx.artifact returned, or the result of a step that returned it",
            fix="input: {file: {$from: steps.export.result}}",
        )
    return found


def _owner(namespace: str) -> str:
    """The folder of a namespace: a digest, because a namespace may contain any character."""
    return hashlib.sha256(namespace.encode()).hexdigest()[:16]


def _path(artifact: Artifact) -> tuple[str, str]:
    return artifact.run, f"{artifact.fence}-{artifact.name}"
