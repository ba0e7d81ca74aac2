"""Tables, text and progress bars for a terminal: fitted to its width, control characters escaped."""

from __future__ import annotations

import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, tzinfo
from typing import Any

import click
from msgspec import Struct

from timewright.clocks import SystemClock
from timewright.interfaces.cli.output.times import (
    clock_time,
    local_zone,
    localize_times,
    parse_instant_or_none,
    relative_time,
    short_time,
)

MIN_WIDTH = 20
MIN_TABLE_WIDTH = 60
GAP = "  "
# A space at which lines are not wrapped.
NBSP = "\u00a0"
# Control, invisible and bidirectional characters; they are printed as escapes.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff]"
)
_COLOURS = {"✔": "green", "✘": "red", "‖": "yellow", "↻": "yellow", "▸": "cyan", "◦": None, "·": None}
_ASCII_SIGNS = str.maketrans("✔✘‖↻▸◦·…—–→×", "+x!~>o-.--:x")

NARROW_WIDTH = 100
WIDTH = 30
MIN_INTERVAL_S = 0.1

Progress = Callable[[float, str], None]


class Screen(Struct, frozen=True, kw_only=True):
    """The terminal: width, colour, current time and time zone; and `options` for the commands it shows."""

    now: datetime
    zone: tzinfo
    width: int | None = None
    colour: bool = False
    ascii_only: bool = False
    options: tuple[str, ...] = ()

    @property
    def is_narrow(self) -> bool:
        """Whether a table leaves out what another command shows too."""
        return self.width is not None and self.width < NARROW_WIDTH

    def render(self, line: str) -> str:
        """Return a line in characters the terminal supports."""
        spaced = line.replace(NBSP, " ")
        return spaced.translate(_ASCII_SIGNS) if self.ascii_only else spaced

    def localize(self, sentence: str) -> str:
        """Return a text with its instants in the zone of the terminal."""
        return localize_times(sentence, now=self.now, zone=self.zone)

    def clock(self, value: object) -> str:
        """Return an instant of an answer as a table shows it; empty for another value."""
        moment = parse_instant_or_none(value)
        return clock_time(moment, now=self.now, zone=self.zone) if moment is not None else ""

    def short_time(self, value: object) -> str:
        """Return an instant of an answer as a line shows it; empty for another value."""
        moment = parse_instant_or_none(value)
        return short_time(moment, now=self.now, zone=self.zone) if moment is not None else ""

    def distance(self, value: object) -> str:
        """Return how far an instant of an answer is from now: `in 4 s`; empty for another value."""
        moment = parse_instant_or_none(value)
        return relative_time(moment, now=self.now) if moment is not None else ""

    def style_mark(self, sign: str) -> str:
        """Return a sign in its colour."""
        colour = _COLOURS.get(sign) if self.colour else None
        return click.style(sign, fg=colour) if colour else sign


class Column(Struct, frozen=True):
    """A table column. It can shrink to `min_width`, ids first; if that is not enough, optional ones go."""

    title: str
    min_width: int = 0
    align_right: bool = False
    optional: bool = False
    is_id: bool = False


def current_screen(now: datetime, *, options: tuple[str, ...] = ()) -> Screen:
    """Return the properties of standard output."""
    stdout = sys.stdout
    is_terminal = stdout is not None and stdout.isatty()
    columns = os.environ.get("COLUMNS", "")
    width = shutil.get_terminal_size().columns if is_terminal or columns.isdigit() else None
    return Screen(
        now=now,
        zone=local_zone(now),
        width=max(width, MIN_WIDTH) if width else None,
        colour=is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb",
        ascii_only=not supports_unicode(),
        options=options,
    )


def supports_unicode() -> bool:
    """Whether standard output can show all characters."""
    return "utf" in (getattr(sys.stdout, "encoding", None) or "utf-8").lower()


def escape_control(text: object) -> str:
    """Escape control and bidirectional characters."""
    return _UNSAFE.sub(_escape, str(text))


def display_width(text: str) -> int:
    """Return the number of terminal columns of a text."""
    if text.isascii():
        return len(text)
    return sum(_width(character) for character in text)


def truncate(text: str, width: int) -> str:
    """Cut a text to a width, with … at the end."""
    if display_width(text) <= width:
        return text
    kept, taken = [], 1
    for character in text:
        taken += _width(character)
        if taken > width:
            break
        kept.append(character)
    return "".join(kept).rstrip() + "…"


