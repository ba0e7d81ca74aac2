"""`manage.py timewright …`: our command line on the store of the project."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand

from timewright.integrations.commands import run_command
from timewright.integrations.django.django_scheduler import APP, project_scheduler


class TimewrightCommand(BaseCommand):
    """Passes all that follows its name to our command line; `up` and `worker` also get the functions."""

    help = "Run schedules and look at them: manage.py timewright up."
    requires_system_checks = ()

    def run_from_argv(self, argv: Sequence[str]) -> None:
        """Run from the shell."""
        sys.exit(self._run(argv[2:]))

    def handle(self, *arguments: str, **_: Any) -> None:
        """Run from `call_command("timewright", "schedule", "list")`."""
        self._run(arguments)

    def add_arguments(self, parser: Any) -> None:
        """Take any words."""
        parser.add_argument("args", nargs="*")

    def _run(self, words: Sequence[str]) -> int:
        return run_command(words, app=APP, store=os.fspath(project_scheduler().store_url))


Command = TimewrightCommand  # the name that Django looks for
