"""Namespaces: rows of another namespace cannot be read or changed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.support.builders import (
    NOON,
    add,
    entry,
    make_run,
    make_schedule,
    put,
    queued,
    schedule_write,
    stored,
)
from timewright.core.run.leasing import LimitUsage
from timewright.core.schedule.schedule import queue_limit_key
from timewright.ports import RunFilter, ScheduleFilter, Store
from timewright.ports.rows import AuditFilter, QueuedRuns
from timewright.ports.schedules import SchedulesNamed

# A namespace with the same prefix, the next one in order, and one that would match as a pattern.
OTHERS = ["tenant", "tenant2", "tenan", "Tenant", "ten_nt", "%"]


@pytest.fixture(autouse=True)
def others(store: Store) -> None:
    """Fill other namespaces with objects of the same names."""
    for namespace in OTHERS[1:]:
        schedule = make_schedule("report", namespace=namespace)
        put(store, schedule_write(schedule))
        add(store, queued(namespace=namespace), make_run(schedule.id, namespace=namespace))
        fill(store, namespace)


def fill(store: Store, namespace: str) -> None:
    store.write(lambda tx: tx.put_objects([stored("report", namespace=namespace)]))
    store.write(lambda tx: tx.add_audit([entry(namespace=namespace, subject="report")]))


def everything(store: Store, namespace: str) -> list[Any]:
    """Return everything that can be listed in one namespace."""
    return store.read(
        lambda tx: [
            *tx.find(ScheduleFilter(namespace=namespace)).rows,
            *tx.find(RunFilter(namespace=namespace)).rows,
            *tx.get_objects("calendar", namespace=namespace),
            *tx.find(AuditFilter(namespace=namespace)).rows,
            *tx.select(QueuedRuns(namespace, "mail", limit=10)),
            *(one.id for one in tx.select(SchedulesNamed(namespace, ["report"]))),
        ]
    )


@pytest.mark.parametrize("namespace", ["tenant", "", "' or 1=1 --"])
def test_a_namespace_without_anything_in_it_shows_nothing(store: Store, namespace: str) -> None:
    assert everything(store, namespace) == []


def test_a_namespace_sees_only_its_own_rows(store: Store) -> None:
    schedule = make_schedule("report", namespace="tenant")
    put(store, schedule_write(schedule))
    run, mail = make_run(schedule.id, namespace="tenant"), queued(namespace="tenant")
    add(store, run, mail)
    store.write(lambda tx: tx.put_objects([stored("report", b"mine", namespace="tenant")]))
    store.write(lambda tx: tx.add_audit([entry(namespace="tenant")]))
    found = everything(store, "tenant")
    assert len(found) == 7
    owners = {getattr(row, "namespace", "tenant") for row in found if not hasattr(row, "schedule")}
    assert owners == {"tenant"}
    assert found[0].schedule == schedule


def test_the_history_of_a_schedule_is_hidden_from_other_namespaces(store: Store) -> None:
    (theirs,) = store.read(lambda tx: tx.select(SchedulesNamed("tenant2", ["report"])))
    page = store.read(lambda tx: tx.find(RunFilter(namespace="tenant", schedule_id=theirs.id)))
    assert page.rows == ()


def test_a_cursor_of_another_namespace_returns_nothing(store: Store) -> None:
    put(store, *(schedule_write(make_schedule(f"r{n}", namespace="tenant2")) for n in range(5)))
    page = store.read(lambda tx: tx.find(ScheduleFilter(namespace="tenant2", limit=2)))
    other = store.read(lambda tx: tx.find(ScheduleFilter(namespace="tenant", cursor=page.cursor)))
    assert other.rows == ()
    runs = store.read(lambda tx: tx.find(RunFilter(namespace="tenant2", limit=1)))
    assert store.read(lambda tx: tx.find(RunFilter(namespace="tenant", cursor=runs.cursor))).rows == ()


def test_deleting_an_object_leaves_the_one_of_the_same_name_elsewhere(store: Store) -> None:
    assert store.write(lambda tx: tx.delete_object("calendar", namespace="tenant", name="report")) is False
    assert len(store.read(lambda tx: tx.get_objects("calendar", namespace="tenant2"))) == 1


def test_queues_of_two_namespaces_have_separate_limits(store: Store) -> None:
    mine, theirs = queue_limit_key("tenant", "mail"), queue_limit_key("tenant2", "mail")
    store.write(lambda tx: tx.set_limits({mine: 5}))
    assert store.write(lambda tx: tx.get_limits([mine, theirs], lock=True)) == {
        mine: LimitUsage(5),
        theirs: LimitUsage(1),
    }
    found = store.write(lambda tx: tx.ready_runs(now=NOON, limit=10, queue=mine))
    assert found == []
