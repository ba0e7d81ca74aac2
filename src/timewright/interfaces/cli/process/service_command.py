"""`service install`: a unit of systemd for the current user."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from timewright.errors import Conflict, NotAllowed
from timewright.interfaces.cli.commands import Option, SectionedCommand, global_options
from timewright.interfaces.cli.session import Session, store_path

UNIT = """\
[Unit]
Description=Timewright
After=network-online.target

[Service]
WorkingDirectory={folder}
Environment="TIMEWRIGHT_STORE={store}"
ExecStart={program} -m timewright up{app}
Restart=always
RestartSec=2
# Longer than stop_wait, which is 30 s.
TimeoutStopSec=45

[Install]
WantedBy=default.target
"""


def service(_: click.Group) -> click.Command:
    """Install `timewright up` as a service of systemd, for the current user."""

    @click.pass_obj
    def install(session: Session, /, app: str | None, user: bool, force: bool) -> None:
        if not user:
            raise NotAllowed(
                "only a service of the current user can be installed",
                field="user",
                rule="a service of the whole machine belongs to its administrator",
                fix="timewright service install --user, or copy the unit from docs/operate/deploy.md",
            )
        path = _unit_path()
        if path.exists() and not force:
            raise Conflict(
                f"{path} exists",
                field="force",
                rule="an existing unit is replaced only with --force",
                fix="timewright service install --user --force replaces it",
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(unit_text(session.store_url, app), encoding="utf-8")
        session.print(
            [
                f"wrote {path}. Start it, now and at every login:",
                "  systemctl --user daemon-reload && systemctl --user enable --now timewright",
                "To run it also while you are not logged in:",
                "  loginctl enable-linger",
            ]
        )

    @click.pass_context
    def show_help(context: click.Context, /, **_: object) -> None:
        if context.invoked_subcommand is None:
            click.echo(context.get_help())

    group = click.Group(
        "service",
        help=str(service.__doc__),
        params=global_options(),
        callback=show_help,
        invoke_without_command=True,
    )
    options = [
        Option(["--user"], is_flag=True, help="Install it for the current user."),
        Option(["--app"], metavar="MODULE:NAME", help="The app with the functions, as for `up`."),
        Option(["--force"], is_flag=True, help="Replace an existing unit."),
    ]
    group.add_command(
        SectionedCommand(
            "install",
            params=[*options, *global_options()],
            callback=install,
            help="Write the unit and print the commands that start it.",
        )
    )
    return group


def unit_text(store: str, app: str | None) -> str:
    """Return the unit for a store and an app, with the Python that runs now, in the current folder."""
    path = store_path(store)
    given = f" --app {app}" if app else ""
    where = str(path.absolute()) if path is not None else store
    return UNIT.format(
        folder=Path.cwd(), store=where.replace("%", "%%"), program=Path(sys.executable).absolute(), app=given
    )


def _unit_path() -> Path:
    configured = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    folder = configured if configured.is_absolute() else Path.home() / ".config"
    return folder / "systemd" / "user" / "timewright.service"
