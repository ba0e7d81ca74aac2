"""Copies the files of artifacts with their store, for backups, restores and moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from timewright.core.run.run import Artifact
from timewright.errors import Conflict, NotFound
from timewright.ports import Store, Transaction
from timewright.ports.rows import RunsWithArtifacts
from timewright.targets.artifacts.store import open_artifact_store
from timewright.wiring.store_urls import ARTIFACTS_SUFFIX, sqlite_path

PAGE_RUNS = 500


class ArtifactCopies:
    """Copies files beside a SQLite store; those in the place of the setting stay there."""

    def __init__(self, setting: str, open_store: Callable[[str], Store]) -> None:
        self._setting = setting
        self._open = open_store

    def copy(self, url: str, to: str) -> None:
        """Copy the files of a store to where the other store looks for them."""
        if not self._setting:
            self._copy_files(url, to, listed_in=url)

    def restore(self, backup: str, to: str) -> None:
        """Copy the files beside a backup to where the restored store looks for them."""
        self._copy_files(backup, to, listed_in=to)

    def check_place(self, url: str, to: str) -> None:
        """Refuse to copy a store with files to one that has no place for them."""
        here = _folder_beside(url)
        if here is not None and not self._place_of(to):
            raise Conflict(
                f"{here} holds artifacts, and the new store has no place for them",
                field="artifacts",
                rule="a server needs a folder or an object store that all instances reach",
                fix="--artifacts /srv/timewright/artifacts, and the same in the settings of every instance",
            )

    def notes(self, store: Store) -> Iterator[str]:
        """What a person must copy themselves."""
        if self._setting and store.read(partial(_read_page, after="")):
            yield f"the files of artifacts are at {self._setting}: back that place up too"

    def _copy_files(self, url: str, to: str, *, listed_in: str) -> None:
        here, place = _folder_beside(url), self._place_of(to)
        if here is None or str(here) == place:
            return
        source, target, after = open_artifact_store(str(here)), open_artifact_store(place), ""
        with closing(self._open(listed_in)) as store:
            while page := store.read(partial(_read_page, after=after)):
                for artifact, namespace in page:
                    # A file that is missing here is missing there too, and `verify` says so.
                    with suppress(NotFound):
                        source.copy_to(target, artifact, namespace=namespace)
                after = page[-1][0].run

    def _place_of(self, url: str) -> str:
        path = sqlite_path(url)
        return self._setting or (f"{path}{ARTIFACTS_SUFFIX}" if path is not None else "")


def _folder_beside(url: str) -> Path | None:
    """The folder with the files of a SQLite store, if it has one."""
    path = sqlite_path(url)
    folder = Path(f"{path}{ARTIFACTS_SUFFIX}")
    return folder if path is not None and folder.is_dir() else None


def _read_page(tx: Transaction, *, after: str) -> list[tuple[Artifact, str]]:
    """The artifacts of the next runs, each with its namespace; all of a run are in one page."""
    runs = {run.id: run for run in tx.select(RunsWithArtifacts(after, PAGE_RUNS))}
    found = tx.get_run_rows(Artifact, runs)
    return [(one, run.namespace) for run in runs.values() for one in found[run.id]]