def table(screen: Screen, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    """Format rows as a table, or as one block per row on a narrow terminal."""
    cells = [[escape_control(cell) for cell in row] for row in rows]
    used = [i for i in range(len(columns)) if i == 0 or any(row[i] for row in cells)]
    optional = [i for i in used if columns[i].optional]
    # Try all columns first, then drop the optional ones one by one.
    for dropped in range(len(optional) + 1):
        kept = [i for i in used if i not in optional[:dropped]]
        shown, inner = [columns[i] for i in kept], [[row[i] for i in kept] for row in cells]
        widths = _fit_widths(shown, _natural_widths(shown, inner), screen.width)
        if widths is not None:
            return [_row(screen, shown, widths, row) for row in ([one.title for one in shown], *inner)]
    return _blocks(screen, [columns[i] for i in used], [[row[i] for i in used] for row in cells])


def key_values(screen: Screen, rows: Iterable[tuple[str, str]], *, indent: int = 2) -> list[str]:
    """Format names and values, one pair per line; long values are wrapped."""
    shown = [(escape_control(name), value) for name, value in rows if value]
    longest = max((display_width(name) for name, _ in shown), default=0)
    lines: list[str] = []
    for name, value in shown:
        first = f"{' ' * indent}{name:<{longest}}{GAP}"
        value_indent = len(first) if _fits(value, screen.width, len(first)) else indent + 2
        parts = _wrap_lines(value, screen.width, indent=value_indent)
        if value_indent < len(first):
            # A long id or command gets its own line so that it can be copied.
            lines.append(first.rstrip())
            first = " " * value_indent
        lines += [((first if i == 0 else " " * value_indent) + part).rstrip() for i, part in enumerate(parts)]
    return [screen.render(line) for line in lines]


def _fits(value: str, width: int | None, indent: int) -> bool:
    return width is None or max(map(display_width, re.split(r"[ \n]", value)), default=0) + indent <= width


def wrap(screen: Screen, text: str, *, hang: int = 2) -> list[str]:
    """Wrap a text to the width of the terminal, with a hanging indent."""
    first, *rest = _wrap_lines(text, screen.width, indent=0, hang=hang)
    return [screen.render(first), *(screen.render(" " * hang + line) for line in rest)]


def _wrap_lines(text: str, width: int | None, *, indent: int, hang: int = 0) -> list[str]:
    lines: list[str] = []
    for line in text.split("\n"):
        if width is None or display_width(line) + indent <= width:
            lines.append(escape_control(line))
            continue
        text_part = line.lstrip(" ")
        spaces = line[: len(line) - len(text_part)]
        parts = _break_words(escape_control(text_part), max(width - indent - hang - len(spaces), 10))
        lines += [spaces + part for part in parts]
    return lines


def _break_words(text: str, width: int) -> list[str]:
    """Break a text into lines of at most `width` columns, between words if possible."""
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}".strip()
        if display_width(joined) <= width:
            lines[-1] = joined
            continue
        rest = word
        while display_width(rest) > width:
            piece = truncate(rest, width + 1)[:-1]
            lines.append(piece)
            rest = rest[len(piece) :]
        lines.append(rest)
    return [line for line in lines if line] or [""]


def _natural_widths(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    return [
        max([display_width(column.title), *(display_width(row[i]) for row in rows)])
        for i, column in enumerate(columns)
    ]


def _fit_widths(columns: Sequence[Column], natural: list[int], width: int | None) -> list[int] | None:
    """Shrink ids, then the widest columns, until the table fits; None if it cannot fit."""
    widths = list(natural)
    if width is None:
        return widths
    over = sum(widths) + len(GAP) * (len(widths) - 1) - width
    if over > 0 and width < MIN_TABLE_WIDTH:
        return None
    while over > 0:
        shrinkable = [i for i, column in enumerate(columns) if 0 < column.min_width < widths[i]]
        if not shrinkable:
            return None
        widest = max(shrinkable, key=lambda i: (columns[i].is_id, widths[i]))
        widths[widest] -= 1
        over -= 1
    return widths


def _row(screen: Screen, columns: Sequence[Column], widths: Sequence[int], row: Sequence[str]) -> str:
    parts = []
    for column, width, cell in zip(columns, widths, row, strict=True):
        text = truncate(cell, width)
        blank = " " * (width - display_width(text))
        shown = screen.style_mark(text[0]) + text[1:] if text and text[0] in _COLOURS else text
        parts.append(blank + shown if column.align_right else shown + blank)
    return screen.render(GAP.join(parts).rstrip())


def _blocks(screen: Screen, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    """Format each row as a block of lines under its first cell."""
    lines: list[str] = []
    for first, *rest in rows:
        lines += wrap(screen, first)
        titles = [column.title.lower() for column in columns[1:]]
        lines += key_values(screen, zip(titles, rest, strict=True))
    return lines


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    return (
        f"\\x{number:02x}"
        if number < 0x100
        else f"\\u{number:04x}"
        if number < 0x10000
        else f"\\U{number:08x}"
    )


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Yield a function that draws a share and a text if standard error is a terminal; clear it at the end."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    drawn_at = 0.0

    def draw(share: float, text: str) -> None:
        nonlocal drawn_at
        if not is_terminal or SystemClock.monotonic() - drawn_at < MIN_INTERVAL_S:
            return
        drawn_at = SystemClock.monotonic()
        full = int(min(max(share, 0.0), 1.0) * WIDTH)
        sys.stderr.write(f"\r{'█' * full}{'·' * (WIDTH - full)} {share:4.0%} {text:<30}")
        sys.stderr.flush()

    try:
        yield draw
    finally:
        if is_terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def progress_of(row: Mapping[str, Any]) -> str:
    """Return how far a running run is, if it reports that: `40 %  page 12`."""
    percent = "" if row.get("progress") is None else f"{row['progress']:.0%}".replace("%", " %")
    return "  ".join(part for part in (percent, row.get("progress_note")) if part)
