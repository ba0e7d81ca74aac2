"""Words on a terminal: as wide as it allows, without marks that deceive, in colour where that is wanted."""

from __future__ import annotations

import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime, tzinfo

import click
from msgspec import Struct

from timewright.doors.cli.times import local_zone

NARROWEST = 20
NARROWEST_TABLE = 60
GAP = "  "
# A blank where no line is broken.
TIE = "\u00a0"
# What moves the cursor, hides, or turns the direction of what follows: shown by its number instead.
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff]"
)
_COLOURS = {"✔": "green", "✘": "red", "‖": "yellow", "↻": "yellow", "▸": "cyan", "◦": None, "·": None}
_PLAIN = str.maketrans("✔✘‖↻▸◦·…—–→×", "+x!~>o-.--:x")


class Screen(Struct, frozen=True, kw_only=True):
    """Where the words go: how wide, whether in colour, at what instant and in which zone."""

    now: datetime
    zone: tzinfo
    width: int | None = None
    colour: bool = False
    plain: bool = False

    def say(self, line: str) -> str:
        """A line as this screen can show it."""
        spaced = line.replace(TIE, " ")
        return spaced.translate(_PLAIN) if self.plain else spaced

    def mark(self, sign: str) -> str:
        """A sign in its colour."""
        colour = _COLOURS.get(sign) if self.colour else None
        return click.style(sign, fg=colour) if colour else sign


class Column(Struct, frozen=True):
    """A column: its title, how narrow it may become, whether it holds numbers, and can be spared."""

    title: str
    narrowest: int = 0
    right: bool = False
    spare: bool = False


def screen_at(now: datetime) -> Screen:
    """The screen that the standard output is."""
    stdout = sys.stdout
    is_terminal = stdout is not None and stdout.isatty()
    columns = os.environ.get("COLUMNS", "")
    width = shutil.get_terminal_size().columns if is_terminal or columns.isdigit() else None
    return Screen(
        now=now,
        zone=local_zone(now),
        width=max(width, NARROWEST) if width else None,
        colour=is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb",
        plain="utf" not in (getattr(stdout, "encoding", None) or "utf-8").lower(),
    )


def clean(text: object) -> str:
    """A text without power over the terminal: control characters and bidirectional marks by their number."""
    return _HIDDEN.sub(_numbered, str(text))


def columns_of(text: str) -> int:
    """How many columns a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(_width(character) for character in text)


def fitted(text: str, width: int) -> str:
    """A text cut to a width, with … where it was cut."""
    if columns_of(text) <= width:
        return text
    kept, taken = [], 1
    for character in text:
        taken += _width(character)
        if taken > width:
            break
        kept.append(character)
    return "".join(kept).rstrip() + "…"


def table(screen: Screen, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows under titles, as wide as the screen allows; on a narrow screen each row as a block of lines."""
    cells = [[clean(cell) for cell in row] for row in rows]
    used = [i for i in range(len(columns)) if i == 0 or any(row[i] for row in cells)]
    spares = [i for i in used if columns[i].spare]
    # All columns if they fit, then without one that can be spared after the other.
    for spared in range(len(spares) + 1):
        kept = [i for i in used if i not in spares[:spared]]
        shown, inner = [columns[i] for i in kept], [[row[i] for i in kept] for row in cells]
        widths = _shrunk(shown, _natural(shown, inner), screen.width)
        if widths is not None:
            return [_row(screen, shown, widths, row) for row in ([one.title for one in shown], *inner)]
    return _blocks(screen, [columns[i] for i in used], [[row[i] for i in used] for row in cells])


def pairs(screen: Screen, rows: Iterable[tuple[str, str]], *, indent: int = 2) -> list[str]:
    """Names and values below each other; long values go on under themselves."""
    shown = [(clean(name), value) for name, value in rows if value]
    longest = max((columns_of(name) for name, _ in shown), default=0)
    lines: list[str] = []
    for name, value in shown:
        first = f"{' ' * indent}{name:<{longest}}{GAP}"
        hang = len(first) if _fits(value, screen.width, len(first)) else indent + 2
        parts = _wrapped(value, screen.width, indent=hang)
        if hang < len(first):
            # An id or a command that must be copied whole gets lines of its own.
            lines.append(first.rstrip())
            first = " " * hang
        lines += [((first if i == 0 else " " * hang) + part).rstrip() for i, part in enumerate(parts)]
    return [screen.say(line) for line in lines]


def _fits(value: str, width: int | None, indent: int) -> bool:
    return width is None or max(map(columns_of, re.split(r"[ \n]", value)), default=0) + indent <= width


def paragraph(screen: Screen, text: str, *, hang: int = 2) -> list[str]:
    """A sentence, broken where the screen ends; what follows hangs in a little."""
    first, *rest = _wrapped(text, screen.width, indent=0, hang=hang)
    return [screen.say(first), *(screen.say(" " * hang + line) for line in rest)]


def _wrapped(text: str, width: int | None, *, indent: int, hang: int = 0) -> list[str]:
    lines: list[str] = []
    for line in text.split("\n"):
        if width is None or columns_of(line) + indent <= width:
            lines.append(clean(line))
            continue
        lines += _broken(clean(line), max(width - indent - hang, 10))
    return lines


def _broken(text: str, room: int) -> list[str]:
    """A text in lines of at most so many columns, broken between words where that is possible."""
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}".strip()
        if columns_of(joined) <= room:
            lines[-1] = joined
            continue
        rest = word
        while columns_of(rest) > room:
            piece = fitted(rest, room + 1)[:-1]
            lines.append(piece)
            rest = rest[len(piece) :]
        lines.append(rest)
    return [line for line in lines if line] or [""]


def _natural(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    return [
        max([columns_of(column.title), *(columns_of(row[i]) for row in rows)])
        for i, column in enumerate(columns)
    ]


def _shrunk(columns: Sequence[Column], natural: list[int], width: int | None) -> list[int] | None:
    """The widths that fit, taken from the widest that may give; nothing if even that does not help."""
    widths = list(natural)
    if width is None:
        return widths
    over = sum(widths) + len(GAP) * (len(widths) - 1) - width
    if over > 0 and width < NARROWEST_TABLE:
        return None
    while over > 0:
        able = [i for i, column in enumerate(columns) if 0 < column.narrowest < widths[i]]
        if not able:
            return None
        widest = max(able, key=lambda i: widths[i])
        widths[widest] -= 1
        over -= 1
    return widths


def _row(screen: Screen, columns: Sequence[Column], widths: Sequence[int], row: Sequence[str]) -> str:
    parts = []
    for column, width, cell in zip(columns, widths, row, strict=True):
        text = fitted(cell, width)
        blank = " " * (width - columns_of(text))
        shown = screen.mark(text[0]) + text[1:] if text and text[0] in _COLOURS else text
        parts.append(blank + shown if column.right else shown + blank)
    return screen.say(GAP.join(parts).rstrip())


def _blocks(screen: Screen, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    """Each row as lines of its own, under its first cell."""
    lines: list[str] = []
    for first, *rest in rows:
        lines += paragraph(screen, first)
        titles = [column.title.lower() for column in columns[1:]]
        lines += pairs(screen, zip(titles, rest, strict=True))
    return lines


def _numbered(found: re.Match[str]) -> str:
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
