"""Incidents and channels in the store: one open incident per key, one check a minute, one query."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.conformance.support.builders import NOON, stored
from timewright.core.alerts.channels import Channel, Poll
from timewright.core.alerts.incidents import Incident
from timewright.core.moments import DAY, HOUR, MINUTE, SECOND
from timewright.ports import Store
from timewright.ports.objects import AlertRow, AlertRows
from timewright.ports.rows import IncidentFilter, IncidentPrune


def incident(number: int = 1, **fields: Any) -> Incident:
    given: dict[str, Any] = {
        "id": f"inc_{number:04}",
        "namespace": "default",
        "kind": "failed",
        "subject": "sch_1",
        "severity": "fail",
        "sentence": "nightly failed",
        "since": NOON,
        "opened_at": NOON,
        "told_at": NOON,
        "calm": MINUTE,
    }
    return Incident(**{**given, **fields})


def save(store: Store, *rows: Incident, new: bool = True) -> set[str]:
    return store.write(lambda tx: tx.save_incidents(rows, new=new))


def listed(store: Store, *, open_only: bool = False, namespace: str | None = None) -> list[str]:
    page = store.read(lambda tx: tx.find(IncidentFilter(namespace=namespace, open_only=open_only)))
    return [one.id for one in page.rows]


def claim(store: Store, now: datetime) -> bool:
    return store.write(lambda tx: tx.claim_alert_check(now=now, before=now - MINUTE))


def rows_of(store: Store, source: str) -> list[AlertRow]:
    found = store.read(
        lambda tx: tx.select(AlertRows(late=NOON, missed=NOON - HOUR, recent=NOON - DAY, max_rows=100))
    )
    return [row for row in found if row.source == source]


def test_one_process_a_minute_may_look_for_incidents(store: Store) -> None:
    assert [claim(store, NOON + n * 30 * SECOND) for n in range(5)] == [True, False, True, False, True]


def test_a_key_has_at_most_one_open_incident(store: Store) -> None:
    save(store, incident(1))
    with pytest.raises(Exception, match=r"(?i)unique"):
        save(store, incident(2))
    assert save(store, incident(1, closed_at=NOON + HOUR), new=False) == {"inc_0001"}
    save(store, incident(2))
    assert listed(store) == ["inc_0002", "inc_0001"]
    assert listed(store, open_only=True) == ["inc_0002"]


def test_a_closed_incident_stays_closed(store: Store) -> None:
    save(store, incident(1))
    save(store, incident(1, closed_at=NOON, ended_by="a success"), new=False)
    assert save(store, incident(1), new=False) == set()
    (found,) = store.read(lambda tx: tx.find(IncidentFilter(incident_id="inc_0001"))).rows
    assert (found.closed_at, found.ended_by) == (NOON, "a success")
    assert store.read(lambda tx: tx.find(IncidentFilter(incident_id="inc_none"))).rows == ()


def test_incidents_are_listed_in_pages_newest_first(store: Store) -> None:
    save(store, *(incident(n, subject=f"sch_{n}") for n in range(5)))
    which = IncidentFilter(open_only=True, limit=3)
    first = store.read(lambda tx: tx.find(which))
    second = store.read(lambda tx: tx.find(replace(which, cursor=first.cursor)))
    assert [one.id[-1] for one in (*first.rows, *second.rows)] == ["4", "3", "2", "1", "0"]
    assert second.cursor == ""
    assert listed(store, namespace="other") == []


def test_incidents_that_closed_long_ago_are_deleted(store: Store) -> None:
    save(store, incident(1, closed_at=NOON - DAY), incident(2, subject="b", closed_at=NOON), incident(3))
    store.write(lambda tx: tx.prune(IncidentPrune(NOON)))
    assert listed(store) == ["inc_0003", "inc_0002"]


def test_one_query_returns_open_and_recently_closed_incidents_and_rules(store: Store) -> None:
    old = incident(1, subject="a", closed_at=NOON - 2 * DAY)
    save(store, old, incident(2, subject="b", closed_at=NOON), incident(3))
    store.write(lambda tx: tx.put_objects([stored("namespace", b"{}", kind="alerts")]))
    assert sorted(row.subject for row in rows_of(store, "incident")) == ["inc_0002", "inc_0003"]
    assert [(row.namespace, row.subject, row.extra) for row in rows_of(store, "alerts")] == [
        ("default", "namespace", "{}")
    ]


def test_channels_are_read_with_every_change_of_this_process(store: Store) -> None:
    assert store.read(lambda tx: tx.read_channels()) == ()
    channel = Channel(to=Poll())
    row = stored("ops", msgspec.json.encode(channel), kind="channel")
    store.write(lambda tx: tx.put_objects([row, replace(row, name="bad", body=b"{}")]))
    found = store.read(lambda tx: tx.read_channels())
    assert [(one.name, one.channel) for one in found] == [("bad", None), ("ops", channel)]
    store.write(lambda tx: tx.delete_object("channel", namespace="default", name="ops"))
    assert [one.name for one in store.read(lambda tx: tx.read_channels())] == ["bad"]
