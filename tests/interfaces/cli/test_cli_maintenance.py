"""migrate, backup and completion."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import apsw
import pytest

from tests.interfaces.terminal import command, environment, invoke
from timewright.errors import Conflict, ForeignStore, NotFound, SchemaMismatch
from timewright.stores.migrate import load_migrations
from timewright.testing.postgres import fresh_database
from timewright.wiring import inspect_store, open_store
from timewright.wiring.store_copies import StoreCopier

back_up = StoreCopier(user="ada").back_up

STEPS = [f"{step.number:04d} {step.name}" for step in load_migrations("sqlite")]


def make(name: str = "timewright.db") -> None:
    said = invoke(None, "--store", name, "schedule", "create", "x", "--every", "1h", "--note", "x")
    assert said.code == 0


def test_migrate_check_reports_pending_migrations_without_applying_them(here: Path) -> None:
    said = invoke(None, "migrate", "--check", "-o", "json")
    assert said.code == 3
    assert said.data["pending"] == STEPS
    assert list(here.iterdir()) == []


def test_migrate_applies_pending_migrations_and_lists_them(here: Path) -> None:
    assert invoke(None, "migrate").lines == [
        f"timewright.db ({inspect_store('timewright.db').engine}) was migrated:",
        *(f"  {step}" for step in STEPS),
    ]
    assert invoke(None, "migrate", "--check").code == 0
    assert invoke(None, "migrate").out.endswith("is up to date\n")


def test_migrate_check_does_not_change_the_store(here: Path) -> None:
    make()
    before = (here / "timewright.db").read_bytes()
    found = inspect_store("timewright.db")
    assert (found.exists, found.pending_migrations) == (True, ())
    assert found.engine.startswith("SQLite 3.")
    assert (here / "timewright.db").read_bytes() == before


def test_a_newer_or_foreign_store_is_refused(here: Path) -> None:
    make()
    connection = apsw.Connection("timewright.db")
    connection.execute("INSERT INTO migrations VALUES (9999, 'later', 'x')")
    connection.close()
    with pytest.raises(SchemaMismatch):
        inspect_store("timewright.db")
    apsw.Connection("other.db").execute("CREATE TABLE t (x)")
    with pytest.raises(ForeignStore):
        inspect_store("other.db")
    (here / "noise.db").write_bytes(b"noise" * 1000)
    with pytest.raises(ForeignStore):
        back_up("noise.db", Path("copy.db"))
    assert not (here / "copy.db").exists()


def test_a_backup_is_a_complete_private_store(here: Path) -> None:
    make()
    store = open_store("timewright.db")
    try:
        said = invoke(None, "backup", "copy.db", "-o", "json")
    finally:
        store.close()
    assert (said.code, said.data["bytes"]) == (0, (here / "copy.db").stat().st_size)
    assert (here / "copy.db").stat().st_mode & 0o777 == 0o600
    shutil.move("timewright.db", "gone.db")
    assert invoke(None, "schedule", "list", "-q", "--store", "copy.db").lines == ["x"]


def test_a_backup_does_not_overwrite_files(here: Path) -> None:
    make()
    for taken in ("copy.db", "copy.db.part"):
        (here / taken).write_text("precious", encoding="utf-8")
        with pytest.raises(Conflict):
            back_up("timewright.db", Path("copy.db"))
        assert (here / taken).read_text(encoding="utf-8") == "precious"
        (here / taken).unlink()
    with pytest.raises(NotFound):
        back_up("missing.db", Path("copy.db"))
    with pytest.raises(ForeignStore):
        back_up("timewright.db", Path("missing/copy.db"))
    assert sorted(path.name for path in here.glob("copy*")) == []


def test_a_store_is_moved_backed_up_and_restored_from_the_command_line(here: Path, postgres_url: str) -> None:
    make()
    with fresh_database(postgres_url) as place:
        before = inspect_store(place)
        assert (before.exists, before.engine.split()[0]) == (False, "PostgreSQL")
        assert invoke(None, "--store", place, "migrate", "--check").code == 3
        moved = invoke(None, "move", place)
        assert (moved.code, moved.err) == (0, "")
        assert "timewright.db is paused and refuses writes; start your workers with --store" in moved.out
        assert invoke(None, "--store", place, "migrate", "--check").code == 0
        assert invoke(None, "--store", place, "schedule", "list", "-q").lines == ["x"]
        refused = invoke(None, "schedule", "create", "y", "--every", "1h", "--note", "y")
        assert (refused.code, refused.lines) == (1, [])
        assert "this store was moved: moved to" in refused.err
        saved = invoke(None, "--store", place, "backup", "copy.db", "-o", "json")
        assert saved.data["bytes"] == (here / "copy.db").stat().st_size
    restored = invoke(None, "restore", "copy.db", "--store", "again.db")
    assert restored.lines[1:] == [
        "on resume 0 runs would start at once",
        "start with: timewright resume --store again.db",
    ]
    assert invoke(None, "schedule", "list", "-q", "--store", "again.db").lines == ["x"]
    assert invoke(None, "resume", "--store", "again.db").code == 0
    cancelled = invoke(None, "move", "other.db", "--cancel", "--store", "again.db")
    assert (cancelled.code, cancelled.err.splitlines()[0]) == (1, "error: no move of again.db was begun")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_calls_timewright(shell: str) -> None:
    said = invoke(None, "completion", shell)
    assert said.code == 0
    assert f"_TIMEWRIGHT_COMPLETE={shell}_complete" in said.out


def completed(here: Path, line: str) -> list[str]:
    """Return the completions of bash for a line."""
    asking = {"_TIMEWRIGHT_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    done = subprocess.run(
        command(), env=environment(**asking), cwd=here, capture_output=True, text=True, check=False
    )
    return [word.partition(",")[2] for word in done.stdout.split()]


def test_commands_and_schedule_names_are_completed(here: Path) -> None:
    make()
    assert completed(here, "timewright sch") == ["schedule", "schema"]
    assert completed(here, "timewright schedule pa") == ["pause"]
    assert completed(here, "timewright schedule create y --overlap r") == ["replace"]
    assert completed(here, "timewright schedule pause ") == ["x"]
    Path("timewright.db").unlink()
    assert completed(here, "timewright schedule pause ") == []
    assert not (here / "timewright.db").exists()
