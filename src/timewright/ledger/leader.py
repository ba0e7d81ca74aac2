"""An optional leader, which saves work and guards nothing: a row with a term, lost when it is not renewed."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.core.moments import ZERO
from timewright.errors import InvalidDuration
from timewright.ports import Store, Transaction

LEADER = "leader"
_TURN = "leader_turn"


class Term(Struct, frozen=True, kw_only=True):
    """Who leads, until when; the number rises whenever the leader changes."""

    holder: str
    number: int
    until: datetime


def take_leadership(store: Store, *, holder: str, now: datetime, ttl: timedelta) -> Term | None:
    """Become the leader, or stay it; nothing when another leads and its term is not over."""
    if ttl <= ZERO:
        raise InvalidDuration(
            f"a term of {ttl}", field="ttl", value=str(ttl), rule="a term lasts", fix="ttl: 30s"
        )

    if store.read(lambda tx: _is_led(tx, holder, now=now)):
        # Those who only follow need not take turns at writing.
        return None

    def work(tx: Transaction) -> Term | None:
        # Whoever writes this row first goes first; the others wait here and then read what it left.
        tx.put_meta(_TURN, holder)
        last = last_term(tx)
        if _is_led(tx, holder, now=now):
            return None
        same = last is not None and last.holder == holder and last.until > now
        number = last.number + (not same) if last is not None else 1
        term = Term(holder=holder, number=number, until=now + ttl)
        tx.put_meta(LEADER, msgspec.json.encode(term).decode())
        return term

    return store.write(work)


def resign(store: Store, *, holder: str, now: datetime) -> None:
    """Let the next one lead at once, if it is this holder who leads."""

    def work(tx: Transaction) -> None:
        tx.put_meta(_TURN, holder)
        last = last_term(tx)
        if last is not None and last.holder == holder and last.until > now:
            tx.put_meta(LEADER, msgspec.json.encode(replace(last, until=now)).decode())

    store.write(work)


def leader_of(tx: Transaction, *, now: datetime) -> str:
    """Who leads now, or nobody."""
    term = last_term(tx)
    return term.holder if term is not None and term.until > now else ""


def _is_led(tx: Transaction, holder: str, *, now: datetime) -> bool:
    return leader_of(tx, now=now) not in ("", holder)


def last_term(tx: Transaction) -> Term | None:
    """The last term anyone took, over or not."""
    kept = tx.get_meta(LEADER)
    if kept is None:
        return None
    try:
        return msgspec.json.decode(kept, type=Term)
    except msgspec.MsgspecError:
        # Leadership guards nothing, so a row nobody understands is simply taken over.
        return None
