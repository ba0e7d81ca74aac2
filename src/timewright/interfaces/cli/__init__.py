"""The command line: one command per operation, and commands that run processes."""

from __future__ import annotations

from timewright.interfaces.cli.root import cli, main

__all__ = ["cli", "main"]
