"""Run one benchmark by name: `python -m benchmarks NAME [arguments]`.

A benchmark is a module in this folder whose docstring begins with its question, and that has a
`main(arguments: list[str]) -> int`. Shared code is in `benchmarks/parts`.
"""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).parent


def benchmarks() -> dict[str, str]:
    """Every benchmark with its question, parsed without importing it: a compared library may be missing."""
    return {path.stem: question(path) for path in sorted(HERE.glob("[!_]*.py"))}


def question(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n", 1)[0]


def usage() -> str:
    rows = [f"  {name:<18}{asks}" for name, asks in benchmarks().items()]
    return "\n".join(
        ["usage: python -m benchmarks NAME [arguments]", "", *(rows or ["  none is written yet"])]
    )


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in {"-h", "--help"}:
        print(usage())
        return 0
    name = arguments[0].replace("-", "_")
    if name not in benchmarks():
        print(f"unknown benchmark {arguments[0]!r}\n{usage()}", file=sys.stderr)
        return 2
    return int(import_module(f"benchmarks.{name}").main(arguments[1:]) or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
