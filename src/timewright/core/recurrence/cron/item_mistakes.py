"""Finds what is wrong with one item of one cron field, by one check after another."""

from __future__ import annotations

from difflib import get_close_matches

from timewright.core.recurrence.cron.fields import (
    DAY,
    FIRST_YEAR,
    HOUR,
    LAST_YEAR,
    MAX_DIGITS,
    MONTH,
    WEEKDAY,
    WEEKDAYS,
    YEAR,
    CronField,
    Mistake,
    parse_number,
    parse_value,
)
from timewright.core.recurrence.words import MONTHS


def item_mistake(field: CronField, item: str, key: str | None) -> Mistake:
    """Return the first thing that is wrong with an item that does not parse."""
    if item.startswith("H"):
        return _hash(field, item, key)
    for check in (_empty, _question_mark, _plus, _random, _last_or_nearest, _nth, _step, _range):
        mistake = check(field, item)
        if mistake is not None:
            return mistake
    return _value(field, item)


def _hash(field: CronField, item: str, key: str | None) -> Mistake:
    if field is YEAR:
        return Mistake("cannot be hashed", "H is not allowed in the year field", ("*",))
    if key is None:
        rule = "H needs a stable key, so that every instance computes the same times"
        note = "with a key that never changes, such as the id of the schedule"
        return Mistake("has no key", rule, (item,), note)
    rule = f"H, H/n, H(a-b) or H(a-b)/n within {field.low}-{field.high}, n not longer than the range"
    return Mistake("is not a hashed value", rule, ("H",))


def _empty(_field: CronField, item: str) -> Mistake | None:
    if item:
        return None
    return Mistake("is empty", "a list has a value on both sides of each comma", ("", "*"))


def _question_mark(field: CronField, item: str) -> Mistake | None:
    if "?" not in item:
        return None
    rule = "? is allowed only alone in a day field, where it means *"
    return Mistake(
        "is not allowed", rule, ("", "*") if field in (DAY, WEEKDAY) else (_every_or_first(field),)
    )


def _every_or_first(field: CronField) -> str:
    """Return `*` for days and longer, otherwise the first value: a correction fires no more often."""
    return "*" if field in (DAY, MONTH, WEEKDAY, YEAR) else str(field.low)


def _plus(_field: CronField, item: str) -> Mistake | None:
    if not item.startswith("+"):
        return None
    rule = "a single + is allowed before the weekday field: then both day fields must match"
    return Mistake("has a misplaced +", rule, (item.lstrip("+"),))


def _random(field: CronField, item: str) -> Mistake | None:
    low, tilde, high = item.partition("~")
    if tilde:
        spread = f"H({low or field.low}-{high or field.high})"
    elif item == "R" or item.startswith(("R/", "R(")):
        spread = "H" + item[1:]
    else:
        return None
    rule = "an expression must give the same times on every instance, so it cannot be random"
    return Mistake("is random", rule, (spread,), "with a stable key: spread, but deterministic")


def _last_or_nearest(field: CronField, item: str) -> Mistake | None:
    """Check for L and W in the wrong field or form."""
    if item == "$" and field is DAY:
        return Mistake("is not a day", "L is the last day of the month", ("L",))
    if not {"L", "W"} & set(item) or set(item) - set("LW0123456789-/"):
        return None
    if field is DAY:
        rule = "L, L-n (n days before the last, 1-30), LW, or nW with n from 1 to 31; no range or step"
        return Mistake("is not a day", rule, _suggest_days(item))
    if field is WEEKDAY:
        rule = "nL is the last weekday n of the month; L alone, the last day, belongs in the day of month"
        return Mistake("is not a weekday", rule, (item.replace("L", "") + "L", "5L"))
    return Mistake("is not allowed", "L and W belong in the day fields", note="'0 0 L * *' is the last day")


def _suggest_days(item: str) -> tuple[str, ...]:
    digits = "".join(c for c in item.partition("/")[0] if c.isdigit())
    if item.startswith("L-"):
        return ("LW" if "W" in item else "L",)
    return ("LW", "L") if not digits else (f"{digits}W" if "W" in item else "L", "1W")


