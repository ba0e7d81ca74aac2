"""Why a phrase is not read, and what to write instead.

No proposal fires more often than what was asked.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from difflib import get_close_matches

from timewright.core.recurrence.phrases.grammar import Parsed
from timewright.core.recurrence.phrases.plan import make_plan
from timewright.core.recurrence.phrases.rules import GRAMMAR
from timewright.core.recurrence.phrases.tokens import (
    VOCABULARY,
    PhraseProblem,
    Token,
    find_zone_of_city,
    split,
)

# Units from the longest: the example in a refusal has the longest unit that the phrase names.
_EXAMPLES = (
    ("year", "every year on 25 december at 09:00"),
    ("quarter", "every quarter on the 1st at 09:00"),
    ("month", "on the 1st of every month at 09:00"),
    ("week", "every monday at 09:00"),
    ("day", "every day at 09:00"),
)
_ANY_PHRASE = "a cron expression, or a phrase from the list in the documentation (phrases)"
# Before the time of a phrase, these do not make a day rarer than the longest unit says.
_PLAIN_WORDS = frozenset({"every", "each", "on", "the", "of", "in", "a", "once", "per", ","})
_PLAIN_KINDS = frozenset({"UNIT", "ADVERB", "WEEKDAY", "DAY_SET", "MONTH", "CLOCK", "NAMED_TIME"})


# What a kind of token or a word is called in a refusal.
_EXPECTED = {
    "WEEKDAY": "a weekday",
    "MONTH": "a month",
    "ORDINAL": "an ordinal (1st, last)",
    "UNIT": "a unit (minutes, days)",
    "NUMBER": "a number",
    "CLOCK": "a time (09:00)",
    "NAMED_TIME": "a time (09:00)",
    "ZONE": "a time zone",
    "DATE": "a date (2026-12-25)",
    "UNKNOWN": "",
    "every": "how often (every day)",
    "at": "at",
    "on": "on",
    "the end": "the end of the phrase",
}


# Words with two readings are not proposed, nor numbers for other words ("seven" for "even").
_SUGGESTED = sorted(
    {*(word for word, kinds in VOCABULARY.items() if not {"BI_ADVERB", "NUMBER"} & {*kinds}), *GRAMMAR.words}
)


# A number after these is a length of time: `every 5`, `in 5`.
_BEFORE_LENGTH = frozenset({"every", "each", "in", "+", "per", "("})


class Unread(PhraseProblem):
    """The phrase is not in the grammar."""


def unread_instant(tokens: Sequence[Token], parsed: Parsed, *, past: bool) -> Unread:
    shown = " ".join(token.text for token in tokens)
    at_time = [*split("at"), *tokens]
    if (
        len(tokens) == 1
        and GRAMMAR.parse("instant", at_time).complete
        and "LONG_NUMBER" not in tokens[0].kinds
    ):
        return Unread("is not marked as a time", rule="a time of day or a length", fix=f"at {shown[:20]}")
    if len(tokens) == 1 and "NUMBER" in tokens[0].kinds:
        return Unread("is a number", rule="seconds since 1970 begin with @", fix=_fix_of_number(shown))
    if GRAMMAR.parse("length", tokens).complete:
        return Unread("is a length of time", rule="a point in time", fix=f"in {shown[:60]}")
    if _repeats(tokens):
        return Unread("repeats", rule="one point in time", fix="the same text as a recurrence (every)")
    return unread(tokens, parsed, f"{'yesterday' if past else 'tomorrow'} at 09:00")


def _fix_of_number(digits: str) -> str:
    if len(digits) == 8 and "19700101" <= digits <= "21991231":
        return f"{digits[:4]}-{digits[4:6]}-{digits[6:]}"
    # 13 digits are milliseconds until the year 2286.
    return f"@{digits[:10]}, in seconds" if len(digits) == 13 else f"@{digits[:20]}"


def _repeats(tokens: Sequence[Token]) -> bool:
    """Whether the phrase is a recurrence that can be read."""
    parsed = GRAMMAR.parse("recurrence", tokens)
    if not parsed.complete or not parsed.value:
        return False
    try:
        make_plan(parsed.value)
    except PhraseProblem:
        return False
    return True


def unread(tokens: Sequence[Token], parsed: Parsed, example: str) -> Unread:
    """Return the token at which reading stopped, and what could stand there."""
    for time, sign in itertools.pairwise(tokens):
        if sign.text == "+" and {"ZONE", "CLOCK", "HALF"} & time.kinds.keys():
            return Unread(
                f"has an offset after {time.text!r}",
                rule="a time without a date has a zone, because offsets change during the year",
                fix="the name of a zone instead of the offset, such as Europe/Berlin",
            )
    at = min(parsed.furthest, len(tokens))
    read = at - 1 if at == len(tokens) and tokens and "NUMBER" in tokens[-1].kinds else at
    before = " ".join(token.text for token in tokens[max(read - 3, 0) : read])
    where = f" after {before!r}" if before else ""
    expected = list(dict.fromkeys(_EXPECTED[name] for name in parsed.expected if name in _EXPECTED))
    rule = f"expected {', '.join(expected[:6])}" if expected else "the phrases of the documentation"
    if at == len(tokens):
        if tokens and "NUMBER" in tokens[-1].kinds and "UNIT" in parsed.expected:
            word = tokens[-1].text
            if word.strip("0.") == "":
                return Unread("is not longer than zero", rule="a length of time with its unit", fix="15m")
            number = tokens[-1].kinds["NUMBER"]
            if len(tokens) > 1 and tokens[-2].text not in _BEFORE_LENGTH:
                read_so_far = " ".join(token.text for token in tokens[:-1])
                fix = (
                    "the year in the date, as in 2026-12-25"
                    if "YEAR" in tokens[-1].kinds
                    else f"{read_so_far} at {word}"
                )
                return Unread(
                    f"has the number {word}{where}, which is not marked as a time", rule=rule, fix=fix
                )
            return Unread(
                f"has no unit after {word}", rule=rule, fix=f"{number}m for minutes, {number}h for hours"
            )
        if [len(tokens), "NUMBER" in tokens[0].kinds] == [2, True] and len(tokens[1].text) <= 2:
            number, unit = tokens[0].text, tokens[1].text
            units = "a number and one of the units s, m, h, d and w"
            return Unread(f"has the unknown unit {unit!r}", rule=units, fix=f"{number}d")
        return Unread(f"ends too early{where}", rule=rule, fix=example)
    word = tokens[at].text
    known = word in VOCABULARY or word in GRAMMAR.words or len(word) <= 3
    near = [] if known else get_close_matches(word, _SUGGESTED, n=1, cutoff=0.75)
    corrected = [*tokens[:at], *(split(near[0]) if near else ()), *tokens[at + 1 :]]
    starts = ("recurrence", "instant")
    zone = find_zone_of_city(word)
    if zone and any(GRAMMAR.parse(start, tokens[:at]).complete for start in starts):
        example = f"write the zone as {zone}"
    elif near and any(GRAMMAR.parse(start, corrected).complete for start in starts):
        example = f"did you mean {near[0]!r}?"
    return Unread(f"has {word[:40]!r}{where}, which is not understood", rule=rule, fix=example)


def find_example(tokens: Sequence[Token]) -> str:
    """Return an example that fires no more often than the longest unit that the phrase names.

    Any other word before the time may mean fewer days (`every even day`): then there is no example.
    """
    words = [token.text for token in tokens]
    days = tokens[: words.index("at")] if "at" in words else tokens
    if not all(token.text in _PLAIN_WORDS or _PLAIN_KINDS & token.kinds.keys() for token in days):
        return _ANY_PHRASE
    units = {str(token.kinds.get("UNIT", "")) for token in tokens}
    units |= {str(token.kinds["ADVERB"][1]) for token in tokens if "ADVERB" in token.kinds}
    units |= {"year" for token in tokens if "MONTH" in token.kinds}
    units |= {"week" for token in tokens if {"WEEKDAY", "DAY_SET"} & token.kinds.keys()}
    found = next((example for unit, example in _EXAMPLES if unit in units), "")
    return found or _ANY_PHRASE
