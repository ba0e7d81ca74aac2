"""`timewright import`: writes a definition file from the files of another scheduler, and a report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from timewright.clocks import SystemClock
from timewright.errors import Conflict
from timewright.interfaces.cli.commands import Option, SectionedCommand, global_options
from timewright.interfaces.cli.data_input import MAX_FILE_BYTES, read_text
from timewright.interfaces.cli.output.table import Column, current_screen, table
from timewright.interfaces.cli.output.times import local_zone, zone_name
from timewright.interfaces.cli.session import Session, serialize

SOURCES = ("crontab", "system-crontab", "systemd", "kubernetes", "celery", "apscheduler", "github-actions")
_STATUSES = ("lost", "translated", "kept")
_EXPORT_SCRIPT = Path(__file__).with_name("apscheduler_export.py")


def import_files_command(_: click.Group) -> click.Command:
    """Write a file for `plan` from the files of another scheduler, and report what happened to each field."""
    text = str(import_files_command.__doc__)
    params: list[click.Parameter] = [
        click.Argument(["source"], type=click.Choice(SOURCES), metavar=f"{{{'|'.join(SOURCES)}}}"),
        click.Argument(["files"], nargs=-1, metavar="FILE..."),
        Option(["--out"], metavar="FILE", help="Write the definitions to this new file.  [standard output]"),
        Option(["--zone"], help="The time zone of a source that names none.  [that of this machine]"),
        Option(
            ["--repository"], default="", metavar="OWNER/NAME", help="The repository of GitHub workflows."
        ),
        Option(["--lost"], is_flag=True, help="Report only what was lost."),
        Option(
            ["--script"],
            is_flag=True,
            help="Print the export script for APScheduler, to run in your program.",
        ),
    ]
    return SectionedCommand(
        "import", params=[*params, *global_options()], callback=_import, help=text, short_help=text
    )


@click.pass_obj
def _import(session: Session, /, source: str, files: tuple[str, ...], out: str | None, **values: Any) -> None:
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
        zone=values["zone"] or zone_name(local_zone(now)), repository=values["repository"]
    )
    found = import_files(source, texts, options, now=now)
    definitions = [
        Definition(kind="schedule", name=one["name"], fields={k: v for k, v in one.items() if k != "name"})
        for one in found.schedules
    ]
    comment = f"Imported from {source}: {', '.join(files)}"
    text = write_definitions(definitions, comment=comment)
    if out is not None:
        Path(out).write_text(text, encoding="utf-8")
    counts = {status: sum(one.status == status for one in found.fields) for status in _STATUSES}
    if session.output != "table":
        rows = [_row(one) for one in found.fields]
        answer = {"file": out, "definitions": text, "schedules": len(definitions), **counts, "fields": rows}
        session.print([serialize(answer, session.output)])
        return
    if out is None:
        session.print([text.rstrip()])
    report = [one for one in found.fields if not values["lost"] or one.status == "lost"]
    lines = _report_lines(sorted(report, key=lambda one: _STATUSES.index(one.status)))
    summary = ", ".join(f"{count} fields {status}" for status, count in counts.items())
    lines.append(f"{len(definitions)} schedules: {summary}")
    if out is not None:
        session.print(lines)
        session.print_note(f"next: timewright plan {out}")
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
    columns = [
        Column("status"),
        Column("schedule", 8),
        Column("field", 8),
        Column("value", 8),
        Column("how or why", 20),
    ]
    rows = [(str(one.status), one.entry, one.field, one.value, one.note) for one in reports]
    return table(current_screen(SystemClock().now()), columns, rows)
