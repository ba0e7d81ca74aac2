"""From words to a request: what each option means, what a file may hold, and what is refused unread."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.doors.terminal import ask, run
from tests.operations.house import House
from timewright.doors.cli.data import read_data, read_file, read_loose
from timewright.doors.cli.fields import options_of
from timewright.doors.cli.options import payload_of
from timewright.errors import InvalidInput
from timewright.operations import operations


def made(house: House, *words: str) -> dict[str, Any]:
    """A schedule as these words make it, without keeping it."""
    said = ask(house, "schedule", "create", "--dry-run", "-o", "json", "x", *words)
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
def test_when_can_be_said_in_a_word(house: House, words: list[str], trigger: dict[str, Any]) -> None:
    found = made(house, *words, "--note", "hello")["trigger"]
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
def test_what_can_be_said_in_a_word(house: House, words: list[str], target: dict[str, Any]) -> None:
    found = made(house, "--every", "5s", *words)["target"]
    assert {key: found[key] for key in target} == target


def test_every_policy_has_an_option(house: House) -> None:
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
    found = made(house, "--every", "5m", "--note", "x", *words)
    assert (found["overlap"], found["catch_up"], found["retry"]["max_attempts"]) == ("queue", "all", 5)
    assert found["retry"]["backoff"]["steps"] == ["30s", "1m"]
    assert (found["jitter"], found["priority"], found["limits"]) == ("10s", 50, ["crm-api"])
    assert (found["tags"], found["adaptive"], found["clamp"]["min"]) == (["a", "b"], True, "1m")
    assert found["metadata"] == {"team": "ops", "tries": 3, "zip": "01234"}
    assert (found["lease"]["length"], found["lease"]["time_limit"]) == ("2m", "1m30s")
    assert (found["end_at"], found["group"], found["description"]) == ("2027-01-01T00:00:00Z", "g", "d")


def test_an_update_clears_what_is_null_and_turns_off_what_is_no(house: House) -> None:
    ask(house, "schedule", "update", "orders-poll", "--end-at", "2027-01-01T00:00:00Z", "--tag", "a")
    words = ["--end-at", "null", "--tag", "[]", "--no-adaptive", "--name", "polling"]
    said = ask(house, "schedule", "update", "orders-poll", *words, "-o", "json")
    found = said.data["schedule"]
    assert (found["end_at"], found["tags"], found["adaptive"], found["name"]) == (None, [], False, "polling")


def test_global_options_are_heard_before_and_behind_the_verb(house: House) -> None:
    asked = [
        ["-o", "json", "schedule", "list"],
        ["schedule", "-o", "json", "list"],
        ["schedule", "list", "-o", "json"],
        ["-o", "yaml", "schedule", "list", "--output", "json"],
    ]
    assert len({ask(house, *words).out for words in asked}) == 1
    assert ask(house, *asked[0]).data["schedules"]


def test_a_file_spells_the_fields_and_options_lie_over_it(house: House, here: Path) -> None:
    spec = "name: from-file\nevery: 5m\nnote: hi\nmetadata: {on: no, at: 12:30, day: 2026-03-10}\nretry: 2\n"
    (here / "spec.yaml").write_text(spec, encoding="utf-8")
    said = ask(
        house, "schedule", "create", "--file", "spec.yaml", "--every", "10m", "--dry-run", "-o", "json"
    )
    found = said.data["schedule"]
    assert (found["name"], found["trigger"]["interval"], found["retry"]["max_attempts"]) == (
        "from-file",
        "10m",
        2,
    )
    # What other readers of YAML would take for a truth, a number and a day are the texts that stand there.
    assert found["metadata"] == {"on": "no", "at": "12:30", "day": "2026-03-10"}


def test_the_standard_input_is_a_file_too(here: Path) -> None:
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
def test_a_file_that_is_more_or_less_than_data_is_refused_soon(here: Path, text: str) -> None:
    (here / "spec.yaml").write_bytes(text.encode("latin-1"))
    began = time.thread_time()
    with pytest.raises(InvalidInput) as refusal:
        read_file("spec.yaml")
    assert refusal.value.field == "file"
    assert refusal.value.rule
    assert time.thread_time() - began < 5


def test_a_file_that_is_too_large_or_not_there_is_refused(here: Path) -> None:
    (here / "large.yaml").write_text("a: " + "x" * 300_000, encoding="utf-8")
    for name in ("large.yaml", "missing.yaml", "."):
        with pytest.raises(InvalidInput) as refusal:
            read_file(name)
        assert name in refusal.value.message


def test_data_is_json_or_yaml_and_a_word_is_a_word() -> None:
    read = {
        text: read_loose(text, field="x")
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
    assert read_loose('"3"', field="x") == "3"
    with pytest.raises(InvalidInput):
        read_loose("{a: ", field="x")


def test_a_pair_without_a_name_is_refused_with_an_example(house: House) -> None:
    said = ask(house, "schedule", "create", "x", "--every", "5s", "--note", "x", "--metadata", "team")
    assert said.code == 1
    assert "try     --metadata team=finance" in said.err


def test_a_number_that_is_none_is_refused_by_the_operation(house: House) -> None:
    said = ask(house, "schedule", "list", "--limit", "many")
    assert said.code == 1
    assert "a whole number from 1 to 1000" in said.err


def test_a_command_without_shell_is_one_argument_too_many(house: House) -> None:
    said = ask(house, "schedule", "create", "x", "--every", "5s", "--", "echo", "hi")
    assert said.code == 2
    assert "a command needs --shell" in said.err


def test_what_is_not_given_is_not_asked_for() -> None:
    for one in operations:
        nothing = {option.key: () if option.several else None for option in options_of(one)}
        assert payload_of(one, nothing) == {}
