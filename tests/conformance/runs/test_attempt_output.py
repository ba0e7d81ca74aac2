"""The output of running attempts and their external ids: overwritten, read by run, deleted with the run."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from tests.conformance.support.builders import NOON, add, ended, make_run, settle
from timewright.core.moments import MINUTE, SECOND
from timewright.core.run.run import Artifact, Run, RunState
from timewright.ports import ExternalId, PruneRequest, Store
from timewright.ports.attempt_output import AttemptOutput, OutputExcerpt, RunProgress
from timewright.ports.rows import RunsWithArtifacts, RunsWithExternalId


def said(run_id: str, text: str, *, fence: int = 1, at: datetime = NOON, **place: int) -> AttemptOutput:
    spoken = OutputExcerpt(text=text, **{"size": len(text.encode()), **place})
    return AttemptOutput(run_id=run_id, fence=fence, number=fence, at=at, excerpt=spoken)


def kept(store: Store, *run_ids: str) -> dict[str, tuple[AttemptOutput, ...]]:
    return store.read(lambda tx: tx.get_run_rows(AttemptOutput, run_ids))


def test_attempt_output_is_overwritten_and_read_by_run(store: Store) -> None:
    first, other = said("run_a", "one\n"), said("run_b", "x\x1b[0m … 🙂", size=900, tail_offset=3)
    store.write(lambda tx: tx.put_run_rows([first, other]))
    second = said("run_a", "one\ntwo\n", at=NOON + SECOND)
    store.write(lambda tx: tx.put_run_rows([second]))
    assert kept(store, "run_a", "run_b", "run_c") == {"run_a": (second,), "run_b": (other,)}


def test_each_attempt_has_its_own_output_which_can_be_deleted(store: Store) -> None:
    lost, living = said("run_a", "first try"), said("run_a", "second try", fence=2)
    store.write(lambda tx: tx.put_run_rows([living, lost]))
    assert kept(store, "run_a") == {"run_a": (lost, living)}
    store.write(lambda tx: tx.delete_run_rows(AttemptOutput, [("run_a", 2), ("run_b", 1)]))
    assert kept(store, "run_a") == {"run_a": (lost,)}
    store.write(lambda tx: tx.put_run_rows([]))


def test_pruning_a_run_deletes_its_output(store: Store) -> None:
    old, young = (
        make_run(planned_at=at, state=RunState.SUCCEEDED, finished_at=at) for at in (NOON, NOON + 9 * MINUTE)
    )
    add(store, old, young)
    store.write(lambda tx: tx.put_run_rows([said(old.id, "long ago"), said(young.id, "just now")]))
    assert store.write(lambda tx: tx.prune(PruneRequest(older_than=NOON + MINUTE))) == 1
    assert list(kept(store, old.id, young.id)) == [young.id]


def test_external_ids_are_kept_by_attempt_found_and_deleted_with_their_run(store: Store) -> None:
    old, young = (
        make_run(planned_at=at, state=RunState.SUCCEEDED, finished_at=at) for at in (NOON, NOON + 9 * MINUTE)
    )
    add(store, old, young)
    rows = [
        ExternalId(old.id, 1, "dag-1"),
        ExternalId(young.id, 1, "dag-1"),
        ExternalId(young.id, 2, "dag-2"),
    ]
    store.write(lambda tx: tx.put_run_rows([ExternalId(young.id, 2, "wrong")]))
    store.write(lambda tx: tx.put_run_rows(rows))
    assert store.read(lambda tx: tx.get_run_rows(ExternalId, [young.id])) == {young.id: tuple(rows[1:])}
    found = store.read(lambda tx: tx.select(RunsWithExternalId("dag-1", limit=10)))
    assert {run.id for run in found} == {old.id, young.id}
    assert len(store.read(lambda tx: tx.select(RunsWithExternalId("dag-1", limit=1)))) == 1
    store.write(lambda tx: tx.prune(PruneRequest(older_than=NOON + MINUTE)))
    assert store.read(lambda tx: tx.get_run_rows(ExternalId, [old.id])) == {}


def leased(fence: int = 1) -> Run:
    return make_run(
        state=RunState.LEASED, fence=fence, lease_id="lease_1", leased_at=NOON, lease_until=NOON + MINUTE
    )


def report(run: Run, *, fence: int = 1, at: datetime = NOON, **what: Any) -> RunProgress:
    return RunProgress(run_id=run.id, fence=fence, at=at, **what)


def reported(store: Store, run: Run) -> RunProgress | None:
    (found,) = store.read(lambda tx: tx.get_run_rows(RunProgress, [run.id])).get(run.id, (None,))
    return found


def test_progress_is_overwritten_and_the_checkpoint_stays_until_a_new_one(store: Store) -> None:
    run = leased()
    add(store, run)
    first = report(run, fraction=0.25, note="page 3 🙂", checkpoint={"page": 3})
    second = report(run, at=NOON + SECOND, note="page 4")
    store.write(lambda tx: tx.put_run_rows([first]))
    assert reported(store, run) == first
    store.write(lambda tx: tx.put_run_rows([second]))
    assert reported(store, run) == replace(second, checkpoint={"page": 3})
    third = report(run, fraction=1.0, checkpoint=[])
    store.write(lambda tx: tx.put_run_rows([third]))
    assert reported(store, run) == third
    store.write(lambda tx: tx.put_run_rows([]))


def test_only_the_holder_of_the_lease_reports_progress(store: Store) -> None:
    run, ended = leased(fence=2), make_run(state=RunState.SUCCEEDED, fence=1, finished_at=NOON)
    add(store, run, ended)
    lost = report(run, fence=1, checkpoint={"from": "a lost lease"})
    store.write(lambda tx: tx.put_run_rows([lost, report(ended, fraction=0.5)]))
    assert store.read(lambda tx: tx.get_run_rows(RunProgress, [run.id, ended.id])) == {}
    held = report(run, fence=2, checkpoint={"from": "the holder"})
    store.write(lambda tx: tx.put_run_rows([held, lost]))
    assert reported(store, run) == held


def test_pruning_a_run_deletes_its_progress(store: Store) -> None:
    run = leased()
    add(store, run)
    store.write(lambda tx: tx.put_run_rows([report(run, fraction=0.5)]))
    settle(store, ended(run))
    assert reported(store, run) is not None
    assert store.write(lambda tx: tx.prune(PruneRequest(older_than=NOON + 9 * MINUTE))) == 1
    assert reported(store, run) is None


def test_artifacts_are_kept_by_attempt_listed_and_deleted_with_their_run(store: Store) -> None:
    old = make_run(state=RunState.SUCCEEDED, finished_at=NOON)
    young = make_run(planned_at=NOON + 9 * MINUTE)
    add(store, old, young)
    rows = [
        Artifact(run=run.id, fence=fence, name="a.csv", size=3, digest="sha256:0", type="text/csv")
        for run in (old, young)
        for fence in (1, 2)
    ]
    for _ in range(2):
        store.write(lambda tx: tx.put_run_rows(rows))
    assert store.read(lambda tx: tx.get_run_rows(Artifact, [old.id])) == {old.id: tuple(rows[:2])}

    def owners(after: str, limit: int) -> list[str]:
        return [run.id for run in store.read(lambda tx: tx.select(RunsWithArtifacts(after, limit)))]

    assert owners("", 9) == [old.id, young.id]
    assert owners("", 1) == [old.id]
    assert owners(old.id, 9) == [young.id]
    assert store.write(lambda tx: tx.prune(PruneRequest(older_than=NOON + MINUTE))) == 1
    assert owners("", 9) == [young.id]
