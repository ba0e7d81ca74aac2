"""What a function reports about its work while it runs: progress, a checkpoint and its cost."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec

from timewright.core.budgets.costs import (
    MAX_CURRENCY_LENGTH,
    Cost,
    add_costs,
    is_currency,
    parse_money,
    parse_tokens,
)
from timewright.errors import InvalidInput
from timewright.ports.attempt_output import MAX_CHECKPOINT_BYTES, MAX_NOTE_CHARS, WorkReport


class CostTotal:
    """The cost that a function has reported so far."""

    __slots__ = ("cost",)

    def __init__(self) -> None:
        self.cost: Cost | None = None


class Reports:
    """The reports of one call; `on_report` gets each new one."""

    __slots__ = ("_on_report", "_report", "_spent")

    def __init__(self, on_report: Callable[[WorkReport], None] | None) -> None:
        self._spent = CostTotal()
        self._report: WorkReport | None = None
        self._on_report = on_report

    def progress(self, fraction: float | None = None, note: str = "") -> None:
        """Report how much of the work is done, from 0 to 1, and where it is: `ctx.progress(0.4, "page 12")`.

        Call it as often as you like: the last report is written about once a second.
        """
        report = WorkReport(
            fraction=_parse_fraction(fraction), note=str(note)[:MAX_NOTE_CHARS], checkpoint=self._checkpoint
        )
        # A tenth of a percent is the finest step that is shown.
        before = self._report
        is_shown = (
            before is None
            or report.note != before.note
            or _shown_fraction(report.fraction) != _shown_fraction(before.fraction)
        )
        if is_shown:
            self._set_report(report)

    def checkpoint(self, value: Any) -> None:
        """Keep JSON data for the next attempt of this run, which finds it in `last_checkpoint`.

        It is written about once a second and before the attempt ends; a process that is killed with its
        machine loses at most the last second. A lost lease writes nothing.
        """
        data = check_checkpoint(value)
        before = self._report or WorkReport()
        self._set_report(WorkReport(fraction=before.fraction, note=before.note, checkpoint=data))

    @property
    def report(self) -> WorkReport | None:
        """What the function reported last; None if it reported nothing."""
        return self._report

    @property
    def _checkpoint(self) -> Any:
        return self._report.checkpoint if self._report is not None else None

    def _set_report(self, report: WorkReport) -> None:
        self._report = report
        if self._on_report is not None:
            self._on_report(report)

    @property
    def spent(self) -> CostTotal:
        """The cost reported so far."""
        return self._spent

    def cost(
        self, *, tokens: int | None = None, money: str | float | Decimal | None = None, currency: str = ""
    ) -> None:
        """Report the cost of the work. Repeated calls add up; budgets are charged with the sum."""
        for field, value, read in (
            ("tokens", tokens, parse_tokens(tokens)),
            ("money", money, parse_money(money)),
        ):
            if value is not None and read is None:
                raise InvalidInput(
                    f"{field} {value!r} is not a cost",
                    field=field,
                    value=str(value)[:40],
                    rule="a number of at least 0; tokens are integers",
                    fix=f"context.cost({field}={'1200' if field == 'tokens' else repr('0.02')})",
                )
        if not is_currency(currency):
            raise InvalidInput(
                f"currency {str(currency)[:40]!a} is not a currency name",
                field="currency",
                value=str(currency)[:40],
                rule=f"printable text of at most {MAX_CURRENCY_LENGTH} characters",
                fix="context.cost(money='0.02', currency='EUR')",
            )
        reported = Cost(tokens=parse_tokens(tokens), money=parse_money(money), currency=currency)
        self.spent.cost = add_costs(self.spent.cost, reported)


def check_checkpoint(value: Any) -> Any:
    """Return a copy of a checkpoint; raises InvalidInput if it is not JSON data, or is too large."""
    try:
        encoded = msgspec.json.encode(value)
        data = msgspec.json.decode(encoded)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        encoded, data = b"", None
    if value is None or data != value:
        raise InvalidInput(
            "the checkpoint is not JSON data",
            field="checkpoint",
            value=type(value).__name__,
            rule="dictionaries with text keys, lists, texts, numbers, true, false",
            fix='ctx.checkpoint({"page": 12})',
        )
    if len(encoded) > MAX_CHECKPOINT_BYTES:
        raise InvalidInput(
            f"the checkpoint has {len(encoded)} bytes",
            field="checkpoint",
            value=len(encoded),
            rule=f"at most {MAX_CHECKPOINT_BYTES} bytes as JSON",
            fix="store the data elsewhere, and keep in the checkpoint where it is",
        )
    return data


def _parse_fraction(fraction: float | None) -> float | None:
    if fraction is None:
        return None
    is_number = isinstance(fraction, int | float) and not isinstance(fraction, bool)
    if not is_number or not 0.0 <= fraction <= 1.0:
        raise InvalidInput(
            f"progress {str(fraction)[:40]} is not a fraction",
            field="progress",
            value=str(fraction)[:40],
            rule="a number from 0 to 1, or None",
            fix='ctx.progress(0.4, "page 12")',
        )
    return float(fraction)


def _shown_fraction(fraction: float | None) -> float | None:
    return None if fraction is None else round(fraction, 3)
