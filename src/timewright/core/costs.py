"""What an attempt cost: tokens, and money as decimal text that is counted in millionths."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from msgspec import Meta, Struct

from timewright.errors import InvalidInput

MILLIONTHS = 1_000_000
MOST_TOKENS = 10**12
MOST_MONEY = 10**9
# Decimal numbers are kept as text, so that no digit is lost.
AMOUNT = r"^\d{1,9}(\.\d{1,6})?$"
QUANTITY = r"^\d{1,13}(\.\d{1,6})?$"

Amount = Annotated[str, Meta(pattern=AMOUNT, max_length=16)]
Quantity = Annotated[str, Meta(pattern=QUANTITY, max_length=20)]
Tokens = Annotated[int, Meta(ge=0, le=MOST_TOKENS)]
LONGEST_CURRENCY = 8
Currency = Annotated[str, Meta(max_length=LONGEST_CURRENCY)]


class Cost(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What an attempt cost, or is expected to; what is not said is not known."""

    tokens: Tokens | None = None
    money: Amount | None = None
    currency: Currency = ""

    def __post_init__(self) -> None:
        if self.currency and self.money is None:
            raise InvalidInput(
                f"currency {self.currency} without money",
                field="currency",
                value=self.currency,
                rule="a currency is the label of an amount of money",
                fix="money: '0.05'",
            )


NO_COST = Cost()


def millionths(amount: str) -> int:
    """An amount of money as a whole number."""
    return int(Decimal(amount) * MILLIONTHS)


def spell_money(count: int) -> str:
    """So many millionths as decimal text, with no fewer than two decimals."""
    whole, rest = divmod(count, MILLIONTHS)
    return f"{whole}.{f'{rest:06d}'.rstrip('0').ljust(2, '0')}"


def read_tokens(value: object) -> int | None:
    """A count of tokens as someone outside wrote it; nothing if it is none."""
    if isinstance(value, str) and value.isascii() and value.strip().isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_TOKENS:
        return None
    return value


def read_money(value: object) -> str | None:
    """An amount of money as someone outside wrote it, to the millionth; nothing if it is none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        return None
    try:
        amount = Decimal(str(value)[:40].strip()).quantize(Decimal(1) / MILLIONTHS)
    except (ArithmeticError, ValueError):
        return None
    fits = amount.is_finite() and 0 <= amount < MOST_MONEY
    return spell_money(int(amount * MILLIONTHS)) if fits else None


def is_currency(value: object) -> bool:
    """Whether it can be the label of an amount of money; nothing is the label of none in particular."""
    return isinstance(value, str) and len(value) <= LONGEST_CURRENCY and value.isprintable()


def added(one: Cost | None, other: Cost) -> Cost:
    """Two costs of one attempt together; the currency is the one that was said last."""
    if one is None:
        return other
    tokens = None
    if one.tokens is not None or other.tokens is not None:
        tokens = min((one.tokens or 0) + (other.tokens or 0), MOST_TOKENS)
    money = None
    if one.money is not None or other.money is not None:
        together = millionths(one.money or "0") + millionths(other.money or "0")
        money = spell_money(min(together, MOST_MONEY * MILLIONTHS - 1))
    return Cost(tokens=tokens, money=money, currency=other.currency or one.currency)
