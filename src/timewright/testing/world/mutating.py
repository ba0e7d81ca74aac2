"""What a mutant is: a protocol with one thing wrong in it, put in the place of ours for a while."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from timewright.testing.world.run import World

Change = Callable[[World], None]
Patches = list[tuple[Any, str, Any]]


class Mutant(Struct, frozen=True, kw_only=True):
    """A fault in the protocol: functions that are replaced, statements and tables that lack a guard.

    `owners` are the promises that it breaks; one must see it. `redundant` says why nothing can be seen
    when this guard alone is gone, if that is so. With `relations` only worlds that have some are looked at.
    """

    name: str
    owners: tuple[str, ...] = ()
    patches: Callable[[], Patches] = list
    change: Change | None = None
    redundant: str = ""
    relations: bool = False


@contextmanager
def switched_on(mutant: Mutant) -> Iterator[Change]:
    """The functions of a mutant in place of ours; gives back what is to be done to each world."""
    patches = mutant.patches()
    kept = [(owner, name, owner.__dict__[name]) for owner, name, _ in patches]
    for owner, name, instead in patches:
        setattr(owner, name, instead)
    try:
        yield mutant.change or _nothing
    finally:
        for owner, name, original in kept:
            setattr(owner, name, original)


def _nothing(world: World) -> None:
    """This mutant leaves the store as it is."""


def sql(statement: str, guard: str, instead: str) -> Change:
    """A store whose book lacks a guard."""

    def change(world: World) -> None:
        book = world.base.store_of_all()._writer._book
        mutated, count = re.subn(guard, instead, book[statement].sql)
        if not count:
            raise AssertionError(f"{statement} has no guard {guard}")
        book[statement] = replace(book[statement], sql=mutated)

    return change


def both(*changes: Change) -> Change:
    """Several changes together."""

    def change(world: World) -> None:
        for one in changes:
            one(world)

    return change


def without_index(name: str) -> Change:
    """A store that lacks an index."""
    return lambda world: void(world.base.ask(f"DROP INDEX {name}"))


def ours(owner: Any, name: str) -> Any:
    """What a mutant stands in for."""
    return getattr(owner, name)


def void(_: object) -> None:
    """Forget an answer."""
