"""The refusal of a text the cron grammar does not read.

A mistake is looked at only after the grammar has refused the text. What is said names the field,
the value, the rule, and a correction that does read.
"""

from __future__ import annotations

from collections.abc import Callable

from timewright.core.cron.fields import FIELDS, FIRST_YEAR, LONGEST, Mistake, Unfit, number, shown
from timewright.core.cron.item_mistakes import item_mistake
from timewright.core.cron.text_mistakes import text_mistake, wrong_count
from timewright.errors import InvalidCron


def refusal(text: str, unfit: Unfit, *, key: str | None, reads: Callable[[str], bool]) -> InvalidCron:
    """The error for a text the grammar refused; a correction is offered only if it reads."""
    mistake = text_mistake(text, counted=unfit.position is not None)
    if mistake is not None or unfit.position is None:
        mistake = mistake or wrong_count(text)
        return _error(text, "expression", text[:LONGEST], mistake, candidates=mistake.instead, reads=reads)
    field, found = FIELDS[unfit.position], _as_written(text, unfit.item)
    mistake = item_mistake(field, unfit.item, key)
    candidates = _replaced(text, unfit, mistake.instead)
    return _error(text, field.name, found, mistake, candidates=candidates, reads=reads)


def _error(
    text: str,
    field: str,
    found: str,
    mistake: Mistake,
    *,
    candidates: tuple[str, ...],
    reads: Callable[[str], bool],
) -> InvalidCron:
    about = "" if field == "expression" else f"{field} {shown(found)} "
    correct = next((f"'{candidate}'" for candidate in candidates if reads(candidate)), "")
    return InvalidCron(
        f"cron {shown(text)}: {about}{mistake.why}",
        field=field,
        value=found,
        rule=mistake.rule,
        fix=f"{correct} {mistake.note}".strip() or f"'{_example(field)}'",
    )


def _as_written(text: str, item: str) -> str:
    """The item in the letters of its author."""
    at = text.upper().find(item)
    return text[at : at + len(item)] if at >= 0 else item


def _replaced(text: str, unfit: Unfit, instead: tuple[str, ...]) -> tuple[str, ...]:
    """The whole expression with the item changed."""
    tokens = text.upper().split()
    place = (unfit.position or 0) - (len(tokens) == 5)
    sign = "+" if tokens[place].startswith("+") and unfit.position == 5 else ""
    items = tokens[place].removeprefix(sign).split(",")
    at = items.index(unfit.item)
    found: list[str] = []
    for new in instead:
        changed = [*items[:at], *([new] if new else []), *items[at + 1 :]]
        found.append(" ".join([*tokens[:place], sign + ",".join(changed), *tokens[place + 1 :]]))
    if len(tokens) == 6 and number(tokens[5]) >= FIRST_YEAR:
        found.insert(0, " ".join(["0", *tokens]))
    return tuple(found)


def _example(name: str) -> str:
    return "0 0 0 1 1 * 2030" if name == "year" else "*/15 * * * *"
