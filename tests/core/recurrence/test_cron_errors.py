"""Errors of invalid cron expressions name the field, the value, the rule and a correction."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timewright.core.recurrence.cron import Cron
from timewright.core.recurrence.cron.fields import NICKNAMES
from timewright.errors import InvalidCron

DATA = Path(__file__).parents[1] / "data" / "cron"
QUOTED = re.compile(r"'([^']+)'")


def corpus() -> list[Any]:
    cases = json.loads((DATA / "corpus.json").read_text(encoding="utf-8"))["expressions"]
    return [pytest.param(case, id=ascii(case.get("text", f"{case.get('times')} times"))) for case in cases]


def written(case: dict[str, Any]) -> str:
    return case["text"] if "text" in case else case["repeat"] * case["times"] + case["after"]


def refused(text: str, key: str | None = None) -> InvalidCron:
    with pytest.raises(InvalidCron) as caught:
        Cron(text, key=key)
    return caught.value


def assert_complete(error: InvalidCron, text: str) -> None:
    assert error.message
    assert error.field
    assert error.rule
    assert error.fix
    assert isinstance(error.value, str)
    assert error.value.lower() in text.lower()
    assert len(error.explain()) < 1500
    assert error.explain().isascii()
    offered = QUOTED.search(error.fix)
    if offered is not None:
        Cron(offered.group(1), key="any")


@pytest.mark.parametrize("case", corpus())
def test_the_corpus_is_accepted_or_refused_with_all_details(case: dict[str, Any]) -> None:
    text, key = written(case), case.get("key")
    if case["expect"] == "accept":
        assert Cron(text, key=key).describe()
    else:
        assert_complete(refused(text, key), text)


MISTAKES = [
    # expression, field, message, correction
    ("60 * * * *", "minute", "'60' is out of range", "'0 * * * *'"),
    ("0 24 * * *", "hour", "'24' is out of range", "'0 0 * * *'"),
    ("0 0 0 * *", "day of month", "'0' is out of range", "'0 0 1 * *'"),
    ("0 0 32 * *", "day of month", "'32' is out of range", "'0 0 31 * *'"),
    ("0 0 32 2 *", "day of month", "'32' is out of range", "'0 0 L 2 *'"),
    ("0 0 1 13 *", "month", "'13' is out of range", "'0 0 1 12 *'"),
    ("0 0 * * 8", "weekday", "'8' is out of range", "'0 0 * * 7'"),
    ("0 0 0 1 1 * 1969", "year", "'1969' is out of range", "'0 0 0 1 1 * 1970'"),
    ("61 0 0 * * *", "second", "'61' is out of range", "'59 0 0 * * *'"),
    ("-1 * * * *", "minute", "'-1' is negative", "'1 * * * *'"),
    ("0 0 1-32 * *", "day of month", "'1-32' is out of range", "'0 0 1-31 * *'"),
    ("0-99/5 * * * *", "minute", "'0-99/5' is out of range", "'0-59/5 * * * *'"),
    ("22-2 * * * *", "minute", "'22-2' runs backwards", "'22-59,0-2 * * * *'"),
    ("0 22-2 * * *", "hour", "'22-2' runs backwards", "'0 22-23,0-2 * * *'"),
    ("59-0 * * * *", "minute", "'59-0' runs backwards", "'59,0 * * * *'"),
    ("0 0 * * FRI-MON", "weekday", "'FRI-MON' runs backwards", "'0 0 * * FRI-SUN,MON'"),
    ("0 0 * NOV-FEB *", "month", "'NOV-FEB' runs backwards", "'0 0 * NOV-DEC,JAN-FEB *'"),
    ("0 0 * * 5-1", "weekday", "'5-1' runs backwards", "'0 0 * * 5-6,0-1'"),
    ("1-5-9 * * * *", "minute", "'1-5-9' is not a range", "'1-9 * * * *'"),
    ("1- * * * *", "minute", "'1-' has no end", "'1-59 * * * *'"),
    ("1..5 * * * *", "minute", "'1..5' is not a range", "'1-5 * * * *'"),
    ("5/15 * * * *", "minute", "'5/15' has a step on a single value", "'5-59/15 * * * *'"),
    ("0 0 * * MON/2", "weekday", "'MON/2' has a step on a single value", "'0 0 * * MON-SAT/2'"),
    ("*/0 * * * *", "minute", "'*/0' has a step of zero", "'0 * * * *'"),
    ("? 9 * * *", "minute", "is not allowed", "'0 9 * * *'"),
    ("0 9, 17 * * *", "expression", "a space beside a comma", "'0 9,17 * * *'"),
    ("* * * * * * * *", "expression", "it has 8 fields", "'* * * * *'"),
    ("*/ * * * *", "minute", "'*/' has no number after the /", "'* * * * *'"),
    ("*/-2 * * * *", "minute", "'*/-2' has a step that is not a number", "'*/2 * * * *'"),
    ("*//5 * * * *", "minute", "'*//5' has a step that is not a number", "'*/5 * * * *'"),
    ("/5 * * * *", "minute", "'/5' has nothing to step over", "'*/5 * * * *'"),
    ("*5 * * * *", "minute", "'*5' has something after the *", "'*/5 * * * *'"),
    ("1,,2 * * * *", "minute", "'' is empty", "'1,2 * * * *'"),
    ("0 0 * * monday", "weekday", "'monday' is not a name", "'0 0 * * MON'"),
    ("0 0 1 january *", "month", "'january' is not a name", "'0 0 1 JAN *'"),
    ("0 0 1 sept *", "month", "'sept' is not a name", "'0 0 1 SEP *'"),
    ("0 0 * * JAN", "weekday", "'JAN' is a month", "'0 0 1 JAN *'"),
    ("0 0 MON * *", "day of month", "'MON' is a weekday", "'0 0 * * MON'"),
    ("0 0 * * MOM", "weekday", "'MOM' is not a value", "'0 0 * * MON'"),
    ("1.5 * * * *", "minute", "'1.5' is not a value", "'1 * * * *'"),
    ("0 ? * * *", "hour", "'?' is not allowed", "'0 0 * * *'"),
    ("0 0 ?,1 * *", "day of month", "'?' is not allowed", "'0 0 1 * *'"),
    ("0 0 1 * ++MON", "weekday", "'+MON' has a misplaced +", "'0 0 1 * +MON'"),
    ("R * * * *", "minute", "'R' is random", "'H * * * *'"),
    ("0~30 * * * *", "minute", "'0~30' is random", "'H(0-30) * * * *'"),
    ("H * * * *", "minute", "'H' has no key", "'H * * * *'"),
    ("0 0 $ * *", "day of month", "'$' is not a day", "'0 0 L * *'"),
    ("0 0 WL * *", "day of month", "'WL' is not a day", "'0 0 LW * *'"),
    ("0 0 15W/2 * *", "day of month", "'15W/2' is not a day", "'0 0 15W * *'"),
    ("0 0 L-0 * *", "day of month", "'L-0' is not a day", "'0 0 L * *'"),
    ("0 0 * * L", "weekday", "'L' is not a weekday", "'0 0 * * 5L'"),
    ("0 0 * * L5", "weekday", "'L5' is not a weekday", "'0 0 * * 5L'"),
    ("0 0 * * 5#L", "weekday", "'5#L' is not a weekday", "'0 0 * * 5L'"),
    ("0 0 * * 5#6", "weekday", "'5#6' is not a weekday", "'0 0 * * 5#5'"),
    ("0 0 * L *", "month", "'L' is not allowed", "'0 0 L * *'"),
    ("1#1 * * * *", "minute", "'1#1' is not allowed", "'0 0 * * MON#1'"),
    ("0 0 1 1 * 2030", "weekday", "'2030' is out of range", "'0 0 0 1 1 * 2030'"),
    ("", "expression", "it is empty", "'0 0 * * *'"),
    ("0 0 *", "expression", "it has 3 fields", "'0 0 * * *'"),
    ("0 0 0 1 1 * 2030 x", "expression", "it has 8 fields", "'0 0 0 1 1 * 2030'"),
    ("0 22 * * 1-5 root", "expression", "a line of a crontab: the user 'root'", "'0 22 * * 1-5' with"),
    ("5 4 * * * www-data /bin/x", "expression", "a line of a crontab: the user", "'5 4 * * *' with"),
    ("*/5 * * * * /bin/x", "expression", "a line of a crontab: the command '/bin/x'", "'*/5 * * * *' with"),
    ("0 22 * * 1-5 bob echo hi there", "expression", "a line of a crontab: the user", "'0 22 * * 1-5' with"),
    ("0 0 9 * * mno", "weekday", "'mno' is not a value", "'0 0 9 * * MON'"),
    ("@reboot", "expression", "'@reboot' is an event, not a time", "'@daily'"),
    ("@every 5m", "expression", "'@every' is an interval, not a recurrence", "every 5m"),
    ("@minutely", "expression", "'@minutely' is not a nickname", "'* * * * *'"),
    ("@@daily", "expression", "'@@daily' is not a nickname", "'@daily'"),
    ("@daily *", "expression", "'*' follows the nickname", "'@daily'"),
    ("TZ=UTC 0 0 * * *", "expression", "it begins with the setting 'TZ=UTC'", "'0 0 * * *' with zone='UTC'"),
    ("0 0 * * * # nightly", "expression", "it ends with the comment '# nightly'", "'0 0 * * *'"),
    ('"0 0 * * *"', "expression", "it has quotation marks inside", "'0 0 * * *'"),
    ("\uff11 * * * *", "expression", "U+FF11 (FULLWIDTH DIGIT ONE) is not ASCII", "'1 * * * *'"),
    ("\u0663 * * * *", "expression", "U+0663 (ARABIC-INDIC DIGIT THREE) is not ASCII", "'3 * * * *'"),
    ("\ufeff0 0 * * *", "expression", "U+FEFF", "'0 0 * * *'"),
    ("0\u00a00 * * *", "expression", "U+00A0", "'0 0 * * *'"),
    ("0 0\n* * *", "expression", r"character '\n' is not allowed", "'0 0 * * *'"),
    ("0 0 31 2 *", "day 31 in month 2 (February has at most 29 days)", "never fires", "'0 0 28 2 *' or 'L'"),
    ("0 0 31 4,6 *", "day 31 in months 4,6 (none has more than 30 days)", "never fires", "'0 0 30 4,6 *'"),
    ("0 0 31 2 +1#1", "day 31 in month 2 (February has at most 29 days)", "never fires", "'0 0 28 2 *'"),
    ("0 0 L-29 2 *", "L-29 in month 2 (February has at most 29 days)", "never fires", "'0 0 28 2 *'"),
    ("0 0 0 29 2 * 2025", "year 2025 (it has no such day)", "never fires", "'0 0 0 29 2 * 2028'"),
    ("0 0 0 * 2 MON#5 2024", "year 2024 (it has no such day)", "never fires", "'0 0 0 * 2 MON#5 2044'"),
    ("0 0 1 * +MON#2", "day of month 1 and weekday MON#2 (no day is both)", "never fires", "'0 0 1 * MON#2'"),
]


@pytest.mark.parametrize(
    ("text", "field", "said", "offered"), MISTAKES, ids=[ascii(row[0]) for row in MISTAKES]
)
def test_a_mistake_is_named_and_corrected(text: str, field: str, said: str, offered: str) -> None:
    error = refused(text)
    assert error.field == field
    assert said in error.message
    assert error.fix is not None
    assert offered in error.fix
    assert_complete(error, text)


def test_the_full_text_of_an_error() -> None:
    assert refused("0 0 31 2 *").explain() == (
        "cron '0 0 31 2 *' never fires\n"
        "  field   day 31 in month 2 (February has at most 29 days)\n"
        "  rule    at least one day from 1970 to 9999 matches\n"
        "  try     '0 0 28 2 *' or 'L' for the last day: '0 0 L 2 *'"
    )


BENT = [
    "0 0 0 1 1 * H",
    "H(5-1) * * * *",
    "H/61 * * * *",
    "H(0-9)/11 * * * *",
    "H() * * * *",
    "HH * * * *",
    "H-5 * * * *",
]


@pytest.mark.parametrize("text", BENT)
def test_an_invalid_hash_is_refused_even_with_a_key(text: str) -> None:
    assert_complete(refused(text, "report"), text)


@pytest.mark.parametrize("value", [None, 5, b"* * * * *", ["*"], 1.5])
def test_an_expression_that_is_not_text_is_refused(value: Any) -> None:
    with pytest.raises(InvalidCron, match="is not text"):
        Cron(value)


alphabet = st.sampled_from(
    [*"0123456789*/,-#?LWHR+@ ()$~.%", "MON", "JAN", "SUN", "friday", "TZ=", " * ", "\t", "\u0663"]
)
texts = st.one_of(
    st.lists(alphabet, max_size=40).map("".join),
    st.lists(alphabet, min_size=5, max_size=7).map(" ".join),
    st.text(max_size=60),
    st.tuples(st.sampled_from(sorted(NICKNAMES)), st.text(max_size=3)).map("".join),
)


@settings(max_examples=300)
@given(texts, st.sampled_from([None, "report"]))
def test_any_text_is_valid_or_refused_with_all_details(text: str, key: str | None) -> None:
    found = cron_or_refusal(text, key)
    if isinstance(found, Cron):
        assert found.describe()
        assert found == Cron(text, key=key)
    else:
        assert_complete(found, text)


def cron_or_refusal(text: str, key: str | None) -> Cron | InvalidCron:
    try:
        return Cron(text, key=key)
    except InvalidCron as refusal:
        return refusal
