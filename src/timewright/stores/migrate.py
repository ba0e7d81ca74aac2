"""Forward-only migrations: numbered files per dialect, one transaction each, under a lock, checksummed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from importlib import resources

from msgspec import Struct

from timewright.errors import SchemaMismatch

_FILE = re.compile(r"^(\d{4})_(\w+)\.(sqlite|postgres)\.sql$")


class Migration(Struct, frozen=True):
    """One step of the schema."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """What was applied, so that a file changed afterwards is noticed."""
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def statements(self) -> list[str]:
        """The statements of the step, one by one."""
        lines = [line for line in self.sql.splitlines() if not line.lstrip().startswith("--")]
        return [part.strip() for part in "\n".join(lines).split(";\n") if part.strip(" ;\n")]


def migrations(dialect: str) -> tuple[Migration, ...]:
    """Every step of one dialect, in order."""
    found = []
    for file in resources.files("timewright.stores.migrations").iterdir():
        named = _FILE.match(file.name)
        if named and named[3] == dialect:
            found.append(Migration(int(named[1]), named[2], file.read_text("utf-8")))
    return tuple(sorted(found, key=lambda step: step.number))


def pending(steps: Sequence[Migration], applied: Sequence[tuple[int, str]], *, place: str) -> list[Migration]:
    """The steps still to apply; refuses a store that is ahead of us or was built from other files."""
    known = {step.number: step for step in steps}
    newest = max(known, default=0)
    for number, checksum in applied:
        if number > newest:
            raise SchemaMismatch(
                f"{place} has schema {number}, this version knows {newest}",
                field="schema",
                value=number,
                rule="a store is opened by a version that knows its schema",
                fix="upgrade timewright, or open a backup made before the upgrade",
            )
        if known[number].checksum != checksum:
            raise SchemaMismatch(
                f"{place} was built from another form of step {number}",
                field="schema",
                value=number,
                rule="an applied step is never changed",
                fix="use the version of timewright that created this store",
            )
    done = {number for number, _ in applied}
    return [step for step in steps if step.number not in done]
