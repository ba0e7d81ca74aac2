"""The tour of refusals is what the commands answer today, and every answer on it leads on."""

from __future__ import annotations

import re
from functools import cache

import pytest

from docs import tour

BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)


@cache
def made() -> str:
    return tour.page()


def blocks() -> list[str]:
    text = (tour.DOCS / tour.PAGE).read_text("utf-8")
    return BLOCK.findall(text)


def test_the_page_is_what_the_commands_answer_now() -> None:
    assert (tour.DOCS / tour.PAGE).read_text("utf-8") == made(), ".venv/bin/python -m docs.tour writes it"


@pytest.mark.parametrize("block", blocks())
def test_a_refusal_says_what_happened_and_what_to_try(block: str) -> None:
    typed, what, *rest = block.splitlines()
    assert typed.startswith("$ timewright ")
    assert what.startswith("error: ")
    assert any(line.startswith("  try     ") for line in rest)


def test_no_two_stops_show_the_same() -> None:
    assert len(blocks()) == len(set(blocks())) > 25


def test_a_command_that_is_not_refused_any_more_is_found_out() -> None:
    with pytest.raises(AssertionError, match="was not refused"):
        list(tour._stop({"says": "Nothing wrong:", "type": "timewright --version"}))
