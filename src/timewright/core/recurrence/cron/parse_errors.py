"""Builds the error for an invalid cron expression: the field, the value, the rule and a valid correction.

The mistake is analysed only after parsing has failed. The checks yield what is wrong; the first one counts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import NamedTuple

from timewright.core.recurrence.cron.fields import (
    DAY,
    FIELDS,
    FIRST_YEAR,
    HOUR,
    LAST_YEAR,
    MAX_DIGITS,
    MAX_EXPRESSION_LENGTH,
    MONTH,
    NICKNAMES,
    WEEKDAY,
    WEEKDAYS,
    YEAR,
    CronField,
    UnparsedItem,
    parse_number,
    parse_value,
    quote_shortened,
)
from timewright.core.recurrence.words import MONTHS
from timewright.errors import InvalidCron

_LENGTH = re.compile(r"[0-9]{1,9}[smhdw](?:[0-9]{1,9}[smh])*", re.IGNORECASE)
_INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{5,20}(?:Z|[+-][0-9:]{5})?$", re.IGNORECASE)
_FIELD = re.compile(
    r"(?:[0-9*?,/#+~LWH-]|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|sun|mon|tue|wed|thu|fri|sat)+",
    re.IGNORECASE,
)
_USER = re.compile(r"[a-z_][a-z0-9_-]{2,31}", re.IGNORECASE)
_WEEKDAY_WORDS = (*WEEKDAY.names, *(name.upper() for name in WEEKDAYS), "WEEKDAYS", "WEEKEND")
# Once a year, so that a correction never fires more often than what was asked.
_EXAMPLE = "0 0 1 1 *"
_COUNT_RULE = "5 fields (minute hour day month weekday), 6 with seconds first, 7 with the year last"
_NICKNAME_RULE = "the nicknames are " + ", ".join(name.lower() for name in NICKNAMES)


class Mistake(NamedTuple):
    """What is wrong, the rule, replacements to try, and a note to add to the fix."""

    why: str
    rule: str
    replacements: tuple[str, ...] = ()
    note: str = ""


def parse_error(
    text: str, unparsed: UnparsedItem, *, key: str | None, is_valid: Callable[[str], bool]
) -> InvalidCron:
    """Return the error for a text that does not parse; a correction is offered only if it is valid."""
    checks = (_characters, _extra_text) if unparsed.position is None else (_extra_text,)
    mistake = next((one for check in checks for one in check(text)), None)
    field, value, about = "expression", text[:MAX_EXPRESSION_LENGTH], ""
    if mistake is not None or unparsed.position is None:
        mistake = mistake or _wrong_count(text)
        candidates = mistake.replacements
    else:
        field, at = FIELDS[unparsed.position].name, text.upper().find(unparsed.item)
        # The item as it was written, not in upper case.
        value = text[at : at + len(unparsed.item)] if at >= 0 else unparsed.item
        about = f"{field} {quote_shortened(value)} "
        mistake = _item_mistake(FIELDS[unparsed.position], unparsed.item, key)
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


# --------------------------------------------------------------------------------------------- the whole text


def _characters(text: str) -> Iterator[Mistake]:
    """Yield what is wrong with the characters and the length of a text."""
    if len(text) > MAX_EXPRESSION_LENGTH:
        yield Mistake(
            f"it has {len(text)} characters",
            f"an expression has at most {MAX_EXPRESSION_LENGTH} characters",
            note="ranges and steps instead of lists, or several triggers",
        )
    for character in (c for c in text if not c.isascii()):
        plain = unicodedata.normalize("NFKC", text.replace("\ufeff", ""))
        digits = "".join(str(unicodedata.digit(c, c)) if not c.isascii() else c for c in plain)
        why = f"character U+{ord(character):04X} ({unicodedata.name(character, 'no name')}) is not ASCII"
        ascii_only = " ".join("".join(c for c in digits if c.isascii()).split())
        yield Mistake(why, "an expression is written in ASCII", (digits, ascii_only))
    for character in (c for c in text if not c.isprintable() and c != "\t"):
        cleaned = "".join(c if c.isprintable() or c == "\t" else " " for c in text).strip()
        rule = "fields are separated by spaces or tabs, on one line"
        yield Mistake(f"character {character!a} is not allowed", rule, (cleaned,))
    if not text.strip():
        yield Mistake("it is empty", _COUNT_RULE, ("0 0 * * *",), "for every midnight")


def _extra_text(text: str) -> Iterator[Mistake]:
    """Yield text that is no field: a nickname with more, a zone, quotes, a comment, a command."""
    tokens, stripped = text.split(), text.strip()
    if stripped.startswith("@"):
        yield _nickname(*tokens)
    name, equals, rest = stripped.partition("=")
    if equals and name.replace("_", "").isalpha():
        zone, _, expression = rest.partition(" ")
        why = f"it begins with the setting {quote_shortened(name + '=' + zone)}"
        replacements = (expression.strip(), _EXAMPLE)
        yield Mistake(why, "the zone has its own field", replacements, f"with zone={quote_shortened(zone)}")
    plain = "".join(c for c in text if c not in "\"'`")
    if plain != text:
        yield Mistake("it has quotation marks inside", "an expression has no quotation marks", (plain,))
    for at in (n for n, token in enumerate(tokens) if token.startswith("#")):
        why = f"it ends with the comment {quote_shortened(' '.join(tokens[at:]))}"
        rule = "an expression has no comments; a schedule has a description"
        yield Mistake(why, rule, (" ".join(tokens[:at]),))
    joined = re.sub(r"\s*,\s*", ",", stripped)
    if joined != stripped and not joined.startswith(",") and not joined.endswith(","):
        yield Mistake("it has a space beside a comma", "a list is written without spaces: 9,17", (joined,))
    if what := _command_after_fields(tokens):
        yield Mistake(
            f"it is a line of a crontab: {what} {quote_shortened(tokens[5])} follows the weekday",
            "an expression has only the times; user and command are no part of it",
            (" ".join(tokens[:5]), _EXAMPLE),
            "with the command as the target: shell",
        )


def _nickname(word: str, *rest: str) -> Mistake:
    if word.lower() == "@every":
        interval = rest[0] if rest else "5m"
        note = f"the interval trigger: every {interval}"
        return Mistake("'@every' is an interval, not a recurrence", _NICKNAME_RULE, note=note)
    if word.lower() == "@reboot":
        note = "for a fixed time; a schedule takes '@reboot' as its trigger, or run_at_start: true beside it"
        return Mistake("'@reboot' is an event, not a time", _NICKNAME_RULE, ("@daily",), note)
    if word.upper() in NICKNAMES:
        why = f"{quote_shortened(rest[0])} follows the nickname"
        return Mistake(why, "a nickname must be alone", (word,))
    near = get_close_matches(word.upper()[:20], NICKNAMES, n=1, cutoff=0.5)
    replacement = "* * * * *" if word.lower() == "@minutely" else near[0].lower() if near else "@yearly"
    return Mistake(f"{quote_shortened(word)} is not a nickname", _NICKNAME_RULE, (replacement,))


def _command_after_fields(tokens: list[str]) -> str:
    """Return what follows five fields, a user or a command as in /etc/crontab; "" for anything else."""
    fields, rest = tokens[:5], tokens[5:]
    if not rest or _FIELD.fullmatch(rest[0]) or not all(map(_FIELD.fullmatch, fields)):
        return ""
    if _USER.fullmatch(rest[0]) is None:
        return "the command" if rest[0].startswith(("/", "./", "~/")) else ""
    is_weekday = get_close_matches(rest[0].upper()[:20], _WEEKDAY_WORDS, n=1)
    return "" if is_weekday else "the user"


def _wrong_count(text: str) -> Mistake:
    """Return the mistake for too few or too many fields."""
    tokens, stripped = text.split(), text.strip()
    if _LENGTH.fullmatch(stripped):
        return Mistake("it is an interval", _COUNT_RULE, note=f"the interval trigger: every {stripped}")
    if len(tokens) == 1 and _INSTANT.match(stripped):
        return Mistake("it is an instant", _COUNT_RULE, note=f"the one-time trigger: once: {stripped}")
    if f"@{stripped.upper()}" in NICKNAMES:
        return Mistake("it has 1 field", _COUNT_RULE, (f"@{stripped.lower()}",))
    if any(len(token) > 3 and token.isalpha() for token in tokens):
        return Mistake("it is a phrase", _COUNT_RULE, note=f"the text trigger: every: {stripped[:60]}")
    padded = " ".join([*tokens, *["*"] * (5 - len(tokens))])
    # Seven fields that begin with * would fire every second.
    counts = (5,) if tokens[:1] == ["*"] else (7, 6, 5)
    shortened = tuple(" ".join(tokens[:count]) for count in counts)
    fields = "1 field" if len(tokens) == 1 else f"{len(tokens)} fields"
    return Mistake(f"it has {fields}", _COUNT_RULE, (padded, *shortened, _EXAMPLE))


# --------------------------------------------------------------------------------------------- one item


def _item_mistake(field: CronField, item: str, key: str | None) -> Mistake:
    """Return the first thing that is wrong with an item that does not parse."""
    if item.startswith("H"):
        return _hash(field, item, key)
    checks = (_symbols, _last_or_nearest, _nth, _step, _range)
    found = (mistake for check in checks for mistake in check(field, item))
    return next(found, None) or _value(field, item)


def _hash(field: CronField, item: str, key: str | None) -> Mistake:
    if field is YEAR:
        return Mistake("cannot be hashed", "H is not allowed in the year field", ("*",))
    if key is None:
        rule = "H needs a stable key, so that every instance computes the same times"
        note = "with a key that never changes, such as the id of the schedule"
        return Mistake("has no key", rule, (item,), note)
    rule = f"H, H/n, H(a-b) or H(a-b)/n within {field.low}-{field.high}, n not longer than the range"
    return Mistake("is not a hashed value", rule, ("H",))


def _symbols(field: CronField, item: str) -> Iterator[Mistake]:
    """Yield symbols that mean something elsewhere, or in another cron."""
    if not item:
        yield Mistake("is empty", "a list has a value on both sides of each comma", ("", "*"))
    if "?" in item:
        rule = "? is allowed only alone in a day field, where it means *"
        replacements = ("", "*") if field in (DAY, WEEKDAY) else (_every_or_first(field),)
        yield Mistake("is not allowed", rule, replacements)
    if item.startswith("+"):
        rule = "a single + is allowed before the weekday field: then both day fields must match"
        yield Mistake("has a misplaced +", rule, (item.lstrip("+"),))
    low, tilde, high = item.partition("~")
    if tilde or item == "R" or item.startswith(("R/", "R(")):
        spread = f"H({low or field.low}-{high or field.high})" if tilde else f"H{item[1:]}"
        rule = "an expression must give the same times on every instance, so it cannot be random"
        yield Mistake("is random", rule, (spread,), "with a stable key: spread, but deterministic")
    if item == "$" and field is DAY:
        yield Mistake("is not a day", "L is the last day of the month", ("L",))


def _every_or_first(field: CronField) -> str:
    """Return `*` for days and longer, otherwise the first value: a correction fires no more often."""
    return "*" if field in (DAY, MONTH, WEEKDAY, YEAR) else str(field.low)


def _last_or_nearest(field: CronField, item: str) -> Iterator[Mistake]:
    """Yield L and W in the wrong field or form."""
    if not {"L", "W"} & set(item) or set(item) - set("LW0123456789-/"):
        return
    if field is DAY:
        rule = "L, L-n (n days before the last, 1-30), LW, or nW with n from 1 to 31; no range or step"
        yield Mistake("is not a day", rule, _suggest_days(item))
    elif field is WEEKDAY:
        rule = "nL is the last weekday n of the month; L alone, the last day, belongs in the day of month"
        yield Mistake("is not a weekday", rule, (item.replace("L", "") + "L", "5L"))
    else:
        note = "'0 0 L * *' is the last day"
        yield Mistake("is not allowed", "L and W belong in the day fields", note=note)


def _suggest_days(item: str) -> tuple[str, ...]:
    digits = "".join(c for c in item.partition("/")[0] if c.isdigit())
    if item.startswith("L-"):
        return ("LW" if "W" in item else "L",)
    return ("LW", "L") if not digits else (f"{digits}W" if "W" in item else "L", "1W")


def _nth(field: CronField, item: str) -> Iterator[Mistake]:
    weekday, hash_sign, which = item.partition("#")
    if hash_sign and field is not WEEKDAY:
        note = "'0 0 * * MON#1' is the first Monday of the month"
        yield Mistake("is not allowed", "n#k belongs in the weekday field", note=note)
    elif hash_sign and which == "L":
        yield Mistake("is not a weekday", "the last weekday n of the month is nL", (f"{weekday}L",))
    elif hash_sign:
        rule = "n#k is the k-th weekday n of the month: n from 0 to 7 or a name, k from 1 to 5"
        suggestion = f"{weekday}#{1 if parse_number(which) < 1 else 5}"
        yield Mistake("is not a weekday", rule, (suggestion, f"0#{which}"))


def _step(field: CronField, item: str) -> Iterator[Mistake]:
    head, slash, step = item.partition("/")
    rule = f"one step, a whole number from 1, of at most {MAX_DIGITS} digits"
    if not slash:
        return
    if parse_number(step) == 0:
        yield Mistake("has a step of zero", rule, (_every_or_first(field) if head == "*" else head,))
    elif step.isdigit() and parse_number(step) < 0:
        note = f"is the only value that */{step[:12]} matches"
        yield Mistake("has a step that is too large", rule, (str(field.low),), note)
    elif not step.isdigit():
        first = step.strip("/-+").partition("/")[0]
        why = "has no number after the /" if not step else "has a step that is not a number"
        yield Mistake(why, rule, (f"{head}/{first}", head, f"*/{first}"))
    elif parse_value(field, head) >= 0:
        suggestion = f"{head}-{_last_of(field, head)}/{step}"
        rule = f"a step follows * or a range, such as {suggestion}"
        yield Mistake("has a step on a single value", rule, (suggestion,))
    else:
        inner = _item_mistake(field, head, None) if head else Mistake("has nothing to step over", "", ("*",))
        stepped = tuple(f"{new}/{step}" for new in inner.replacements if new)
        yield inner._replace(rule=inner.rule or "a step follows * or a range", replacements=stepped)


def _range(field: CronField, item: str) -> Iterator[Mistake]:
    first, *middle, last = item.split("-") if "-" in item else (item, item)
    if ".." in item:
        yield Mistake("is not a range", "a range is written a-b", (item.replace("..", "-"),))
    elif not first:
        yield Mistake("is negative", f"{_bounds(field)}, and nothing negative", (last, str(field.low)))
    elif middle:
        yield Mistake("is not a range", "a range has two ends", (f"{first}-{last}",))
    elif not last:
        yield Mistake("has no end", "a range has two ends", (f"{first}-{field.high}",))
    elif "-" in item:
        if parse_value(field, first) < 0:
            inner = _value(field, first)
            yield inner._replace(replacements=tuple(f"{new}-{last}" for new in inner.replacements))
        if parse_value(field, last) < 0:
            inner = _value(field, last)
            yield inner._replace(replacements=tuple(f"{first}-{new}" for new in inner.replacements))
        yield _backwards(field, first, last)


def _backwards(field: CronField, first: str, last: str) -> Mistake:
    """Correct a range that passes the end of the field to two ranges."""
    if field is WEEKDAY and first in field.names:
        low, high = "MON", "SUN"
    else:
        low, high = "JAN" if first in field.names else str(field.low), _last_of(field, first)
    parts = (first if first == high else f"{first}-{high}", last if last == low else f"{low}-{last}")
    rule = "a range must be ascending; write one that passes the end of the field as two"
    return Mistake("runs backwards", rule, (",".join(parts),))


def _last_of(field: CronField, like: str) -> str:
    """Return the last value of a field, as a name if `like` is a name."""
    return list(field.names)[-1] if like in field.names else str(field.high)


def _value(field: CronField, item: str) -> Mistake:
    if item.isdigit():
        return Mistake("is out of range", _bounds(field), (_nearest_value(field, item), "L"))
    if item.startswith("*"):
        rule = "* must be alone or followed by a step"
        return Mistake("has something after the *", rule, (f"*/{item[1:]}", "*"))
    name = item[:3]
    if name in field.names and any(full.upper().startswith(item) for full in (*MONTHS, *WEEKDAYS)):
        return Mistake("is not a name", "names have three letters: MON, JAN", (name,))
    if name in MONTH.names:
        return Mistake("is a month", _bounds(field), note=f"'0 0 1 {name} *'")
    if name in WEEKDAY.names:
        return Mistake("is a weekday", _bounds(field), note=f"'0 0 * * {name}'")
    near = get_close_matches(item[:10], field.names, n=1, cutoff=0.6)
    return Mistake("is not a value", _bounds(field), (*near, item.partition(".")[0], str(field.low)))


def _nearest_value(field: CronField, item: str) -> str:
    found = int(item[:12])
    if found == field.high + 1 and field.low == 0 and field is not WEEKDAY:
        return "0"
    return str(min(max(found, field.low), field.high + (field is WEEKDAY)))


def _bounds(field: CronField) -> str:
    if field is WEEKDAY:
        return "a weekday is 0-7 (0 and 7 are Sunday) or SUN-SAT"
    if field is MONTH:
        return "a month is 1-12 or JAN-DEC"
    if field is YEAR:
        return f"a year is {FIRST_YEAR}-{LAST_YEAR}"
    article = "an" if field is HOUR else "a"
    return f"{article} {field.name} is {field.low}-{field.high}"
