"""An optional leader, which saves work and guards nothing: a row with a term, lost when it is not renewed."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

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

    def work(tx: Transaction) -> Term | None:
        # Whoever writes this row first goes first; the others wait here and then read what it left.
        tx.put_meta(_TURN, holder)
        last = _term(tx)
        if last is not None and last.holder != holder and last.until > now:
            return None
        same = last is not None and last.holder == holder and last.until > now
        number = last.number + (not same) if last is not None else 1
        term = Term(holder=holder, number=number, until=now + ttl)
        tx.put_meta(LEADER, msgspec.json.encode(term).decode())
        return term

    return store.write(work)


def leadership(store: Store) -> Term | None:
    """The last term anyone took, over or not."""
    return store.read(_term)


def _term(tx: Transaction) -> Term | None:
    kept = tx.get_meta(LEADER)
    if kept is None:
        return None
    try:
        return msgspec.json.decode(kept, type=Term)
    except msgspec.MsgspecError:
        # Leadership guards nothing, so a row nobody understands is simply taken over.
        return None
