"""What goes wrong is told in words on the standard error, with what to try; the exit code says its kind."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tests.doors.terminal import ask, command, environment, run
from tests.operations.house import House
from timewright.doors.cli import cli
from timewright.doors.cli.faults import exit_code_of, told
from timewright.doors.cli.session import Session
from timewright.errors import InvalidInput, TimewrightError


def broken(error: BaseException) -> Session:
    """A session whose store fails so."""

    @contextmanager
    def opening(*_: object) -> Iterator[Any]:
        raise error
        yield

    return Session(opening)


def test_a_refusal_says_what_where_the_rule_and_what_to_try(house: House) -> None:
    said = ask(house, "schedule", "create", "oops", "--cron", "0 0 31 2 *", "--note", "x")
    assert (said.code, said.out) == (1, "")
    lines = said.err.splitlines()
    assert lines[0] == "error: cron '0 0 31 2 *' never fires"
    assert lines[1] == "  field   day 31 in month 2 (February has at most 29 days)"
    assert lines[-1] == "  try     '0 0 28 2 *' or 'L' for the last day: '0 0 L 2 *'"
    as_data = ask(house, "schedule", "create", "oops", "--cron", "0 0 31 2 *", "--note", "x", "-o", "json")
    assert json.loads(as_data.err)["field"].startswith("trigger.cron: day 31 in month 2")


def test_a_refusal_is_told_as_its_error_explains_it(house: House) -> None:
    with pytest.raises(TimewrightError) as refusal:
        house.ask("schedule get", schedule="nightly-reprot")
    said = ask(house, "schedule", "get", "nightly-reprot")
    assert said.err == f"error: {refusal.value.explain()}\n"
    assert "did you mean nightly-report?" in said.err


@pytest.mark.parametrize(
    ("words", "tries"),
    [
        (["scheduel", "list"], "timewright schedule"),
        (["schedule", "lst"], "timewright schedule list"),
        (["schedule", "puase", "x"], "timewright schedule pause"),
        (["queue", "policy", "sho", "x"], "timewright queue policy show"),
        (["list"], "timewright schedule list or timewright analysis list or timewright approval list"),
        (["reclaim"], "timewright queue reclaim"),
        (["explian", "x"], "timewright explain"),
        (["xyzzy"], "timewright --help"),
        (["schedule", "xyzzy"], "timewright schedule --help"),
    ],
)
def test_a_mistyped_word_is_refused_with_those_that_are_like_it(words: list[str], tries: str) -> None:
    said = ask(None, *words)
    assert (said.code, said.out) == (2, "")
    assert said.err.splitlines()[-1] == f"  try     {tries}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["schedule", "create", "x", "--evry", "5s"], "no such option '--evry'"),
        (["schedule", "pause"], "missing argument 'SCHEDULE'"),
        (["limit", "set", "x"], "missing option '--most'"),
        (["-o", "xml", "schedule", "list"], "invalid value for '-o' / '--output'"),
        (["schedule", "get", "a", "b"], "got unexpected extra argument (b)"),
        (["schedule", "create", "x", "--http", "GET"], "option '--http' requires 2 arguments"),
    ],
)
def test_a_line_that_is_not_understood_is_usage(words: list[str], message: str) -> None:
    said = ask(None, *words)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"error: {message}")
    assert "--help" in said.err.splitlines()[-1]


def test_who_says_nothing_is_shown_what_there_is_to_say() -> None:
    bare, noun = ask(None), ask(None, "schedule")
    assert (bare.code, bare.err, noun.code, noun.err) == (0, "", 2, "")
    assert "Standing intentions" in bare.out
    assert "Stop a schedule until an instant" in noun.out
    assert re.fullmatch(r"timewright \d\S*\n", ask(None, "--version").out)


def test_for_programs_a_fault_is_data_on_the_standard_error(house: House) -> None:
    refused = ask(house, "-o", "json", "schedule", "get", "nobody")
    usage = ask(house, "schedule", "pause", "--output=json")
    assert (refused.code, refused.out, usage.code, usage.out) == (1, "", 2, "")
    problem = json.loads(refused.err)
    assert (problem["code"], problem["field"], problem["value"]) == ("not_found", "schedule", "nobody")
    assert json.loads(usage.err)["code"] == "usage"


def test_a_fault_of_ours_leaves_a_report_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(here))
    done = CliRunner().invoke(cli, ["schedule", "list"], obj=broken(RuntimeError("the cellar is flooded")))
    assert done.exit_code == 1
    assert "Traceback" not in done.stderr
    assert "RuntimeError: the cellar is flooded" in done.stderr
    (report,) = here.glob("timewright-fault-*.txt")
    assert str(report) in done.stderr
    assert "Traceback" in report.read_text(encoding="utf-8")


def test_the_traceback_is_there_for_whoever_asks(house: House) -> None:
    done = CliRunner().invoke(cli, ["--debug", "schedule", "list"], obj=broken(InvalidInput("no")))
    assert "Traceback" in done.stderr
    assert "error: no" in done.stderr


def test_an_interrupt_and_a_closed_output_are_nobodys_fault() -> None:
    for error, code in ((KeyboardInterrupt(), 130), (click.Abort(), 130)):
        done = CliRunner().invoke(cli, ["schedule", "list"], obj=broken(error))
        assert (done.exit_code, done.stdout, done.stderr.strip()) == (code, "", "")
    assert exit_code_of(BrokenPipeError()) == 0


def test_what_the_system_refuses_is_said_in_its_words(capsys: pytest.CaptureFixture[str]) -> None:
    told(OSError(28, "No space left on device"), [])
    assert capsys.readouterr().err.startswith("error: the system refused: No space left on device")


def test_an_argument_that_is_not_utf_8_is_refused(here: Path) -> None:
    words = command("schedule", "create")
    done = subprocess.run(
        [*words, b"caf\xe9", "--every", "5s"], env=environment(), cwd=here, capture_output=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: argument 3 is not UTF-8: caf\\udce9")
    assert list(here.iterdir()) == []


def test_whoever_closes_our_output_hears_no_complaint(here: Path) -> None:
    run(here, "schedule", "create", "x" * 200, "--every", "5s", "--note", "x")
    for closed in ("| head -c 1", ">&-", "2>&- >&-"):
        line = f"{subprocess.list2cmdline(command('schedule', 'list', '-o', 'json'))} {closed}"
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=here,
            env=environment(),
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")


def test_a_store_that_is_not_there_is_not_made_by_looking(here: Path) -> None:
    said = ask(None, "schedule", "list")
    assert said.code == 1
    assert said.err.splitlines()[0] == "error: there is no store at timewright.db"
    assert "timewright up" in said.err
    assert ask(None, "schedule", "pause", "x").code == 1
    assert ask(None, "schedule", "next", "--every", "90m", "--count", "2").code == 0
    assert ask(None, "schedule", "create", "x", "--every", "5s", "--note", "x", "--dry-run").code == 0
    assert list(here.iterdir()) == []


def test_what_is_refused_makes_no_store_either(here: Path) -> None:
    assert ask(None, "schedule", "create", "x", "--every", "5x", "--note", "x").code == 1
    assert list(here.iterdir()) == []
    said = ask(None, "schedule", "create", "x", "--every", "5s", "--note", "x")
    assert (said.code, said.err) == (0, "note: timewright.db is new\n")
    assert (here / "timewright.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("", "store is empty"),
        ("mysql://localhost/x", "store 'mysql://localhost/x' is of a kind we do not know"),
        ("postgresql://[", "store cannot be read"),
        ("sqlite://host/x.db", "store 'sqlite://host/x.db' names a host"),
        ("missing/x.db", "there is no folder"),
        ("postgresql://127.0.0.1:1/x", "PostgreSQL is away"),
        ("postgresql://a b/x", "this database cannot be looked at"),
    ],
)
def test_a_place_that_cannot_be_is_refused_with_one_that_can(place: str, message: str, here: Path) -> None:
    said = ask(None, "--store", place, "schedule", "create", "x", "--every", "5s", "--note", "x")
    assert said.code == 1
    assert message in said.err
    assert "  try     " in said.err
    assert list(here.iterdir()) == []


def test_the_place_may_stand_in_the_environment(here: Path) -> None:
    words = ["schedule", "create", "x", "--every", "5s", "--note", "x"]
    assert ask(None, *words, TIMEWRIGHT_STORE="other.db").code == 0
    assert (here / "other.db").exists()
    assert ask(None, "schedule", "list", "-q", "--store", "sqlite:///other.db").lines == ["x"]
    assert (
        ask(None, "schedule", "list", "-q", TIMEWRIGHT_STORE="other.db", TIMEWRIGHT_NAMESPACE="b").lines == []
    )


def test_who_asks_is_kept_with_the_change(here: Path) -> None:
    ask(None, "schedule", "create", "x", "--every", "5s", "--note", "x", LOGNAME="ada", USER="ada")
    assert ask(None, "audit", "list", "-o", "json").data["entries"][0]["actor"] == "ada"
