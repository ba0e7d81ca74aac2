"""Files of the project, its error types, and Python examples in pages, for tests of code and docs."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

from timewright import errors

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "timewright"
MODULES = sorted(SOURCE.rglob("*.py"))
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))

GUIDE_BLOCK = re.compile(r'^```(\w+)(?: title="([\w./-]+)")?\n(.*?)^```', re.DOTALL | re.MULTILINE)
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
_ARROW = re.compile(r"# → (.*)$")


def error_types() -> list[type[errors.TimewrightError]]:
    """Every error type of the project."""
    classes = (cls for _, cls in inspect.getmembers(errors, inspect.isclass))
    return [cls for cls in classes if issubclass(cls, errors.TimewrightError)]


def run_example(block: str, names: dict[str, Any]) -> list[tuple[str, str]]:
    """Run a Python block. Returns the expected and the actual value of each line with an arrow."""
    lines, compared = block.splitlines(), []
    for statement in ast.parse(block).body:
        arrow = _ARROW.search(lines[(statement.end_lineno or statement.lineno) - 1])
        if arrow is None:
            exec(compile(ast.Module([statement], []), "page", "exec"), names)
        else:
            line = lines[statement.lineno - 1]
            assert isinstance(statement, ast.Expr), f"an arrow follows an expression, not: {line}"
            value = eval(compile(ast.Expression(statement.value), "page", "eval"), names)
            compared.append((arrow[1].strip(), str(value)))
    return compared
