"""How statements travel to PostgreSQL and back: past the driver's cursors, and few journeys for many words.

For a statement that is answered in no time, a cursor takes longer than the server does; and for several of
them the way there and back takes longer than both. Many rows that ask for no answer are not waited for: while
the server writes them, we make the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import count
from typing import Any, cast

import psycopg
from msgspec import Struct
from psycopg.errors import LockNotAvailable, error_from_result
from psycopg.generators import fetch_many, send
from psycopg.pq import ConnStatus, Escaping, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from timewright.core.moments import from_micros

# A prepared plan may be older than its tables are large, and a claim must not wade through what is behind it:
# so whatever there is an index for is found by it, in its order, row by row. And what was prepared is not
# planned again for each value: for a single row that takes longer than the row does.
PLANS = (
    "enable_seqscan = off",
    "enable_bitmapscan = off",
    "enable_hashjoin = off",
    "enable_mergejoin = off",
    "plan_cache_mode = force_generic_plan",
)
PATIENCE = "statement_timeout = '30s'"

_LOCAL_PLANS = "".join(f"; SET LOCAL {plan}" for plan in PLANS).encode()
_NO_PLANS = "".join(f"; SET LOCAL {plan.split()[0]} TO DEFAULT" for plan in PLANS).encode()
_LOCK_PATIENCE = b"SET LOCAL lock_timeout = '5s'"
_BEGIN_WRITE = (
    b"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = on; "
    + _LOCK_PATIENCE
    + b"; SET LOCAL statement_timeout = '30s';"
    b" SET LOCAL idle_in_transaction_session_timeout = '60s'"
)
_BEGIN_READ = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = '30s'"
# A turn is the lock of a table, in a mode that no statement needs and no reader minds. Who waits for it looks
# at nothing meanwhile, so what is over can be cleared away; who does not get it has lost nothing by trying.
_TAKE_TURN = (
    b"SAVEPOINT turn; SET LOCAL lock_timeout = %d; LOCK TABLE gates IN SHARE UPDATE EXCLUSIVE MODE;"
    b" RELEASE turn; " + _LOCK_PATIENCE + b"; "
)
_NO_TURN = b"ROLLBACK TO turn; RELEASE turn; "
# What is longer goes on a journey of its own; and so many ride together at most.
LONGEST_RIDE = 300_000
MOST_RIDERS = 20
# What is as long as this keeps the server busy for a while.
LONG_WORK = 16_000

_MILLISECOND = timedelta(milliseconds=1)
_BIGINT, _ANY = 20, 0
_KINDS = {_BIGINT: b"bigint", _ANY: b"unknown"}
_DONE = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)
# The server's clock in microseconds, without a detour through a float.
_NOW = b"SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


# A statement by its name, and the types of what it was given.
Said = tuple[str, tuple[int, ...]]


class Spoken(Struct, frozen=True):
    """A statement with its places numbered, as the server reads it.

    `alike` names its short form for rows that differ in the `varying` columns alone; one that is silent gives
    no answer.
    """

    name: str
    sql: str
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    varying: tuple[int, ...] = ()
    alike: str = ""
    is_silent: bool = False


class Connection(psycopg.Connection[Any]):
    """A connection that knows what was said on it, and under which name that was prepared.

    What has no answer, such as the beginning of a transaction, rides with the next that has. On a connection
    that reaches the server itself, the way in which a tick's statements are planned is said once.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.is_ours = False
        self._names: dict[Said, bytes] = {}
        self._on_their_way: dict[Said, bytes] = {}
        self._numbers = count(1)
        self._begins = b""
        self._riders: list[bytes] = []
        self._is_sent = False
        self._escape = Escaping(self.pgconn).escape_literal

    def move_in(self) -> None:
        """Nobody else speaks here: what concerns plans alone is said for good."""
        self.say("; ".join(f"SET {said}" for said in (*PLANS, PATIENCE)).encode())
        self.is_ours = True

    def begin_write(self) -> None:
        """Begin to write, with the first statement; nothing of what is promised outlives the transaction."""
        self._begins = _BEGIN_WRITE if self.is_ours else _BEGIN_WRITE + _LOCAL_PLANS

    def begin_read(self, *, looks: bool) -> None:
        """Begin a picture, with its first question."""
        self._begins = _BEGIN_READ
        if looks is not self.is_ours:
            self._begins += _LOCAL_PLANS if looks else _NO_PLANS

    def commit_all(self) -> None:
        """Commit what was said; where nothing was, nothing has begun."""
        if not self._begins or self._riders:
            self.say(b"COMMIT")
        self._begins = b""

    def undo_all(self) -> None:
        """Roll back what was said, and forget what was not."""
        has_begun = not self._begins
        self._begins = b""
        self._is_sent = False  # whatever comes of it is undone, and the driver passes over its answer
        self._riders.clear()
        self._on_their_way.clear()
        if has_begun:
            self.say(b"ROLLBACK")

    @property
    def is_undone(self) -> bool:
        """Whether something was refused, and with it all that was said in this transaction."""
        return self.pgconn.transaction_status == TransactionStatus.INERROR

    def send_riders(self) -> None:
        """Do not wait for the next that has an answer."""
        if self._riders:
            self._run(self._ahead())

    def say(self, words: bytes) -> None:
        """Run words that ask for nothing and are given nothing."""
        self._run(self._ahead() + words)

    def take_turn(self, *, patience: timedelta) -> tuple[bool, datetime]:
        """Be the only one who has this until the transaction ends; whether that was so in time, and when."""
        try:
            return True, from_micros(self.number(_TAKE_TURN % (patience // _MILLISECOND) + _NOW))
        except LockNotAvailable:
            return False, from_micros(self.number(_NO_TURN + _NOW))

    def number(self, words: bytes) -> int:
        """Ask for one number."""
        return int(self._run(self._ahead() + words).get_value(0, 0) or 0)

    def now(self) -> datetime:
        """What the server's clock shows."""
        return from_micros(self.number(_NOW))

    def ask(self, spoken: Spoken, values: Sequence[str | int | None], *, prepares: bool) -> PGresult | None:
        """Run one statement; where statements are prepared, one without an answer waits for the next."""
        encoding, types = self.info.encoding, tuple(map(_type, values))
        sent = [_sent(value, encoding) for value in values]
        prepares = prepares and self.prepare_threshold is not None
        name = self._names.get((spoken.name, types)) if prepares else None
        rides = spoken.is_silent or self._begins or self._riders or name is None
        size = sum(map(len, filter(None, sent))) if rides else 0
        is_long = spoken.is_silent and name is not None and size >= LONG_WORK
        if prepares and rides and not is_long and size < LONGEST_RIDE:
            return self._ride(spoken, self._execute(spoken, sent, types))
        if ahead := self._ahead():
            self._run(ahead)
        self._hear_sent()
        if name is None:
            return self._checked(self.pgconn.exec_params(spoken.sql.encode(), sent, types))
        # What is missing travels as nothing, which the driver knows and its types do not.
        given = cast("list[bytes]", sent)
        if is_long:
            self._send(name, given)
            return None
        return self._checked(self.pgconn.exec_prepared(name, given))

    def _ride(self, spoken: Spoken, words: bytes) -> PGresult | None:
        """Go with what waits, or wait with it."""
        if not spoken.is_silent:
            return self._run(self._ahead() + words)
        self._riders.append(words)
        if len(self._riders) >= MOST_RIDERS:
            self.send_riders()
        return None

    def _execute(self, spoken: Spoken, sent: Sequence[bytes | None], types: tuple[int, ...]) -> bytes:
        """The words that run a statement by its name, and before that give it one if it has none."""
        said, given = (spoken.name, types), b""
        if sent:
            given = b"(%b)" % b", ".join(b"NULL" if one is None else self._escape(one) for one in sent)
        name = self._names.get(said) or self._on_their_way.get(said)
        if name is not None:
            return b"EXECUTE %b%b" % (name, given)
        # A name is never given twice: whether one that did not arrive was given, nobody can say.
        name = self._on_their_way[said] = f"{spoken.name}_{next(self._numbers)}".encode()
        kinds = b"(%b)" % b", ".join(map(_KINDS.__getitem__, types)) if types else b""
        return b"PREPARE %b%b AS %b; EXECUTE %b%b" % (name, kinds, spoken.sql.encode(), name, given)

    def _ahead(self) -> bytes:
        """What must be said before anything else: that it begins, and what rides."""
        if not self._begins and not self._riders:
            return b""
        words = b"; ".join([self._begins, *self._riders] if self._begins else self._riders)
        self._begins = b""
        self._riders.clear()
        return words + b"; "

    def _run(self, words: bytes) -> PGresult:
        self._hear_sent()
        return self._checked(self.pgconn.exec_(words))

    def _send(self, name: bytes, given: list[bytes]) -> None:
        """Have it done, and do not wait; whether it was is heard before anything else is said."""
        self.pgconn.send_query_prepared(name, given)
        self.wait(send(self.pgconn))
        self._is_sent = True

    def _hear_sent(self) -> None:
        if self._is_sent:
            self._is_sent = False
            self._checked(self.wait(fetch_many(self.pgconn))[-1])

    def _checked(self, result: PGresult) -> PGresult:
        named, self._on_their_way = self._on_their_way, {}
        if result.status in _DONE:
            self._names |= named
            return result
        if self.pgconn.status != ConnStatus.OK:
            raise psycopg.OperationalError(self.pgconn.get_error_message(self.info.encoding))
        raise error_from_result(result, encoding=self.info.encoding)


def _sent(value: str | int | None, encoding: str) -> bytes | None:
    if value is None:
        return None
    sent = str(value).encode(encoding)
    if b"\0" in sent:
        raise psycopg.DataError("a text with NUL in it would be cut short there")
    return sent


def _type(value: str | int | None) -> int:
    return _BIGINT if isinstance(value, int) else _ANY
