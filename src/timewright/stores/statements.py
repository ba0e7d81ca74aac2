"""Loads the SQL statements and fills in the parts that differ between databases.

Statements are written once, in sql/statements.sql. A dialect provides list parameters, batches of rows, and
row locks.
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

# Names and types of the columns of a batch.
Columns = tuple[tuple[str, str], ...]

RUN_COLUMNS = """
    id namespace schedule_id dedupe_scope planned_at fire_at state reason source revision queue ready_bucket
    priority exclusive handoff attempts refunds fence last_of dropped created_at started_at finished_at
    lease_id holder leased_at lease_until cancel_at outcome_label error parent previous extra losses
    deferred_since
"""


# The progress of a schedule and its number of runs in flight.
SCHEDULE_COLUMNS = """
    s.id, s.revision, s.state, s.reason, s.cursor_at, s.next_at, s.wake_at, s.source, s.trail, s.failures,
    s.runs, s.missed, s.paused_at, s.paused_until, s.last_started_at, s.last_finished_at, s.failing_since,
    s.replaced_after, s.hints, s.last_run,
    (SELECT count(*) FROM runs r WHERE r.schedule_id = s.id AND r.exclusive = 1 AND r.schedule_id <> ''
        AND r.state IN ('ready', 'leased')),
    (SELECT count(*) FROM runs r WHERE r.schedule_id = s.id AND r.state = 'held')
"""

# The same for a list, without the runs in flight.
LIST_COLUMNS = """
    s.id, s.revision, s.state, s.reason, s.cursor_at, s.next_at, s.wake_at, s.source, s.trail, s.failures,
    s.runs, s.missed, s.paused_at, s.paused_until, s.last_started_at, s.last_finished_at, s.failing_since,
    s.replaced_after, s.hints, s.name
"""


# Start delays are counted below these bounds, in milliseconds; a percentile is exact to the next bound.
DELAY_BOUNDS_MS = tuple(
    bound
    for unit, steps in (
        (1, (5, 10, 20, 30, 50, 75, 100, 150, 200, 300, 500, 750)),
        (1000, (1, 1.5, 2, 3, 5, 7.5, 10, 15, 30, 60, 120, 300, 900, 3600, 6 * 3600, 24 * 3600)),
    )
    for bound in (int(unit * step) for step in steps)
)
_DELAY_BOUND = (
    f"CASE {' '.join(f'WHEN delay <= {ms}000 THEN {ms}000' for ms in DELAY_BOUNDS_MS)} ELSE delay END"
)

# When the first attempt of a run started; a retry moves `started_at`.
_FIRST_START = """
    CASE WHEN runs.fence > 1 THEN coalesce(
        (SELECT min(a.started_at) FROM attempts a WHERE a.run_id = runs.id), runs.started_at)
    ELSE runs.started_at END
