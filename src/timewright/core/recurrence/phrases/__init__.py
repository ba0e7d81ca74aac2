"""Times as people write them: `every weekday at 9am`, `tomorrow at noon`.

One grammar (`rules`) reads recurrences and instants for every interface. A phrase that is ambiguous,
incomplete or nonsense is refused with what is wrong and what to write; nothing is guessed, and no proposal
fires more often than what was asked.

    tokens       splits the text into words, numbers and dates
    rules        the table of what may be written, which `grammar` reads; each rule builds one of `parts`
    plan         joins the parts of a recurrence, with `times_of_plan` and `clock_times`
    triggers     writes a plan as cron expressions and recurrence rules, and as the sentence that repeats it
    instants     joins the parts of a point in time, with `instant_parts`
    refusals     what stopped the reading, and what to write instead
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, tzinfo
from functools import lru_cache
from typing import NamedTuple

from timewright.core.recurrence.cron.description import describe_cron
from timewright.core.recurrence.cron.grammar import needs_key
from timewright.core.recurrence.cron.grammar import parse as parse_cron
from timewright.core.recurrence.phrases.grammar import Rule
from timewright.core.recurrence.phrases.instants import Moment, describe_moment, make_moment
from timewright.core.recurrence.phrases.parts import Days, PhrasePeriod, Times, Zone
from timewright.core.recurrence.phrases.plan import make_plan
from timewright.core.recurrence.phrases.refusals import Unread, find_example, unread, unread_instant
from timewright.core.recurrence.phrases.rules import (
    CODE_RULES,
    GRAMMAR,
    INSTANT_RULES,
    RECURRENCE_RULES,
    SHARED_RULES,
)
from timewright.core.recurrence.phrases.times_of_plan import Plan
from timewright.core.recurrence.phrases.tokens import (
    PhraseProblem,
    Token,
    TwoReadings,
    find_zone,
    split,
)
from timewright.core.recurrence.phrases.triggers import TriggerSpec, describe, make_triggers
from timewright.core.recurrence.rrule.grammar import parse_rule
from timewright.core.zones import check_zone
from timewright.errors import InvalidInput, InvalidInstant

__all__ = [
    "Moment",
    "Recurrence",
    "TriggerSpec",
    "describe_moment",
    "list_rules",
    "parse_moment",
    "parse_recurrence",
    "zone_of_moment",
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
# Between clauses that have their own days and times.
_BETWEEN_CLAUSES = frozenset({",", "and", "&"})
MAX_CLAUSE_WORDS = 12


class Recurrence(NamedTuple):
    """What a recurrence means: triggers, calendars by name, and the sentence that repeats how it was read."""

    triggers: tuple[TriggerSpec, ...]
    read_as: str
    excluded: tuple[str, ...] = ()
    only: tuple[str, ...] = ()


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
            # Only `since` looks back at every interface, and all of them show the same example.
            raise unread_instant(tokens, parsed, past=past and field.endswith("since"))
        return make_moment(parsed.value, now=now, zone=zone, past=past)
    except PhraseProblem as problem:
        raise _error(InvalidInstant, text, field, problem) from None


def zone_of_moment(text: str) -> str | None:
    """Return the zone that the phrase of a point in time names, if it can be read and names one."""
    try:
        parsed = GRAMMAR.parse("instant", split(text.strip()))
    except PhraseProblem:
        return None
    parts = parsed.value if parsed.complete and parsed.value else ()
    return next((part.name for part in parts if isinstance(part, Zone)), None)


def list_rules() -> tuple[Rule, ...]:
    """Return every rule that has examples, in the order of the table."""
    rules = (*SHARED_RULES, *RECURRENCE_RULES, *INSTANT_RULES, *CODE_RULES)
    return tuple(rule for rule in rules if rule.examples)


def _checked_text(text: str, field: str, kind: type[InvalidInput]) -> str:
    line = text.replace("\t", " ").replace("\xa0", " ") if isinstance(text, str) else ""
    phrase, plain = line.strip(), line.isprintable()
    if phrase and plain and len(phrase) <= MAX_PHRASE_LENGTH:
        return phrase
    is_empty = isinstance(text, str) and not phrase
    why = "is empty" if is_empty else f"is not one line of 1 to {MAX_PHRASE_LENGTH} characters"
    example = "tomorrow 9am" if kind is InvalidInstant else "15m, or weekdays at 9am"
    fix = example if is_empty else "shorter text"
    problem = PhraseProblem(why, rule="a phrase such as those in the documentation", fix=fix)
    raise _error(kind, str(text)[:60], field, problem)


# ----------------------------------------------------------------------------------------------- recurrences


@lru_cache(maxsize=1024)
def _read_recurrence(phrase: str, zone: str | None) -> Recurrence:
    foreign = _read_code(phrase, zone)
    if foreign is not None:
        return foreign
    tokens = split(phrase.removeprefix("@") if phrase[:6].lower() == "@every" else phrase)
    try:
        plan = _plan(phrase, tokens)
    except TwoReadings:
        raise
    except PhraseProblem:
        several = _read_clauses(tokens, zone)
        if several is None:
            raise
        return several
    named = check_zone(plan.zone) if plan.zone is not None else zone
    return Recurrence(make_triggers(plan, named), describe(plan, named), plan.excluded, plan.only)


def _read_clauses(tokens: Sequence[Token], zone: str | None) -> Recurrence | None:
    """Read `mondays at 9 and fridays at 17`; None unless each clause has its own days and times.

    Calendars belong to a whole schedule, so clauses with one are not read.
    """
    ends = [*(at for at, token in enumerate(tokens) if token.text in _BETWEEN_CLAUSES), len(tokens)]
    if len(ends) > MAX_CLAUSE_WORDS:
        return None
    plans: list[Plan] = []
    start = 0
    while start < len(tokens):
        # The longest clause first: `mondays at 9 and 10` is one.
        found = ((end, _read_clause(tokens[start:end])) for end in reversed(ends) if end > start)
        end, plan = next(((end, plan) for end, plan in found if plan is not None), (0, None))
        if plan is None:
            return None
        plans.append(plan)
        start = end + 1
        while start < len(tokens) and tokens[start].text in _BETWEEN_CLAUSES:
            start += 1
    zones = {plan.zone for plan in plans if plan.zone is not None}
    if len(plans) < 2 or len(zones) > 1 or any(plan.excluded or plan.only for plan in plans):
        return None
    named = check_zone(zones.pop()) if zones else zone
    words = " and ".join(describe(plan._replace(zone=None), None) for plan in plans)
    triggers = dict.fromkeys(one for plan in plans for one in make_triggers(plan, named))
    return Recurrence(tuple(triggers), f"{words}, {named}" if named else words)


def _read_clause(tokens: Sequence[Token]) -> Plan | None:
    parsed = GRAMMAR.parse("recurrence", tokens)
    parts = parsed.value if parsed.complete and parsed.value else []
    has_days = any(isinstance(part, (Days, PhrasePeriod)) for part in parts)
    if not has_days or not any(isinstance(part, Times) for part in parts):
        return None
    try:
        return make_plan(parts)
    except PhraseProblem:
        return None


def _plan(phrase: str, tokens: Sequence[Token]) -> Plan:
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
        raise unread(tokens, parsed, find_example(tokens))
    return make_plan(parsed.value)


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
    written = " ".join(expression.split())
    if not needs_key(written.upper()):
        # What is refused is shown as it was written, not in upper case.
        parse_cron(written)
    text = written
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
            fix=f"{text} without cron(…)" if len(fields) == 5 else "cron(0 9 1 1 ? *)",
        )
    # AWS reads 0/5 as 0-59/5.
    fields = [
        re.sub(r"(?<![0-9A-Za-z*/-])([0-9]+)/", rf"\1-{last}/", field)
        for field, last in zip(fields, (59, 23, 31, 12, 7, 2199), strict=True)
    ]
    minute, hour, day, month, weekday, year = fields
    # AWS counts weekdays from Sunday = 1; the number after # stays.
    weekday = re.sub(r"(?<![#0-9A-Za-z])[1-7](?![0-9])", lambda found: str(int(found[0]) - 1), weekday)
    head = (
        f"0 {minute} {hour} {day} {month} {weekday}"
        if year != "*"
        else f"{minute} {hour} {day} {month} {weekday}"
    )
    return f"{head} {year}" if year != "*" else head


def _error(kind: type[InvalidInput], text: object, field: str, problem: PhraseProblem) -> InvalidInput:
    shown = str(text)[:MAX_PHRASE_LENGTH]
    short = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return kind(
        f"{field} {short!r} {problem.why}",
        field=field,
        value=shown,
        rule=problem.rule,
        fix=problem.fix.replace("{phrase}", short),
    )
