"""Loads the book of statements and speaks it in a dialect.

Statements are written once. A dialect fills in the few phrases that differ: how a list is asked for,
how many rows are brought to one statement, and how rows are held.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib import resources

from msgspec import Struct

_NAME = re.compile(r"^-- name: (\w+)(?:\(([^)]*)\))?(?: \[(\w+)\])?$")
_ROW = re.compile(r"\bv\.(\w+)")
_PARAMETER = re.compile(r"(?<![:\w]):(\w+)")

RUN_COLUMNS = """
    id namespace schedule_id lane planned_at fire_at state reason source revision queue line priority alone
    handoff attempts refunds fence last_of dropped created_at started_at finished_at lease_id holder leased_at
    lease_until cancel_at word error parent previous extra
"""


# Where a schedule stands, and how much it has under way.
DUE_COLUMNS = """
    s.id, s.revision, s.state, s.reason, s.decided_to, s.next_at, s.wake_at, s.source, s.trail, s.failures,
    s.runs, s.missed, s.paused_at, s.paused_until, s.last_started_at, s.last_finished_at, s.hints, s.last_run,
    (SELECT count(*) FROM runs r WHERE r.schedule_id = s.id AND r.alone = 1 AND r.schedule_id <> ''
        AND r.state IN ('ready', 'leased')),
    (SELECT count(*) FROM runs r WHERE r.schedule_id = s.id AND r.state = 'held')
"""

# The same without what is under way: what a list shows, and all that has to be readable of it.
SHOWN_COLUMNS = """
    s.id, s.revision, s.state, s.reason, s.decided_to, s.next_at, s.wake_at, s.source, s.trail, s.failures,
    s.runs, s.missed, s.paused_at, s.paused_until, s.last_started_at, s.last_finished_at, s.hints, s.name
"""


class Statement(Struct, frozen=True):
    """One statement, ready for its database; `kinds` are those of the columns of the rows it is given.

    Where `kept` is set the statement gives back the first column of every row that took effect. `varying`
    are the places of the columns in which the rows of a batch differ, the first of them being the key; where
    a dialect has a shorter form for rows that differ in nothing else, that is `alike`.
    """

    name: str
    sql: str
    kinds: tuple[str, ...] = ()
    kept: bool = False
    varying: tuple[int, ...] = ()
    alike: str = ""


class Dialect(Struct, frozen=True):
    """The phrases in which one database differs from another."""

    name: str
    phrase: Callable[[str, str], str]
    rows: Callable[[str, tuple[tuple[str, str], ...]], str]
    parameter: Callable[[str], str]
    alike: Callable[[str, tuple[tuple[str, str], ...], tuple[int, ...]], str] | None = None


@cache
def load_book(dialect: Dialect) -> dict[str, Statement]:
    """Every statement of the book, by name, in one dialect."""
    text = resources.files("timewright.stores.sql").joinpath("statements.sql").read_text("utf-8")
    book: dict[str, Statement] = {}
    for name, columns, only, body in _entries(text):
        if only in ("", dialect.name):
            book[name] = _spoken(name, columns, body, dialect)
    return book


def _entries(text: str) -> list[tuple[str, tuple[tuple[str, str], ...], str, str]]:
    entries: list[tuple[str, tuple[tuple[str, str], ...], str, list[str]]] = []
    for line in text.splitlines():
        found = _NAME.match(line)
        if found:
            name, columns, only = found.groups()
            typed = tuple((c.split()[0], c.split()[1]) for c in (columns or "").split(",") if c.strip())
            entries.append((name, typed, only or "", []))
        elif entries and not line.startswith("--"):
            entries[-1][3].append(line)
    return [(name, columns, only, "\n".join(lines).strip()) for name, columns, only, lines in entries]


def _spoken(name: str, columns: tuple[tuple[str, str], ...], body: str, dialect: Dialect) -> Statement:
    body = body.replace("{run}", ", ".join(f"runs.{column}" for column in RUN_COLUMNS.split()))
    body = body.replace("{due}", DUE_COLUMNS.strip()).replace("{shown}", SHOWN_COLUMNS.strip())
    kept = "{kept:" in body
    varying = tuple(place for place, (column, _) in enumerate(columns) if column.endswith("*"))
    columns = tuple((column.rstrip("*"), kind) for column, kind in columns)
    alike = dialect.alike(body, columns, varying) if dialect.alike is not None and varying else ""
    if columns:
        body = dialect.rows(body, columns)
    kinds = tuple(kind for _, kind in columns)
    return Statement(name, _phrased(body, dialect), kinds, kept, varying, _phrased(alike, dialect))


def _phrased(body: str, dialect: Dialect) -> str:
    body = re.sub(r"\{(\w+)(?::(\w+))?\}", lambda m: dialect.phrase(m[1], m[2] or ""), body)
    return _PARAMETER.sub(lambda m: dialect.parameter(m[1]), body).strip()


def _sqlite_rows(body: str, columns: tuple[tuple[str, str], ...]) -> str:
    places = {name: f"?{i}" for i, (name, _) in enumerate(columns, start=1)}
    body = body.replace("{values}", f"VALUES ({', '.join(places.values())})").replace("{from}", "")
    return _ROW.sub(lambda m: places[m[1]], body)


def _postgres_rows(body: str, columns: tuple[tuple[str, str], ...]) -> str:
    arrays = ", ".join(f"%s::{kind}[]" for _, kind in columns)
    names = ", ".join(name for name, _ in columns)
    rows = f"unnest({arrays}) AS v ({names})"
    chosen = ", ".join(f"v.{name}" for name, _ in columns)
    body = body.replace("{values}", f"SELECT {chosen} {{from}}").replace("{from}", f"FROM {rows}")
    return body.replace("{join}", f"JOIN {rows} ON")


def _postgres_alike(body: str, columns: tuple[tuple[str, str], ...], varying: tuple[int, ...]) -> str:
    """What is the same in all rows is said once; only the other columns travel as arrays."""
    arrays = ", ".join(f"%({place})s::{columns[place][1]}[]" for place in varying)
    rows = f"unnest({arrays}) AS v ({', '.join(columns[place][0] for place in varying)})"
    chosen = ", ".join(f"v.{name}" for name, _ in columns)
    body = body.replace("{values}", f"SELECT {chosen} {{from}}")
    said = {
        name: f"%({place})s::{kind}" for place, (name, kind) in enumerate(columns) if place not in varying
    }
    return _ROW.sub(lambda m: said.get(m[1], m[0]), body).replace("{from}", f"FROM {rows}")


def _sqlite_phrase(word: str, argument: str) -> str:
    # What took effect is counted, which costs less than RETURNING.
    return f"IN (SELECT value FROM json_each(:{argument}))" if word == "in" else ""


def _postgres_phrase(word: str, argument: str) -> str:
    of = f" OF {argument}" if argument else ""
    return {
        "in": f"= ANY(:{argument}::text[])",
        "kept": f"RETURNING {argument}.id",
        "lock": f"FOR UPDATE{of}",
        "skip_locked": f"FOR UPDATE{of} SKIP LOCKED",
    }[word]


SQLITE = Dialect("sqlite", _sqlite_phrase, _sqlite_rows, lambda name: f":{name}")
POSTGRES = Dialect(
    "postgres", _postgres_phrase, _postgres_rows, lambda name: f"%({name})s", alike=_postgres_alike
)
