"""Artifacts are written whole, in one place, and read only as they were written."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import import_module
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from timewright.core.moments import HOUR, ZERO
from timewright.core.run.run import Artifact, RunState
from timewright.errors import InvalidInput, NotFound
from timewright.targets.artifacts.store import (
    RESULT_NAME,
    ArtifactStore,
    ArtifactSweeper,
    AttemptArtifacts,
    open_artifact_store,
)

RUN = "run_01KKBXWX00EXAMPLE000000001"


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ArtifactStore]:
    if request.param == "folder":
        yield open_artifact_store(str(tmp_path / "artifacts"))
        return
    yield open_artifact_store("memory://bucket/artifacts")
    memory = import_module("fsspec").filesystem("memory")
    if memory.exists("/bucket"):
        memory.rm("/bucket", recursive=True)


def attempt(store: ArtifactStore | None, *, fence: int = 1, namespace: str = "default") -> AttemptArtifacts:
    facts: Any = SimpleNamespace(run_id=RUN, fence=fence, namespace=namespace)
    return AttemptArtifacts(store, facts)


def files_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_an_artifact_is_read_back_with_its_size_digest_and_type(store: ArtifactStore) -> None:
    own = attempt(store)
    written = own.write("report.csv", "a,b\n")
    assert (written.run, written.fence, written.name, written.size) == (RUN, 1, "report.csv", 4)
    assert written.type == "text/csv"
    assert written.digest == f"sha256:{hashlib.sha256(b'a,b' + bytes([10])).hexdigest()}"
    assert own.read(written) == b"a,b\n"
    with own.open({"kind": "artifact", "run": RUN, "fence": 1, "name": "report.csv"}) as file:
        assert file.read() == b"a,b\n"
    assert own.write("data", {"x": 1}).type == "application/json"
    assert [one.name for one in own.written] == ["report.csv", "data"]
    assert store.check(written, namespace="default") == ""


def test_a_file_is_written_from_a_path(store: ArtifactStore, tmp_path: Path) -> None:
    source = tmp_path / "source.bin"
    source.write_bytes(b"x" * 3_000_000)
    written = attempt(store).write("copy.bin", path=source)
    assert written.size == 3_000_000
    assert attempt(store).read(written) == b"x" * 3_000_000


def test_attempts_and_namespaces_do_not_see_each_other(store: ArtifactStore) -> None:
    first, second = (attempt(store, fence=fence).write("a", f"{fence}") for fence in (1, 2))
    assert (attempt(store).read(first), attempt(store).read(second)) == (b"1", b"2")
    with pytest.raises(NotFound, match="is not at"):
        attempt(store, namespace="other").read(first)


def test_large_results_in_arguments_are_replaced_by_their_data(store: ArtifactStore) -> None:
    own = attempt(store)
    reference = own.write_result(b"[1, 2]")
    plain = {"kind": "artifact", "run": RUN, "fence": 1, "name": RESULT_NAME, "digest": reference.digest}
    other = own.write("other.json", [3])
    assert own.load_results({"rows": plain, "n": 1, "file": {"kind": "artifact"}})["rows"] == [1, 2]
    assert own.load_results({"file": other})["file"] is other


@pytest.mark.parametrize("name", ["", "../a", "a/b", ".hidden", "a\\b", "x" * 129, "a\n", "ä"])
def test_names_that_could_leave_the_folder_are_refused(store: ArtifactStore, name: str) -> None:
    with pytest.raises(InvalidInput):
        attempt(store).write(name, b"")
    with pytest.raises(InvalidInput):
        attempt(store).open({"kind": "artifact", "run": RUN, "fence": 1, "name": name})


def test_references_that_could_leave_the_folder_are_refused(store: ArtifactStore) -> None:
    for run in ("../run_1", "run_1/..", "", "run_"):
        with pytest.raises(InvalidInput):
            attempt(store).open({"kind": "artifact", "run": run, "fence": 1, "name": "a"})
    for other in ({"kind": "other"}, "text", {"kind": "artifact", "run": RUN, "fence": "1", "name": "a"}):
        with pytest.raises(InvalidInput):
            attempt(store).open(other)  # type: ignore[arg-type]


def test_a_name_is_written_once_and_data_or_a_path_is_needed(store: ArtifactStore, tmp_path: Path) -> None:
    own = attempt(store)
    own.write("a", b"1")
    for call in (
        lambda: own.write("a", b"2"),
        lambda: own.write("b"),
        lambda: own.write("b", b"", path=tmp_path),
        lambda: own.write("b", b"", media_type="text/html; charset=utf-8"),
    ):
        with pytest.raises(InvalidInput):
            call()
    assert own.read(own.written[0]) == b"1"


def test_without_a_place_an_artifact_is_refused_with_the_remedy() -> None:
    with pytest.raises(InvalidInput, match="no place for artifacts") as refused:
        attempt(None).write("a", b"")
    assert "timewright.toml" in str(refused.value.fix)


def test_a_changed_or_missing_file_is_found(tmp_path: Path) -> None:
    store = open_artifact_store(str(tmp_path))
    own = attempt(store)
    changed, longer, gone = (own.write(name, b"12") for name in ("a", "b", "c"))
    (file,) = tmp_path.rglob("1-a")
    file.write_bytes(b"21")
    file.with_name("1-b").write_bytes(b"123")
    file.with_name("1-c").unlink()
    assert [store.check(one, namespace="default") for one in (changed, longer, gone)] == [
        "its file was changed",
        "its file has 3 bytes instead of 2",
        "its file is missing",
    ]
    with pytest.raises(InvalidInput, match="was changed"):
        own.read(changed)


def test_links_pipes_and_folders_are_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("canary")
    store = open_artifact_store(str(tmp_path / "artifacts"))
    own = attempt(store)
    reference = own.write("a", b"1")
    (file,) = tmp_path.rglob("1-a")
    file.unlink()
    file.symlink_to(secret)
    with pytest.raises(InvalidInput, match="not a regular file"):
        own.open(reference)
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(secret)
    os.mkfifo(pipe)
    for path in (link, pipe, tmp_path):
        with pytest.raises(InvalidInput, match="not a regular file"):
            own.write("b", path=path)
    folder = file.parent
    folder.rename(tmp_path / "moved")
    folder.symlink_to(tmp_path / "moved")
    for act in (lambda: own.open(reference), lambda: own.write("c", b"")):
        with pytest.raises(InvalidInput, match="symbolic link"):
            act()


def test_a_write_that_fails_leaves_no_file(tmp_path: Path) -> None:
    class Broken(BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError("disk gone")

    store = open_artifact_store(str(tmp_path))
    with pytest.raises(OSError, match="disk gone"):
        store.write(Artifact(run=RUN, fence=1, name="a"), Broken(), namespace="default")
    assert files_of(tmp_path) == []


def sweeper(store: ArtifactStore, *, runs: dict[str, Any], kept: list[Artifact], pruned_to: str = "") -> Any:
    tx = SimpleNamespace(
        get_runs=lambda ids: {i: runs[i] for i in ids if i in runs},
        get_run_rows=lambda _, ids: {i: tuple(one for one in kept if one.run == i) for i in ids},
        get_meta=lambda name: pruned_to,
    )
    rows: Any = SimpleNamespace(read=lambda work: work(tx))
    return ArtifactSweeper(store, rows, time=lambda: datetime.now(UTC))


def test_files_without_a_reference_are_swept_when_they_are_an_hour_old(store: ArtifactStore) -> None:
    first, second = (attempt(store, fence=fence).write("a", b"1") for fence in (1, 2))
    running = SimpleNamespace(state=RunState.LEASED, fence=2)
    ended = SimpleNamespace(state=RunState.SUCCEEDED, fence=2)
    assert sweeper(store, runs={RUN: running}, kept=[]).run(grace=HOUR) == 0
    assert sweeper(store, runs={RUN: running}, kept=[]).run(grace=-HOUR) == 1, "the attempt that was lost"
    assert store.check(first, namespace="default") == "its file is missing"
    assert sweeper(store, runs={RUN: ended}, kept=[second]).run(grace=-HOUR) == 0
    assert sweeper(store, runs={RUN: ended}, kept=[]).run(grace=-HOUR) == 1


def test_files_of_pruned_runs_are_swept_and_those_of_unknown_runs_are_kept(store: ArtifactStore) -> None:
    attempt(store).write("a", b"1")
    assert sweeper(store, runs={}, kept=[], pruned_to="").run(grace=-HOUR) == 0
    assert sweeper(store, runs={}, kept=[], pruned_to=RUN).run(grace=ZERO - HOUR) == 1
