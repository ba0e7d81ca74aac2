"""What attempts say while they run: written over, read by run, gone with the run or on request."""

from __future__ import annotations

from datetime import datetime

from tests.conformance.builders import NOON, add, make_run
from timewright.core.moments import MINUTE, SECOND
from timewright.core.run import RunState
from timewright.ports import Prune, Store
from timewright.ports.said import Said, Spoken


def said(run_id: str, text: str, *, fence: int = 1, at: datetime = NOON, **place: int) -> Said:
    spoken = Spoken(text=text, **{"size": len(text.encode()), **place})
    return Said(run_id=run_id, fence=fence, number=fence, at=at, spoken=spoken)


def kept(store: Store, *run_ids: str) -> dict[str, tuple[Said, ...]]:
    return store.read(lambda tx: tx.get_said(run_ids))


def test_what_an_attempt_says_is_written_over_and_read_by_its_run(store: Store) -> None:
    first, other = said("run_a", "one\n"), said("run_b", "x\x1b[0m … 🙂", size=900, cut=3)
    store.write(lambda tx: tx.put_said([first, other]))
    second = said("run_a", "one\ntwo\n", at=NOON + SECOND)
    store.write(lambda tx: tx.put_said([second]))
    assert kept(store, "run_a", "run_b", "run_c") == {"run_a": (second,), "run_b": (other,)}


def test_each_attempt_of_a_run_keeps_its_own_words_and_one_can_be_forgotten(store: Store) -> None:
    lost, living = said("run_a", "first try"), said("run_a", "second try", fence=2)
    store.write(lambda tx: tx.put_said([living, lost]))
    assert kept(store, "run_a") == {"run_a": (lost, living)}
    store.write(lambda tx: tx.drop_said([("run_a", 2), ("run_b", 1)]))
    assert kept(store, "run_a") == {"run_a": (lost,)}
    store.write(lambda tx: tx.put_said([]))


def test_what_the_attempts_of_a_pruned_run_said_is_gone_with_it(store: Store) -> None:
    old, young = (
        make_run(planned_at=at, state=RunState.SUCCEEDED, finished_at=at) for at in (NOON, NOON + 9 * MINUTE)
    )
    add(store, old, young)
    store.write(lambda tx: tx.put_said([said(old.id, "long ago"), said(young.id, "just now")]))
    assert store.write(lambda tx: tx.prune(Prune(older_than=NOON + MINUTE))) == 1
    assert list(kept(store, old.id, young.id)) == [young.id]
