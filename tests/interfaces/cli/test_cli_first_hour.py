"""What a new user meets in the first hour at the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interfaces.terminal import CommandResult, invoke, run
from tests.operations.harness import OperationsHarness
from timewright.testing.targets import fail

HELLO = ("schedule", "create", "hello", "--every", "1h")


def test_a_dry_run_says_that_nothing_was_written(harness: OperationsHarness) -> None:
    dry = invoke(harness, *HELLO, "--note", "x", "--dry-run")
    assert dry.err == "note: dry run, nothing was written\n"
    assert "hello" not in [row["name"] for row in harness.ask("schedule list")["schedules"]]
    assert invoke(harness, *HELLO, "--note", "x", "--dry-run", "-q").err == ""
    assert "dry run" not in invoke(harness, *HELLO, "--note", "x").err


def test_a_new_schedule_says_that_no_instance_is_running(tmp_path: Path) -> None:
    made = run(tmp_path, *HELLO, "--note", "x", "--store", "jobs.db")
    assert "note: no instance is running, so nothing starts; start one: " in made.err
    assert "no instance" not in run(tmp_path, "schedule", "list", "--store", "jobs.db").err
    assert run(tmp_path, "schedule", "run", "hello", "--store", "jobs.db", "-q").err == ""


def test_a_quiet_key_create_prints_the_key_alone(tmp_path: Path) -> None:
    made = run(tmp_path, "key", "create", "ci", "--role", "viewer", "-q", "--store", "jobs.db")
    assert made.code == 0
    (token,) = made.lines
    assert token.startswith("tw_")
    assert made.err == ""


@pytest.mark.parametrize(
    "words",
    [
        ("--http", "POST", "--every", "1h"),
        ("--http", "example.com", "--every", "1h"),
        ("--every", "1h", "--http", "POST"),
        ("--every", "1h", "--http"),
        ("--http=POST", "--every", "1h"),
    ],
)
def test_http_without_a_url_does_not_take_the_next_option(
    harness: OperationsHarness, words: tuple[str, ...]
) -> None:
    refused = invoke(harness, "schedule", "create", "hello", *words)
    assert refused.code == 2
    assert "--http takes METHOD URL or URL" in refused.err
    assert "https://api.example.com/run" in refused.err


@pytest.mark.parametrize(
    "words",
    [
        ("--http", "https://a.example"),
        ("--http=https://a.example",),
        ("--http", "GET https://a.example"),
        ("--http", "get", "https://a.example"),
    ],
)
def test_http_takes_a_url_with_or_without_a_method(
    harness: OperationsHarness, words: tuple[str, ...]
) -> None:
    made = invoke(harness, "schedule", "create", "hello", *words, "--every", "1h", "--json")
    target = made.data["schedule"]["target"]
    assert (target["method"], target["url"]) == ("GET", "https://a.example")


def test_a_narrow_table_keeps_the_name_and_shortens_the_id(harness: OperationsHarness) -> None:
    name = "nightly-report-of-the-finance-team"
    invoke(harness, "schedule", "create", name, "--every", "1h", "--note", "x", "--retry", "1")
    harness.bench.target.script(name, fail("the disk is full"))
    harness.bench.advance(hours=1)
    head, *lines = invoke(harness, "run", "list", "--schedule", name, width=110).lines
    (line,) = (line for line in lines if "failed" in line)
    assert name in line
    assert "the disk is full" in line
    assert head.endswith("RUN")
    assert line.endswith("…")
    assert " run_" in line


def test_the_list_shows_the_last_run_also_one_by_hand(harness: OperationsHarness) -> None:
    def listed() -> tuple[str, str]:
        head, line = invoke(harness, "schedule", "list", "--name-starts", "hello").lines
        return head, line

    invoke(harness, *HELLO, "--note", "x", "--retry", "1")
    assert "LAST RUN" not in listed()[0]
    harness.bench.advance(hours=1)
    head, line = listed()
    assert "LAST RUN" in head
    assert "✔ 13:00:00" in line
    harness.bench.advance(minutes=30)
    harness.bench.target.script("hello", fail("boom"))
    harness.ask("schedule run", schedule="hello")
    harness.bench.advance(minutes=1)
    assert "✘ 13:30:00" in listed()[1]
    (row,) = harness.ask("schedule list", name_starts="hello")["schedules"]
    assert (row["last_run_at"], row["last_state"]) == ("2026-03-10T13:30:00Z", "failed")
    assert row["runs"] == harness.ask("schedule get", schedule="hello")["progress"]["runs"] == 2


@pytest.mark.parametrize(
    ("command", "offered"),
    [
        (("cat", "access.log", "|", "wc", "-l"), "sh -c 'cat access.log | wc -l'"),
        (("make", "&&", "make", "install"), "sh -c 'make && make install'"),
        (("date", ">", "/tmp/now"), "sh -c 'date > /tmp/now'"),
    ],
)
def test_a_command_that_needs_a_shell_is_answered_with_sh(
    harness: OperationsHarness, command: tuple[str, ...], offered: str
) -> None:
    made = invoke(harness, *HELLO, "--shell", "--", *command)
    assert made.code == 0
    assert offered in made.err
    detail = harness.ask("schedule put", name="again", every="1h", shell=list(command))["detail"]
    assert offered in detail["warnings"][0]


@pytest.mark.parametrize(
    ("line", "written"),
    [("echo hi", "echo hi"), ("cat access.log | wc -l", "sh -c 'cat access.log | wc -l'")],
)
def test_a_command_line_in_one_argument_is_refused_with_what_to_write(
    harness: OperationsHarness, line: str, written: str
) -> None:
    for words in (["--shell", line], ["--shell", "--", line]):
        said = invoke(harness, *HELLO, *words)
        assert said.code == 1
        assert f"  try     --shell -- {written}" in said.err


def test_options_of_a_command_that_is_not_behind_two_dashes_are_answered_with_them() -> None:
    said = invoke(None, *HELLO, "--shell", "sh", "-c", "date")
    assert said.code == 2
    assert "write the command last, behind --" in said.err


def test_a_command_without_a_shell_gets_no_warning(harness: OperationsHarness) -> None:
    for command in (["sh", "-c", "cat x | wc -l"], ["grep", "a|b", "file"], ["echo", "a > b"]):
        detail = harness.ask("schedule put", name="hello", every="1h", shell=command)["detail"]
        assert not any("no shell interprets" in warning for warning in detail["warnings"])


@pytest.mark.parametrize("trigger", [{"every": "1m"}, {"cron": "* * * * *"}])
def test_a_jitter_longer_than_the_interval_is_answered_with_a_warning(
    harness: OperationsHarness, trigger: dict[str, str]
) -> None:
    made = harness.ask("schedule put", name="hello", **trigger, note="x", jitter="5m")["detail"]
    assert made["warnings"] == [
        "jitter 5m is longer than the interval of 1m, so runs overlap or are skipped; use at most 1m"
    ]
    made = harness.ask("schedule put", name="hello", **trigger, note="x", jitter="1m")["detail"]
    assert made["warnings"] == []


def with_config(folder: Path, text: str, *words: str) -> CommandResult:
    config = folder / "timewright.toml"
    config.write_text(text)
    config.chmod(0o600)
    return run(folder, *words)


def test_the_store_may_stand_in_the_settings_file(tmp_path: Path) -> None:
    made = with_config(tmp_path, 'store = "jobs.db"\ncapacity = 5\n', *HELLO, "--note", "x")
    assert made.code == 0, made.err
    assert (tmp_path / "jobs.db").exists()
    assert not (tmp_path / "timewright.db").exists()
    assert "hello" in run(tmp_path, "schedule", "list").out
    run(tmp_path, *HELLO, "--note", "x", TIMEWRIGHT_STORE="other.db")
    assert (tmp_path / "other.db").exists()
    run(tmp_path, *HELLO, "--note", "x", "--store", "third.db")
    assert (tmp_path / "third.db").exists()


def test_a_store_that_is_no_text_is_refused_with_the_file(tmp_path: Path) -> None:
    refused = with_config(tmp_path, "store = 5\n", "schedule", "list")
    assert refused.code == 1
    assert "timewright.toml" in refused.err
    assert 'store = "timewright.db"' in refused.err


def test_audit_verify_exits_with_1_if_the_chain_is_broken(tmp_path: Path) -> None:
    import apsw

    store = ("--store", "jobs.db")
    run(tmp_path, *HELLO, "--note", "x", *store)
    assert run(tmp_path, "audit", "verify", *store).code == 0
    connection = apsw.Connection(str(tmp_path / "jobs.db"))
    connection.execute("UPDATE audit SET actor = 'mallory' WHERE rowid = (SELECT min(rowid) FROM audit)")
    connection.close()
    broken = run(tmp_path, "audit", "verify", *store)
    assert broken.code == 1
    assert run(tmp_path, "audit", "verify", *store, "--json").data["intact"] is False


def test_verify_exits_with_1_if_a_promise_is_broken(tmp_path: Path) -> None:
    import apsw

    store = ("--store", "jobs.db")
    run(tmp_path, *HELLO, "--note", "x", *store)
    run(tmp_path, "schedule", "run", "hello", *store)
    assert run(tmp_path, "verify", *store).code == 0
    connection = apsw.Connection(str(tmp_path / "jobs.db"))
    connection.execute("UPDATE runs SET state = 'succeeded'")
    connection.close()
    assert run(tmp_path, "verify", *store).code == 1
