"""An optional leader: a row with a term that must be renewed. It avoids duplicate work and guards nothing."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.core.moments import ZERO
from timewright.errors import InvalidDuration
from timewright.ports import Store, Transaction

LEADER = "leader"
_LOCK_ROW = "leader_turn"


class LeaderTerm(Struct, frozen=True, kw_only=True):
    """Which holder leads until when; the number rises with every change of the leader."""

    holder: str
    number: int
    until: datetime


def take_leadership(store: Store, *, holder: str, now: datetime, ttl: timedelta) -> LeaderTerm | None:
    """Become or stay the leader; return None while the term of another holder lasts."""
    if ttl <= ZERO:
        raise InvalidDuration(
            f"ttl {ttl} is not positive",
            field="ttl",
            value=str(ttl),
            rule="a term is longer than 0s",
            fix="ttl: 30s",
        )

    if store.read(lambda tx: _is_led(tx, holder, now=now)):
        # Followers only read, so that they do not compete for the write lock.
        return None

    def work(tx: Transaction) -> LeaderTerm | None:
        # The first writer of this row locks it; the others wait here, and then read its term.
        tx.put_meta(_LOCK_ROW, holder)
        last = last_term(tx)
        if _is_led(tx, holder, now=now):
            return None
        same = last is not None and last.holder == holder and last.until > now
        number = last.number + (not same) if last is not None else 1
        term = LeaderTerm(holder=holder, number=number, until=now + ttl)
        tx.put_meta(LEADER, msgspec.json.encode(term).decode())
        return term

    return store.write(work)


def resign(store: Store, *, holder: str, now: datetime) -> None:
    """End the term of this holder now, if it leads."""

    def work(tx: Transaction) -> None:
        tx.put_meta(_LOCK_ROW, holder)
        last = last_term(tx)
        if last is not None and last.holder == holder and last.until > now:
            tx.put_meta(LEADER, msgspec.json.encode(replace(last, until=now)).decode())

    store.write(work)


def current_leader(tx: Transaction, *, now: datetime) -> str:
    """The holder that leads now, or ''."""
    term = last_term(tx)
    return term.holder if term is not None and term.until > now else ""


def _is_led(tx: Transaction, holder: str, *, now: datetime) -> bool:
    return current_leader(tx, now=now) not in ("", holder)


def last_term(tx: Transaction) -> LeaderTerm | None:
    """The last term, ended or not."""
    kept = tx.get_meta(LEADER)
    if kept is None:
        return None
    try:
        return msgspec.json.decode(kept, type=LeaderTerm)
    except msgspec.MsgspecError:
        # Leadership guards nothing, so an unreadable row is simply replaced.
        return None
