"""Words that the descriptions of cron expressions, recurrence rules and phrases share."""

from __future__ import annotations

from collections.abc import Iterable

MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
# From Monday, which is 0; cron counts from Sunday.
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ORDINALS = (
    *("first", "second", "third", "fourth", "fifth"),
    *("sixth", "seventh", "eighth", "ninth", "tenth"),
)


def join_words(words: Iterable[str]) -> str:
    """Join words: `a`, `a and b`, `a, b and c`."""
    *head, last = list(words) or [""]
    return f"{', '.join(head)} and {last}" if head else last


def group_consecutive(numbers: Iterable[int]) -> list[list[int]]:
    """Group ascending numbers into runs without a gap: `[[1, 2, 3], [7]]`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


def ordinal(number: int) -> str:
    """Return `1st`, `2nd`, `3rd`, `4th`."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def position_word(place: int) -> str:
    """Return a position in words: `first`, `11th`; from the end if negative: `last`, `second to last`."""
    if place < 0:
        return "last" if place == -1 else f"{position_word(-place)} to last"
    return ORDINALS[place - 1] if place <= len(ORDINALS) else ordinal(place)
