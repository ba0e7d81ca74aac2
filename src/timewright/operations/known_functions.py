"""Functions by name: whether anyone who runs has the one that a schedule calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from difflib import get_close_matches

from timewright.core.target import AnyTarget, Call
from timewright.ledger.roster import roster
from timewright.operations.checks import Finding
from timewright.operations.context import Context
from timewright.operations.instances import MOST, is_alive
from timewright.ports import Transaction


def doubts(context: Context, target: AnyTarget, *, now: datetime) -> tuple[str, ...]:
    """What may not have been meant: a call that no instance which is running could make.

    Whoever has functions of its own refuses the others; this is for those who have none, and can only ask.
    """
    own = context.functions() if context.functions is not None else frozenset[str]()
    if not isinstance(target, Call) or target.name in own:
        return ()
    known = context.store.read(lambda tx: _functions_of_the_living(tx, now=now))
    if known is None or target.name in known:
        return ()
    near = get_close_matches(target.name[:255], known, n=1, cutoff=0.5)
    meant = f"; did you mean {near[0]!r}?" if near else "; start one with the --app that has it"
    return (f"no instance that runs has a function {target.name!r}{meant}",)


def broken_findings(broken: Mapping[str, str]) -> Iterator[Finding]:
    """Functions that installed packages offer and that cannot be used."""
    for name, why in sorted(broken.items()):
        yield Finding(
            check="functions",
            status="warn",
            says=f"the function {name!r} of an installed package cannot be used: {why}",
            fix="mend or remove the package, or entry_points: false",
        )


def _functions_of_the_living(tx: Transaction, *, now: datetime) -> frozenset[str] | None:
    """The functions of all instances that are alive; nothing when none is, or one does not tell."""
    told = [seen.instance.functions for seen in roster(tx, limit=MOST) if is_alive(seen, now=now)]
    if not told or None in told:
        return None
    return frozenset(name for names in told for name in names or ())
