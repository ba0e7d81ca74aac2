"""Check whether a running instance has the function that a schedule calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from difflib import get_close_matches

from timewright.core.target import AnyTarget, Call
from timewright.ledger.records.instances import read_instances
from timewright.operations.context import OperationContext
from timewright.operations.health.doctor_checks import DoctorFinding
from timewright.operations.health.instances import MAX_INSTANCES, is_alive
from timewright.ports import Transaction


def function_warnings(context: OperationContext, target: AnyTarget, *, now: datetime) -> tuple[str, ...]:
    """Return a warning if no running instance has the function that a target calls.

    A process with registered functions rejects unknown ones; this check is for processes without any.
    """
    own = context.known_functions() if context.known_functions is not None else frozenset[str]()
    if not isinstance(target, Call) or target.name in own:
        return ()
    known = context.store.read(lambda tx: _functions_of_live_instances(tx, now=now))
    if known is None or target.name in known:
        return ()
    near = get_close_matches(target.name[:255], known, n=1, cutoff=0.5)
    suggestion = f"; did you mean {near[0]!r}?" if near else "; start one with the --app that has it"
    return (f"no running instance has a function {target.name!r}{suggestion}",)


def broken_function_findings(broken: Mapping[str, str]) -> Iterator[DoctorFinding]:
    """Find functions of installed packages that cannot be used."""
    for name, why in sorted(broken.items()):
        yield DoctorFinding(
            check="functions",
            status="warn",
            message=f"the function {name!r} of an installed package cannot be used: {why}",
            fix="fix or remove the package, or set entry_points: false",
        )


def _functions_of_live_instances(tx: Transaction, *, now: datetime) -> frozenset[str] | None:
    """Return the functions of all live instances; None if there is none, or one does not report them."""
    reported = [
        seen.instance.functions for seen in read_instances(tx, limit=MAX_INSTANCES) if is_alive(seen, now=now)
    ]
    if not reported or None in reported:
        return None
    return frozenset(name for names in reported for name in names or ())
