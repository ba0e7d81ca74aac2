"""Looking after a store: its schema, a copy of it, and the script that completes commands."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import apsw
import pytest

from tests.doors.terminal import ask, command, environment
from timewright.assembly import copy_store, look_at, open_store
from timewright.errors import Conflict, ForeignStore, InvalidInput, NotFound, SchemaMismatch
from timewright.stores.migrate import migrations
from timewright.testing.postgres import fresh_database

STEPS = [f"{step.number:04d} {step.name}" for step in migrations("sqlite")]


def make(name: str = "timewright.db") -> None:
    said = ask(None, "--store", name, "schedule", "create", "x", "--every", "1h", "--note", "x")
    assert said.code == 0


def test_a_store_that_lacks_steps_is_told_and_left_alone(here: Path) -> None:
    said = ask(None, "migrate", "--check", "-o", "json")
    assert said.code == 3
    assert said.data["waiting"] == STEPS
    assert list(here.iterdir()) == []


def test_migrate_brings_a_store_up_to_date_and_says_what_it_did(here: Path) -> None:
    assert ask(None, "migrate").lines == [
        f"timewright.db ({look_at('timewright.db').engine}) was brought up to date:",
        *(f"  {step}" for step in STEPS),
    ]
    assert ask(None, "migrate", "--check").code == 0
    assert ask(None, "migrate").out.endswith("is up to date\n")


def test_looking_at_a_store_changes_nothing(here: Path) -> None:
    make()
    before = (here / "timewright.db").read_bytes()
    found = look_at("timewright.db")
    assert (found.exists, found.waiting) == (True, ())
    assert found.engine.startswith("SQLite 3.")
    assert (here / "timewright.db").read_bytes() == before


def test_a_store_of_a_newer_version_or_of_somebody_else_is_refused(here: Path) -> None:
    make()
    connection = apsw.Connection("timewright.db")
    connection.execute("INSERT INTO migrations VALUES (9999, 'later', 'x')")
    connection.close()
    with pytest.raises(SchemaMismatch):
        look_at("timewright.db")
    apsw.Connection("other.db").execute("CREATE TABLE t (x)")
    with pytest.raises(ForeignStore):
        look_at("other.db")
    (here / "noise.db").write_bytes(b"noise" * 1000)
    with pytest.raises(ForeignStore):
        copy_store("noise.db", "copy.db")
    assert not (here / "copy.db").exists()


def test_a_backup_is_a_store_of_its_own_that_others_cannot_read(here: Path) -> None:
    make()
    store = open_store("timewright.db")
    try:
        said = ask(None, "backup", "copy.db", "-o", "json")
    finally:
        store.close()
    assert (said.code, said.data["bytes"]) == (0, (here / "copy.db").stat().st_size)
    assert (here / "copy.db").stat().st_mode & 0o777 == 0o600
    shutil.move("timewright.db", "gone.db")
    assert ask(None, "schedule", "list", "-q", "--store", "copy.db").lines == ["x"]


def test_a_backup_never_writes_over_anything(here: Path) -> None:
    make()
    for taken in ("copy.db", "copy.db.part"):
        (here / taken).write_text("precious", encoding="utf-8")
        with pytest.raises(Conflict):
            copy_store("timewright.db", "copy.db")
        assert (here / taken).read_text(encoding="utf-8") == "precious"
        (here / taken).unlink()
    with pytest.raises(NotFound):
        copy_store("missing.db", "copy.db")
    with pytest.raises(ForeignStore):
        copy_store("timewright.db", "missing/copy.db")
    assert sorted(path.name for path in here.glob("copy*")) == []


def test_a_server_is_looked_at_and_copied_with_its_own_tools(postgres_url: str) -> None:
    with fresh_database(postgres_url) as place:
        before = look_at(place)
        assert (before.exists, before.engine.split()[0]) == (False, "PostgreSQL")
        assert ask(None, "--store", place, "migrate", "--check").code == 3
        assert ask(None, "--store", place, "migrate").code == 0
        assert ask(None, "--store", place, "migrate", "--check").code == 0
        said = ask(None, "--store", place, "schedule", "create", "x", "--every", "1h", "--note", "x", "-q")
        assert (said.code, said.lines) == (0, ["x"])
        assert ask(None, "--store", place, "schedule", "list", "-q").lines == ["x"]
        with pytest.raises(InvalidInput) as refusal:
            copy_store(place, "copy.db")
        assert "pg_dump" in (refusal.value.fix or "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_asks_us_for_words(shell: str) -> None:
    said = ask(None, "completion", shell)
    assert said.code == 0
    assert f"_TIMEWRIGHT_COMPLETE={shell}_complete" in said.out


def completed(here: Path, line: str) -> list[str]:
    """What bash would offer behind a line."""
    asking = {"_TIMEWRIGHT_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    done = subprocess.run(
        command(), env=environment(**asking), cwd=here, capture_output=True, text=True, check=False
    )
    return [word.partition(",")[2] for word in done.stdout.split()]


def test_words_are_completed_from_the_list_and_names_from_the_store(here: Path) -> None:
    make()
    assert completed(here, "timewright sch") == ["schedule"]
    assert completed(here, "timewright schedule pa") == ["pause"]
    assert completed(here, "timewright schedule create y --overlap r") == ["replace"]
    assert completed(here, "timewright schedule pause ") == ["x"]
    Path("timewright.db").unlink()
    assert completed(here, "timewright schedule pause ") == []
    assert not (here / "timewright.db").exists()
