"""Prolongs leases before they end; what has lost its lease is stopped."""

from __future__ import annotations

from datetime import datetime

from timewright.engine.launch import Flown, Launcher
from timewright.ledger.lease import renew
from timewright.ports import Renewal, Store


def renew_due(store: Store, launcher: Launcher, *, now: datetime, moment: float) -> None:
    """Prolong every lease here that has used up a third of its length.

    `moment` is what the monotonic clock showed before `now` was read.
    """
    due = [flown for flown in launcher.under_way() if _wants_renewal(flown, moment=moment)]
    if not due:
        return
    renewals = [Renewal(f.lease.run.id, f.lease.run.fence, now + f.lease.terms.lease.length) for f in due]
    kept, lost = renew(store, renewals, now=now)
    lengths = {f.lease.run.id: f.lease.terms.lease.length.total_seconds() for f in due}
    for renewed in kept:
        if renewed.cancel_at is None:
            launcher.renewed(renewed.run_id, renewed.fence, ends=moment + lengths[renewed.run_id])
    for renewal in lost:
        launcher.forget(renewal.run_id, renewal.fence)


def _wants_renewal(flown: Flown, *, moment: float) -> bool:
    terms = flown.lease.terms.lease
    used = terms.length.total_seconds() - (flown.lease_ends - moment)
    return used >= terms.renew_every.total_seconds()
