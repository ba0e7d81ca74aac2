"""The output of running attempts: overwritten, read by run, deleted with the run or on request."""

from __future__ import annotations

from datetime import datetime

from tests.conformance.support.builders import NOON, add, make_run
from timewright.core.moments import MINUTE, SECOND
from timewright.core.run.run import RunState
from timewright.ports import PruneRequest, Store
from timewright.ports.attempt_output import AttemptOutput, OutputExcerpt


def said(run_id: str, text: str, *, fence: int = 1, at: datetime = NOON, **place: int) -> AttemptOutput:
    spoken = OutputExcerpt(text=text, **{"size": len(text.encode()), **place})
    return AttemptOutput(run_id=run_id, fence=fence, number=fence, at=at, excerpt=spoken)


def kept(store: Store, *run_ids: str) -> dict[str, tuple[AttemptOutput, ...]]:
    return store.read(lambda tx: tx.get_attempt_output(run_ids))


def test_attempt_output_is_overwritten_and_read_by_run(store: Store) -> None:
    first, other = said("run_a", "one\n"), said("run_b", "x\x1b[0m … 🙂", size=900, tail_offset=3)
    store.write(lambda tx: tx.put_attempt_output([first, other]))
    second = said("run_a", "one\ntwo\n", at=NOON + SECOND)
    store.write(lambda tx: tx.put_attempt_output([second]))
    assert kept(store, "run_a", "run_b", "run_c") == {"run_a": (second,), "run_b": (other,)}


def test_each_attempt_has_its_own_output_which_can_be_deleted(store: Store) -> None:
    lost, living = said("run_a", "first try"), said("run_a", "second try", fence=2)
    store.write(lambda tx: tx.put_attempt_output([living, lost]))
    assert kept(store, "run_a") == {"run_a": (lost, living)}
    store.write(lambda tx: tx.delete_attempt_output([("run_a", 2), ("run_b", 1)]))
    assert kept(store, "run_a") == {"run_a": (lost,)}
    store.write(lambda tx: tx.put_attempt_output([]))


def test_pruning_a_run_deletes_its_output(store: Store) -> None:
    old, young = (
        make_run(planned_at=at, state=RunState.SUCCEEDED, finished_at=at) for at in (NOON, NOON + 9 * MINUTE)
    )
    add(store, old, young)
    store.write(lambda tx: tx.put_attempt_output([said(old.id, "long ago"), said(young.id, "just now")]))
    assert store.write(lambda tx: tx.prune(PruneRequest(older_than=NOON + MINUTE))) == 1
    assert list(kept(store, old.id, young.id)) == [young.id]