"""


class Statement(Struct, frozen=True):
    """One statement in one dialect; `column_types` are those of the rows of a batch.

    With `returns_ids` the statement returns the first column of every row that changed. `varying_columns` are
    the numbers of the columns in which the rows of a batch usually differ, the key first. `shared_form` is
    the form for batches that differ in no other column, if the dialect has one.
    """

    name: str
    sql: str
    column_types: tuple[str, ...] = ()
    returns_ids: bool = False
    varying_columns: tuple[int, ...] = ()
    shared_form: str = ""


class Dialect(Struct, frozen=True):
    """The SQL that differs between databases."""

    name: str
    placeholder: Callable[[str, str], str]
    rows: Callable[[str, Columns], str]
    parameter: Callable[[str], str]
    shared_rows: Callable[[str, Columns, tuple[int, ...]], str] | None = None


@cache
def load_statements(dialect: Dialect) -> dict[str, Statement]:
    """Return every statement by name, in one dialect."""
    text = resources.files("timewright.stores.sql").joinpath("statements.sql").read_text("utf-8")
    statements: dict[str, Statement] = {}
    columns_of: dict[str, Columns] = {}
    for name, columns, only, body in _parse(text):
        columns_of[name] = columns or columns_of.get(name.removesuffix("_changed"), ())
        if only in ("", dialect.name):
            statements[name] = _build_statement(name, columns_of[name], body, dialect)
    return statements


def _parse(text: str) -> list[tuple[str, Columns, str, str]]:
    entries: list[tuple[str, Columns, str, list[str]]] = []
    for line in text.splitlines():
        found = _NAME.match(line)
        if found:
            name, columns, only = found.groups()
            typed = tuple((c.split()[0], c.split()[1]) for c in (columns or "").split(",") if c.strip())
            entries.append((name, typed, only or "", []))
        elif entries and not line.startswith("--"):
            entries[-1][3].append(line)
    return [(name, columns, only, "\n".join(lines).strip()) for name, columns, only, lines in entries]


def _build_statement(name: str, columns: Columns, body: str, dialect: Dialect) -> Statement:
    body = body.replace("{run}", ", ".join(f"runs.{column}" for column in RUN_COLUMNS.split()))
    body = body.replace("{schedule}", SCHEDULE_COLUMNS.strip())
    body = body.replace("{delay_bound}", _DELAY_BOUND).replace("{first_start}", _FIRST_START.strip())
    returns_ids = "{changed:" in body
    varying = tuple(number for number, (column, _) in enumerate(columns) if column.endswith("*"))
    columns = tuple((column.rstrip("*"), kind) for column, kind in columns)
    shared = dialect.shared_rows(body, columns, varying) if dialect.shared_rows and varying else ""
    if columns:
        body = dialect.rows(body, columns)
    types = tuple(kind for _, kind in columns)
    shared_form = _fill_placeholders(shared, dialect)
    return Statement(name, _fill_placeholders(body, dialect), types, returns_ids, varying, shared_form)


def _fill_placeholders(body: str, dialect: Dialect) -> str:
    body = re.sub(r"\{(\w+)(?::(\w+))?\}", lambda m: dialect.placeholder(m[1], m[2] or ""), body)
    return _PARAMETER.sub(lambda m: dialect.parameter(m[1]), body).strip()


def _sqlite_rows(body: str, columns: Columns) -> str:
    numbers = {name: f"?{i}" for i, (name, _) in enumerate(columns, start=1)}
    body = body.replace("{values}", f"VALUES ({', '.join(numbers.values())})").replace("{from}", "")
    return _ROW.sub(lambda m: numbers[m[1]], body)


def _postgres_rows(body: str, columns: Columns) -> str:
    arrays = ", ".join(f"%s::{kind}[]" for _, kind in columns)
    names = ", ".join(name for name, _ in columns)
    rows = f"unnest({arrays}) AS v ({names})"
    selected = ", ".join(f"v.{name}" for name, _ in columns)
    body = body.replace("{values}", f"SELECT {selected} {{from}}").replace("{from}", f"FROM {rows}")
    return body.replace("{join}", f"JOIN {rows} ON")


def _postgres_shared_rows(body: str, columns: Columns, varying: tuple[int, ...]) -> str:
    """The shared form: varying columns as arrays, the others as single parameters."""
    arrays = ", ".join(f"%({number})s::{columns[number][1]}[]" for number in varying)
    rows = f"unnest({arrays}) AS v ({', '.join(columns[number][0] for number in varying)})"
    selected = ", ".join(f"v.{name}" for name, _ in columns)
    body = body.replace("{values}", f"SELECT {selected} {{from}}")
    shared = {
        name: f"%({number})s::{kind}" for number, (name, kind) in enumerate(columns) if number not in varying
    }
    return _ROW.sub(lambda m: shared.get(m[1], m[0]), body).replace("{from}", f"FROM {rows}")


def _sqlite_placeholder(name: str, argument: str) -> str:
    # Changed rows are counted instead, which costs less than RETURNING.
    if name == "each":
        return f"json_each(:{argument}) wanted"
    if name == "json_line":
        return f"json_array({LIST_COLUMNS.strip()})"
    if name == "join_lines":
        return "group_concat(line, char(10))"
    return f"IN (SELECT value FROM json_each(:{argument}))" if name == "in" else ""


def _postgres_placeholder(name: str, argument: str) -> str:
    of = f" OF {argument}" if argument else ""
    return {
        "in": f"= ANY(:{argument}::text[])",
        "each": f"unnest(:{argument}::text[]) AS wanted (value)",
        "changed": f"RETURNING {argument}.id",
        "json_line": f"json_build_array({LIST_COLUMNS.strip()})::text",
        "join_lines": "string_agg(line, chr(10) ORDER BY name)",
        "lock": f"FOR UPDATE{of}",
        "skip_locked": f"FOR UPDATE{of} SKIP LOCKED",
    }[name]


SQLITE = Dialect("sqlite", _sqlite_placeholder, _sqlite_rows, lambda name: f":{name}")
POSTGRES = Dialect(
    "postgres",
    _postgres_placeholder,
    _postgres_rows,
    lambda name: f"%({name})s",
    shared_rows=_postgres_shared_rows,
)
