"""The cost of an attempt: tokens, and money as decimal text that is counted in millionths."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from msgspec import Meta, Struct

from timewright.errors import InvalidInput

MILLIONTHS_PER_UNIT = 1_000_000
MAX_TOKENS = 10**12
MAX_MONEY = 10**9
# Decimal numbers are stored as text, so that no digit is lost.
AMOUNT_PATTERN = r"^\d{1,9}(\.\d{1,6})?$"
QUANTITY_PATTERN = r"^\d{1,13}(\.\d{1,6})?$"

Amount = Annotated[str, Meta(pattern=AMOUNT_PATTERN, max_length=16)]
Quantity = Annotated[str, Meta(pattern=QUANTITY_PATTERN, max_length=20)]
Tokens = Annotated[int, Meta(ge=0, le=MAX_TOKENS)]
MAX_CURRENCY_LENGTH = 8
Currency = Annotated[str, Meta(max_length=MAX_CURRENCY_LENGTH)]


class Cost(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The reported or estimated cost of an attempt; an unset field is unknown."""

    tokens: Tokens | None = None
    money: Amount | None = None
    currency: Currency = ""

    def __post_init__(self) -> None:
        if self.currency and self.money is None:
            raise InvalidInput(
                f"currency {self.currency} without money",
                field="currency",
                value=self.currency,
                rule="a currency needs an amount of money",
                fix="money: '0.05'",
            )


NO_COST = Cost()


def to_millionths(amount: str) -> int:
    """Return an amount of money in millionths."""
    return int(Decimal(amount) * MILLIONTHS_PER_UNIT)


def format_money(count: int) -> str:
    """Format millionths as decimal text with at least two decimals."""
    whole, rest = divmod(count, MILLIONTHS_PER_UNIT)
    return f"{whole}.{f'{rest:06d}'.rstrip('0').ljust(2, '0')}"


def parse_tokens(value: object) -> int | None:
    """Read a number of tokens from a response; None if it is not one."""
    if isinstance(value, str) and value.isascii() and value.strip().isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_TOKENS:
        return None
    return value


def parse_money(value: object) -> str | None:
    """Read an amount of money from a response, rounded to millionths; None if it is not one."""
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        return None
    try:
        amount = Decimal(str(value)[:40].strip()).quantize(Decimal(1) / MILLIONTHS_PER_UNIT)
    except (ArithmeticError, ValueError):
        return None
    fits = amount.is_finite() and 0 <= amount < MAX_MONEY
    return format_money(int(amount * MILLIONTHS_PER_UNIT)) if fits else None


def is_currency(value: object) -> bool:
    """Whether a value is a valid currency; the empty string means an unspecified one."""
    return isinstance(value, str) and len(value) <= MAX_CURRENCY_LENGTH and value.isprintable()


def add_costs(one: Cost | None, other: Cost) -> Cost:
    """Return the sum of two costs of one attempt; the currency reported last wins."""
    if one is None:
        return other
    tokens = None
    if one.tokens is not None or other.tokens is not None:
        tokens = min((one.tokens or 0) + (other.tokens or 0), MAX_TOKENS)
    money = None
    if one.money is not None or other.money is not None:
        together = to_millionths(one.money or "0") + to_millionths(other.money or "0")
        money = format_money(min(together, MAX_MONEY * MILLIONTHS_PER_UNIT - 1))
    return Cost(tokens=tokens, money=money, currency=other.currency or one.currency)
