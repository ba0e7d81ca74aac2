"""Commands that run a process: up, serve, worker, watch, planner; and the list of all of them."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any, Literal

import click
from msgspec.structs import replace

from timewright.clocks import SystemClock
from timewright.core.moments import format_duration
from timewright.interfaces.cli.commands import Option, SectionedCommand, global_options, option_for
from timewright.interfaces.cli.fields import OptionField, setting_fields
from timewright.interfaces.cli.options import read_field
from timewright.interfaces.cli.process.demo import demo
from timewright.interfaces.cli.process.import_command import import_files_command
from timewright.interfaces.cli.process.mcp_command import mcp
from timewright.interfaces.cli.process.server_file import dashboard
from timewright.interfaces.cli.process.service_command import service
from timewright.interfaces.cli.process.simulate_command import replay, simulate
from timewright.interfaces.cli.process.store_commands import backup, migrate, move, restore
from timewright.interfaces.cli.session import Session, serialize
from timewright.interfaces.cli.settings import SERVER_DEFAULTS
from timewright.interfaces.python.stop_signal import StopSignal
from timewright.operations import operations

PLANNER_SETTINGS = frozenset({"planner", "planner_every", "advisor"})


def planner(_: click.Group) -> click.Command:
    """Analyse adaptive schedules periodically and set hints for their intervals."""
    fields = {field.key: field for field in setting_fields(SERVER_DEFAULTS) if field.key in PLANNER_SETTINGS}
    once = Option(["--once"], is_flag=True, help="Run once and exit.")

    @click.pass_obj
    def run_planner(session: Session, /, once: bool, **values: Any) -> int:
        given = {name: read_field(fields[name], value) for name, value in values.items() if value is not None}
        return _run(session, given, once=once)

    params = [once, *(option_for(field) for field in fields.values()), *global_options()]
    text = str(planner.__doc__)
    return SectionedCommand("planner", params=params, callback=run_planner, help=text, short_help=text)


def _run(session: Session, given: dict[str, Any], *, once: bool) -> int:
    from timewright.planner.factory import build_planner

    settings = session.settings(given, strict=True, base=SERVER_DEFAULTS)
    if settings.planner == "off":
        settings = replace(settings, planner="heuristic")
    with session.context(operations["analysis list"], {}) as context:
        planner_loop = build_planner(context, settings, clock=SystemClock(), on_error=session.print_note)
        if once:
            analyses = planner_loop.run_once()
            session.print(
                _format_analyses(analyses)
                if session.output == "table"
                else [serialize(analyses, session.output)]
            )
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

    return _command("watch", start, [once, *(option_for(field) for field in fields)], help=str(watch.__doc__))


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
    return _command("completion", print_script, [argument], help=text)


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


def _command(name: str, callback: Callable[..., Any], params: list[Any], *, help: str) -> click.Command:  # noqa: A002
    return SectionedCommand(
        name,
        params=[*params, *global_options()],
        callback=callback,
        help=help,
        short_help=help.splitlines()[0],
    )


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
    return _command(name, start, [*app_option, *(option_for(field) for field in fields)], help=help)


def _settings_in(fields: tuple[OptionField, ...], values: dict[str, Any]) -> dict[str, Any]:
    values = {key: value for key, value in values.items() if value is not None and value != ()}
    given = {field.key: (field, values[field.key]) for field in fields if field.key in values}
    return {
        key: value if field.kind == "switch" else read_field(field, value)
        for key, (field, value) in given.items()
    }
