"""Commands that run a process: up, serve, worker, watch, planner, mcp; and the list of all of them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Literal

import click
from msgspec.structs import replace

from timewright.clocks import SystemClock
from timewright.core.moments import format_duration
from timewright.errors import MissingExtra, TimewrightError
from timewright.interfaces.cli.commands import Option, option_for, process_command
from timewright.interfaces.cli.fields import OptionField, setting_fields
from timewright.interfaces.cli.options import read_field
from timewright.interfaces.cli.process.server_file import dashboard
from timewright.interfaces.cli.process.setup_commands import demo, import_files_command, service
from timewright.interfaces.cli.process.simulate_command import replay, simulate
from timewright.interfaces.cli.process.store_commands import backup, migrate, move, restore
from timewright.interfaces.cli.session import Session
from timewright.interfaces.cli.settings import SERVER_DEFAULTS
from timewright.interfaces.python.stop_signal import StopSignal
from timewright.operations import OperationContext, operations
from timewright.operations.access.authentication import ROLES, Caller, authenticate, context_for
from timewright.operations.access.callers import AGENT_ORIGIN


def mcp(_: click.Group) -> click.Command:
    """Serve MCP over standard input and output; read-only without --write."""
    option = Option(
        ["--write"],
        is_flag=True,
        help="Allow writes, with the scopes of TIMEWRIGHT_KEY, or as editor without a key.",
    )
    tools = Option(
        ["--tools"],
        default="",
        help="Toolsets the client sees and may call: core, operate, plan, admin, or all; several with commas."
        " Without it the client sees core and may call all.",
    )
    return process_command("mcp", _serve, [option, tools], help=str(mcp.__doc__))


@click.pass_obj
def _serve(session: Session, /, write: bool, tools: str) -> None:
    serve, session.origin = _load_server(), AGENT_ORIGIN
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


PLANNER_SETTINGS = frozenset({"planner", "planner_every", "advisor"})


def planner(_: click.Group) -> click.Command:
    """Analyse adaptive schedules periodically and set hints for their intervals."""
    fields = {field.key: field for field in setting_fields(SERVER_DEFAULTS) if field.key in PLANNER_SETTINGS}
    once = Option(["--once"], is_flag=True, help="Run once and exit.")

    @click.pass_obj
    def run_planner(session: Session, /, once: bool, **values: Any) -> int:
        given = {name: read_field(fields[name], value) for name, value in values.items() if value is not None}
        return _run(session, given, once=once)

    params = [once, *(option_for(field) for field in fields.values())]
    return process_command("planner", run_planner, params, help=str(planner.__doc__))


def _run(session: Session, given: dict[str, Any], *, once: bool) -> int:
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
        stop_signal = StopSignal()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop_signal.set())
        planner_loop.start()
        every = format_duration(settings.planner_every)
        session.print_note(f"the {settings.planner} planner runs every {every}; Ctrl-C stops it")
        while not stop_signal.wait():
            continue
        planner_loop.stop()
    return 0


def _format_analyses(analyses: list[dict[str, Any]]) -> list[str]:
    return [f"{one['schedule']}: {one['reasoning']}" for one in analyses] or ["no schedule needs attention"]


HTTP_SETTINGS = frozenset(
    {
        "port",
        "bind",
        "hosts",
        "tls_cert",
        "tls_key",
        "behind_proxy",
        "tls_client_ca",
        "jwt_keys",
        "jwt_algorithms",
        "jwt_audience",
        "jwt_issuer",
        "oidc",
    }
)
WATCH_SETTINGS = frozenset({"shell", "local", "egress", "secret_key_file", "log", "log_level"})
SHELLS = ("bash", "zsh", "fish")


def up(_: click.Group) -> click.Command:
    """Run due schedules and serve the HTTP API in one process."""
    return _process_command("up", help=str(up.__doc__))


def serve(_: click.Group) -> click.Command:
    """Serve the HTTP API only; run workers on the same store separately."""
    return _process_command("serve", help=str(serve.__doc__))


def worker(_: click.Group) -> click.Command:
    """Run due schedules without the HTTP API."""
    return _process_command("worker", help=str(worker.__doc__))


def watch(_: click.Group) -> click.Command:
    """Look for incidents and send the messages of channels; runs no schedule."""
    fields = tuple(one for one in setting_fields(SERVER_DEFAULTS) if one.key in WATCH_SETTINGS)
    once = Option(["--once"], is_flag=True, help="Look once, send what waits, and exit.")

    @click.pass_obj
    def start(session: Session, /, once: bool, **values: Any) -> int:
        from timewright.interfaces.cli.process.instance import run_watch

        return run_watch(session, given=_settings_in(fields, values), once=once)

    return process_command(
        "watch", start, [once, *(option_for(field) for field in fields)], help=str(watch.__doc__)
    )


def completion(root: click.Group) -> click.Command:
    """Print the completion script of a shell."""

    def print_script(shell: str) -> None:
        from click.shell_completion import ShellComplete, get_completion_class

        kind = get_completion_class(shell)
        assert kind is not None
        # Call the base class: the bash subclass starts bash to check its version.
        click.echo(ShellComplete.source(kind(root, {}, "timewright", "_TIMEWRIGHT_COMPLETE")))

    text = f'{completion.__doc__}\n\n\b\n  eval "$(timewright completion bash)"'
    argument = click.Argument(["shell"], type=click.Choice(SHELLS))
    return process_command("completion", print_script, [argument], help=text)


PROCESS_COMMANDS: dict[str, Callable[[click.Group], click.Command]] = {
    "up": up,
    "serve": serve,
    "worker": worker,
    "watch": watch,
    "dashboard": dashboard,
    "mcp": mcp,
    "planner": planner,
    "demo": demo,
    "import": import_files_command,
    "simulate": simulate,
    "replay": replay,
    "migrate": migrate,
    "backup": backup,
    "restore": restore,
    "move": move,
    "service": service,
    "completion": completion,
}


def _process_command(name: Literal["up", "serve", "worker"], *, help: str) -> click.Command:  # noqa: A002
    fields = tuple(
        one for one in setting_fields(SERVER_DEFAULTS) if name != "worker" or one.key not in HTTP_SETTINGS
    )

    @click.pass_obj
    def start(session: Session, /, app: str | None = None, **values: Any) -> int:
        from timewright.interfaces.cli.process.instance import run_instance

        return run_instance(session, role=name, app=app, given=_settings_in(fields, values))

    text = "The app with the functions: module:name of a scheduler or registry."
    app_option = [] if name == "serve" else [Option(["--app"], metavar="MODULE:NAME", help=text)]
    return process_command(name, start, [*app_option, *(option_for(field) for field in fields)], help=help)


def _settings_in(fields: tuple[OptionField, ...], values: dict[str, Any]) -> dict[str, Any]:
    values = {key: value for key, value in values.items() if value is not None and value != ()}
    given = {field.key: (field, values[field.key]) for field in fields if field.key in values}
    return {
        key: value if field.kind == "switch" else read_field(field, value)
        for key, (field, value) in given.items()
    }
