"""The Python examples in the README run from top to bottom and print what the README shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.project import PYTHON_BLOCK, ROOT, run_example

README = ROOT / "README.md"


def test_the_examples_of_the_readme_run_and_print_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    compared = [
        pair
        for block in PYTHON_BLOCK.findall(README.read_text(encoding="utf-8"))
        for pair in run_example(block, names)
    ]
    assert len(compared) >= 4
    assert [expected for expected, _ in compared] == [actual for _, actual in compared]


def test_a_wrong_result_in_an_example_is_detected() -> None:
    assert run_example("1 + 1  # → 3", {}) == [("3", "2")]


def test_the_first_60_lines_have_both_commands_and_an_example() -> None:
    first_screen = README.read_text(encoding="utf-8").splitlines()[:60]
    text = "\n".join(first_screen)
    assert "python3 dev.py up" in text
    assert "python3 dev.py test" in text
    assert "```python" in text
    for way in ("pip install .", "pipx install .", "uv tool install ."):
        assert way in "\n".join(first_screen[:20])


def test_every_page_linked_from_the_readme_exists() -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", README.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (README.parent / link).exists()] == []
