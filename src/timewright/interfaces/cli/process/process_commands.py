"""Commands that run a process: up, serve, worker, watch, planner, mcp; and the list of all of them."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from typing import Any, Literal

import click
from msgspec.structs import replace

from timewright.clocks import SystemClock
from timewright.core.moments import format_duration
from timewright.errors import TimewrightError
from timewright.interfaces.cli.commands import Option
from timewright.interfaces.cli.process import process_command
from timewright.interfaces.cli.process.server_file import dashboard
from timewright.interfaces.cli.process.setup_commands import demo, import_files_command, service
from timewright.interfaces.cli.process.simulate_command import replay, simulate
from timewright.interfaces.cli.process.store_commands import backup, migrate, move, restore
from timewright.interfaces.cli.session import Session
from timewright.interfaces.cli.settings import SERVER_DEFAULTS
from timewright.interfaces.mcp import import_server
from timewright.interfaces.python.stop_signal import stop_on_signals
from timewright.operations import OperationContext, operations
from timewright.operations.access.authentication import ROLES, Caller, authenticate, context_for
from timewright.operations.access.callers import AGENT_ORIGIN

PLANNER_SETTINGS = frozenset({"planner", "planner_every", "advisor"})
HTTP_SETTINGS = frozenset(
    {"port", "bind", "hosts", "behind_proxy", "oidc", "tls_cert", "tls_key", "tls_client_ca"}
    | {"jwt_keys", "jwt_algorithms", "jwt_audience", "jwt_issuer"}
)
WATCH_SETTINGS = frozenset({"shell", "local", "egress", "secret_key_file", "log", "log_level"})
SHELLS = ("bash", "zsh", "fish")
APP = Option(
    ["--app"],
    metavar="MODULE:NAME",
    help="The app with the functions: module:name of a scheduler or registry.",
)

GivenSettings = dict[str, Any]


@process_command(
    Option(
        ["--write"],
        is_flag=True,
        help="Allow writes, with the scopes of TIMEWRIGHT_KEY, or as editor without a key.",
    ),
    Option(
        ["--tools"],
        default="",
        help="Toolsets the client sees and may call: core, operate, plan, admin, or all; several with commas."
        " Without it the client sees core and may call all.",
    ),
)
def mcp(session: Session, /, write: bool, tools: str) -> None:
    """Serve MCP over standard input and output; read-only without --write."""
    serve, session.origin = import_server("server").serve_stdio, AGENT_ORIGIN
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
            session.print_note(*error.explain().splitlines())
        serve(
            context,
            tools=tools,
            caller=Caller(actor="agent", scopes=ROLES[_role(write)], origin=AGENT_ORIGIN),
        )


def _role(write: bool) -> Literal["viewer", "editor"]:
    return "editor" if write else "viewer"


def as_agent(context: OperationContext, *, write: bool, key: str) -> OperationContext:
    """Return the context of an agent: a viewer, or with `write` the scopes of its key or an editor."""
    if write and key and context.remote is None:
        caller = authenticate(context, key)
    else:
        caller = Caller(actor=context.by.name or "agent", scopes=ROLES[_role(write)])
    return context_for(context, replace(caller, origin=AGENT_ORIGIN))


@process_command(
    Option(["--once"], is_flag=True, help="Run once and exit."), settings=PLANNER_SETTINGS.__contains__
)
def planner(session: Session, /, once: bool, given: GivenSettings) -> int:
    """Analyse adaptive schedules periodically and set hints for their intervals."""
    from timewright.planner.planner_loop import build_planner

    settings = session.settings(given, strict=True, base=SERVER_DEFAULTS)
    if settings.planner == "off":
        settings = replace(settings, planner="heuristic")
    with session.context(operations["analysis list"], {}) as context:
        planner_loop = build_planner(context, settings, clock=SystemClock(), on_error=session.print_note)
        if once:
            analyses = planner_loop.run_once()
            session.print_data(analyses, _format_analyses(analyses))
            return 0
        stop_signal = stop_on_signals()
        planner_loop.start()
        every = format_duration(settings.planner_every)
        session.print_note(f"the {settings.planner} planner runs every {every}; Ctrl-C stops it")
        while not stop_signal.wait():
            continue
        planner_loop.stop()
    return 0


def _format_analyses(analyses: list[dict[str, Any]]) -> list[str]:
    return [f"{one['schedule']}: {one['reasoning']}" for one in analyses] or ["no schedule needs attention"]


@process_command(APP, settings=lambda _: True)
def up(session: Session, /, app: str | None, given: GivenSettings) -> int:
    """Run due schedules and serve the HTTP API in one process."""
    return _run_instance(session, role="up", app=app, given=given)


@process_command(settings=lambda _: True)
def serve(session: Session, /, given: GivenSettings) -> int:
    """Serve the HTTP API only; run workers on the same store separately."""
    return _run_instance(session, role="serve", app=None, given=given)


@process_command(APP, settings=lambda key: key not in HTTP_SETTINGS)
def worker(session: Session, /, app: str | None, given: GivenSettings) -> int:
    """Run due schedules without the HTTP API."""
    return _run_instance(session, role="worker", app=app, given=given)


def _run_instance(session: Session, **options: Any) -> int:
    from timewright.interfaces.cli.process.instance import run_instance

    return run_instance(session, **options)


@process_command(
    Option(["--once"], is_flag=True, help="Look once, send what waits, and exit."),
    settings=WATCH_SETTINGS.__contains__,
)
def watch(session: Session, /, once: bool, given: GivenSettings) -> int:
    """Look for incidents and send the messages of channels; runs no schedule."""
    from timewright.interfaces.cli.process.instance import run_watch

    return run_watch(session, given=given, once=once)


@process_command(click.Argument(["shell"], type=click.Choice(SHELLS)))
def completion(_: Session, /, shell: str) -> None:
    """Print the completion script of a shell.

    \b
      eval "$(timewright completion bash)"
    """  # noqa: D301 - click does not wrap a paragraph after this character
    from click.shell_completion import ShellComplete, get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    # Call the base class: the bash subclass starts bash to check its version.
    click.echo(ShellComplete.source(kind(root, {}, "timewright", "_TIMEWRIGHT_COMPLETE")))


PROCESS_COMMANDS: dict[str, click.Command] = {
    str(one.name): one
    for one in (
        *(up, serve, worker, watch, dashboard, mcp, planner, demo, import_files_command, simulate, replay),
        *(migrate, backup, restore, move, service, completion),
    )
}
