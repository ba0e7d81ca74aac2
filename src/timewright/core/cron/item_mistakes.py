"""What may be wrong with one item of one cron field: one question after another."""

from __future__ import annotations

from difflib import get_close_matches

from timewright.core.cron.fields import (
    DAY,
    FIRST_YEAR,
    HOUR,
    LAST_YEAR,
    MONTH,
    MONTHS,
    MOST_DIGITS,
    WEEKDAY,
    WEEKDAYS,
    YEAR,
    Field,
    Mistake,
    number,
    value,
)


def item_mistake(field: Field, item: str, key: str | None) -> Mistake:
    """The first thing that is wrong with an item the grammar refused."""
    if item.startswith("H"):
        return _hash(field, item, key)
    for question in (_empty, _question_mark, _plus, _chance, _last_or_nearest, _nth, _step, _range):
        mistake = question(field, item)
        if mistake is not None:
            return mistake
    return _value(field, item)


def _hash(field: Field, item: str, key: str | None) -> Mistake:
    if field is YEAR:
        return Mistake("cannot be hashed", "H spreads within a year, not over years", ("*",))
    if key is None:
        rule = "H needs a stable key, so that everyone computes the same times"
        note = "with a key that never changes, such as the id of the schedule"
        return Mistake("has no key", rule, (item,), note)
    rule = f"H, H/n, H(a-b) or H(a-b)/n within {field.low}-{field.high}, n not longer than the range"
    return Mistake("is not a hashed value", rule, ("H",))


def _empty(_field: Field, item: str) -> Mistake | None:
    if item:
        return None
    return Mistake("is empty", "a list has a value on both sides of each comma", ("", "*"))


def _question_mark(field: Field, item: str) -> Mistake | None:
    if "?" not in item:
        return None
    rule = "? stands alone in a day field, and means the same as *"
    return Mistake("is not allowed", rule, ("", "*") if field in (DAY, WEEKDAY) else ("*",))


def _plus(_field: Field, item: str) -> Mistake | None:
    if not item.startswith("+"):
        return None
    rule = "one + may stand in front of the weekday field: then both day fields must match"
    return Mistake("has a + that does not belong there", rule, (item.lstrip("+"),))


def _chance(field: Field, item: str) -> Mistake | None:
    low, tilde, high = item.partition("~")
    if tilde:
        spread = f"H({low or field.low}-{high or field.high})"
    elif item == "R" or item.startswith(("R/", "R(")):
        spread = "H" + item[1:]
    else:
        return None
    rule = "the same expression means the same times for everyone, so nothing in it is random"
    return Mistake("is random", rule, (spread,), "with a stable key: spread, but the same each time")


def _last_or_nearest(field: Field, item: str) -> Mistake | None:
    """L and W where they do not belong, or bent."""
    if item == "$" and field is DAY:
        return Mistake("is not a day", "L is the last day of the month", ("L",))
    if not {"L", "W"} & set(item) or set(item) - set("LW0123456789-/"):
        return None
    if field is DAY:
        rule = "L, L-n (n days before the last, 1-30), LW, or nW with n from 1 to 31; no range or step"
        return Mistake("is not a day", rule, _days_meant(item))
    if field is WEEKDAY:
        rule = "nL is the last weekday n of the month; L alone, the last day, belongs in the day of month"
        return Mistake("is not a weekday", rule, (item.replace("L", "") + "L", "5L"))
    return Mistake("is not allowed", "L and W belong in the day fields", note="'0 0 L * *' is the last day")


def _days_meant(item: str) -> tuple[str, ...]:
    digits = "".join(c for c in item.partition("/")[0] if c.isdigit())
    if item.startswith("L-"):
        return ("LW" if "W" in item else "L",)
    return ("LW", "L") if not digits else (f"{digits}W" if "W" in item else "L", "1W")


