"""Commands that write files: a demo store, definitions of another scheduler, a unit of systemd."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from timewright.clocks import SystemClock
from timewright.errors import Conflict, InvalidInput, NotAllowed
from timewright.interfaces.cli.commands import Option, global_options
from timewright.interfaces.cli.data_input import MAX_FILE_BYTES, read_text
from timewright.interfaces.cli.output.table import (
    MIN_TABLE_WIDTH,
    Column,
    current_screen,
    progress_bar,
    table,
    wrap,
)
from timewright.interfaces.cli.output.times import local_zone, zone_name
from timewright.interfaces.cli.process import process_command
from timewright.interfaces.cli.session import Session, serialize, store_path
from timewright.interfaces.program import program

DEFAULT_FILE = "demo.db"


@process_command()
def demo(session: Session, /) -> None:
    """Create a store file with a week of example history."""
    from timewright.testing.demo import WEEK, clock_changes, write_demo_file

    store_url = session.given.get("store") or os.environ.get("TIMEWRIGHT_STORE") or DEFAULT_FILE
    path = store_path(store_url)
    if path is None:
        raise InvalidInput(
            "the demo needs a file store",
            field="store",
            value=store_url,
            rule="a file",
            fix=f"--store {DEFAULT_FILE}",
        )
    if path.exists():
        raise Conflict(
            f"{store_url} already exists",
            field="store",
            value=store_url,
            rule="the demo only creates new files",
            fix=f"open it with timewright serve --store {store_url}, or use --store another.db",
        )
    today = SystemClock().now
    until = today() - timedelta(minutes=5)
    with progress_bar() as progress:
        counts = write_demo_file(path, until=until, today=today, progress=progress)
    session.print_note(f"{store_url}: {counts['schedules']} schedules with a week of history. Open it:")
    for changed in clock_changes(until - WEEK, until):
        session.print_note(f"The clocks in {changed} changed during that week; see the runs at night there.")
    session.print([f"{program()} serve --store {shlex.quote(store_url)}"])


SOURCES = ("crontab", "system-crontab", "systemd", "kubernetes", "celery", "apscheduler", "github-actions")
_STATUSES = ("lost", "translated", "kept")
_EXPORT_SCRIPT = Path(__file__).with_name("apscheduler_export.py")


@process_command(
    click.Argument(["source"], type=click.Choice(SOURCES), metavar=f"{{{'|'.join(SOURCES)}}}"),
    click.Argument(["files"], nargs=-1, metavar="FILE..."),
    Option(["--out"], metavar="FILE", help="Write the definitions to this new file.  [standard output]"),
    Option(["--zone"], help="The time zone of a source that names none.  [that of this machine]"),
    Option(["--repository"], default="", metavar="OWNER/NAME", help="The repository of GitHub workflows."),
    Option(["--lost"], is_flag=True, help="Report only what was lost."),
    Option(
        ["--script"],
        is_flag=True,
        help="Print the export script for APScheduler, to run in your program.",
    ),
    name="import",
)
def import_files_command(
    session: Session, /, source: str, files: tuple[str, ...], out: str | None, **values: Any
) -> None:
    """Write a file for `plan` from the files of another scheduler, and report what happened to each field."""
    from timewright.core.definitions import Definition, write_definitions
    from timewright.core.imports import ImportOptions, import_files

    if values["script"]:
        session.print([_EXPORT_SCRIPT.read_text().rstrip()])
        return
    if not files:
        raise click.UsageError("which files? `-` is standard input")
    if out is not None and Path(out).exists():
        fix = f"another name, or remove {out} first"
        raise Conflict(f"{out} exists", field="out", value=out, rule="import writes new files only", fix=fix)
    now = SystemClock().now()
    texts = {name: read_text(name, "file", max_bytes=MAX_FILE_BYTES) for name in files}
    options = ImportOptions(
        zone=values["zone"] or zone_name(local_zone(now)),
        is_zone_given=bool(values["zone"]),
        repository=values["repository"],
    )
    found = import_files(source, texts, options, now=now)
    definitions = [
        Definition(kind="schedule", name=one["name"], fields={k: v for k, v in one.items() if k != "name"})
        for one in found.schedules
    ]
    comment = f"Imported from {source}: {', '.join(files)}"
    text = write_definitions(definitions, comment=comment)
    if not definitions:
        out = None
    elif out is not None:
        Path(out).write_text(text, encoding="utf-8")
    counts = {status: sum(one.status == status for one in found.fields) for status in _STATUSES}
    if session.output != "table":
        rows = [_row(one) for one in found.fields]
        answer = {"file": out, "definitions": text, "schedules": len(definitions), **counts, "fields": rows}
        session.print([serialize(answer, session.output)])
        return
    if definitions and out is None:
        session.print([text.rstrip()])
    report = [one for one in found.fields if not values["lost"] or one.status == "lost"]
    lines = _report_lines(sorted(report, key=lambda one: _STATUSES.index(one.status)))
    summary = ", ".join(f"{count} fields {status}" for status, count in counts.items())
    lines.append(f"{len(definitions)} schedules: {summary}")
    if out is not None:
        session.print(lines)
        session.print_note(f"next: timewright plan {out}")
    elif not definitions:
        session.print([*lines, "no schedule could be imported; no file is written"])
        click.get_current_context().exit(1)
    else:
        for line in lines:
            session.print_note(line)


def _row(report: Any) -> dict[str, str]:
    return {
        "schedule": report.entry,
        "field": report.field,
        "value": report.value,
        "status": str(report.status),
        "note": report.note,
        "place": report.place,
    }


def _report_lines(reports: Sequence[Any]) -> list[str]:
    """Return one row per field; on a terminal the reason stands below it, so that it is never cut."""
    columns = [Column("status"), Column("schedule", 8), Column("field", 8), Column("value", 8)]
    rows = [(str(one.status), one.entry, one.field, one.value) for one in reports]
    screen = current_screen(SystemClock().now())
    if screen.width is None or screen.width < MIN_TABLE_WIDTH:
        noted = [(*row, one.note) for row, one in zip(rows, reports, strict=True)]
        return table(screen, [*columns, Column("how or why")], noted)
    head, *lines = table(screen, columns, rows)
    notes = (wrap(screen, f"    {one.note}", hang=0) if one.note else [] for one in reports)
    return [head, *(part for line, note in zip(lines, notes, strict=True) for part in (line, *note))]


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


@click.pass_context
def _show_help(context: click.Context, /, **_: object) -> None:
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


service = click.Group(
    "service",
    help="Install `timewright up` as a service of systemd, for the current user.",
    params=global_options(),
    callback=_show_help,
    invoke_without_command=True,
)


@process_command(
    Option(["--user"], is_flag=True, help="Install it for the current user."),
    Option(["--app"], metavar="MODULE:NAME", help="The app with the functions, as for `up`."),
    Option(["--force"], is_flag=True, help="Replace an existing unit."),
)
def install(session: Session, /, app: str | None, user: bool, force: bool) -> None:
    """Write the unit and print the commands that start it."""
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


service.add_command(install)


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
