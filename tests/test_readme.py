"""Every Python block in the README runs, top to bottom, and says what the README says it says."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).resolve().parents[1] / "README.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
ARROW = re.compile(r"# → (.*)$")


def run(block: str, names: dict[str, Any]) -> list[tuple[str, str]]:
    """Run one block; give back, for each line with an arrow, what it claims and what came out."""
    lines, compared = block.splitlines(), []
    for statement in ast.parse(block).body:
        claim = ARROW.search(lines[(statement.end_lineno or statement.lineno) - 1])
        if claim is None:
            exec(compile(ast.Module([statement], []), "README.md", "exec"), names)
        else:
            assert isinstance(statement, ast.Expr), (
                f"an arrow follows an expression, not: {lines[statement.lineno - 1]}"
            )
            value = eval(compile(ast.Expression(statement.value), "README.md", "eval"), names)
            compared.append((claim[1].strip(), str(value)))
    return compared


def test_the_examples_of_the_readme_run_and_tell_the_truth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    compared = [
        pair for block in BLOCK.findall(README.read_text(encoding="utf-8")) for pair in run(block, names)
    ]
    assert len(compared) >= 4
    assert [claim for claim, _ in compared] == [outcome for _, outcome in compared]


def test_an_example_that_lies_is_found_out() -> None:
    assert run("1 + 1  # → 3", {}) == [("3", "2")]


def test_the_first_screen_holds_the_two_commands_and_an_example() -> None:
    first_screen = README.read_text(encoding="utf-8").splitlines()[:60]
    text = "\n".join(first_screen)
    assert "python3 dev.py up" in text
    assert "python3 dev.py test" in text
    assert "```python" in text


def test_every_page_the_readme_links_to_is_there() -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", README.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (README.parent / link).exists()] == []
