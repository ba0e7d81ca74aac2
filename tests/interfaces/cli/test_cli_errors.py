"""Error messages, exit codes and missing stores."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tests.interfaces.terminal import command, environment, invoke, run
from tests.operations.harness import OperationsHarness
from timewright.errors import InvalidInput, TimewrightError
from timewright.interfaces.cli import cli
from timewright.interfaces.cli.output.errors import exit_code_of, print_error
from timewright.interfaces.cli.session import Session


def broken(error: BaseException) -> Session:
    """Return a session whose store raises the error."""

    @contextmanager
    def opening(*_: object) -> Iterator[Any]:
        raise error
        yield

    session = Session()
    session.context = opening  # type: ignore[assignment, method-assign]
    return session


def test_an_error_shows_message_field_rule_and_fix(harness: OperationsHarness) -> None:
    said = invoke(harness, "schedule", "create", "oops", "--cron", "0 0 31 2 *", "--note", "x")
    assert (said.code, said.out) == (1, "")
    lines = said.err.splitlines()
    assert lines[0] == "error: cron '0 0 31 2 *' never fires"
    assert lines[1] == "  field   day 31 in month 2 (February has at most 29 days)"
    assert lines[-1] == "  try     '0 0 28 2 *' or 'L' for the last day: '0 0 L 2 *'"
    as_data = invoke(
        harness, "schedule", "create", "oops", "--cron", "0 0 31 2 *", "--note", "x", "-o", "json"
    )
    assert json.loads(as_data.err)["field"].startswith("trigger.cron: day 31 in month 2")


def test_an_error_is_printed_like_its_explain_text(harness: OperationsHarness) -> None:
    with pytest.raises(TimewrightError) as refusal:
        harness.ask("schedule get", schedule="nightly-reprot")
    said = invoke(harness, "schedule", "get", "nightly-reprot")
    assert said.err.replace("SCHEDULE", "schedule") == f"error: {refusal.value.explain()}\n"
    assert "did you mean nightly-report?" in said.err


@pytest.mark.parametrize(
    ("words", "first", "last"),
    [
        (["--every", "0", "--note", "x"], "error: --every '0' is not longer than zero", "--every 15m"),
        (
            ["--every", "5m", "--note", "x", "--retry", "many"],
            "error: --retry 'many' is not understood",
            "--retry 3",
        ),
        (
            ["--every", "5m", "--note", "x", "--overlap", "queu"],
            "error: --overlap 'queu' is not one of the choices",
            "--overlap queue",
        ),
        (
            ["--every", "5m", "--note", "x", "--http", "GET", "http://127.0.0.1/"],
            "error: the target has two kinds: --note and --http",
            "leave out --note or --http",
        ),
        (["--note", "x"], "error: the trigger is missing", "--cron '0 9 * * 1-5', or --every 15m"),
        (
            ["--every", "5m"],
            "error: the target is missing",
            "--http POST https://example.com/hook, or --call reports.nightly",
        ),
        (
            ["--every", "5m", "--note", "x", "--zone", "Europe/Berlin"],
            "error: unknown field 'zone' in trigger",
            "leave it out: an interval has no time zone",
        ),
        (
            ["--every", "5m", "--note", "x", "--time-limit", "never"],
            "error: --time-limit 'never' is not a duration",
            "90s, 15m, 1h30m, 1.5h, 7d, PT15M",
        ),
        (
            ["--every", "5m", "--http", "FETCH", "https://a.example"],
            "error: --http 'FETCH' is not an HTTP method",
            "--http POST https://a.example",
        ),
        (["--every", "0s", "--note", "x"], "error: every 0s would run endlessly", "--every 1s"),
        (
            ["--every", "5m", "--note", "x", "--start-at", "2027-01-02", "--end-at", "2027-01-01"],
            "error: --end-at 2027-01-01T00:00:00Z is before --start-at 2027-01-02T00:00:00Z",
            "swap them, or leave --end-at out",
        ),
        (
            ["--trigger", "every 6 hours starting at 02:00", "--note", "x"],
            "error: --trigger 'every 6 hours starting at 02:00' has a start or an end (starting …)",
            "the phrase without it, and --start-at, --end-at or --max-runs",
        ),
    ],
)
def test_an_error_names_the_options_of_the_command(
    harness: OperationsHarness, words: list[str], first: str, last: str
) -> None:
    lines = invoke(harness, "schedule", "create", "job", *words).err.splitlines()
    assert (lines[0], lines[-1]) == (first, f"  try     {last}")
    as_data = json.loads(invoke(harness, "schedule", "create", "job", *words, "-o", "json").err)
    assert "--" not in as_data["message"] + as_data["field"]


def test_a_server_that_is_no_url_and_a_folder_as_the_store_are_refused(tmp_path: Path) -> None:
    refused = invoke(None, "schedule", "list", "--server", "not-a-url").err.splitlines()
    assert (refused[0], refused[-1]) == (
        "error: --server 'not-a-url' is not a URL",
        "  try     --server http://127.0.0.1:7411",
    )
    folder = invoke(None, "schedule", "list", "--store", str(tmp_path)).err.splitlines()
    assert (folder[0], folder[-1]) == (
        f"error: {tmp_path} is a folder",
        f"  try     {tmp_path}/timewright.db",
    )


@pytest.mark.parametrize(
    ("to", "what"), [("hello", "names no receiver"), ("mailto:ops@example.com", "names no mail server")]
)
def test_a_channel_without_a_receiver_is_refused_with_the_forms_it_can_have(
    harness: OperationsHarness, to: str, what: str
) -> None:
    lines = invoke(harness, "channel", "create", "ops", "--to", to).err.splitlines()
    assert lines[0] == f"error: --to {to!r} {what}"
    assert "mailto:ADDRESS?host=SERVER" in lines[1]


def test_a_setting_out_of_range_names_its_option() -> None:
    lines = invoke(None, "serve", "--port", "99999").err.splitlines()
    assert lines[:2] == ["error: --port 99999 is out of range", "  rule    a whole number from 0 to 65535"]


def test_a_schedule_without_a_name_gets_an_example_of_a_name(harness: OperationsHarness) -> None:
    lines = invoke(harness, "schedule", "create", "--every", "5m", "--note", "x").err.splitlines()
    assert (lines[0], lines[-1]) == ("error: NAME is missing", "  try     nightly-report")


def test_every_command_is_listed_under_a_task_of_the_help() -> None:
    ctx = click.Context(cli)
    listed = dict(cli._by_task(ctx))
    assert sorted(name for names in listed.values() for name in names) == sorted(cli.list_commands(ctx))
    assert listed["Other"] == ["completion"]


@pytest.mark.parametrize(
    ("words", "tries"),
    [
        (["scheduel", "list"], "timewright schedule"),
        (["schedule", "lst"], "timewright schedule list"),
        (["schedule", "puase", "x"], "timewright schedule pause"),
        (["queue", "policy", "sho", "x"], "timewright queue policy show"),
        (["list"], "timewright schedule list or timewright run list or timewright analysis list"),
        (["reclaim"], "timewright queue reclaim"),
        (["explian", "x"], "timewright explain or timewright plan"),
        (["xyzzy"], "timewright --help"),
        (["schedule", "xyzzy"], "timewright schedule --help"),
        (["frobnicate"], "timewright --help"),
    ],
)
def test_an_unknown_command_gets_suggestions(words: list[str], tries: str) -> None:
    said = invoke(None, *words)
    assert (said.code, said.out) == (2, "")
    assert said.err.splitlines()[-1] == f"  try     {tries}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["schedule", "create", "x", "--evry", "5s"], "no such option '--evry'"),
        (["schedule", "pause"], "missing argument 'SCHEDULE'"),
        (["limit", "set"], "missing argument 'LIMIT'"),
        (["completion"], "missing argument '{bash|zsh|fish}'. Choose from: bash, zsh, fish\n"),
        (["-o", "xml", "schedule", "list"], "invalid value for '-o' / '--output'"),
        (["schedule", "get", "a", "b"], "got unexpected extra argument (b)"),
        (["schedule", "create", "x", "--every", "5m", "--shell"], "--shell needs a command after --"),
        (["schedule", "create", "x", "--http", "GET"], "--http takes METHOD URL or URL, not 'GET' alone"),
    ],
)
def test_wrong_usage_has_exit_code_2(words: list[str], message: str) -> None:
    said = invoke(None, *words)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"error: {message}")
    assert "--help" in said.err.splitlines()[-1]


def test_no_arguments_show_the_help() -> None:
    bare, noun = invoke(None), invoke(None, "schedule")
    assert (bare.code, bare.err, noun.code, noun.err) == (0, "", 2, "")
    assert "Create and manage schedules" in bare.out
    assert "Pause a schedule until an instant" in noun.out
    assert re.fullmatch(r"timewright \d\S*\n", invoke(None, "--version").out)


def test_with_json_output_errors_are_json_on_standard_error(harness: OperationsHarness) -> None:
    refused = invoke(harness, "-o", "json", "schedule", "get", "nobody")
    usage = invoke(harness, "schedule", "pause", "--output=json")
    assert (refused.code, refused.out, usage.code, usage.out) == (1, "", 2, "")
    problem = json.loads(refused.err)
    assert (problem["code"], problem["field"], problem["value"]) == ("not_found", "schedule", "nobody")
    assert json.loads(usage.err)["code"] == "usage"


def test_an_internal_error_writes_a_report_file(monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(here))
    done = CliRunner().invoke(cli, ["schedule", "list"], obj=broken(RuntimeError("the cellar is flooded")))
    assert done.exit_code == 1
    assert "Traceback" not in done.stderr
    assert "RuntimeError: the cellar is flooded" in done.stderr
    (report,) = here.glob("timewright-error-*.txt")
    assert str(report) in done.stderr
    assert "Traceback" in report.read_text(encoding="utf-8")


def test_debug_prints_the_traceback(harness: OperationsHarness) -> None:
    done = CliRunner().invoke(cli, ["--debug", "schedule", "list"], obj=broken(InvalidInput("no")))
    assert "Traceback" in done.stderr
    assert "error: no" in done.stderr


def test_an_interrupt_and_a_closed_output_print_no_error() -> None:
    for error, code in ((KeyboardInterrupt(), 130), (click.Abort(), 130)):
        done = CliRunner().invoke(cli, ["schedule", "list"], obj=broken(error))
        assert (done.exit_code, done.stdout, done.stderr.strip()) == (code, "", "")
    assert exit_code_of(BrokenPipeError()) == 0


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    """As in `set -o pipefail; timewright … | head -1`."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        command("schema"),
        cwd=tmp_path,
        env=environment(),
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_system_errors_are_printed_with_their_message(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(OSError(28, "No space left on device"), [])
    assert capsys.readouterr().err.startswith("error: system error: No space left on device")


def test_an_argument_that_is_not_utf_8_is_refused(here: Path) -> None:
    words = command("schedule", "create")
    done = subprocess.run(
        [*words, b"caf\xe9", "--every", "5s"], env=environment(), cwd=here, capture_output=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: argument 3 is not UTF-8: caf\\udce9")
    assert list(here.iterdir()) == []


def test_a_closed_pipe_prints_no_error(here: Path) -> None:
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


def test_a_read_does_not_create_a_missing_store(here: Path) -> None:
    said = invoke(None, "schedule", "list")
    assert said.code == 1
    assert said.err.splitlines()[0] == "error: no store at timewright.db"
    assert "timewright up" in said.err
    assert invoke(None, "schedule", "pause", "x").code == 1
    assert invoke(None, "schedule", "next", "--every", "90m", "--count", "2").code == 0
    assert invoke(None, "schedule", "create", "x", "--every", "5s", "--note", "x", "--dry-run").code == 0
    assert list(here.iterdir()) == []


def test_a_refused_write_does_not_create_a_store(here: Path) -> None:
    assert invoke(None, "schedule", "create", "x", "--every", "5x", "--note", "x").code == 1
    assert list(here.iterdir()) == []
    said = invoke(None, "schedule", "create", "x", "--every", "5s", "--note", "x", "--json")
    assert (said.code, said.err) == (0, "note: created timewright.db\n")
    assert (here / "timewright.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("", "store is empty"),
        ("mysql://localhost/x", "store 'mysql://localhost/x' has an unknown scheme"),
        ("postgresql://[", "store is invalid"),
        ("sqlite://host/x.db", "store 'sqlite://host/x.db' has a host"),
        ("missing/x.db", "does not exist"),
        ("postgresql://127.0.0.1:1/x", "PostgreSQL cannot be reached"),
        ("postgresql://a b/x", "this database cannot be read"),
    ],
)
def test_an_invalid_store_is_refused_with_an_example(place: str, message: str, here: Path) -> None:
    said = invoke(None, "--store", place, "schedule", "create", "x", "--every", "5s", "--note", "x")
    assert said.code == 1
    assert message in said.err
    assert "  try     " in said.err
    assert list(here.iterdir()) == []


def test_the_store_can_be_set_in_the_environment(here: Path) -> None:
    words = ["schedule", "create", "x", "--every", "5s", "--note", "x"]
    assert invoke(None, *words, TIMEWRIGHT_STORE="other.db").code == 0
    assert (here / "other.db").exists()
    assert invoke(None, "schedule", "list", "-q", "--store", "sqlite:///other.db").lines == ["x"]
    assert (
        invoke(None, "schedule", "list", "-q", TIMEWRIGHT_STORE="other.db", TIMEWRIGHT_NAMESPACE="b").lines
        == []
    )


def test_the_user_is_recorded_with_the_change(here: Path) -> None:
    invoke(None, "schedule", "create", "x", "--every", "5s", "--note", "x", LOGNAME="ada", USER="ada")
    assert invoke(None, "audit", "list", "-o", "json").data["entries"][0]["actor"] == "ada"
