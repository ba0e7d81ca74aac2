"""Commands that join the parts rather than ask an operation: up, serve, worker, backup and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import click

from timewright.doors.cli.agents import mcp
from timewright.doors.cli.commands import Ask, Option, global_options, option_for
from timewright.doors.cli.demo import demo
from timewright.doors.cli.faults import DIFFERENT
from timewright.doors.cli.fields import Field, setting_fields
from timewright.doors.cli.link import dashboard
from timewright.doors.cli.options import read_field
from timewright.doors.cli.planner import planner
from timewright.doors.cli.session import Session, as_text, file_of, look, shown_place
from timewright.doors.cli.settings import BASE

OF_THE_DOOR = frozenset(
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
SHELLS = ("bash", "zsh", "fish")
_MEBIBYTE = 1024 * 1024


def up(_: click.Group) -> click.Command:
    """Run what is due and answer, in one process: the store, the engine and the HTTP door."""
    return _starting("up", help=str(up.__doc__))


def serve(_: click.Group) -> click.Command:
    """Answer over HTTP without running anything, beside workers on the same store."""
    return _starting("serve", help=str(serve.__doc__))


def worker(_: click.Group) -> click.Command:
    """Run what is due without answering, beside others on the same store."""
    return _starting("worker", help=str(worker.__doc__))


def migrate(_: click.Group) -> click.Command:
    """Bring the schema of a store up to date, or only look."""

    @click.pass_obj
    def migrating(session: Session, /, check: bool) -> int:
        from timewright.assembly import open_store

        before = look(session.place)
        if before.waiting and not check:
            open_store(session.place).close()
        changed = {"store": shown_place(session.place), "engine": before.engine, "applied": before.applied}
        answer = {
            **changed,
            "waiting": list(before.waiting) if check else [],
            "made": [] if check else list(before.waiting),
        }
        session.say(_migrated(answer) if session.output == "table" else [as_text(answer, session.output)])
        return DIFFERENT if check and before.waiting else 0

    option = Option(["--check"], is_flag=True, help="Only look; exit code 3 if steps are waiting.")
    return _joined("migrate", migrating, [option], help=str(migrate.__doc__))


def backup(_: click.Group) -> click.Command:
    """Copy a store in a file to another file, while it is in use."""

    @click.pass_obj
    def copying(session: Session, /, path: str) -> None:
        from timewright.assembly import copy_store

        file_of(session.place)
        size = copy_store(session.place, path)
        _remember_backup(session.place)
        answer = {"store": shown_place(session.place), "path": path, "bytes": size}
        line = f"{path}   {size / _MEBIBYTE:.1f} MiB   a copy of {shown_place(session.place)}"
        session.say([line] if session.output == "table" else [as_text(answer, session.output)])

    return _joined("backup", copying, [click.Argument(["path"])], help=str(backup.__doc__))


def completion(root: click.Group) -> click.Command:
    """Print the script that completes commands in a shell."""

    def printing(shell: str) -> None:
        from click.shell_completion import ShellComplete, get_completion_class

        kind = get_completion_class(shell)
        assert kind is not None
        # The parent's way: bash's own starts bash to ask for its version.
        click.echo(ShellComplete.source(kind(root, {}, "timewright", "_TIMEWRIGHT_COMPLETE")))

    text = f'{completion.__doc__}\n\n\b\n  eval "$(timewright completion bash)"'
    argument = click.Argument(["shell"], type=click.Choice(SHELLS))
    return _joined("completion", printing, [argument], help=text)


JOINS: dict[str, Callable[[click.Group], click.Command]] = {
    "up": up,
    "serve": serve,
    "worker": worker,
    "dashboard": dashboard,
    "mcp": mcp,
    "planner": planner,
    "demo": demo,
    "migrate": migrate,
    "backup": backup,
    "completion": completion,
}


def _joined(name: str, callback: Callable[..., Any], params: list[Any], *, help: str) -> click.Command:  # noqa: A002
    return Ask(
        name,
        params=[*params, *global_options()],
        callback=callback,
        help=help,
        short_help=help.splitlines()[0],
    )


def _starting(name: Literal["up", "serve", "worker"], *, help: str) -> click.Command:  # noqa: A002
    fields = tuple(one for one in setting_fields(BASE) if name != "worker" or one.key not in OF_THE_DOOR)

    @click.pass_obj
    def start(session: Session, /, app: str | None = None, **values: Any) -> int:
        from timewright.doors.cli.up import run_instance

        return run_instance(session, role=name, app=app, given=_settings_in(fields, values))

    text = "The functions that schedules call: module:name of a scheduler or a registry."
    functions = [] if name == "serve" else [Option(["--app"], metavar="MODULE:NAME", help=text)]
    return _joined(name, start, [*functions, *(option_for(field) for field in fields)], help=help)


def _remember_backup(place: str) -> None:
    """Keep when it was made, for whoever asks how old the last one is."""
    from timewright.assembly import open_store
    from timewright.operations.doctor import remember_backup

    store = open_store(place)
    try:
        remember_backup(store)
    finally:
        store.close()


def _settings_in(fields: tuple[Field, ...], values: dict[str, Any]) -> dict[str, Any]:
    said = {key: value for key, value in values.items() if value is not None and value != ()}
    given = {field.key: (field, said[field.key]) for field in fields if field.key in said}
    return {
        key: value if field.kind == "switch" else read_field(field, value)
        for key, (field, value) in given.items()
    }


def _migrated(answer: dict[str, Any]) -> list[str]:
    place = f"{answer['store']} ({answer['engine']})"
    if answer["waiting"]:
        return [f"{place} lacks these steps:", *(f"  {step}" for step in answer["waiting"])]
    if answer["made"]:
        return [f"{place} was brought up to date:", *(f"  {step}" for step in answer["made"])]
    return [f"{place} is up to date"]
