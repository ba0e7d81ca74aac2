"""The command that opens the dashboard again: a new link from the server that runs on this store."""

from __future__ import annotations

import click

from timewright.doors.cli.commands import Ask, global_options
from timewright.doors.cli.session import Session, as_text, key_for
from timewright.errors import NotFound


def dashboard(_: click.Group) -> click.Command:
    """Print a link that opens the dashboard of a running server, once and soon."""
    text = str(dashboard.__doc__)
    return Ask("dashboard", params=global_options(), callback=_linking, help=text, short_help=text)


@click.pass_obj
def _linking(session: Session, /) -> None:
    from timewright.doors.http.client import Client

    url = session.server or _running(session)
    answer = Client(url, key=key_for(session)).send("POST", "/session/links")
    link = f"{url.rstrip('/')}{answer['link']}"
    session.say([link] if session.output == "table" else [as_text({"link": link}, session.output)])


def _running(session: Session) -> str:
    from timewright.doors.cli.whereabouts import read_whereabouts

    found = read_whereabouts(session.place)
    if found is None:
        raise NotFound(
            f"no server runs on {session.place}",
            field="server",
            rule="timewright up or timewright serve on this store, or --server with its address",
            fix=session.command("up"),
        )
    return found.url
