"""Builds the error for an invalid cron expression: the field, the value, the rule and a valid correction.

The mistake is analysed only after parsing has failed.
"""

from __future__ import annotations

from collections.abc import Callable

from timewright.core.recurrence.cron.fields import (
    FIELDS,
    FIRST_YEAR,
    MAX_EXPRESSION_LENGTH,
    Mistake,
    UnparsedItem,
    parse_number,
    quote_shortened,
)
from timewright.core.recurrence.cron.item_mistakes import item_mistake
from timewright.core.recurrence.cron.text_mistakes import text_mistake, wrong_count
from timewright.errors import InvalidCron


def parse_error(
    text: str, unparsed: UnparsedItem, *, key: str | None, is_valid: Callable[[str], bool]
) -> InvalidCron:
    """Return the error for a text that does not parse; a correction is offered only if it is valid."""
    mistake = text_mistake(text, counted=unparsed.position is not None)
    if mistake is not None or unparsed.position is None:
        mistake = mistake or wrong_count(text)
        return _error(
            text,
            "expression",
            text[:MAX_EXPRESSION_LENGTH],
            mistake,
            candidates=mistake.replacements,
            is_valid=is_valid,
        )
    field, found = FIELDS[unparsed.position], _original_case(text, unparsed.item)
    mistake = item_mistake(field, unparsed.item, key)
    candidates = _replaced(text, unparsed, mistake.replacements)
    return _error(text, field.name, found, mistake, candidates=candidates, is_valid=is_valid)


def _error(
    text: str,
    field: str,
    found: str,
    mistake: Mistake,
    *,
    candidates: tuple[str, ...],
    is_valid: Callable[[str], bool],
) -> InvalidCron:
    about = "" if field == "expression" else f"{field} {quote_shortened(found)} "
    correct = next((f"'{candidate}'" for candidate in candidates if is_valid(candidate)), "")
    return InvalidCron(
        f"cron {quote_shortened(text)}: {about}{mistake.why}",
        field=field,
        value=found,
        rule=mistake.rule,
        fix=f"{correct} {mistake.note}".strip() or f"'{_example(field)}'",
    )


def _original_case(text: str, item: str) -> str:
    """Return the item in its original case."""
    at = text.upper().find(item)
    return text[at : at + len(item)] if at >= 0 else item


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


def _example(name: str) -> str:
    # Once a year, so that a correction never fires more often than what was asked.
    return "0 0 0 1 1 * 2030" if name == "year" else "0 0 1 1 *"
