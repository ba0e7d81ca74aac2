"""Times as people write them: `every weekday at 9am`, `tomorrow at noon`.

One grammar (`rules`) reads recurrences and instants for every interface. A phrase that is ambiguous,
incomplete or nonsense is refused with what is wrong and what to write; nothing is guessed, and no proposal
fires more often than what was asked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, tzinfo
from difflib import get_close_matches
from functools import lru_cache
from typing import NamedTuple

from timewright.core.recurrence.cron.description import describe_cron
from timewright.core.recurrence.cron.grammar import needs_key
from timewright.core.recurrence.cron.grammar import parse as parse_cron
from timewright.core.recurrence.phrases.grammar import Parsed, Rule
from timewright.core.recurrence.phrases.instants import Moment, describe_moment, make_moment
from timewright.core.recurrence.phrases.plan import make_plan
from timewright.core.recurrence.phrases.rules import (
    GRAMMAR,
    INSTANT_RULES,
    RECURRENCE_RULES,
    SHARED_RULES,
)
from timewright.core.recurrence.phrases.tokens import (
    VOCABULARY,
    PhraseProblem,
    Token,
    find_zone,
    split,
)
from timewright.core.recurrence.phrases.triggers import TriggerSpec, describe, make_triggers
from timewright.core.recurrence.rrule.grammar import parse_rule
from timewright.core.zones import check_zone
from timewright.errors import InvalidInput, InvalidInstant

__all__ = [
    "Moment",
    "PhraseRule",
    "Recurrence",
    "TriggerSpec",
    "describe_moment",
    "list_rules",
    "parse_moment",
    "parse_recurrence",
]

MAX_PHRASE_LENGTH = 256

_CRON_TIME = r"[0-9*?,/H()-]+"
_CRON = re.compile(
    rf"{_CRON_TIME}\s+{_CRON_TIME}(?:\s+[A-Za-z0-9*?,/#()+-]+){{3,5}}|@(?!every\b)[a-z]+", re.IGNORECASE
)
# Text that is meant as cron: what no rule reads of it is refused in the words of cron.
_CRON_LIKE = re.compile(r"@|[^*]*\*|[0-9?H/,()-]+\s+[0-9?H/,()-]+(?:\s|$)")
# Fields without any word: a cron expression with too many or too few of them, which cron refuses.
_CRON_SHORT = re.compile(r"(?=[^*]*\*)[0-9*?,/-]+(?:\s+[0-9*?,/-]+)+")
_CRON_ZONE = re.compile(
    r"(?:CRON_)?TZ=(?P<zone_before>\S+)\s+(?P<before>.+)|(?P<after>[0-9*].*)\s+(?P<zone_after>[A-Za-z_]{3,}/[\w+/-]+|UTC)"
)
_CRON_CALL = re.compile(r"cron\s*\(\s*([^()]+?)\s*\)", re.IGNORECASE)
_CRON_FIELD = r"[\w*?,/#()+-]*[\w*?)]"
_ZONE = r"(?:,\s*(?P<zone>[A-Za-z_]+(?:/[\w+-]+)*))?"
_CRON_WORD = re.compile(
    rf"cron\s+(?P<cron>{_CRON_FIELD}(?:\s+{_CRON_FIELD}){{4,6}}|@[a-z]+)(?:\s+\((?P<words>[^()]*)\))?{_ZONE}",
    re.IGNORECASE,
)
_RRULE = re.compile(rf"(?P<rule>(?:rrule:)?\s*freq=[a-z0-9=;,:+-]*[a-z0-9;]){_ZONE}", re.IGNORECASE)
_AWS_FIELDS = 6
# Units from the longest: the example in a refusal has the longest unit that the phrase names.
_EXAMPLES = (
    ("year", "every year on 25 december at 09:00"),
    ("quarter", "every quarter on the 1st at 09:00"),
    ("month", "on the 1st of every month at 09:00"),
    ("week", "every monday at 09:00"),
    ("day", "every day at 09:00"),
)


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
    "every": "every",
    "at": "at",
    "on": "on",
    "the end": "the end of the phrase",
}


# Words with two readings are not proposed.
_SUGGESTED = sorted(
    {*(word for word, kinds in VOCABULARY.items() if "BI_ADVERB" not in kinds), *GRAMMAR.words}
)


class Recurrence(NamedTuple):
    """What a recurrence means: triggers, calendars by name, and the sentence that repeats how it was read."""

    triggers: tuple[TriggerSpec, ...]
    read_as: str
    excluded: tuple[str, ...] = ()
    only: tuple[str, ...] = ()


class PhraseRule(NamedTuple):
    """One rule of the grammar for the documentation."""

    name: str
    notation: str
    meaning: str
    examples: tuple[str, ...]
    group: str


# Notations with a grammar of their own, which are recognised before the rules apply.
_CODE_RULES = (
    PhraseRule(
        "cron",
        "five to seven fields, or a nickname; a zone before or after it",
        "a cron expression",
        ("0 9 * * 1-5", "@daily", "CRON_TZ=Europe/Berlin 0 9 * * *", "0 9 * * 1-5 Europe/Berlin"),
        "recurrence",
    ),
    PhraseRule(
        "aws_cron",
        "cron(minute hour day month weekday year)",
        "as AWS writes it, with weekdays from Sunday = 1",
        ("cron(0 9 ? * MON-FRI *)",),
        "recurrence",
    ),
    PhraseRule(
        "rrule",
        "FREQ=…;NAME=VALUE",
        "a recurrence rule of RFC 5545, counted from the start of the schedule",
        ("FREQ=WEEKLY;BYDAY=MO", "RRULE:FREQ=MONTHLY;BYDAY=2TU"),
        "recurrence",
    ),
)


def parse_recurrence(
    text: str, *, zone: str | None = None, field: str = "every", after_every: bool = False
) -> Recurrence:
    """Read a recurrence; without a zone in the text, `zone` applies.

    With `after_every`, the text is the value of a field named `every`, so the word may be missing.
    """
    phrase = _checked_text(text, field, InvalidInput)
    try:
        has_word = re.match(r"@|every\b|[0-9]*\*", phrase, re.IGNORECASE) is not None
        if after_every and not has_word and _read_code(phrase, zone) is None:
            try:
                return _read_recurrence(f"every {phrase}", zone)
            except Unread:
                pass
        return _read_recurrence(phrase, zone)
    except PhraseProblem as problem:
        raise _error(InvalidInput, text, field, problem) from None


def parse_moment(
    text: str, *, now: datetime, zone: str | tzinfo, field: str = "at", past: bool = False
) -> Moment:
    """Read a point in time; without a day the first one after now, or with `past` the last one before."""
    phrase = _checked_text(text, field, InvalidInstant)
    call = re.fullmatch(r"at\s*\(\s*([^()]+?)\s*\)", phrase, re.IGNORECASE)
    tokens = split(call[1] if call is not None else phrase)
    parsed = GRAMMAR.parse("instant", tokens)
    try:
        if not parsed.complete or not parsed.value:
            raise _unread_instant(tokens, parsed)
        return make_moment(parsed.value, now=now, zone=zone, past=past)
    except PhraseProblem as problem:
        raise _error(InvalidInstant, text, field, problem) from None


def list_rules() -> tuple[PhraseRule, ...]:
    """Return every rule that has examples, in the order of the table."""
    groups = (("both", SHARED_RULES), ("recurrence", RECURRENCE_RULES), ("instant", INSTANT_RULES))
    described = [_shown(rule, group) for group, rules in groups for rule in rules if rule.examples]
    return (*described, *_CODE_RULES)


def _shown(rule: Rule, group: str) -> PhraseRule:
    return PhraseRule(rule.name, rule.notation, rule.meaning, rule.examples, group)


def _checked_text(text: str, field: str, kind: type[InvalidInput]) -> str:
    line = text.replace("\t", " ").replace("\xa0", " ") if isinstance(text, str) else ""
    phrase, plain = line.strip(), line.isprintable()
    if phrase and plain and len(phrase) <= MAX_PHRASE_LENGTH:
        return phrase
    why = (
        "is empty"
        if isinstance(text, str) and not phrase
        else f"is not one line of 1 to {MAX_PHRASE_LENGTH} characters"
    )
    problem = PhraseProblem(why, rule="a phrase such as those in the documentation", fix="shorter text")
    raise _error(kind, str(text)[:60], field, problem)


# ----------------------------------------------------------------------------------------------- recurrences


class Unread(PhraseProblem):
    """The phrase is not in the grammar."""


@lru_cache(maxsize=1024)
def _read_recurrence(phrase: str, zone: str | None) -> Recurrence:
    foreign = _read_code(phrase, zone)
    if foreign is not None:
        return foreign
    tokens = split(phrase.removeprefix("@") if phrase[:6].lower() == "@every" else phrase)
    parsed = GRAMMAR.parse("recurrence", tokens)
    if not parsed.complete or not parsed.value:
        if GRAMMAR.parse("instant", tokens).complete:
            raise Unread(
                "is one point in time",
                rule="a recurrence repeats",
                fix="the same text as a one-time trigger (at)",
            )
        if _CRON_LIKE.match(phrase) and not phrase.startswith("every "):
            parse_cron(phrase)
        raise _unread(tokens, parsed, _example(tokens))
    plan = make_plan(parsed.value)
    named = check_zone(plan.zone) if plan.zone is not None else zone
    return Recurrence(make_triggers(plan, named), describe(plan, named), plan.excluded, plan.only)


def _read_code(phrase: str, zone: str | None) -> Recurrence | None:
    """Read cron expressions, `cron(…)` of AWS, and recurrence rules; None for anything else."""
    zoned = _CRON_ZONE.fullmatch(phrase)
    if zoned is not None:
        phrase, zone = (
            zoned["before"] or zoned["after"],
            find_zone(zoned["zone_before"] or zoned["zone_after"]),
        )
    call = _CRON_CALL.fullmatch(phrase)
    if call is not None:
        return _cron(_from_aws(call[1]), zone)
    if _CRON.fullmatch(phrase) or _CRON_SHORT.fullmatch(phrase):
        return _cron(phrase, zone)
    word = _CRON_WORD.fullmatch(phrase)
    if word is not None:
        found = _cron(word["cron"], find_zone(word["zone"]) if word["zone"] else zone)
        if word["words"] is None or f"({word['words']})" in found.read_as:
            return found
    rule = _RRULE.fullmatch(phrase)
    if rule is None:
        return None
    named = check_zone(find_zone(rule["zone"])) if rule["zone"] else zone
    parse_rule(rule["rule"])
    text = rule["rule"].upper().replace("RRULE:", "").strip().rstrip(";")
    return Recurrence((TriggerSpec("rrule", text, named),), f"{text}, {named}" if named else text)


def _cron(expression: str, zone: str | None) -> Recurrence:
    text = " ".join(expression.split())
    text = text.lower() if text.startswith("@") else text.upper()
    if zone is not None:
        check_zone(zone)
    shown = f"cron {text}" if needs_key(text) else f"cron {text} ({describe_cron(parse_cron(text))})"
    return Recurrence((TriggerSpec("cron", text, zone),), f"{shown}, {zone}" if zone else shown)


def _from_aws(text: str) -> str:
    """Return an AWS cron expression as ours, with weekdays from Sunday = 0."""
    fields = text.split()
    if len(fields) != _AWS_FIELDS:
        raise PhraseProblem(
            f"has {len(fields)} fields in cron(…)",
            rule="cron(minute hour day month weekday year), as AWS writes it",
            fix="cron(0 9 1 1 ? *)",
        )
    minute, hour, day, month, weekday, year = fields
    # AWS counts weekdays from Sunday = 1; the number after # stays.
    weekday = re.sub(r"(?<![#0-9A-Za-z])[1-7](?![0-9])", lambda found: str(int(found[0]) - 1), weekday)
    head = (
        f"0 {minute} {hour} {day} {month} {weekday}"
        if year != "*"
        else f"{minute} {hour} {day} {month} {weekday}"
    )
    return f"{head} {year}" if year != "*" else head


# -------------------------------------------------------------------------------------------------- refusals


def _unread_instant(tokens: Sequence[Token], parsed: Parsed) -> Unread:
    shown = " ".join(token.text for token in tokens)
    if len(tokens) == 1 and "NUMBER" in tokens[0].kinds:
        return Unread("is a number", rule="seconds since 1970 begin with @", fix=f"@{shown[:20]}")
    if GRAMMAR.parse("length", tokens).complete:
        return Unread("is a length of time", rule="a point in time", fix=f"in {shown[:60]}")
    if GRAMMAR.parse("recurrence", tokens).complete:
        return Unread("repeats", rule="one point in time", fix="the same text as a recurrence (every)")
    return _unread(tokens, parsed, "tomorrow at 09:00")


def _unread(tokens: Sequence[Token], parsed: Parsed, example: str) -> Unread:
    """Return the token at which reading stopped, and what could stand there."""
    at = min(parsed.furthest, len(tokens))
    before = " ".join(token.text for token in tokens[max(at - 3, 0) : at])
    where = f" after {before!r}" if before else ""
    expected = list(dict.fromkeys(_EXPECTED[name] for name in parsed.expected if name in _EXPECTED))
    rule = f"expected {', '.join(expected[:6])}" if expected else "the phrases of the documentation"
    if at == len(tokens):
        if tokens and "NUMBER" in tokens[-1].kinds and "UNIT" in parsed.expected:
            word = tokens[-1].text
            if word.strip("0.") == "":
                return Unread("is not longer than zero", rule="a length of time with its unit", fix="15m")
            return Unread(f"has no unit after {word}", rule=rule, fix=f"write the unit after {word}")
        return Unread(f"ends too early{where}", rule=rule, fix=example)
    word = tokens[at].text
    known = word in VOCABULARY or word in GRAMMAR.words or len(word) <= 3
    near = [] if known else get_close_matches(word, _SUGGESTED, n=1, cutoff=0.75)
    corrected = [*tokens[:at], *(split(near[0]) if near else ()), *tokens[at + 1 :]]
    if near and any(GRAMMAR.parse(start, corrected).complete for start in ("recurrence", "instant")):
        example = f"did you mean {near[0]!r}?"
    return Unread(f"has {word[:40]!a}{where}, which is not understood", rule=rule, fix=example)


def _example(tokens: Sequence[Token]) -> str:
    """Return an example that fires no more often than the longest unit that the phrase names."""
    units = {str(token.kinds.get("UNIT", "")) for token in tokens}
    units |= {str(token.kinds["ADVERB"][1]) for token in tokens if "ADVERB" in token.kinds}
    units |= {"year" for token in tokens if "MONTH" in token.kinds}
    units |= {"week" for token in tokens if {"WEEKDAY", "DAY_SET"} & token.kinds.keys()}
    found = next((example for unit, example in _EXAMPLES if unit in units), "")
    return found or "a phrase from the list in the documentation (phrases)"


def _error(kind: type[InvalidInput], text: object, field: str, problem: PhraseProblem) -> InvalidInput:
    shown = str(text)[:MAX_PHRASE_LENGTH]
    short = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return kind(
        f"{field} {short!a} {problem.why}",
        field=field,
        value=shown,
        rule=problem.rule,
        fix=problem.fix.replace("{phrase}", short),
    )
