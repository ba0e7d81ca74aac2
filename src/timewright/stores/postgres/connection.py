"""A PostgreSQL connection that pipelines statements and bypasses the driver's cursors.

For a quick statement a cursor takes longer than the server does, and for several the round trips take longer
than both. Large batches without a result are not awaited: the server writes them while we prepare the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import count
from typing import Any, cast

import psycopg
from msgspec import Struct
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import error_from_result
from psycopg.generators import fetch_many, send
from psycopg.pq import ConnStatus, Escaping, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult

from timewright.core.moments import from_micros

# A prepared plan may date from when its tables were small, so these settings force index scans in index
# order. The generic plan is forced because planning for each value takes longer than reading a single row.
PLANNER_SETTINGS = (
    "enable_seqscan = off",
    "enable_bitmapscan = off",
    "enable_hashjoin = off",
    "enable_mergejoin = off",
    "plan_cache_mode = force_generic_plan",
)
STATEMENT_TIMEOUT = "statement_timeout = '30s'"

_LOCAL_PLANNER_SETTINGS = "".join(f"; SET LOCAL {setting}" for setting in PLANNER_SETTINGS).encode()
_DEFAULT_PLANNER_SETTINGS = "".join(
    f"; SET LOCAL {setting.split()[0]} TO DEFAULT" for setting in PLANNER_SETTINGS
).encode()
_LOCK_TIMEOUT = b"SET LOCAL lock_timeout = '5s'"
_BEGIN_WRITE = (
    b"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = on; "
    + _LOCK_TIMEOUT
    + b"; SET LOCAL statement_timeout = '30s';"
    b" SET LOCAL idle_in_transaction_session_timeout = '60s'"
)
_BEGIN_READ = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = '30s'"
# A longer statement is sent alone; at most this many statements are pipelined in one round trip.
MAX_PIPELINED_BYTES = 300_000
MAX_PIPELINED_STATEMENTS = 20
# A statement without a result and at least this long is sent without waiting for the server.
ASYNC_SEND_BYTES = 16_000

_BIGINT, _ANY = 20, 0
_KINDS = {_BIGINT: b"bigint", _ANY: b"unknown"}
DONE = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)
# The server's clock in microseconds, computed without a float.
CLOCK_SQL = b"SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


# A statement by its name and the types of its parameters.
StatementKey = tuple[str, tuple[int, ...]]


class PreparedStatement(Struct, frozen=True):
    """A statement with numbered parameters, as the server expects it.

    `shared_form` names its form for rows that differ only in the `varying_columns`. One that
    `has_no_result` may be pipelined.
    """

    name: str
    sql: str
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    varying_columns: tuple[int, ...] = ()
    shared_form: str = ""
    has_no_result: bool = False


class Connection(psycopg.Connection[Any]):
    """A connection that pipelines statements and remembers the names of prepared ones.

    Statements without a result, such as BEGIN, are sent with the next query. Without a pooler, the planner
    settings are made once per connection.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.has_planner_settings = False
        self._names: dict[StatementKey, bytes] = {}
        self._unconfirmed: dict[StatementKey, bytes] = {}
        self._numbers = count(1)
        self._begin_sql = b""
        self._pending_sql: list[bytes] = []
        self._is_sent = False
        self._escape = Escaping(self.pgconn).escape_literal

    def set_planner_settings(self) -> None:
        """Make the planner settings for the whole session, which no pooler shares."""
        self.execute_raw(
            "; ".join(f"SET {setting}" for setting in (*PLANNER_SETTINGS, STATEMENT_TIMEOUT)).encode()
        )
        self.has_planner_settings = True

    def begin_write(self) -> None:
        """Begin a write transaction with the first statement; all settings are local to it."""
        self._begin_sql = (
            _BEGIN_WRITE if self.has_planner_settings else _BEGIN_WRITE + _LOCAL_PLANNER_SETTINGS
        )

    @property
    def has_statements(self) -> bool:
        """Whether the transaction has a statement, sent or pipelined with the next one."""
        return not self._begin_sql or bool(self._pending_sql)

    def begin_read(self, *, is_probe: bool) -> None:
        """Begin a read-only snapshot with its first query."""
        self._begin_sql = _BEGIN_READ
        if is_probe is not self.has_planner_settings:
            self._begin_sql += _LOCAL_PLANNER_SETTINGS if is_probe else _DEFAULT_PLANNER_SETTINGS

    def commit_transaction(self) -> None:
        """Commit; if no statement was sent, there is no transaction."""
        if self.has_statements:
            self.execute_raw(b"COMMIT")
        self._begin_sql = b""

    def rollback_transaction(self) -> None:
        """Roll back, and discard what was not sent."""
        has_begun = not self._begin_sql
        self._begin_sql = b""
        self._is_sent = False  # it is rolled back, and the driver skips its result
        self._pending_sql.clear()
        self._unconfirmed.clear()
        if has_begun:
            self.execute_raw(b"ROLLBACK")

    @property
    def has_failed(self) -> bool:
        """Whether a statement failed and the server aborted the transaction."""
        return self.pgconn.transaction_status == TransactionStatus.INERROR

    def flush_pipeline(self) -> None:
        """Send the pipelined statements now."""
        if self._pending_sql:
            self._run(self._take_pending())

    def execute_raw(self, sql: bytes) -> None:
        """Run SQL without parameters and without a result."""
        self._run(self._take_pending() + sql)

    def query_int(self, sql: bytes) -> int:
        """Run a query that returns one number."""
        return int(self._run(self._take_pending() + sql).get_value(0, 0) or 0)

    def now(self) -> datetime:
        """Return the server's clock."""
        return from_micros(self.query_int(CLOCK_SQL))

    def query_statement(
        self, statement: PreparedStatement, values: Sequence[str | int | None], *, prepares: bool
    ) -> PGresult | None:
        """Run one statement; a prepared one without a result is pipelined with the next."""
        encoding, types = self.info.encoding, tuple(map(type_of, values))
        sent = [encode(value, encoding) for value in values]
        prepares = prepares and self.prepare_threshold is not None
        name = self._names.get((statement.name, types)) if prepares else None
        may_pipeline = statement.has_no_result or self._begin_sql or self._pending_sql or name is None
        size = sum(map(len, filter(None, sent))) if may_pipeline else 0
        is_long = statement.has_no_result and name is not None and size >= ASYNC_SEND_BYTES
        if prepares and may_pipeline and not is_long and size < MAX_PIPELINED_BYTES:
            return self._pipeline_statement(statement, self._execute_sql(statement, sent, types))
        if pending := self._take_pending():
            self._run(pending)
        self._check_sent()
        if name is None:
            return self._checked(self.pgconn.exec_params(statement.sql.encode(), sent, types))
        # None stands for NULL, which the driver accepts although its types do not say so.
        given = cast("list[bytes]", sent)
        if is_long:
            self._send(name, given)
            return None
        return self._checked(self.pgconn.exec_prepared(name, given))

    def _pipeline_statement(self, statement: PreparedStatement, sql: bytes) -> PGresult | None:
        """Add a statement to the pipeline; one with a result sends it."""
        if not statement.has_no_result:
            return self._run(self._take_pending() + sql)
        self._pending_sql.append(sql)
        if len(self._pending_sql) >= MAX_PIPELINED_STATEMENTS:
            self.flush_pipeline()
        return None

    def _execute_sql(
        self, statement: PreparedStatement, sent: Sequence[bytes | None], types: tuple[int, ...]
    ) -> bytes:
        """The SQL that executes a prepared statement, after PREPARE if it has no name yet."""
        key, given = (statement.name, types), b""
        if sent:
            given = b"(%b)" % b", ".join(b"NULL" if value is None else self._escape(value) for value in sent)
        name = self._names.get(key) or self._unconfirmed.get(key)
        if name is not None:
            return b"EXECUTE %b%b" % (name, given)
        # Names are never reused: after a failure it is unknown whether PREPARE took effect.
        name = self._unconfirmed[key] = f"{statement.name}_{next(self._numbers)}".encode()
        kinds = b"(%b)" % b", ".join(map(_KINDS.__getitem__, types)) if types else b""
        return b"PREPARE %b%b AS %b; EXECUTE %b%b" % (name, kinds, statement.sql.encode(), name, given)

    def _take_pending(self) -> bytes:
        """The SQL to send first: BEGIN and the pipelined statements."""
        if not self._begin_sql and not self._pending_sql:
            return b""
        sql = b"; ".join([self._begin_sql, *self._pending_sql] if self._begin_sql else self._pending_sql)
        self._begin_sql = b""
        self._pending_sql.clear()
        return sql + b"; "

    def _run(self, sql: bytes) -> PGresult:
        self._check_sent()
        return self._checked(self.pgconn.exec_(sql))

    def _send(self, name: bytes, given: list[bytes]) -> None:
        """Send a statement without waiting; its result is checked before the next one is sent."""
        self.pgconn.send_query_prepared(name, given)
        self.wait(send(self.pgconn))
        self._is_sent = True

    def _check_sent(self) -> None:
        if self._is_sent:
            self._is_sent = False
            self._checked(self.wait(fetch_many(self.pgconn))[-1])

    def _checked(self, result: PGresult) -> PGresult:
        prepared, self._unconfirmed = self._unconfirmed, {}
        if result.status in DONE:
            self._names |= prepared
            return result
        if self.pgconn.status != ConnStatus.OK:
            raise psycopg.OperationalError(self.pgconn.get_error_message(self.info.encoding))
        raise error_from_result(result, encoding=self.info.encoding)


