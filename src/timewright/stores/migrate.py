"""Forward-only migrations: numbered SQL files per database, applied under a lock, recorded with a checksum.

Until 0.1 is tagged there is one migration, which a schema change edits. A store made from an earlier form of
it is recognised by its checksum and refused.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from importlib import resources

from msgspec import Struct

from timewright.errors import SchemaMismatch

# Statements within the body of a trigger are indented.
_END = re.compile(r";\n(?=CREATE |\n|\Z)")
_FILE = re.compile(r"^(\d{4})_(\w+)\.(sqlite|postgres)\.sql$")


class Migration(Struct, frozen=True):
    """One migration file."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """The SHA-256 of the statements, stored with the applied migration; comments do not count."""
        return hashlib.sha256("\n".join(self.statements).encode()).hexdigest()

    @property
    def statements(self) -> list[str]:
        """The SQL statements of the migration."""
        lines = [line for line in self.sql.splitlines() if not line.lstrip().startswith("--")]
        return [part.strip() for part in _END.split("\n".join(lines)) if part.strip(" ;\n")]


def load_migrations(dialect: str) -> tuple[Migration, ...]:
    """Return the migrations of one dialect, in order."""
    found = []
    for file in resources.files("timewright.stores.migrations").iterdir():
        named = _FILE.match(file.name)
        if named and named[3] == dialect:
            found.append(Migration(int(named[1]), named[2], file.read_text("utf-8")))
    return tuple(sorted(found, key=lambda migration: migration.number))


def pending_migrations(
    known: Sequence[Migration], applied: Sequence[tuple[int, str]], *, path: str
) -> list[Migration]:
    """Return the migrations still to apply; raises SchemaMismatch for a store this version cannot open.

    `applied` are the numbers and checksums recorded in the store, in order.
    """
    by_number = {migration.number: migration for migration in known}
    for number, checksum in applied:
        if number not in by_number:
            raise SchemaMismatch(
                f"{path} has schema {number}, but this version knows only {max(by_number, default=0)}",
                field="schema",
                value=number,
                rule="a store is opened by a version that knows its schema",
                fix="upgrade timewright, or open a backup made before the upgrade",
            )
        if by_number[number].checksum != checksum:
            raise SchemaMismatch(
                f"{path} was made by an earlier development version of timewright, whose schema differs",
                field="schema",
                value=number,
                rule="until 0.1 the schema changes without migrations",
                fix="start with a new store, or use the version of timewright that made this one",
            )
    done = {number for number, _ in applied}
    return [migration for migration in known if migration.number not in done]
