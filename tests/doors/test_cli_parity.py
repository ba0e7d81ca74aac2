"""The whole list at this door: the same answers and refusals as when an operation is asked itself."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.doors.terminal import ask
from tests.operations.house import House, furnished
from timewright.doors.cli.fields import options_of, setting_fields, subject_of
from timewright.doors.cli.options import words_of
from timewright.doors.cli.table import columns_of
from timewright.doors.cli.words import NOUNS, SAID
from timewright.errors import TimewrightError
from timewright.operations import Operation, operations
from timewright.settings import Settings


@pytest.fixture(autouse=True)
def here() -> None:
    """Nothing here touches a folder."""


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


@pytest.mark.parametrize(("one", "example"), EXAMPLES)
def test_every_example_gives_the_answer_of_the_operation(
    house: House, one: Operation[Any], example: Mapping[str, Any]
) -> None:
    said = ask(house, *words_of(one, example), "-o", "json")
    assert (said.code, said.err) == (0, "")
    assert said.data == json.loads(json.dumps(one(furnished().context, example)))


@pytest.mark.parametrize(("one", "example"), ABOUT)
def test_every_refusal_is_that_of_the_operation(
    house: House, one: Operation[Any], example: Mapping[str, Any]
) -> None:
    said = ask(house.elsewhere(), *words_of(one, example), "-o", "json")
    refusal = refusal_of(one, example)
    if refusal is None:
        assert said.code == 0
        return
    problem = json.loads(said.err)
    assert (said.code, said.out) == (1, "")
    assert (problem["code"], problem["message"]) == (refusal.code, refusal.message)
    assert (problem.get("rule"), problem.get("fix")) == (refusal.rule, refusal.fix)


def refusal_of(one: Operation[Any], example: Mapping[str, Any]) -> TimewrightError | None:
    """What is refused to someone of another namespace."""
    try:
        one(furnished().elsewhere().context, example)
    except TimewrightError as refusal:
        return refusal
    return None


def test_most_of_these_are_refusals() -> None:
    asked = [(one, one.examples[0]) for one in operations if subject_of(one) is not None]
    refused = [one.name for one, example in asked if refusal_of(one, example) is not None]
    assert len(refused) > len(asked) / 2


@pytest.mark.parametrize(("one", "example"), EXAMPLES)
def test_every_answer_can_be_read_on_a_narrow_and_on_a_usual_screen(
    house: House, one: Operation[Any], example: Mapping[str, Any]
) -> None:
    dry = [] if one.reads_only or "dry_run" in example else ["--dry-run"]
    for width, rehearsed in ((40, dry), (80, [])):
        said = ask(house, *words_of(one, example), *rehearsed, width=width)
        assert said.code == 0
        assert said.lines
        assert [line for line in said.lines if columns_of(line) > width] == []


@pytest.mark.parametrize("one", EVERY)
def test_every_answer_is_yaml_that_means_the_same(house: House, one: Operation[Any]) -> None:
    said = ask(house, *words_of(one, one.examples[0]), "-o", "yaml")
    assert yaml.safe_load(said.out) == json.loads(json.dumps(one(furnished().context, one.examples[0])))


@pytest.mark.parametrize("one", EVERY)
def test_the_help_of_every_command_shows_what_it_does_its_examples_and_each_option(
    one: Operation[Any],
) -> None:
    said = ask(None, *one.name.split(), "--help")
    assert said.code == 0
    text = " ".join(said.out.split())
    assert one.summary in text
    for example in one.examples:
        assert f"  timewright {shlex.join(words_of(one, example))}\n" in said.out
    for option in options_of(one):
        assert option.help, f"{option.flag} says nothing about itself"
        assert option.flag in text
        assert option.help in text


def test_no_two_options_of_a_command_have_one_name() -> None:
    for one in operations:
        flags = [option.flag for option in options_of(one)]
        assert len(flags) == len(set(flags)), one.name


def test_every_noun_is_described_and_no_sentence_is_left_over() -> None:
    assert {one.noun for one in operations if one.noun} <= set(NOUNS)
    used = {option.help for one in operations for option in options_of(one)}
    used |= {option.help for option in setting_fields(Settings())}
    assert set(SAID.values()) - used == set()


def test_every_remedy_is_a_command_that_is_understood(house: House) -> None:
    asked: list[tuple[str, dict[str, Any]]] = [
        ("schedule explain", {"schedule": name})
        for name in ("nightly-report", "paused-export", "orders-poll")
    ]
    asked += [("schedule explain", {"schedule": "nightly-report", "last": True})]
    asked += [("schedule explain", {"schedule": "nightly-report", "at": "2026-02-20T03:00:00Z"})]
    asked += [("run explain", {"run": row["id"]}) for row in house.ask("run list", limit=1000)["runs"]]
    remedies = [remedy for name, request in asked for remedy in house.ask(name, request)["remedies"]]
    assert len({remedy["operation"] for remedy in remedies}) >= 5
    for remedy in remedies:
        program, *words = shlex.split(remedy["command"])
        assert program == "timewright"
        dry = [] if operations[remedy["operation"]].reads_only else ["--dry-run"]
        said = ask(furnished(), *words, *dry, "-o", "json")
        assert said.code == 0, said.err
        request = {**remedy["request"], **({"dry_run": True} if dry else {})}
        assert said.data == json.loads(
            json.dumps(operations[remedy["operation"]](furnished().context, request))
        )


def test_every_command_of_the_page_is_understood() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operate" / "command-line.md").read_text(encoding="utf-8")
    typed = re.findall(r"^\$ timewright (.+)$", page, re.MULTILINE) + re.findall(
        r"`timewright ([a-z][^`$]*)`", page
    )
    assert len(typed) > 12
    for line in typed:
        words = [word for word in shlex.split(line) if word not in ("NOUN", "VERB")]
        assert ask(None, *words, "--help").code == 0, line
