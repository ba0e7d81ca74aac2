"""Command-line options, files and data."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.interfaces.terminal import invoke, run
from tests.operations.harness import OperationsHarness
from timewright.errors import InvalidInput
from timewright.interfaces.cli.data_input import read_data, read_data_or_text, read_file
from timewright.interfaces.cli.fields import options_of
from timewright.interfaces.cli.options import requests_of
from timewright.operations import operations


def made(harness: OperationsHarness, *words: str) -> dict[str, Any]:
    """Return the schedule that these options would create."""
    said = invoke(harness, "schedule", "create", "--dry-run", "-o", "json", "x", *words)
    assert said.code == 0, said.err
    found: dict[str, Any] = said.data["schedule"]
    return found


@pytest.mark.parametrize(
    ("words", "trigger"),
    [
        (["--every", "5s"], {"kind": "every", "interval": "5s"}),
        (["--cron", "0 9 * * mon-fri", "--zone", "Europe/Berlin"], {"kind": "cron", "zone": "Europe/Berlin"}),
        (["--after", "10m"], {"kind": "after", "delay": "10m"}),
        (["--at", "2026-03-11T09:00:00Z"], {"kind": "once", "at": "2026-03-11T09:00:00Z"}),
        (["--manual"], {"kind": "manual"}),
        (["--trigger", "every 90s"], {"kind": "every", "interval": "1m30s"}),
        (["--trigger", "*/5 * * * *"], {"kind": "cron", "expression": "*/5 * * * *"}),
        (["--trigger", "[{cron: '0 9 * * *'}, {every: 6h}]"], {"kind": "any_of"}),
    ],
)
def test_trigger_shorthand_options(
    harness: OperationsHarness, words: list[str], trigger: dict[str, Any]
) -> None:
    found = made(harness, *words, "--note", "hello")["trigger"]
    assert {key: found[key] for key in trigger} == trigger


@pytest.mark.parametrize(
    ("words", "target"),
    [
        (["--note", "hello"], {"kind": "note", "text": "hello"}),
        (["--http", "POST", "https://example.com/x"], {"kind": "http", "method": "POST"}),
        (
            [
                "--http",
                "POST",
                "https://example.com/x",
                "--header",
                "X-A=1",
                "--header",
                "X-B: two",
                "--body",
                "{a: 1}",
            ],
            {"headers": {"X-A": "1", "X-B": "two"}, "body": {"a": 1}},
        ),
        (["--http", "GET", "https://example.com/x", "--http-timeout", "5s"], {"timeout": "5s"}),
        (["--call", "reports.nightly"], {"kind": "call", "name": "reports.nightly", "args": {}}),
        (
            ["--call", "send", "--arg", "to=ada", "--arg", "n=3"],
            {"name": "send", "args": {"to": "ada", "n": 3}},
        ),
        (["--shell", "--", "echo", "-n", "--every"], {"kind": "shell", "command": ["echo", "-n", "--every"]}),
        (["--handoff", "--queue", "mail"], {"kind": "handoff"}),
        (["--target", "{note: hi}"], {"kind": "note", "text": "hi"}),
    ],
)
def test_target_shorthand_options(
    harness: OperationsHarness, words: list[str], target: dict[str, Any]
) -> None:
    found = made(harness, "--every", "5s", *words)["target"]
    assert {key: found[key] for key in target} == target


def test_every_policy_has_an_option(harness: OperationsHarness) -> None:
    words = [
        "--overlap",
        "queue",
        "--catch-up",
        "all",
        "--retry",
        "5",
        "--backoff",
        "[30s, 1m]",
        "--jitter",
        "10s",
    ]
    words += [
        "--tag",
        "a",
        "--tag",
        "b",
        "--metadata",
        "team=ops",
        "--metadata",
        "tries=3",
        "--metadata",
        "zip=01234",
    ]
    words += [
        "--priority",
        "high",
        "--limit",
        "crm-api",
        "--adaptive",
        "--clamp",
        "{min: 1m}",
        "--lease",
        "2m",
    ]
    words += ["--time-limit", "90s", "--end-at", "2027-01-01T00:00:00Z", "--group", "g", "--description", "d"]
    found = made(harness, "--every", "5m", "--note", "x", *words)
    assert (found["overlap"], found["catch_up"], found["retry"]["max_attempts"]) == ("queue", "all", 5)
    assert found["retry"]["backoff"]["steps"] == ["30s", "1m"]
    assert (found["jitter"], found["priority"], found["limits"]) == ("10s", 50, ["crm-api"])
    assert (found["tags"], found["adaptive"], found["clamp"]["min"]) == (["a", "b"], True, "1m")
    assert found["metadata"] == {"team": "ops", "tries": 3, "zip": "01234"}
    assert (found["lease"]["length"], found["lease"]["time_limit"]) == ("2m", "1m30s")
    assert (found["end_at"], found["group"], found["description"]) == ("2027-01-01T00:00:00Z", "g", "d")


def test_an_update_clears_null_fields_and_turns_switches_off(harness: OperationsHarness) -> None:
    invoke(harness, "schedule", "update", "orders-poll", "--end-at", "2027-01-01T00:00:00Z", "--tag", "a")
    words = ["--end-at", "null", "--tag", "[]", "--no-adaptive", "--name", "polling"]
    said = invoke(harness, "schedule", "update", "orders-poll", *words, "-o", "json")
    found = said.data["schedule"]
    assert (found["end_at"], found["tags"], found["adaptive"], found["name"]) == (None, [], False, "polling")


def test_global_options_work_before_and_after_the_verb(harness: OperationsHarness) -> None:
    asked = [
        ["-o", "json", "schedule", "list"],
        ["schedule", "-o", "json", "list"],
        ["schedule", "list", "-o", "json"],
        ["-o", "yaml", "schedule", "list", "--output", "json"],
    ]
    assert len({invoke(harness, *words).out for words in asked}) == 1
    assert invoke(harness, *asked[0]).data["schedules"]


def test_options_override_the_fields_of_a_file(harness: OperationsHarness, here: Path) -> None:
    spec = "name: from-file\nevery: 5m\nnote: hi\nmetadata: {on: no, at: 12:30, day: 2026-03-10}\nretry: 2\n"
    (here / "spec.yaml").write_text(spec, encoding="utf-8")
    said = invoke(
        harness, "schedule", "create", "--file", "spec.yaml", "--every", "10m", "--dry-run", "-o", "json"
    )
    found = said.data["schedule"]
    assert (found["name"], found["trigger"]["interval"], found["retry"]["max_attempts"]) == (
        "from-file",
        "10m",
        2,
    )
    # What other readers of YAML would take for a truth, a number and a day are the texts that stand there.
    assert found["metadata"] == {"on": "no", "at": "12:30", "day": "2026-03-10"}


def test_fields_can_be_read_from_standard_input(here: Path) -> None:
    spec = json.dumps({"name": "piped", "every": "5m", "note": "hi"}).encode()
    said = run(here, "schedule", "create", "--file", "-", "--dry-run", "-o", "json", stdin=spec)
    assert said.data["schedule"]["name"] == "piped"
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        "a: &x [1]\nb: *x",
        "!!python/object/apply:os.system ['true']",
        "a: !!timestamp 2026-01-01",
        "a: 1\na: 2",
        '{"a": 1, "a": 2}',
        "[" * 200,
        "- " * 200 + "x",
        "{" * 100_000,
        "[" + "0," * 120_000 + "]",
        "[1, 2",
        "just text",
        "[1]",
        "\xff",
    ],
)
def test_a_file_with_invalid_data_is_refused(here: Path, text: str) -> None:
    (here / "spec.yaml").write_bytes(text.encode("latin-1"))
    began = time.thread_time()
    with pytest.raises(InvalidInput) as refusal:
        read_file("spec.yaml")
    assert refusal.value.field == "file"
    assert refusal.value.rule
    assert time.thread_time() - began < 5


def test_a_missing_or_large_file_is_refused(here: Path) -> None:
    (here / "large.yaml").write_text("a: " + "x" * 300_000, encoding="utf-8")
    for name in ("large.yaml", "missing.yaml", "."):
        with pytest.raises(InvalidInput) as refusal:
            read_file(name)
        assert name in refusal.value.message


def test_data_options_accept_json_yaml_and_plain_words() -> None:
    read = {
        text: read_data_or_text(text, field="x")
        for text in ("3", "true", "null", "no", "0x1f", "1_000", "01", "@daily")
    }
    assert read == {
        "3": 3,
        "true": True,
        "null": None,
        "no": "no",
        "0x1f": "0x1f",
        "1_000": "1_000",
        "01": "01",
        "@daily": "@daily",
    }
    assert read_data('{"a": [1, {"b": null}]}', field="x") == read_data("{a: [1, {b: null}]}", field="x")
    assert read_data_or_text('"3"', field="x") == "3"
    with pytest.raises(InvalidInput):
        read_data_or_text("{a: ", field="x")


def test_a_pair_without_a_name_is_refused_with_an_example(harness: OperationsHarness) -> None:
    said = invoke(harness, "schedule", "create", "x", "--every", "5s", "--note", "x", "--metadata", "team")
    assert said.code == 1
    assert "try     --metadata team=finance" in said.err


def test_an_invalid_number_is_refused_by_the_operation(harness: OperationsHarness) -> None:
    said = invoke(harness, "schedule", "list", "--limit", "many")
    assert said.code == 1
    assert "a whole number from 1 to 1000" in said.err


def test_a_command_needs_the_shell_option(harness: OperationsHarness) -> None:
    said = invoke(harness, "schedule", "create", "x", "--every", "5s", "--", "echo", "hi")
    assert said.code == 2
    assert "a command needs --shell --" in said.err


def test_options_that_are_not_given_are_not_in_the_request() -> None:
    for one in operations:
        nothing = {option.key: () if option.repeatable else None for option in options_of(one)}
        assert requests_of(one, nothing) == [{}]
