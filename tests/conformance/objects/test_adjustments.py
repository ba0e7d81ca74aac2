"""Adjustments of schedules: appended under the lock of the schedule, read newest first, never changed."""

from __future__ import annotations

from tests.conformance.support.builders import NOON, make_schedule, new_id, schedule_write
from timewright.core.moments import HOUR, MINUTE
from timewright.core.schedule.adjustments import Adjustment, AdjustmentKind
from timewright.ports import Store
from timewright.ports.objects import AdjustmentsOf, LastPauses
from timewright.verification.rows import AdjustmentRow


def adjustment(schedule_id: str, kind: AdjustmentKind = AdjustmentKind.PAUSE, **fields: object) -> Adjustment:
    """An adjustment at noon by ada."""
    made = {"namespace": "default", "at": NOON, "cursor": NOON - MINUTE, "actor": "ada", "origin": "human"}
    return Adjustment(schedule_id=schedule_id, kind=kind, **(made | fields))  # type: ignore[arg-type]


def test_adjustments_are_listed_newest_first_as_they_were_written(store: Store) -> None:
    mine, other = new_id("schedule"), new_id("schedule")
    hint = adjustment(mine, AdjustmentKind.INTERVAL, until=NOON + HOUR, interval=2 * MINUTE, reason="busy")
    moved = adjustment(mine, AdjustmentKind.MOVE, planned_at=NOON + MINUTE, moved_to=NOON + HOUR)
    pause = adjustment(other, until=NOON + HOUR)

    store.write(lambda tx: tx.add_adjustments([hint, pause]))
    store.write(lambda tx: tx.add_adjustments([moved]))
    store.write(lambda tx: tx.add_adjustments([]))

    assert store.read(lambda tx: tx.select(AdjustmentsOf(mine))) == [moved, hint]
    assert store.read(lambda tx: tx.select(AdjustmentsOf(mine, limit=1))) == [moved]
    assert store.read(lambda tx: tx.select(AdjustmentsOf(other))) == [pause]


def test_verification_reads_adjustments_in_pages_of_one_namespace(store: Store) -> None:
    ids = sorted(new_id("schedule") for _ in range(3))
    foreign = adjustment(new_id("schedule"), namespace="elsewhere")
    store.write(lambda tx: tx.add_adjustments([*(adjustment(one) for one in ids * 2), foreign]))

    def page(after: AdjustmentRow | None) -> list[AdjustmentRow]:
        return store.read(lambda tx: tx.list_rows(AdjustmentRow, namespace="default", after=after, limit=4))

    first = page(None)
    rows = [*first, *page(first[-1])]
    assert [(row.schedule_id, row.seq) for row in rows] == [(one, n) for one in ids for n in (1, 2)]


def test_a_snapshot_says_whether_occurrences_after_the_cursor_were_skipped(store: Store) -> None:
    schedule = make_schedule()
    store.write(lambda tx: tx.put_schedules([schedule_write(schedule)]))
    cursor = store.read(lambda tx: tx.get_schedules([schedule.id]))[schedule.id].progress.cursor

    def has_skips() -> bool:
        found = store.read(lambda tx: tx.get_schedule_snapshot(schedule.namespace, schedule.name))
        assert found is not None
        return found.has_skips

    skip = adjustment(schedule.id, AdjustmentKind.SKIP, planned_at=cursor)
    store.write(lambda tx: tx.add_adjustments([skip, adjustment(schedule.id)]))
    assert not has_skips()
    ahead = adjustment(schedule.id, AdjustmentKind.SKIP, planned_at=cursor + MINUTE)
    store.write(lambda tx: tx.add_adjustments([ahead]))
    assert has_skips()


def test_the_last_pause_of_each_schedule_is_found(store: Store) -> None:
    mine, other, never = (new_id("schedule") for _ in range(3))
    first, last = adjustment(mine, reason="audit"), adjustment(mine, at=NOON + HOUR, actor="bob")
    resumed, pause = adjustment(mine, AdjustmentKind.RESUME), adjustment(other)

    store.write(lambda tx: tx.add_adjustments([first, pause, last, resumed]))

    assert {
        one.schedule_id: one for one in store.read(lambda tx: tx.select(LastPauses([mine, other, never])))
    } == {mine: last, other: pause}
    assert store.read(lambda tx: tx.select(LastPauses([]))) == []
