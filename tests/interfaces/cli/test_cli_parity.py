"""Every operation on the command line returns the same answers and errors as a direct call."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import timewright
from tests.interfaces.terminal import invoke
from tests.operations.harness import OperationsHarness, sample_harness
from timewright.errors import TimewrightError
from timewright.interfaces.cli.fields import options_of, setting_fields, subject_of
from timewright.interfaces.cli.option_help import OPTION_HELP
from timewright.interfaces.cli.options import command_words
from timewright.interfaces.cli.output.table import display_width
from timewright.interfaces.cli.root import NOUN_HELP
from timewright.operations import Operation, operations
from timewright.settings import Settings


@pytest.fixture(autouse=True)
def here() -> None:
    """Override: these tests use no files."""


EVERY = [pytest.param(one, id=one.name) for one in operations]
EXAMPLES = [
    pytest.param(one, example, id=f"{one.name} {number}")
    for one in operations
    for number, example in enumerate(one.examples)
]
ABOUT = [
    pytest.param(one, example, id=f"{one.name} {number}")
    for one in operations
    for number, example in enumerate(one.examples)
    if subject_of(one) is not None
]


# Exit code 3 means that something would change.
DIFFERENCES = {"plan": (3,), "diff": (3,)}
# These print a file, whose lines are as long as they are.
FILES = ("export", "schema")


@pytest.mark.parametrize(("one", "example"), EXAMPLES)
def test_every_example_gives_the_answer_of_the_operation(
    harness: OperationsHarness, one: Operation[Any], example: Mapping[str, Any]
) -> None:
    said = invoke(harness, *command_words(one, example), "-o", "json")
    assert (said.code, said.err) in [(code, "") for code in (0, *DIFFERENCES.get(one.name, ()))]
    assert said.data == json.loads(json.dumps(one(sample_harness().context, example)))


@pytest.mark.parametrize(("one", "example"), ABOUT)
def test_every_error_equals_that_of_the_operation(
    harness: OperationsHarness, one: Operation[Any], example: Mapping[str, Any]
) -> None:
    said = invoke(harness.in_namespace(), *command_words(one, example), "-o", "json")
    refusal = error_of(one, example)
    if refusal is None:
        assert said.code == 0
        return
    problem = json.loads(said.err)
    assert (said.code, said.out) == (1, "")
    assert (problem["code"], problem["message"]) == (refusal.code, refusal.message)
    assert (problem.get("rule"), problem.get("fix")) == (refusal.rule, refusal.fix)


def error_of(one: Operation[Any], example: Mapping[str, Any]) -> TimewrightError | None:
    """Return the error that a caller of another namespace gets."""
    try:
        one(sample_harness().in_namespace().context, example)
    except TimewrightError as refusal:
        return refusal
    return None


def test_most_examples_are_refused_in_another_namespace() -> None:
    asked = [(one, one.examples[0]) for one in operations if subject_of(one) is not None]
    refused = [one.name for one, example in asked if error_of(one, example) is not None]
    assert len(refused) > len(asked) / 2


@pytest.mark.parametrize(("one", "example"), EXAMPLES)
def test_every_answer_fits_narrow_and_wide_terminals(
    harness: OperationsHarness, one: Operation[Any], example: Mapping[str, Any]
) -> None:
    dry = [] if one.read_only or "dry_run" in example else ["--dry-run"]
    for width, rehearsed in ((40, dry), (80, [])):
        said = invoke(harness, *command_words(one, example), *rehearsed, width=width)
        assert said.code in (0, *DIFFERENCES.get(one.name, ()))
        assert said.lines
        if one.name not in FILES:
            assert [line for line in said.lines if display_width(line) > width] == []


# As YAML these print what `schedule put --file` reads.
AS_PUT = ("schedule get", "schedule list")


@pytest.mark.parametrize("one", [one for one in EVERY if one.id not in AS_PUT])
def test_every_answer_as_yaml_equals_the_json(harness: OperationsHarness, one: Operation[Any]) -> None:
    said = invoke(harness, *command_words(one, one.examples[0]), "-o", "yaml")
    assert yaml.safe_load(said.out) == json.loads(json.dumps(one(sample_harness().context, one.examples[0])))


@pytest.mark.parametrize("one", EVERY)
def test_every_help_page_has_summary_examples_and_options(
    one: Operation[Any],
) -> None:
    said = invoke(None, *one.name.split(), "--help")
    assert said.code == 0
    text = " ".join(said.out.split())
    assert one.summary in text
    for example in one.examples:
        assert f"  timewright {shlex.join(command_words(one, example))}\n" in said.out
    for option in options_of(one):
        assert option.help, f"{option.flag} says nothing about itself"
        assert option.flag in text
        assert option.help in text
        assert not option.default.startswith("[")


def test_option_names_are_unique_per_command() -> None:
    for one in operations:
        flags = [option.flag for option in options_of(one)]
        assert len(flags) == len(set(flags)), one.name


def test_every_help_text_is_used_and_every_noun_has_one() -> None:
    assert {one.noun for one in operations if one.noun} <= set(NOUN_HELP)
    used = {option.help for one in operations for option in options_of(one)}
    used |= {option.help for option in setting_fields(Settings())}
    assert set(OPTION_HELP.values()) - used == set()
    assert [option.flag for option in setting_fields(Settings()) if not option.help] == []


def test_every_suggested_command_is_valid(harness: OperationsHarness) -> None:
    asked: list[tuple[str, dict[str, Any]]] = [
        ("schedule explain", {"schedule": name})
        for name in ("nightly-report", "paused-export", "orders-poll")
    ]
    asked += [("schedule explain", {"schedule": "nightly-report", "last": True})]
    asked += [("schedule explain", {"schedule": "nightly-report", "at": "2026-02-20T03:00:00Z"})]
    asked += [("run explain", {"run": row["id"]}) for row in harness.ask("run list", limit=1000)["runs"]]
    remedies = [remedy for name, request in asked for remedy in harness.ask(name, request)["remedies"]]
    assert len({remedy["operation"] for remedy in remedies}) >= 5
    for remedy in remedies:
        program, *words = shlex.split(remedy["command"])
        assert program == "timewright"
        dry = [] if operations[remedy["operation"]].read_only else ["--dry-run"]
        said = invoke(sample_harness(), *words, *dry, "-o", "json")
        assert said.code == 0, said.err
        request = {**remedy["request"], **({"dry_run": True} if dry else {})}
        assert said.data == json.loads(
            json.dumps(operations[remedy["operation"]](sample_harness().context, request))
        )


def test_every_command_in_a_message_exists() -> None:
    names = {one.name for one in operations}
    typed = {name.partition(" ")[0] for name in names}
    for path in Path(timewright.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        commands = re.findall(r"timewright ([a-z][a-z-]+(?: [a-z][a-z-]+){1,2})", text)
        calls = re.findall(r"command_line\(([^)]*)", text)
        commands += [" ".join(re.findall(r'"([a-z][a-z-]+)"', call)) for call in calls]
        for command in commands:
            noun, _, verb = command.partition(" ")
            if noun in typed and verb:
                assert any(f"{command} ".startswith(f"{name} ") for name in names), (path.name, command)


def test_every_documented_command_is_valid() -> None:
    page = (Path(__file__).parents[3] / "docs" / "operate" / "command-line.md").read_text(encoding="utf-8")
    typed = re.findall(r"^\$ timewright (.+)$", page, re.MULTILINE) + re.findall(
        r"`timewright ([a-z][^`$]*)`", page
    )
    assert len(typed) > 12
    for line in typed:
        words = [word for word in shlex.split(line) if word not in ("NOUN", "VERB")]
        assert invoke(None, *words, "--help").code == 0, line
