"""What a mutant is: a fault in the protocol, applied for a while."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tests.simulation.model.simulation import Simulation

Change = Callable[[Simulation], None]
Patches = list[tuple[Any, str, Any]]


class Mutant(Struct, frozen=True, kw_only=True):
    """A fault in the protocol: replaced functions, and statements or tables without a guard.

    `broken_invariants` are those that it violates; one must be detected. `redundant` says why removing this
    guard alone has no visible effect. With `needs_dependencies`, only scenarios with dependencies are run;
    `size` is that of `draw_scenario`. `first_seed` is one that detects it, because the seeds before it cost
    time and find nothing.
    """

    name: str
    broken_invariants: tuple[str, ...] = ()
    patches: Callable[[], Patches] = list
    change: Change | None = None
    redundant: str = ""
    needs_dependencies: bool = False
    size: str = "dense"
    first_seed: int = 0


@contextmanager
def applied(mutant: Mutant) -> Iterator[Change]:
    """Replace the functions of a mutant; yield the change to apply to each simulation."""
    patches = mutant.patches()
    kept = [(owner, name, owner.__dict__[name]) for owner, name, _ in patches]
    for owner, name, instead in patches:
        setattr(owner, name, instead)
    try:
        yield mutant.change or _nothing
    finally:
        for owner, name, original in kept:
            setattr(owner, name, original)


def _nothing(sim: Simulation) -> None:
    """Change nothing in the store."""


def mutate_sql(statement: str, guard: str, instead: str) -> Change:
    """Remove a guard from a statement."""

    def change(sim: Simulation) -> None:
        statements = sim.backend.shared_store()._writer._statements
        mutated, count = re.subn(guard, instead, statements[statement].sql)
        if not count:
            raise AssertionError(f"{statement} has no guard {guard}")
        statements[statement] = replace(statements[statement], sql=mutated)

    return change


def combine(*changes: Change) -> Change:
    """Apply several changes."""

    def change(sim: Simulation) -> None:
        for one in changes:
            one(sim)

    return change


def without_index(name: str) -> Change:
    """Drop an index."""
    return lambda sim: discard(sim.backend.query(f"DROP INDEX {name}"))


def original(owner: Any, name: str) -> Any:
    """The function that a mutant replaces."""
    return getattr(owner, name)


def discard(_: object) -> None:
    """Ignore a result."""
