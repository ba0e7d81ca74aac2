"""The page with typical errors shows the current output of the commands, and each error has a fix."""

from __future__ import annotations

import re
from functools import cache

import pytest

from docs import tour

BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)


@cache
def built_page() -> str:
    return tour.page()


def blocks() -> list[str]:
    text = (tour.DOCS / tour.PAGE).read_text("utf-8")
    return BLOCK.findall(text)


def test_the_page_shows_the_current_output_of_the_commands() -> None:
    assert (tour.DOCS / tour.PAGE).read_text("utf-8") == built_page(), "run: python -m docs.tour"


@pytest.mark.parametrize("block", blocks())
def test_an_error_says_what_is_wrong_and_what_to_try(block: str) -> None:
    command, error, *rest = block.splitlines()
    assert command.startswith("$ timewright ")
    assert error.startswith("error: ")
    assert any(line.startswith("  try     ") for line in rest)


def test_no_two_examples_are_equal() -> None:
    assert len(blocks()) == len(set(blocks())) > 25


def test_a_command_that_succeeds_fails_the_build_of_the_page() -> None:
    with pytest.raises(AssertionError, match="was not refused"):
        list(tour._stop({"says": "Nothing wrong:", "type": "timewright --version"}))