def _nth(field: Field, item: str) -> Mistake | None:
    weekday, hash_sign, which = item.partition("#")
    if not hash_sign:
        return None
    if field is not WEEKDAY:
        note = "'0 0 * * MON#1' is the first Monday of the month"
        return Mistake("is not allowed", "n#k belongs in the weekday field", note=note)
    if which == "L":
        return Mistake("is not a weekday", "the last weekday n of the month is nL", (f"{weekday}L",))
    rule = "n#k is the k-th weekday n of the month: n from 0 to 7 or a name, k from 1 to 5"
    meant = f"{weekday}#{1 if number(which) < 1 else 5}"
    return Mistake("is not a weekday", rule, (meant, f"0#{which}"))


def _step(field: Field, item: str) -> Mistake | None:
    head, slash, step = item.partition("/")
    if not slash:
        return None
    first = step.strip("/-+").partition("/")[0]
    if not step.isdigit() or number(step) < 1:
        return _step_number(field, head, step, first)
    if value(field, head) >= 0:
        meant = f"{head}-{_last_of(field, head)}/{step}"
        rule = f"a step follows * or a range, such as {meant}"
        return Mistake("has a step on a single value", rule, (meant,))
    inner = item_mistake(field, head, None) if head else Mistake("has nothing to step over", "", ("*",))
    rule = inner.rule or "a step follows * or a range"
    return inner._replace(rule=rule, instead=tuple(f"{new}/{step}" for new in inner.instead if new))


def _step_number(field: Field, head: str, step: str, first: str) -> Mistake:
    rule = f"one step, a whole number from 1, of at most {MOST_DIGITS} digits"
    if number(step) == 0:
        return Mistake("has a step of zero", rule, (head,))
    if step.isdigit():
        note = f"is all that */{step[:12]} reaches"
        return Mistake("has a step that is too large", rule, (str(field.low),), note)
    why = "has no number after the /" if not step else "has a step that is not a number"
    return Mistake(why, rule, (f"{head}/{first}", head, f"*/{first}"))


def _range(field: Field, item: str) -> Mistake | None:
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
        if value(field, end) < 0:
            inner = _value(field, end)
            new = tuple(f"{first}-{e}" if end is last else f"{e}-{last}" for e in inner.instead)
            return inner._replace(instead=new)
    return _backwards(field, first, last)


def _backwards(field: Field, first: str, last: str) -> Mistake:
    """A range that runs past the end of the field is two ranges."""
    if field is WEEKDAY and first in field.names:
        low, high = "MON", "SUN"
    else:
        low, high = "JAN" if first in field.names else str(field.low), _last_of(field, first)
    parts = (first if first == high else f"{first}-{high}", last if last == low else f"{low}-{last}")
    rule = "a range runs upwards; one that passes the end of the field is written as two"
    return Mistake("runs backwards", rule, (",".join(parts),))


def _last_of(field: Field, like: str) -> str:
    """The last value of a field, as a name beside a name."""
    return list(field.names)[-1] if like in field.names else str(field.high)


def _value(field: Field, item: str) -> Mistake:
    if item.isdigit():
        return Mistake("is out of range", _bounds(field), (_nearest_value(field, item), "L"))
    if item.startswith("*"):
        return Mistake("has something after the *", "* stands alone or before a step", (f"*/{item[1:]}", "*"))
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


def _nearest_value(field: Field, item: str) -> str:
    found = int(item[:12])
    if found == field.high + 1 and field.low == 0 and field is not WEEKDAY:
        return "0"
    return str(min(max(found, field.low), field.high + (field is WEEKDAY)))


def _bounds(field: Field) -> str:
    if field is WEEKDAY:
        return "a weekday is 0-7 (0 and 7 are Sunday) or SUN-SAT"
    if field is MONTH:
        return "a month is 1-12 or JAN-DEC"
    if field is YEAR:
        return f"a year is {FIRST_YEAR}-{LAST_YEAR}"
    article = "an" if field is HOUR else "a"
    return f"{article} {field.name} is {field.low}-{field.high}"
