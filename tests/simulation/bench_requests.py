"""Operations on a bench, and what the checker finds in its store."""

from __future__ import annotations

from typing import Any

from timewright.core.moments import to_micros
from timewright.operations import OperationContext, operations
from timewright.operations.health.verify import read_history
from timewright.testing.bench import Bench
from timewright.verification.checker import check


def ask(bench: Bench, operation: str, **payload: Any) -> Any:
    """Call an operation."""
    context = OperationContext(store=bench.store, ids=bench.ids, notify=bench.loop.notify_observers)
    return operations[operation](context, payload)


def verified(bench: Bench) -> list[str]:
    """The violations of all invariants."""
    context = OperationContext(store=bench.store, ids=bench.ids, notify=bench.loop.notify_observers)
    report = check(read_history(context, all_namespaces=True), now=to_micros(bench.now))
    return [f"{violation.invariant} {violation.message}" for violation in report.violations]
