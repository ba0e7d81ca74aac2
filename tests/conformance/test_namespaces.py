"""Namespaces: nobody sees, finds or changes what belongs to another."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.builders import (
    NOON,
    add,
    entry,
    make_run,
    make_schedule,
    put,
    queued,
    revised,
    stored,
)
from timewright.core.leasing import Gate
from timewright.core.schedule import queue_gate
from timewright.ports import RunFilter, ScheduleFilter, Store

# One that begins like another, one that sorts just after it, and one that would match as a pattern.
OTHERS = ["tenant", "tenant2", "tenan", "Tenant", "ten_nt", "%"]


@pytest.fixture(autouse=True)
def others(store: Store) -> None:
    """Every other namespace is full of things with the same names."""
    for namespace in OTHERS[1:]:
        schedule = make_schedule("report", namespace=namespace)
        put(store, revised(schedule))
        add(store, queued(namespace=namespace), make_run(schedule.id, namespace=namespace))
        fill(store, namespace)


def fill(store: Store, namespace: str) -> None:
    store.write(lambda tx: tx.put_objects([stored("report", namespace=namespace)]))
    store.write(lambda tx: tx.add_audit([entry(namespace=namespace, subject="report")]))


def everything(store: Store, namespace: str) -> list[Any]:
    """All that can be listed for one namespace."""
    return store.read(
        lambda tx: [
            *tx.find_schedules(ScheduleFilter(namespace=namespace)).rows,
            *tx.find_runs(RunFilter(namespace=namespace)).rows,
            *tx.get_objects("calendar", namespace=namespace),
            *tx.find_audit(namespace=namespace).rows,
            *tx.queue_runs(namespace, "mail", limit=10),
            *([found] if (found := tx.find_schedule(namespace, "report")) else []),
        ]
    )


@pytest.mark.parametrize("namespace", ["tenant", "", "' or 1=1 --"])
def test_a_namespace_without_anything_in_it_shows_nothing(store: Store, namespace: str) -> None:
    assert everything(store, namespace) == []


def test_a_namespace_shows_its_own_things_and_no_other(store: Store) -> None:
    schedule = make_schedule("report", namespace="tenant")
    put(store, revised(schedule))
    run, mail = make_run(schedule.id, namespace="tenant"), queued(namespace="tenant")
    add(store, run, mail)
    store.write(lambda tx: tx.put_objects([stored("report", b"mine", namespace="tenant")]))
    store.write(lambda tx: tx.add_audit([entry(namespace="tenant")]))
    found = everything(store, "tenant")
    assert len(found) == 7
    owners = {getattr(row, "namespace", "tenant") for row in found if not hasattr(row, "schedule")}
    assert owners == {"tenant"}
    assert found[0].schedule == schedule


def test_the_history_of_a_schedule_is_not_shown_to_another_namespace(store: Store) -> None:
    theirs = store.read(lambda tx: tx.find_schedule("tenant2", "report"))
    page = store.read(lambda tx: tx.find_runs(RunFilter(namespace="tenant", schedule_id=theirs)))
    assert page.rows == ()


def test_a_cursor_from_another_namespace_opens_nothing(store: Store) -> None:
    put(store, *(revised(make_schedule(f"r{n}", namespace="tenant2")) for n in range(5)))
    page = store.read(lambda tx: tx.find_schedules(ScheduleFilter(namespace="tenant2", limit=2)))
    other = store.read(lambda tx: tx.find_schedules(ScheduleFilter(namespace="tenant", cursor=page.cursor)))
    assert other.rows == ()
    runs = store.read(lambda tx: tx.find_runs(RunFilter(namespace="tenant2", limit=1)))
    assert store.read(lambda tx: tx.find_runs(RunFilter(namespace="tenant", cursor=runs.cursor))).rows == ()


def test_deleting_an_object_leaves_the_one_of_the_same_name_elsewhere(store: Store) -> None:
    assert store.write(lambda tx: tx.delete_object("calendar", namespace="tenant", name="report")) is False
    assert len(store.read(lambda tx: tx.get_objects("calendar", namespace="tenant2"))) == 1


def test_a_queue_of_the_same_name_elsewhere_has_a_gate_of_its_own(store: Store) -> None:
    mine, theirs = queue_gate("tenant", "mail"), queue_gate("tenant2", "mail")
    store.write(lambda tx: tx.set_gates({mine: 5}))
    assert store.write(lambda tx: tx.hold_gates([mine, theirs])) == {mine: Gate(5), theirs: Gate(1)}
    found = store.write(lambda tx: tx.ready_runs(now=NOON, limit=10, queue=mine))
    assert found == []
