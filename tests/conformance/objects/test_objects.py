"""Named objects with revisions, single values, and the tamper-evident audit log."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from tests.conformance.support.builders import NOON, entry, pages, stored
from tests.conformance.support.concurrency import all_at_once
from tests.conformance.support.databases import Database
from timewright.core.moments import HOUR
from timewright.errors import Conflict, InvalidInput
from timewright.ports import Store, StoredObject
from timewright.ports.rows import AuditFilter, ObjectPrune


def put(store: Store, *rows: StoredObject, replaces: dict[str, int] | None = None) -> None:
    store.write(lambda tx: tx.put_objects(rows, replaces=replaces))


def get(store: Store, kind: str = "calendar", **which: Any) -> list[StoredObject]:
    return list(store.read(lambda tx: tx.get_objects(kind, **which)))


def newest(
    store: Store, kind: str = "calendar", *, namespace: str = "default", **which: Any
) -> list[StoredObject]:
    many = which.pop("limit", 50)
    return list(store.read(lambda tx: tx.get_objects(kind, namespace=namespace, newest=many, **which)))


def forget(store: Store, kind: str = "calendar", **which: Any) -> int:
    request = ObjectPrune(kind=kind, namespace="default", **which)
    return store.write(lambda tx: tx.prune(request))


def log(store: Store, *entries: Any) -> None:
    store.write(lambda tx: tx.add_audit(entries))


def seal(store: Store) -> int:
    added: int = store.write(lambda tx: tx.seal_audit())
    return added


def broken(store: Store) -> int | None:
    found: int | None = store.read(lambda tx: tx.check_audit()).first_broken
    return found


def number(entry: int) -> str:
    """SQL that selects the nth entry; numbers go on from test to test on PostgreSQL."""
    return f"seq = (SELECT min(a.seq) + {entry - 1} FROM audit a)"


def broken_number(database: Database, store: Store) -> int | None:
    """Which entry is broken, counted from 1."""
    found, (first,) = broken(store), database.sql("SELECT min(seq) FROM audit_seals")
    return found and int(found) - int(first[0]) + 1


@pytest.mark.parametrize("many", [0, 1, 50])
def test_objects_are_written_many_at_a_time_and_listed_by_name(store: Store, many: int) -> None:
    rows = [stored(f"c{n:02}", b'{"n": %d}' % n) for n in range(many)]
    put(store, *reversed(rows))
    assert get(store) == rows


def test_objects_of_another_kind_are_other_objects(store: Store) -> None:
    calendar, limit = stored("crm", kind="calendar"), stored("crm", kind="limit")
    put(store, calendar, limit)
    assert get(store, "calendar") == [calendar]
    assert get(store, "limit") == [limit]
    assert get(store, "workflow") == []


def test_objects_are_asked_for_by_name(store: Store) -> None:
    rows = [stored(name) for name in ("a", "b", "c")]
    put(store, *rows)
    assert get(store, names=["c", "a", "x"]) == [rows[0], rows[2]]
    assert get(store, names=[]) == []


def test_an_object_is_replaced_by_its_next_revision(store: Store) -> None:
    first = stored("holidays", b"old")
    second = replace(first, revision=2, body=b"new", at=NOON + HOUR)
    put(store, first)
    put(store, second, replaces={"holidays": 1})
    assert get(store) == [second]


def test_replacing_an_older_object_revision_is_a_conflict(store: Store) -> None:
    first = stored("holidays", b"old")
    put(store, first)
    put(store, replace(first, revision=2, body=b"new"), replaces={"holidays": 1})
    with pytest.raises(Conflict, match="revision 2"):
        put(store, replace(first, revision=2, body=b"late"), replaces={"holidays": 1})
    assert [row.body for row in get(store)] == [b"new"]


def test_an_object_that_is_there_is_not_made_anew(store: Store) -> None:
    put(store, stored("holidays", b"first"), replaces={"holidays": 0})
    with pytest.raises(Conflict):
        put(store, stored("holidays", b"second"), replaces={"holidays": 0})
    assert [row.body for row in get(store)] == [b"first"]


def test_one_stale_object_undoes_its_whole_batch(store: Store) -> None:
    put(store, stored("a"), stored("b"))
    with pytest.raises(Conflict):
        put(store, stored("a", b"x", revision=2), stored("b", b"x", revision=9), replaces={"a": 1, "b": 8})
    assert [row.body for row in get(store)] == [b"{}", b"{}"]


@pytest.mark.parametrize("last", [0, 1])
def test_one_of_many_concurrent_edits_succeeds(database: Database, last: int) -> None:
    stores = [database.open() for _ in range(3)]
    if last:
        put(stores[0], stored("holidays"))

    def replace_with(who: int) -> None:
        row = stored("holidays", str(who).encode(), revision=last + 1)
        put(stores[who % 3], row, replaces={"holidays": last})

    answers = all_at_once([partial(replace_with, who) for who in range(9)])
    assert [answer for answer in answers if answer is not None and not isinstance(answer, Conflict)] == []
    assert answers.count(None) == 1
    (row,) = get(stores[0])
    assert row.body == str(answers.index(None)).encode()


def test_deleting_returns_whether_the_object_existed(store: Store) -> None:
    put(store, stored("a"), stored("b"))
    assert store.write(lambda tx: tx.delete_object("calendar", namespace="default", name="a")) is True
    assert store.write(lambda tx: tx.delete_object("calendar", namespace="default", name="a")) is False
    assert store.write(lambda tx: tx.delete_object("limit", namespace="default", name="b")) is False
    assert [row.name for row in get(store)] == ["b"]


def test_newest_objects_are_paged_by_name(store: Store) -> None:
    rows = [stored(f"n{n:03}", b'{"n": %d}' % n, at=NOON + n * HOUR) for n in range(120)]
    put(store, *reversed(rows), stored("n050", kind="limit"), stored("n051", namespace="other"))
    assert newest(store) == rows[:-51:-1]
    assert newest(store, before=rows[70].name, limit=1000) == rows[69::-1]
    assert newest(store, before="n05", limit=2) == [rows[49], rows[48]]
    assert newest(store, before=rows[0].name) == []
    assert newest(store, before="zzz", limit=1) == [rows[-1]]
    assert newest(store, "nothing") == newest(store, namespace="nobody") == []
    assert [row.name for row in newest(store, namespace="other")] == ["n051"]


def test_the_name_of_an_object_counts_and_not_when_it_was_written(store: Store) -> None:
    older, newer = stored("b", at=NOON), stored("a", at=NOON + HOUR)
    put(store, older, newer, stored("é"), stored("B"))
    assert [row.name for row in newest(store)] == ["é", "b", "a", "B"]


def test_the_first_names_go_if_they_were_written_before_an_instant(store: Store) -> None:
    rows = [stored(f"n{n:03}", at=NOON + n * HOUR) for n in range(120)]
    others = [stored("n000", kind="limit"), stored("n000", namespace="other")]
    put(store, *rows, *others)
    assert forget(store, older_than=NOON) == 0
    assert forget(store, older_than=NOON + 3 * HOUR) == 3
    assert forget(store, older_than=NOON + 3 * HOUR) == 0
    assert forget(store, older_than=NOON + 99 * HOUR, limit=10) == 10
    assert get(store, namespace="default") == rows[13:]
    assert forget(store, older_than=NOON + 999 * HOUR) == 100
    assert forget(store, older_than=NOON + 999 * HOUR) == 7
    assert forget(store, "nothing", older_than=NOON + HOUR) == forget(store, older_than=NOON + HOUR) == 0
    assert [*get(store, "limit"), *get(store, namespace="other")] == others


def test_pruning_objects_skips_a_rewritten_one_and_continues(store: Store) -> None:
    put(store, *(stored(name, at=NOON) for name in ("a", "b", "c", "d")))
    put(store, stored("a", revision=2, at=NOON + HOUR))
    assert forget(store, older_than=NOON + HOUR, limit=3) == 2
    assert [row.name for row in get(store)] == ["a", "d"]


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_a_page_of_objects_and_a_forgetting_of_them_have_a_limit(store: Store, limit: int) -> None:
    put(store, stored("a"))
    with pytest.raises(InvalidInput, match="limit"):
        newest(store, limit=limit)
    with pytest.raises(InvalidInput, match="limit"):
        forget(store, older_than=NOON + HOUR, limit=limit)
    assert len(get(store)) == 1


def test_a_meta_value_is_the_last_one_written(store: Store) -> None:
    assert store.read(lambda tx: tx.get_meta("epoch")) is None
    store.write(lambda tx: tx.put_meta("epoch", "one"))
    store.write(lambda tx: tx.put_meta("epoch", "two"))
    assert store.read(lambda tx: tx.get_meta("epoch")) == "two"


def test_audit_lines_are_listed_newest_first_in_pages(store: Store) -> None:
    log(store)
    lines = [entry(f"act-{n}", at=NOON + n * HOUR) for n in range(25)]
    for start in range(0, 25, 5):
        log(store, *lines[start : start + 5])
    every = pages(lambda c: store.read(lambda tx: tx.find(AuditFilter(limit=10, cursor=c))))
    assert [len(page) for page in every] == [10, 10, 5]
    assert [line for page in every for line in page] == lines[::-1]


def test_audit_pages_do_not_shift_when_a_line_is_added(store: Store) -> None:
    lines = [entry(f"act-{n}") for n in range(4)]
    log(store, *lines)
    first = store.read(lambda tx: tx.find(AuditFilter(limit=2)))
    log(store, entry("later"))
    rest = store.read(lambda tx: tx.find(AuditFilter(limit=2, cursor=first.cursor)))
    assert [*first.rows, *rest.rows] == lines[::-1]


@pytest.mark.parametrize("cursor", ["x", "-1", "1.5", "１", "9" * 40])
def test_a_cursor_that_we_did_not_give_is_refused(store: Store, cursor: str) -> None:
    log(store, entry())
    with pytest.raises(InvalidInput, match="cursor"):
        store.read(lambda tx: tx.find(AuditFilter(cursor=cursor)))


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_an_audit_page_has_a_limit(store: Store, limit: int) -> None:
    with pytest.raises(InvalidInput, match="limit"):
        store.read(lambda tx: tx.find(AuditFilter(limit=limit)))


def test_an_untouched_audit_log_is_valid(store: Store) -> None:
    assert broken(store) is None
    log(store, *(entry(f"act-{n}") for n in range(10)))
    log(store, entry("last", before="a", after="b", reason="why"))
    assert broken(store) is None
    seal(store)
    assert [seal(store), broken(store)] == [0, None]


@pytest.mark.parametrize("kind", ["sqlite"])
def test_an_audit_entry_costs_the_same_however_many_came_before(store: Any) -> None:
    def steps_of_one() -> int:
        called = []

        def count() -> bool:
            called.append(True)
            return False

        store._writer.connection.set_progress_handler(count, 10)
        log(store, entry("act"))
        store._writer.connection.set_progress_handler(None)
        return len(called)

    log(store, entry("first"))
    first = steps_of_one()
    log(store, *(entry(f"act-{n}") for n in range(2000)))
    assert steps_of_one() <= 2 * first
    assert broken(store) is None


@pytest.mark.parametrize("kind", ["sqlite"])
def test_an_entry_that_was_late_elsewhere_joins_the_chain_of_a_moved_store(database: Database) -> None:
    log(database.open(), *(entry(f"act-{n}") for n in range(3)))
    database.sql(f"DELETE FROM audit_seals WHERE {number(2)}")
    database.sql("UPDATE audit_seals SET position = 2 WHERE position = 3")
    database.sql("UPDATE meta SET value = '2' WHERE name = 'audit'")
    store = database.open()
    log(store, entry("next"))
    log(store, entry("after it"))
    check = store.read(lambda tx: tx.check_audit())
    assert (check.entries, check.sealed) == (5, 5)


@pytest.mark.parametrize("kind", ["postgres"])
def test_the_hash_chain_is_extended_in_steps_and_counts_what_is_not_in_it(store: Store) -> None:
    log(store, *(entry(f"act-{n}") for n in range(5)))
    assert store.write(lambda tx: tx.seal_audit(limit=3)) == 3
    check = store.read(lambda tx: tx.check_audit())
    assert (check.entries, check.sealed, check.first_broken) == (5, 3, None)
    assert [seal(store), broken(store)] == [2, None]


@pytest.mark.parametrize("kind", ["postgres"])
def test_an_entry_that_is_committed_after_a_later_one_joins_the_chain(database: Database) -> None:
    store = database.open()
    log(store, *(entry(f"act-{n}") for n in range(3)))
    (late,) = database.sql(f"SELECT * FROM audit WHERE {number(2)}")
    database.sql(f"DELETE FROM audit WHERE {number(2)}")
    assert seal(store) == 2
    # With an earlier number, as in a transaction that took it early and commits late.
    database.sql(
        "INSERT INTO audit OVERRIDING SYSTEM VALUE VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", list(late)
    )
    log(store, entry("next"))
    assert [seal(store), broken(store)] == [2, None]
    check = store.read(lambda tx: tx.check_audit())
    assert check.entries == check.sealed == 4


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE audit SET actor = 'mallory' WHERE {4}",
        "UPDATE audit SET reason = 'because' WHERE {4}",
        "UPDATE audit SET at = at + 1 WHERE {4}",
        "DELETE FROM audit WHERE {4}",
        "UPDATE audit_seals SET hash = (SELECT hash FROM audit_seals WHERE {3}) WHERE {4}",
        "DELETE FROM audit_seals WHERE {3}",
        "UPDATE audit SET action = 'act-9', subject = 'other' WHERE {4}",
    ],
)
def test_a_changed_or_missing_audit_entry_is_found(database: Database, tampering: str) -> None:
    store = database.open()
    log(store, *(entry(f"act-{n}") for n in range(8)))
    seal(store)
    database.sql(re.sub(r"\{(\d)\}", lambda found: number(int(found[1])), tampering))
    assert broken_number(database, store) == 4


def test_text_moved_from_one_field_to_the_next_is_found(database: Database) -> None:
    store = database.open()
    log(store, entry(before="a\x1fb", after="c"))
    seal(store)
    database.sql(f"UPDATE audit SET before = 'a', after = ? WHERE {number(1)}", ["b\x1fc"])
    assert broken_number(database, store) == 1


def test_a_missing_last_audit_entry_is_found(database: Database) -> None:
    store = database.open()
    log(store, *(entry(f"act-{n}") for n in range(3)))
    seal(store)
    database.sql(f"DELETE FROM audit WHERE {number(3)}")
    assert broken_number(database, store) == 3
    database.sql(f"DELETE FROM audit_seals WHERE {number(3)}")
    assert broken_number(database, store) == 3


def test_concurrent_audit_writers_make_one_chain(database: Database) -> None:
    stores = [database.open() for _ in range(3)]

    def write_four(who: int) -> None:
        for n in range(4):
            log(stores[who % 3], entry(f"w{who}-{n}"))

    answers = all_at_once([partial(write_four, who) for who in range(9)])
    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    answers = all_at_once([partial(seal, store) for store in stores])
    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    assert database.sql("SELECT count(*), min(position), max(position) FROM audit_seals") == [(36, 1, 36)]
    assert broken(stores[0]) is None
