"""`timewright demo`: creates a store with a week of example history."""

from __future__ import annotations

import os
import shlex
from datetime import timedelta

import click

from timewright.clocks import SystemClock
from timewright.errors import Conflict, InvalidInput
from timewright.interfaces.cli.commands import SectionedCommand, global_options
from timewright.interfaces.cli.output.table import progress_bar
from timewright.interfaces.cli.session import Session, store_path
from timewright.interfaces.program import program

DEFAULT_FILE = "demo.db"


def demo(_: click.Group) -> click.Command:
    """Create a store file with a week of example history."""
    text = str(demo.__doc__)
    return SectionedCommand(
        "demo", params=global_options(), callback=_create_demo, help=text, short_help=text
    )


@click.pass_obj
def _create_demo(session: Session, /) -> None:
    from timewright.testing.demo import WEEK, clock_changes, write_demo_file

    store_url = session.given.get("store") or os.environ.get("TIMEWRIGHT_STORE") or DEFAULT_FILE
    path = store_path(store_url)
    if path is None:
        raise InvalidInput(
            "the demo needs a file store",
            field="store",
            value=store_url,
            rule="a file",
            fix=f"--store {DEFAULT_FILE}",
        )
    if path.exists():
        raise Conflict(
            f"{store_url} already exists",
            field="store",
            value=store_url,
            rule="the demo only creates new files",
            fix=f"open it with timewright serve --store {store_url}, or use --store another.db",
        )
    today = SystemClock().now
    until = today() - timedelta(minutes=5)
    with progress_bar() as progress:
        counts = write_demo_file(path, until=until, today=today, progress=progress)
    session.print_note(f"{store_url}: {counts['schedules']} schedules with a week of history. Open it:")
    for changed in clock_changes(until - WEEK, until):
        session.print_note(f"The clocks in {changed} changed during that week; see the runs at night there.")
    session.print([f"{program()} serve --store {shlex.quote(store_url)}"])
