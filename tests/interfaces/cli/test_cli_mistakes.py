"""Usual mistakes on the command line are answered with what to write."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.interfaces.terminal import invoke
from tests.operations.harness import OperationsHarness
from timewright.__main__ import main
from timewright.errors import Forbidden
from timewright.interfaces.cli.output.errors import _spell_fix
from timewright.interfaces.python import spelling
from timewright.operations.access.callers import Caller, require_scope


@pytest.mark.parametrize(
    ("fix", "command", "call"),
    [
        (
            "key create NAME with role: admin and within: '*'",
            "timewright key create NAME --role admin --within '*'",
            'app.keys.create("NAME", role="admin", within="*")',
        ),
        (
            "schedule update nightly with every: 5m",
            "timewright schedule update nightly --every 5m",
            'app.schedules.update("nightly", every="5m")',
        ),
    ],
)
def test_a_suggested_operation_is_a_command_or_a_call(fix: str, command: str, call: str) -> None:
    assert _spell_fix(fix, None, {}) == command
    assert spelling._spell_fix(fix, "", frozenset()) == call


def test_a_missing_scope_names_the_key_that_has_it() -> None:
    with pytest.raises(Forbidden) as error:
        require_scope(Caller(actor="x", scopes=frozenset({"read"})), "write", operation="schedule create")
    assert error.value.fix == "key create NAME with role: editor"


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (["pause", "report"], "timewright schedule pause report"),
        (["export", "my jobs.yaml"], "timewright export > 'my jobs.yaml'"),
        (["schedule", "pause", "--all"], "timewright pause"),
        (["plan"], "no file is given; for example: timewright plan schedules.yaml"),
        (["schedule", "run", "nightly-report", "--payload", "@day.json"], '"$(cat day.json)"'),
        (["schedule", "update", "nightly-report", "--every", ""], "--every 15m"),
        (["channel", "create", "ops", "--to", "slack"], "slack:https://hooks.slack.com/services/…"),
        (["channel", "create", "ops", "--to", "a@b.c"], "mailto:a@b.c?host=smtp.example.com"),
        (["schedule", "get", "NIGHTLY-REPORT"], "did you mean nightly-report?"),
    ],
)
def test_a_usual_mistake_is_answered_with_what_to_write(
    harness: OperationsHarness, words: list[str], fix: str
) -> None:
    refused = invoke(harness, *words)
    assert refused.code in {1, 2}
    assert fix in refused.err


def test_an_error_in_a_file_names_the_file_and_what_to_write(
    harness: OperationsHarness, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: job\ncron: */5 * * * *\nnote: x\n")
    refused = invoke(harness, "schedule", "put", "--file", str(file))
    assert f"error: file {file} cannot be read: " in refused.err
    assert "write the value in single quotes: cron: '*/5 * * * *'" in refused.err


def test_suggestions_are_for_the_same_store(tmp_path: Path) -> None:
    store = tmp_path / "my jobs.db"
    made = invoke(None, "schedule", "create", "a", "--every", "5m", "--note", "x", "--store", str(store))
    assert f"start one: timewright up --store '{store}'" in made.err
    nowhere = str(tmp_path / "no folder" / "x.db")
    folder = invoke(None, "schedule", "create", "a", "--every", "5m", "--note", "x", "--store", nowhere)
    assert f"mkdir -p '{tmp_path}/no folder'" in folder.err


def test_a_store_in_the_home_folder_is_found(tmp_path: Path) -> None:
    words = ["schedule", "create", "a", "--every", "5m", "--note", "x", "--store", "~/jobs.db"]
    assert invoke(None, *words, HOME=str(tmp_path)).code == 0
    assert (tmp_path / "jobs.db").exists()


def test_ctrl_c_while_the_program_is_imported_prints_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "timewright.interfaces.cli", Interrupted("cli"))
    assert main() == 130


@pytest.mark.parametrize("verb", ["get", "explain", "cancel", "retry", "logs"])
def test_a_schedule_in_place_of_a_run_names_the_command_that_lists_its_runs(
    harness: OperationsHarness, verb: str
) -> None:
    harness.ask("schedule create", name="idle", every="1h", note="x")
    refused = invoke(harness, "run", verb, "idle")
    assert refused.err.startswith("error: no run 'idle', which is a schedule\n")
    assert "try     timewright run list --schedule idle\n" in refused.err


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (("namespace", "set", "staging", "--zone", "UTC"), "timewright namespace create staging"),
        (
            ("schedule", "create", "a", "--every", "1h", "--note", "x", "--calendar", "except nope"),
            "timewright calendar put nope",
        ),
    ],
)
def test_a_missing_object_names_the_command_that_creates_it(words: tuple[str, ...], fix: str) -> None:
    refused = invoke(OperationsHarness(), *words)
    assert f"create it first: {fix}\n" in refused.err