def _nth(field: CronField, item: str) -> Mistake | None:
    weekday, hash_sign, which = item.partition("#")
    if not hash_sign:
        return None
    if field is not WEEKDAY:
        note = "'0 0 * * MON#1' is the first Monday of the month"
        return Mistake("is not allowed", "n#k belongs in the weekday field", note=note)
    if which == "L":
        return Mistake("is not a weekday", "the last weekday n of the month is nL", (f"{weekday}L",))
    rule = "n#k is the k-th weekday n of the month: n from 0 to 7 or a name, k from 1 to 5"
    suggestion = f"{weekday}#{1 if parse_number(which) < 1 else 5}"
    return Mistake("is not a weekday", rule, (suggestion, f"0#{which}"))


def _step(field: CronField, item: str) -> Mistake | None:
    head, slash, step = item.partition("/")
    if not slash:
        return None
    first = step.strip("/-+").partition("/")[0]
    if not step.isdigit() or parse_number(step) < 1:
        return _step_number(field, head, step, first)
    if parse_value(field, head) >= 0:
        suggestion = f"{head}-{_last_of(field, head)}/{step}"
        rule = f"a step follows * or a range, such as {suggestion}"
        return Mistake("has a step on a single value", rule, (suggestion,))
    inner = item_mistake(field, head, None) if head else Mistake("has nothing to step over", "", ("*",))
    rule = inner.rule or "a step follows * or a range"
    return inner._replace(rule=rule, replacements=tuple(f"{new}/{step}" for new in inner.replacements if new))


def _step_number(field: CronField, head: str, step: str, first: str) -> Mistake:
    rule = f"one step, a whole number from 1, of at most {MAX_DIGITS} digits"
    if parse_number(step) == 0:
        return Mistake("has a step of zero", rule, (_every_or_first(field) if head == "*" else head,))
    if step.isdigit():
        note = f"is the only value that */{step[:12]} matches"
        return Mistake("has a step that is too large", rule, (str(field.low),), note)
    why = "has no number after the /" if not step else "has a step that is not a number"
    return Mistake(why, rule, (f"{head}/{first}", head, f"*/{first}"))


def _range(field: CronField, item: str) -> Mistake | None:
    if ".." in item:
        return Mistake("is not a range", "a range is written a-b", (item.replace("..", "-"),))
    if "-" not in item:
        return None
    first, *_, last = item.split("-")
    if not first:
        rule = f"{_bounds(field)}, and nothing negative"
        return Mistake("is negative", rule, (last, str(field.low)))
    if item.count("-") > 1:
        return Mistake("is not a range", "a range has two ends", (f"{first}-{last}",))
    if not last:
        return Mistake("has no end", "a range has two ends", (f"{first}-{field.high}",))
    for end in (first, last):
        if parse_value(field, end) < 0:
            inner = _value(field, end)
            new = tuple(f"{first}-{e}" if end is last else f"{e}-{last}" for e in inner.replacements)
            return inner._replace(replacements=new)
    return _backwards(field, first, last)


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
        return Mistake(
            "has something after the *", "* must be alone or followed by a step", (f"*/{item[1:]}", "*")
        )
    if item[:3] in field.names and _full_name(item):
        return Mistake("is not a name", "names have three letters: MON, JAN", (item[:3],))
    if item[:3] in MONTH.names:
        return Mistake("is a month", _bounds(field), note=f"'0 0 1 {item[:3]} *'")
    if item[:3] in WEEKDAY.names:
        return Mistake("is a weekday", _bounds(field), note=f"'0 0 * * {item[:3]}'")
    near = tuple(get_close_matches(item[:10], field.names, n=1, cutoff=0.6))
    digits = item.partition(".")[0]
    return Mistake("is not a value", _bounds(field), (*near, digits, str(field.low)))


def _full_name(item: str) -> bool:
    return any(name.upper().startswith(item) for name in (*MONTHS, *WEEKDAYS))


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
