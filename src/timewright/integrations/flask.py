"""`FlaskScheduler`: a scheduler for a Flask application."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import Any

from timewright.integrations.commands import import_path, missing_package, run_command
from timewright.interfaces.python.scheduler import Scheduler

try:
    import click
    from flask import Flask
    from flask.cli import ScriptInfo
except ImportError as error:
    raise missing_package("Flask", "flask") from error


class FlaskScheduler(Scheduler):
    """A `Scheduler` whose functions run in the context of a Flask application."""

    opens_at_once = False

    def __init__(self, store: str | os.PathLike[str] = "timewright.db", **options: Any) -> None:
        self._web: Flask | None = None
        super().__init__(store, **options)
        self.registry.around = self._app_context

    def init_app(self, web: Flask) -> None:
        """Connect an application: its context for the functions, and the command `flask timewright`."""
        self._web = web
        web.extensions["timewright"] = self
        web.cli.add_command(_command(self))

    def _app_context(self) -> AbstractContextManager[object]:
        # A worker process has imported only the scheduler; the application is loaded as `flask` would.
        web = self._web or ScriptInfo(os.environ.get("FLASK_APP")).load_app()
        return web.app_context()


def _command(scheduler: FlaskScheduler) -> click.Command:
    """Return `flask timewright …`, which passes all that follows to our command line."""

    @click.pass_context
    def run(context: click.Context, /, arguments: tuple[str, ...]) -> None:
        info = context.find_object(ScriptInfo)
        if info is not None and info.app_import_path:
            os.environ["FLASK_APP"] = info.app_import_path
        context.exit(run_command(arguments, app=import_path(scheduler), store=scheduler.store_url))

    return click.Command(
        "timewright",
        callback=run,
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True, "help_option_names": []},
        help="Run schedules and look at them: flask timewright up.",
    )
