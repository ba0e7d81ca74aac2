"""The command that lets an agent in: MCP over the standard input and output."""

from __future__ import annotations

import os
from typing import Any

import click
from msgspec.structs import replace

from timewright.doors.cli.commands import Ask, Option, global_options
from timewright.doors.cli.session import Session
from timewright.errors import MissingExtra
from timewright.operations import Context, operations
from timewright.operations.access import ROLES, Caller, acting, authenticate


def mcp(_: click.Group) -> click.Command:
    """Answer an agent over the standard input and output; it only reads, unless --write is said."""
    option = Option(
        ["--write"],
        is_flag=True,
        help="Also write: with the scopes of the key in TIMEWRIGHT_KEY, without one as an editor.",
    )
    text = str(mcp.__doc__)
    return Ask("mcp", params=[option, *global_options()], callback=_answering, help=text, short_help=text)


@click.pass_obj
def _answering(session: Session, /, write: bool) -> None:
    serve = _door()
    with session.context(operations["health"], {}) as context:
        limited = as_agent(context, write=write, key=os.environ.get("TIMEWRIGHT_KEY", ""))
        serve(lambda _: limited)


def as_agent(context: Context, *, write: bool, key: str) -> Context:
    """The context as an agent sees it: it reads, or writes as its key may, and without one as an editor."""
    if write and key and context.elsewhere is None:
        caller = authenticate(context, key)
    else:
        caller = Caller(actor=context.by.actor or "agent", scopes=ROLES["editor" if write else "viewer"])
    return acting(context, replace(caller, origin="agent"))


def _door() -> Any:
    try:
        from timewright.doors.mcp import serve_stdio
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio"):
            raise
        raise MissingExtra(
            "the door for agents is not installed",
            field="mcp",
            rule="it needs the extra mcp",
            fix="pip install 'timewright[mcp]'",
        ) from None
    return serve_stdio