class RawConnection:
    """Sends statements over a connection without the driver's cursors and transactions."""

    def __init__(self, pgconn: PGconn, encoding: str = "utf-8") -> None:
        self.pgconn = pgconn
        self._encoding = encoding

    def query_statement(
        self, statement: PreparedStatement, values: Sequence[str | int | None], *, prepares: bool
    ) -> PGresult:
        """Run one statement."""
        sent = [encode(value, self._encoding) for value in values]
        return self.run(statement.sql.encode(), sent, tuple(map(type_of, values)))

    def run(
        self, sql: bytes, sent: Sequence[bytes | None] = (), types: Sequence[int] | None = None
    ) -> PGresult:
        """Run SQL, and raise what the server refuses."""
        result = self.pgconn.exec_params(sql, list(sent), types)
        if result.status in DONE:
            return result
        raise error_from_result(result, encoding=self._encoding)

    def texts(self, sql: bytes) -> list[list[str]]:
        """Return the rows of a query as texts."""
        found = self.run(sql)
        return [
            [(found.get_value(row, column) or b"").decode(self._encoding) for column in range(found.nfields)]
            for row in range(found.ntuples)
        ]

    def now(self) -> datetime:
        """Return the server's clock."""
        return from_micros(int(self.texts(CLOCK_SQL)[0][0]))

    def flush_pipeline(self) -> None:
        """Do nothing: every statement is sent at once."""


def encode(value: str | int | None, encoding: str) -> bytes | None:
    if value is None:
        return None
    sent = str(value).encode(encoding)
    if b"\0" in sent:
        raise psycopg.DataError("text with a NUL character cannot be stored")
    return sent


def type_of(value: str | int | None) -> int:
    return _BIGINT if isinstance(value, int) else _ANY


def with_timeouts(url: str) -> str:
    """Add socket timeouts: without them a broken network blocks a client for minutes."""
    given = conninfo_to_dict(url)
    wanted = {
        "connect_timeout": "5",
        "tcp_user_timeout": "10000",
        "keepalives": "1",
        "keepalives_idle": "5",
        "keepalives_interval": "2",
        "keepalives_count": "3",
        "application_name": "timewright",
    }
    return make_conninfo(url, **{name: value for name, value in wanted.items() if name not in given})
