"""Builds the error for an invalid cron expression: the field, the value, the rule and a valid correction.

The mistake is analysed only after parsing has failed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from difflib import get_close_matches

from timewright.core.recurrence.cron.fields import (
    FIELDS,
    FIRST_YEAR,
    MAX_EXPRESSION_LENGTH,
    NICKNAMES,
    Mistake,
    UnparsedItem,
    parse_number,
    quote_shortened,
)
from timewright.core.recurrence.cron.item_mistakes import item_mistake
from timewright.errors import InvalidCron

_LENGTH = re.compile(r"[0-9]{1,9}[smhdw](?:[0-9]{1,9}[smh])*", re.IGNORECASE)
_INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{5,20}(?:Z|[+-][0-9:]{5})?$", re.IGNORECASE)
_FIELD = re.compile(
    r"(?:[0-9*?,/#+~LWH-]|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|sun|mon|tue|wed|thu|fri|sat)+",
    re.IGNORECASE,
)
_USER = re.compile(r"[a-z_][a-z0-9_-]{2,31}", re.IGNORECASE)
_WEEKDAY_WORDS = (
    *("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"),
    *("SUNDAY", "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "WEEKDAYS", "WEEKEND"),
)
# Once a year, so that a correction never fires more often than what was asked.
_EXAMPLE = "0 0 1 1 *"
_COUNT_RULE = "5 fields (minute hour day month weekday), 6 with seconds first, 7 with the year last"
_NICKNAME_RULE = "the nicknames are " + ", ".join(name.lower() for name in NICKNAMES)


def parse_error(
    text: str, unparsed: UnparsedItem, *, key: str | None, is_valid: Callable[[str], bool]
) -> InvalidCron:
    """Return the error for a text that does not parse; a correction is offered only if it is valid."""
    mistake = _text_mistake(text, counted=unparsed.position is not None)
    field, value, about = "expression", text[:MAX_EXPRESSION_LENGTH], ""
    if unparsed.position is None or mistake is not None:
        mistake = mistake or _wrong_count(text)
        candidates = mistake.replacements
    else:
        field, at = FIELDS[unparsed.position].name, text.upper().find(unparsed.item)
        # The item as it was written, not in upper case.
        value = text[at : at + len(unparsed.item)] if at >= 0 else unparsed.item
        about = f"{field} {quote_shortened(value)} "
        mistake = item_mistake(FIELDS[unparsed.position], unparsed.item, key)
        candidates = _replaced(text, unparsed, mistake.replacements)
    correct = next((f"'{candidate}'" for candidate in candidates if is_valid(candidate)), "")
    example = "0 0 0 1 1 * 2030" if field == "year" else _EXAMPLE
    return InvalidCron(
        f"cron {quote_shortened(text)}: {about}{mistake.why}",
        field=field,
        value=value,
        rule=mistake.rule,
        fix=f"{correct} {mistake.note}".strip() or f"'{example}'",
    )


def _replaced(text: str, unparsed: UnparsedItem, replacements: tuple[str, ...]) -> tuple[str, ...]:
    """Return the whole expression with the item replaced, for each replacement."""
    tokens = text.upper().split()
    place = (unparsed.position or 0) - (len(tokens) == 5)
    sign = "+" if tokens[place].startswith("+") and unparsed.position == 5 else ""
    items = tokens[place].removeprefix(sign).split(",")
    at = items.index(unparsed.item)
    found: list[str] = []
    for new in replacements:
        changed = [*items[:at], *([new] if new else []), *items[at + 1 :]]
        found.append(" ".join([*tokens[:place], sign + ",".join(changed), *tokens[place + 1 :]]))
    if len(tokens) == 6 and parse_number(tokens[5]) >= FIRST_YEAR:
        found.insert(0, " ".join(["0", *tokens]))
    return tuple(found)


def _text_mistake(text: str, *, counted: bool) -> Mistake | None:
    """Return what is wrong with the text; with a valid number of fields, only check for extra text."""
    extra_text_checks = (_nickname, _zone_prefix, _quoted, _comment, _spaced_list, _crontab_line)
    for check in (
        extra_text_checks if counted else (_too_long, _non_ascii, _control, _empty_text, *extra_text_checks)
    ):
        mistake = check(text)
        if mistake is not None:
            return mistake
    return None


def _too_long(text: str) -> Mistake | None:
    if len(text) <= MAX_EXPRESSION_LENGTH:
        return None
    return Mistake(
        f"it has {len(text)} characters",
        f"an expression has at most {MAX_EXPRESSION_LENGTH} characters",
        note="ranges and steps instead of lists, or several triggers",
    )


def _non_ascii(text: str) -> Mistake | None:
    character = next((c for c in text if not c.isascii()), None)
    if character is None:
        return None
    plain = unicodedata.normalize("NFKC", text.replace("\ufeff", ""))
    digits = "".join(str(unicodedata.digit(c, c)) if not c.isascii() else c for c in plain)
    why = f"character U+{ord(character):04X} ({unicodedata.name(character, 'no name')}) is not ASCII"
    ascii_only = " ".join("".join(c for c in digits if c.isascii()).split())
    return Mistake(why, "an expression is written in ASCII", (digits, ascii_only))


def _control(text: str) -> Mistake | None:
    character = next((c for c in text if not c.isprintable() and c != "\t"), None)
    if character is None:
        return None
    why = f"character {character!a} is not allowed"
    cleaned = "".join(c if c.isprintable() or c == "\t" else " " for c in text)
    return Mistake(why, "fields are separated by spaces or tabs, on one line", (cleaned.strip(),))


def _empty_text(text: str) -> Mistake | None:
    if text.strip():
        return None
    return Mistake("it is empty", _COUNT_RULE, ("0 0 * * *",), "for every midnight")


def _nickname(text: str) -> Mistake | None:
    word, *rest = text.split()
    if not word.startswith("@"):
        return None
    if word.lower() == "@every":
        interval = rest[0] if rest else "5m"
        note = f"the interval trigger: every {interval}"
        return Mistake("'@every' is an interval, not a recurrence", _NICKNAME_RULE, note=note)
    if word.lower() == "@reboot":
        note = "for a fixed time; a schedule takes '@reboot' as its trigger, or run_at_start: true beside it"
        return Mistake("'@reboot' is an event, not a time", _NICKNAME_RULE, ("@daily",), note)
    if word.upper() in NICKNAMES:
        return Mistake(
            f"{quote_shortened(rest[0])} follows the nickname", "a nickname must be alone", (word,)
        )
    near = get_close_matches(word.upper()[:20], NICKNAMES, n=1, cutoff=0.5)
    replacement = "* * * * *" if word.lower() == "@minutely" else near[0].lower() if near else "@yearly"
    return Mistake(f"{quote_shortened(word)} is not a nickname", _NICKNAME_RULE, (replacement,))


def _zone_prefix(text: str) -> Mistake | None:
    name, equals, rest = text.strip().partition("=")
    if not equals or not name.replace("_", "").isalpha():
        return None
    zone, _, expression = rest.partition(" ")
    why = f"it begins with the setting {quote_shortened(name + '=' + zone)}"
    return Mistake(
        why,
        "the zone has its own field",
        (expression.strip(), _EXAMPLE),
        f"with zone={quote_shortened(zone)}",
    )


def _quoted(text: str) -> Mistake | None:
    if not any(quote in text for quote in "\"'`"):
        return None
    plain = "".join(c for c in text if c not in "\"'`")
    return Mistake("it has quotation marks inside", "an expression has no quotation marks", (plain,))


def _comment(text: str) -> Mistake | None:
    tokens = text.split()
    at = next((n for n, token in enumerate(tokens) if token.startswith("#")), None)
    if at is None:
        return None
    return Mistake(
        f"it ends with the comment {quote_shortened(' '.join(tokens[at:]))}",
        "an expression has no comments; a schedule has a description",
        (" ".join(tokens[:at]),),
    )


def _spaced_list(text: str) -> Mistake | None:
    joined = re.sub(r"\s*,\s*", ",", text.strip())
    if joined == text.strip() or joined.startswith(",") or joined.endswith(","):
        return None
    return Mistake("it has a space beside a comma", "a list is written without spaces: 9,17", (joined,))


def _crontab_line(text: str) -> Mistake | None:
    """Five fields followed by a user or a command, as in /etc/crontab."""
    fields, rest = text.split()[:5], text.split()[5:]
    if not rest or _FIELD.fullmatch(rest[0]) or not all(map(_FIELD.fullmatch, fields)):
        return None
    is_user = _USER.fullmatch(rest[0]) is not None
    if is_user and get_close_matches(rest[0].upper()[:20], _WEEKDAY_WORDS, n=1):
        return None  # a misspelled weekday
    if not is_user and not rest[0].startswith(("/", "./", "~/")):
        return None
    what = "the user" if is_user else "the command"
    return Mistake(
        f"it is a line of a crontab: {what} {quote_shortened(rest[0])} follows the weekday",
        "an expression has only the times; user and command are no part of it",
        (" ".join(fields), _EXAMPLE),
        "with the command as the target: shell",
    )


def _wrong_count(text: str) -> Mistake:
    """Return the mistake for too few or too many fields."""
    tokens = text.split()
    if len(tokens) == 1 and _LENGTH.fullmatch(text.strip()):
        return Mistake("it is an interval", _COUNT_RULE, note=f"the interval trigger: every {text.strip()}")
    if len(tokens) == 1 and _INSTANT.match(text.strip()):
        return Mistake("it is an instant", _COUNT_RULE, note=f"the one-time trigger: once: {text.strip()}")
    if f"@{text.strip().upper()}" in NICKNAMES:
        return Mistake("it has 1 field", _COUNT_RULE, (f"@{text.strip().lower()}",))
    if any(len(token) > 3 and token.isalpha() for token in tokens):
        return Mistake("it is a phrase", _COUNT_RULE, note=f"the text trigger: every: {text.strip()[:60]}")
    padded = " ".join([*tokens, *["*"] * (5 - len(tokens))])
    # Seven fields that begin with * would fire every second.
    counts = (5,) if tokens[:1] == ["*"] else (7, 6, 5)
    shortened = tuple(" ".join(tokens[:count]) for count in counts)
    fields = "1 field" if len(tokens) == 1 else f"{len(tokens)} fields"
    return Mistake(f"it has {fields}", _COUNT_RULE, (padded, *shortened, _EXAMPLE))
