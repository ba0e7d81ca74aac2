"""`timewright mcp`: the MCP server over standard input and output."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from typing import Any, Literal

import click
from msgspec.structs import replace

from timewright.errors import MissingExtra, TimewrightError
from timewright.interfaces.cli.commands import Option, SectionedCommand, global_options
from timewright.interfaces.cli.session import Session
from timewright.operations import OperationContext, operations
from timewright.operations.access.authentication import ROLES, Caller, authenticate, context_for


def mcp(_: click.Group) -> click.Command:
    """Serve MCP over standard input and output; read-only without --write."""
    option = Option(
        ["--write"],
        is_flag=True,
        help="Allow writes, with the scopes of TIMEWRIGHT_KEY, or as editor without a key.",
    )
    tools = Option(
        ["--tools"],
        default="core",
        show_default=True,
        help="Toolsets the client sees: core, operate, plan, admin, or all; several with commas.",
    )
    text = str(mcp.__doc__)
    return SectionedCommand(
        "mcp", params=[option, tools, *global_options()], callback=_serve, help=text, short_help=text
    )


@click.pass_obj
def _serve(session: Session, /, write: bool, tools: str) -> None:
    serve = _load_server()
    with ExitStack() as stack:
        opened: list[OperationContext] = []
        opening = threading.Lock()

        def context(_: Any) -> OperationContext:
            """Open the store with the first request that finds one; until then each says what to start."""
            with opening:
                if not opened:
                    found = stack.enter_context(session.context(operations["health"], {}))
                    opened.append(as_agent(found, write=write, key=os.environ.get("TIMEWRIGHT_KEY", "")))
                return opened[0]

        try:
            context(None)
        except TimewrightError as error:
            session.print_note(error.explain())
        serve(context, tools=tools, caller=Caller(actor="agent", scopes=ROLES[_role(write)], origin="agent"))


def _role(write: bool) -> Literal["viewer", "editor"]:
    return "editor" if write else "viewer"


def as_agent(context: OperationContext, *, write: bool, key: str) -> OperationContext:
    """Return the context of an agent: a viewer, or with `write` the scopes of its key or an editor."""
    if write and key and context.remote is None:
        caller = authenticate(context, key)
    else:
        caller = Caller(actor=context.by.name or "agent", scopes=ROLES[_role(write)])
    return context_for(context, replace(caller, origin="agent"))


def _load_server() -> Any:
    try:
        from timewright.interfaces.mcp import serve_stdio
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio"):
            raise
        raise MissingExtra(
            "the MCP server is not installed",
            field="mcp",
            rule="requires the extra mcp",
            fix="pip install 'timewright[mcp]'",
        ) from None
    return serve_stdio
