"""The command that fills a new store with a week of history, to look at."""

from __future__ import annotations

import os
import sys
from datetime import timedelta

import click

from timewright.assembly import open_store
from timewright.clocks import SystemClock
from timewright.doors.cli.commands import Ask, global_options
from timewright.doors.cli.session import Session, file_of
from timewright.errors import Conflict, InvalidInput

PLACE = "demo.db"


def demo(_: click.Group) -> click.Command:
    """Fill a new file with a week of believable history, then look at it with `timewright serve`."""
    text = str(demo.__doc__)
    return Ask("demo", params=global_options(), callback=_making, help=text, short_help=text)


@click.pass_obj
def _making(session: Session, /) -> None:
    from timewright.testing.clock import ManualClock
    from timewright.testing.demo import WEEK, clock_changes, make_demo

    place = session.given.get("store") or os.environ.get("TIMEWRIGHT_STORE") or PLACE
    path = file_of(place)
    if path is None:
        raise InvalidInput(
            "the demo is made in a file", field="store", value=place, rule="a file", fix=f"--store {PLACE}"
        )
    if path.exists():
        raise Conflict(
            f"{place} is already there",
            field="store",
            value=place,
            rule="the demo makes a new file, and changes none",
            fix=f"timewright serve --store {place} to look at it, or --store another.db",
        )
    today = SystemClock().now
    until = today() - timedelta(minutes=5)
    clock = ManualClock(until - WEEK)
    store = open_store(path, clock=clock)
    try:
        made = make_demo(store, clock, until=until, today=today, progress=_progress)
    finally:
        store.close()
    _progress(1.0, "")
    session.note(f"{place}: {made['schedules']} schedules and a week of their history. Look at it:")
    for changed in clock_changes(until - WEEK, until):
        session.note(f"The clocks of {changed} changed in that week: look at what runs at night there.")
    session.say([f"timewright serve --store {place}"])


def _progress(share: float, text: str) -> None:
    """One line that fills, where somebody looks."""
    if sys.stderr is not None and sys.stderr.isatty():
        full = int(share * 30)
        sys.stderr.write(f"\r{'█' * full}{'·' * (30 - full)} {text:<20}")
        sys.stderr.write("\r\x1b[K" if share >= 1 else "")
        sys.stderr.flush()
