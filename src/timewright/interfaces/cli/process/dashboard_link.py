"""`timewright dashboard`: prints a new login link of the running server."""

from __future__ import annotations

import click

from timewright.errors import NotFound
from timewright.interfaces.cli.commands import SectionedCommand, global_options
from timewright.interfaces.cli.session import Session, key_for, serialize


def dashboard(_: click.Group) -> click.Command:
    """Print a one-time login link to the dashboard of a running server."""
    text = str(dashboard.__doc__)
    return SectionedCommand(
        "dashboard", params=global_options(), callback=_print_link, help=text, short_help=text
    )


@click.pass_obj
def _print_link(session: Session, /) -> None:
    from timewright.interfaces.http.client import ApiClient

    url = session.server or _running_server_url(session)
    client = ApiClient(url, key=key_for(session, url))
    path = client.send("POST", "/session/links").get("link")
    if not isinstance(path, str):
        raise client.unexpected_answer("link is missing")
    link = f"{url.rstrip('/')}{path}"
    session.print([link] if session.output == "table" else [serialize({"link": link}, session.output)])


def _running_server_url(session: Session) -> str:
    from timewright.interfaces.cli.process.server_file import read_server_file

    found = read_server_file(session.store_url)
    if found is None:
        raise NotFound(
            f"no server is running for {session.store_url}",
            field="server",
            rule="start timewright up or serve on this store, or pass --server",
            fix=session.command("up"),
        )
    return found.url
