"""`timewright simulate` and `replay`: what would happen, and whether the past would happen again."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from timewright.clocks import SystemClock
from timewright.core.input.encoding import encode
from timewright.core.input.input_errors import input_error
from timewright.core.input.instant_text import read_instant_text
from timewright.core.moments import as_duration, parse_instant
from timewright.interfaces.cli.commands import Option
from timewright.interfaces.cli.data_input import MAX_FILE_BYTES, read_data_or_text, read_text
from timewright.interfaces.cli.output.errors import EXIT_DIFFERENCES
from timewright.interfaces.cli.output.simulation import html_report, replay_lines, report_lines
from timewright.interfaces.cli.output.table import current_screen, progress_bar
from timewright.interfaces.cli.output.times import local_zone, today_at
from timewright.interfaces.cli.process import process_command
from timewright.interfaces.cli.session import Session, inspect_store, serialize

if TYPE_CHECKING:
    from timewright.core.definitions import Definition
    from timewright.ports import Store

DAY = timedelta(days=1)
MAX_SPAN = timedelta(days=400)
MAX_ROWS = 1_000_000
_CLOCK_RANGE = re.compile(r"(\d{1,2}:\d{2}(?::\d{2})?)\s*-\s*(\d{1,2}:\d{2}(?::\d{2})?)")


@process_command(
    click.Argument(["files"], nargs=-1, metavar="[FILE]..."),
    Option(
        ["--for", "span"],
        default="1d",
        metavar="DURATION",
        help="Length of the simulated time: 1h, 7d, 1y.  [1d]",
    ),
    Option(
        ["--since"], metavar="INSTANT", help="Start of the simulated time.  [now, with the present state]"
    ),
    Option(
        ["--outage"],
        multiple=True,
        metavar="RANGE",
        help="A time in which no instance runs: 08:55-09:20, or INSTANT/INSTANT.",
    ),
    Option(["--add"], multiple=True, metavar="FILE", help="Add or replace the definitions of a file."),
    Option(["--without"], multiple=True, metavar="NAME", help="Leave out this schedule."),
    Option(
        ["--duration"],
        multiple=True,
        metavar="[NAME=]DURATION",
        help="Duration of every run.  [as in its last runs, else 1s]",
    ),
    Option(
        ["--workers"],
        type=click.IntRange(1, 100_000),
        default=10,
        help="Maximum number of runs at once.  [10]",
    ),
    Option(
        ["--runs"],
        type=click.IntRange(0, MAX_ROWS),
        default=0,
        help="Also list this many decisions.  [0]",
    ),
    Option(["--html"], metavar="FILE", help="Write a report with pictures to this file."),
)
def simulate(session: Session, /, files: tuple[str, ...], **values: Any) -> None:
    """Show what a fleet would do: what starts, waits and is skipped, decided by the real engine."""
    from timewright.core.run.simulation import WorkModel
    from timewright.wiring.what_if import WhatIf, fleet_names, measured_durations, merge_outages, what_if

    now = SystemClock().now()
    zone = local_zone(now)
    length = _span(values["span"])
    default, given = _durations(values["duration"])
    added = [one for name in (*files, *values["add"]) for one in _definitions(name)]
    with _source(session, is_needed=not files) as store:
        present = now if store is None else store.now()
        since = present if values["since"] is None else _instant(values["since"], now=present, zone=zone)
        names = fleet_names(store, namespace=session.namespace, add=added)
        _check_names("without", values["without"], names)
        _check_names("duration", given, names)
        samples: dict[str, tuple[timedelta, ...]] = {name: (one,) for name, one in given.items()}
        if store is not None:
            samples = measured_durations(store, namespace=session.namespace, given=given)
        question = WhatIf(
            since=since,
            until=since + length,
            restart=values["since"] is not None,
            outages=merge_outages(_outage(text, since=since, zone=zone) for text in values["outage"]),
            without=values["without"],
            add=tuple(added),
            work=WorkModel(samples=samples, default=default),
            workers=values["workers"],
            max_rows=values["runs"],
        )
        with progress_bar() as progress:
            report = what_if(question, source=store, namespace=session.namespace, progress=progress)
    if values["html"] is not None:
        Path(values["html"]).write_text(html_report(report, zone=zone), encoding="utf-8")
    if session.output != "table":
        session.print([serialize(encode(report), session.output)])
        return
    session.print(report_lines(report, current_screen(now)))
    if values["html"] is not None:
        session.print_note(f"report: {values['html']}")


@process_command(
    click.Argument(["schedules"], nargs=-1, metavar="[SCHEDULE]..."),
    Option(
        ["--since"],
        default="24 hours ago",
        metavar="INSTANT",
        help="Decide occurrences from this instant on.  [24 hours ago]",
    ),
    Option(["--until"], metavar="INSTANT", help="Decide occurrences up to this instant.  [now]"),
    Option(
        ["--file"],
        multiple=True,
        metavar="FILE",
        help="Use the definitions of this file instead of the recorded ones.",
    ),
    Option(
        ["--set"],
        multiple=True,
        metavar="FIELD=VALUE",
        help="Use this value for a field of every schedule: overlap=queue.",
    ),
    Option(
        ["--without-hint"],
        multiple=True,
        metavar="ID",
        help="Decide as if this hint had not been given; `hint list` shows ids.",
    ),
)
def replay(session: Session, /, schedules: tuple[str, ...], **values: Any) -> int:
    """Decide recorded occurrences again, and list what comes out differently; exit code 3 if anything does.

    Edits, hints, pauses, outages, durations and outcomes are as recorded. Nothing in the store changes.
    """
    from timewright.wiring.replay import Replay
    from timewright.wiring.replay import replay as decide_again

    with _source(session, is_needed=True) as store:
        assert store is not None
        now = store.now()
        since, until = (
            _instant(text, now=now, zone=local_zone(now)) if text is not None else now
            for text in (values["since"], values["until"])
        )
        question = Replay(
            since=since,
            until=min(until, now),
            schedules=schedules,
            definitions=tuple(one for name in values["file"] for one in _definitions(name)),
            fields=dict(_field_value(text) for text in values["set"]),
            without_hints=values["without_hint"],
        )
        with progress_bar() as progress:
            report = decide_again(question, source=store, namespace=session.namespace, progress=progress)
    answer = encode(report)
    session.print_data(answer, replay_lines(answer, current_screen(now)))
    return EXIT_DIFFERENCES if report.differences else 0


def _field_value(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise input_error("set", text, "has no value", rule="FIELD=VALUE", fix="--set overlap=allow")
    return name, read_data_or_text(value, field=name)


@contextmanager
def _source(session: Session, *, is_needed: bool) -> Iterator[Store | None]:
    """Open the store whose fleet is simulated; None if the fleet is that of files."""
    from timewright.wiring import open_store

    if not is_needed:
        yield None
        return
    if session.given.get("server"):
        rule = "a simulation reads the store itself"
        raise input_error(
            "server", session.given["server"], "cannot be simulated", rule=rule, fix="--store URL"
        )
    info = inspect_store(session.store_url)
    if not info.applied_migrations:
        fix = "timewright simulate FILE, or --store URL"
        raise input_error("store", session.store_url, "has no schedules", rule="a store or files", fix=fix)
    store = open_store(session.store_url)
    try:
        yield store
    finally:
        store.close()


def _check_names(option: str, given: Iterable[str], names: Collection[str]) -> None:
    """Raise if an option names a schedule that is not simulated: a misspelt name would change nothing."""
    for name in given:
        if name not in names:
            near = get_close_matches(name[:255], names, n=1, cutoff=0.5)
            fix = f"did you mean {near[0]}?" if near else f"one of {', '.join(sorted(names)[:5])}"
            rule = "a schedule of the simulated fleet"
            raise input_error(option, name, "is not simulated", rule=rule, fix=fix)


def _definitions(name: str) -> Sequence[Definition]:
    from timewright.core.definitions import read_definitions

    return read_definitions(read_text(name, "file", max_bytes=MAX_FILE_BYTES), name=name).definitions


def _span(text: str) -> timedelta:
    match = re.fullmatch(r"\s*(\d+)\s*(?:y|year|years)\s*", text)
    length = int(match[1]) * 365 * DAY if match else as_duration(text, field="for")
    if not timedelta(0) < length <= MAX_SPAN:
        raise input_error(
            "for", text, "is not a span", rule="more than zero, at most 400 days", fix="--for 7d"
        )
    return length


def _durations(texts: Sequence[str]) -> tuple[timedelta, dict[str, timedelta]]:
    """Return the default duration, and those of single schedules."""
    default, given = timedelta(seconds=1), dict[str, timedelta]()
    for text in texts:
        name, sign, length = text.rpartition("=")
        if sign:
            given[name] = as_duration(length, field="duration")
        else:
            default = as_duration(text, field="duration")
    return default, given


def _outage(text: str, *, since: datetime, zone: Any) -> tuple[datetime, datetime]:
    """Read an outage: two times of the day, the first such in the span, or two instants."""
    match = _CLOCK_RANGE.fullmatch(text.strip())
    if match is not None:
        begin, end = today_at(match[1], now=since, zone=zone), today_at(match[2], now=since, zone=zone)
        if begin is not None and end is not None:
            first, last = begin[0], end[0] if end[0] > begin[0] else end[0] + DAY
            return (first, last) if last > since else (first + DAY, last + DAY)
    begin_text, sign, end_text = text.partition("/")
    if not sign:
        rule = "two times of the day, or two instants with a slash"
        raise input_error("outage", text, "is not a range", rule=rule, fix="--outage 08:55-09:20")
    found = tuple(_instant(one, now=since, zone=zone) for one in (begin_text, end_text))
    if found[0] >= found[1]:
        raise input_error(
            "outage", text, "ends before it begins", rule="begin/end", fix="--outage 08:55-09:20"
        )
    return found[0], found[1]


def _instant(text: str, *, now: datetime, zone: Any) -> datetime:
    read = read_instant_text(text.strip(), now=now, zone=zone, field="since", past=True)
    return parse_instant(read) if isinstance(read, str) else read
