"""Commands that run a process: up, serve, worker, watch and others; and the list of all such commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import click

from timewright.interfaces.cli.commands import Option, SectionedCommand, global_options, option_for
from timewright.interfaces.cli.fields import OptionField, setting_fields
from timewright.interfaces.cli.options import read_field
from timewright.interfaces.cli.process.dashboard_link import dashboard
from timewright.interfaces.cli.process.demo import demo
from timewright.interfaces.cli.process.import_command import import_files_command
from timewright.interfaces.cli.process.mcp_command import mcp
from timewright.interfaces.cli.process.planner_command import planner
from timewright.interfaces.cli.process.service_command import service
from timewright.interfaces.cli.process.simulate_command import replay, simulate
from timewright.interfaces.cli.process.store_commands import backup, migrate, move, restore
from timewright.interfaces.cli.session import Session
from timewright.interfaces.cli.settings import SERVER_DEFAULTS

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
