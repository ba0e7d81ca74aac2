"""The watch: looks for incidents and sends messages, with nothing but the store and the channels.

It runs no schedule. With every engine stopped it still reports what is overdue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from timewright.core.facts import Fact
from timewright.core.run.needs import LeaseOffer, Offer
from timewright.engine.in_flight import build_launch
from timewright.engine.maintenance import IncidentWatch
from timewright.ledger.lease import Lease, lease_ready
from timewright.ledger.run_ends import AttemptResult
from timewright.ledger.settle import reclaim, settle_results
from timewright.wiring.instance import Instance

MAX_SENT_AT_ONCE = 8
RECLAIM_BATCH = 100
PAUSE_S = 1.0


class Watch:
    """One watching process."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        # An instance that names its queues takes only their runs; messages of channels are always among them.
        offer = Offer(queues=("channel.",), programs=instance.settings.shell)
        self._only_messages = LeaseOffer(offer=offer)
        self._incidents = IncidentWatch(instance.store, instance.ids)

    def run(self, wait: Callable[[float], bool], *, on_error: Callable[[str], None]) -> None:
        """Work until `wait` returns true; an error of the store is reported and tried again."""
        problem = ""
        while True:
            try:
                sent = self.step()
                problem = ""
            except Exception as error:  # noqa: BLE001 - the watch outlives every error of the store
                sent, text = 0, f"{type(error).__name__}: {error}"
                if text != problem:
                    on_error(text)
                problem = text
            if wait(0.0 if sent else PAUSE_S):
                return

    def step(self) -> int:
        """Look for incidents, and send the messages that wait; returns how many were sent."""
        store, ids = self._instance.store, self._instance.ids
        now = store.now()
        self._notify(self._incidents.run(now=now))
        work = store.read(lambda tx: tx.read_pending_work(with_lease_end=True, offer=self._only_messages))
        if work.lease_expires_at is not None and work.lease_expires_at <= now:
            self._notify(reclaim(store, now=now, limit=RECLAIM_BATCH).facts)
        if not work.has_runs_to_lease(now=now):
            return 0
        leased = lease_ready(
            store,
            ids=ids,
            holder=self._instance.instance_id,
            capacity=MAX_SENT_AT_ONCE,
            now=now,
            offer=self._only_messages,
        )
        # All at once, because a receiver that hangs must not delay the others beyond the end of their leases.
        with ThreadPoolExecutor(MAX_SENT_AT_ONCE) as pool:
            return len(list(pool.map(self._send, leased.leases)))

    def _send(self, lease: Lease) -> None:
        store = self._instance.store
        started_at = store.now()
        outcome = self._instance.targets.launch_and_wait(build_launch(lease))
        result = AttemptResult(run=lease.run, outcome=outcome, started_at=started_at)
        self._notify(settle_results(store, [result], now=store.now()).facts)

    def _notify(self, facts: Sequence[Fact]) -> None:
        if facts:
            self._instance.loop.notify_observers(facts)
