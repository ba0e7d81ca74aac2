"""Commands that maintain a store: migrate, backup, restore and move."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from timewright.core.input.encoding import encode
from timewright.core.moments import as_duration
from timewright.core.sensitive_keys import redact_store_url
from timewright.interfaces.cli.commands import Option
from timewright.interfaces.cli.output.errors import EXIT_DIFFERENCES
from timewright.interfaces.cli.output.table import progress_bar
from timewright.interfaces.cli.process import process_command
from timewright.interfaces.cli.session import Session, current_user, inspect_store, store_path

MAX_LISTED = 20
_MEBIBYTE = 1024 * 1024


@process_command(Option(["--check"], is_flag=True, help="Only check; exit code 3 if migrations are pending."))
def migrate(session: Session, /, check: bool) -> int:
    """Apply pending schema migrations to a store."""
    from timewright.wiring import open_store

    before = inspect_store(session.store_url)
    if before.pending_migrations and not check:
        open_store(session.store_url).close()
    answer = {
        "store": redact_store_url(session.store_url),
        "engine": before.engine,
        "applied": before.applied_migrations,
        "pending": list(before.pending_migrations) if check else [],
        "migrated": [] if check else list(before.pending_migrations),
    }
    session.print_data(answer, _format_migrations(answer))
    return EXIT_DIFFERENCES if check and before.pending_migrations else 0


@process_command(click.Argument(["path"]))
def backup(session: Session, /, path: str) -> None:
    """Copy a store to a new file while it is in use.

    The file is a SQLite store, whichever database the store is in; `restore` fills either database from it.
    """
    from timewright.wiring.store_copies import StoreCopier

    url, shown = session.store_url, redact_store_url(session.store_url)
    store_path(url)
    with progress_bar() as progress:
        size = StoreCopier(
            user=current_user(), progress=progress, artifacts=session.settings().artifacts
        ).back_up(url, Path(path))
    _record_backup(url)
    line = f"{path}   {size / _MEBIBYTE:.1f} MiB   copy of {shown}"
    session.print_data({"store": shown, "path": path, "bytes": size}, [line])


@process_command(
    click.Argument(["path"]),
    Option(["--reason"], default="", metavar="TEXT", help="Why you restore it; stored with the pause."),
)
def restore(session: Session, /, path: str, reason: str) -> None:
    """Fill a new store from a backup; it comes up paused and says what would run.

    Nothing starts until `timewright resume`. The store is a new file or an empty database.
    """
    from timewright.wiring.store_copies import StoreCopier

    url = session.store_url
    store_path(url)
    with progress_bar() as progress:
        copier = StoreCopier(user=current_user(), progress=progress, artifacts=session.settings().artifacts)
        answer = encode(copier.restore(Path(path), url, reason=reason))
    session.print_data(answer, [*_format_restored(answer, session.command("resume"))])


@process_command(
    click.Argument(["to"]),
    Option(
        ["--wait"],
        default="10m",
        metavar="DURATION",
        help="How long to wait until all runs have ended.  [10m]",
    ),
    Option(["--cancel"], is_flag=True, help="Give up an unfinished move: resume the old store."),
)
def move(session: Session, /, to: str, wait: str, cancel: bool) -> None:
    """Move a live store to another database: SQLite to PostgreSQL, or back.

    It pauses the store, waits until its runs have ended, copies and verifies. Run it again after a kill: it
    continues. The old store stays paused and refuses writes; start your workers on the new one.
    """
    from timewright.wiring.store_copies import StoreCopier

    url, user = session.store_url, current_user()
    for address in (url, to):
        store_path(address)
    old, new = redact_store_url(url), redact_store_url(to)
    if cancel:
        StoreCopier(user=user).cancel_move(url, to)
        session.print_data({"store": old, "cancelled": True}, [f"{old} is resumed; {new} stays paused"])
        return
    with progress_bar() as progress:
        copier = StoreCopier(user=user, progress=progress, artifacts=session.settings().artifacts)
        moved = copier.move(url, to, wait=as_duration(wait, field="wait"))
    lines = [
        f"{moved.rows:,} rows moved to {new} and verified; it is resumed",
        f"{old} is paused and refuses writes; start your workers with --store {shlex.quote(new)}",
    ]
    session.print_data({"store": old, "to": new, "rows": moved.rows}, lines)


def _record_backup(url: str) -> None:
    """Record the time of the backup, for `timewright doctor`."""
    from timewright.operations.health.doctor import record_backup
    from timewright.wiring import open_store

    store = open_store(url)
    try:
        record_backup(store)
    finally:
        store.close()


def _format_migrations(answer: dict[str, Any]) -> list[str]:
    store = f"{answer['store']} ({answer['engine']})"
    if answer["pending"]:
        return [f"{store} has pending migrations:", *(f"  {step}" for step in answer["pending"])]
    if answer["migrated"]:
        return [f"{store} was migrated:", *(f"  {step}" for step in answer["migrated"])]
    return [f"{store} is up to date"]


def _format_restored(answer: Mapping[str, Any], resume: str) -> Iterator[str]:
    yield f"{answer['store']}   {answer['rows']:,} rows   paused"
    for one in answer["would_run"]:
        place = "" if len(answer["would_run"]) == 1 else f" in {one['namespace']}"
        yield f"on resume {one['runs']} runs would start at once{place}"
        for run in one["first"][:MAX_LISTED]:
            yield f"  {run['schedule']}   planned {run['planned_at']}   {run['source']}"
        if one["runs"] > MAX_LISTED:
            yield f"  and {one['runs'] - MAX_LISTED} more"
        for reason, count in one["skipped"].items():
            yield f"  {count} occurrences would be skipped: {reason}"
    yield f"start with: {resume}"
    yield from (f"note: {note}" for note in answer["notes"])
