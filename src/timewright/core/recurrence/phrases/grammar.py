"""The notation of rules, and the one parser that reads every rule.

A rule is a line of text, which the documentation prints as it is:

    every            the word itself
    {every|each}     one of these words, which the builder is told
    NUMBER           a token of this kind
    <time>           another rule
    a b   a|b   [a]   (a b)*   !a      sequence, choice, optional, repetition, "not followed by"

The parser takes the first alternative that fits (a parsing expression grammar). It keeps the result of every
rule at every position, and a repetition has at most `MAX_ITEMS` items, so it takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from timewright.core.recurrence.phrases.tokens import Token

# The longest lists that people need: 31 days of a month.
MAX_ITEMS = 31

_NOTATION = re.compile(
    r"\s*(?:(<[a-z0-9_]+>)|(\{[^}]*\})|([A-Z_]+)|('[()]')|([a-z]+)|([,&/+@])|([|\[\]()*!]))\s*"
)

Builder = Callable[..., Any]
# A match is the next position and the values; None is no match.
Match = tuple[int, list[Any]]
Matcher = Callable[["_Run", int], Match | None]


def take_first(values: list[Any]) -> Any:
    """Return the first value of a rule, or None."""
    return values[0] if values else None


class Rule(NamedTuple):
    """One rule; `group` is the kind of phrase that it is part of, `build` makes its value."""

    name: str
    notation: str
    meaning: str = ""
    examples: tuple[str, ...] = ()
    group: str = ""
    build: Builder = take_first


class Parsed(NamedTuple):
    """The result of parsing: the value if all tokens were read, how far the parser came, and its steps."""

    value: Any | None
    complete: bool
    furthest: int
    expected: tuple[str, ...]
    steps: int


class _Run:
    """The state of one parse: tokens, known results, the furthest token tried, and a step count."""

    __slots__ = ("expected", "furthest", "known", "steps", "tokens")

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.known: dict[tuple[str, int], Match | None] = {}
        self.furthest = 0
        self.expected: dict[str, None] = {}
        self.steps = 0

    def fail(self, position: int, wanted: str) -> None:
        """Note what would have been read here, if no attempt came further."""
        if position > self.furthest:
            self.furthest = position
            self.expected = {}
        if position == self.furthest:
            self.expected[wanted] = None


class Grammar:
    """Compiled rules."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = {rule.name: rule for rule in rules}
        self.words: set[str] = set()
        self._compiled = {name: self._compile(rule.notation) for name, rule in self.rules.items()}

    def parse(self, start: str, tokens: Sequence[Token]) -> Parsed:
        """Parse all tokens by one rule."""
        run = _Run(tokens)
        found = self._apply(run, start, 0)
        complete = found is not None and found[0] == len(tokens)
        if found is not None and not complete:
            run.fail(found[0], "the end")
        value = found[1][0] if found is not None else None
        return Parsed(value, complete, run.furthest, tuple(run.expected), run.steps)

    def _apply(self, run: _Run, name: str, position: int) -> Match | None:
        key = (name, position)
        if key not in run.known:
            run.steps += 1
            found = self._compiled[name](run, position)
            run.known[key] = None if found is None else (found[0], self._build(name, found[1]))
        return run.known[key]

    def _build(self, name: str, values: list[Any]) -> list[Any]:
        build = self.rules[name].build
        built = build(*values) if isinstance(build, type) else build(values)
        return [] if built is None else [built]

    def _compile(self, notation: str) -> Matcher:
        pieces: list[str] = []
        position = 0
        while position < len(notation):
            found = _NOTATION.match(notation, position)
            if found is None:
                raise ValueError(f"invalid notation at {notation[position:]!r}")
            pieces.append(found[0].strip())
            position = found.end()
        pieces.reverse()
        matcher = self._choice(pieces)
        if pieces:
            raise ValueError(f"unbalanced notation: {notation!r}")
        return matcher

    def _choice(self, pieces: list[str]) -> Matcher:
        options = [self._sequence(pieces)]
        while pieces and pieces[-1] == "|":
            pieces.pop()
            options.append(self._sequence(pieces))
        return options[0] if len(options) == 1 else _first_of(options)

    def _sequence(self, pieces: list[str]) -> Matcher:
        items: list[Matcher] = []
        while pieces and pieces[-1] not in ("|", ")", "]"):
            items.append(self._item(pieces))
        return items[0] if len(items) == 1 else _all_of(items)

    def _item(self, pieces: list[str]) -> Matcher:
        piece = pieces.pop()
        if piece == "!":
            return _not(self._item(pieces))
        if piece in ("(", "["):
            inner = self._choice(pieces)
            pieces.pop()
            if piece == "[":
                return _optional(inner)
            if pieces and pieces[-1] == "*":
                pieces.pop()
                return _repeated(inner)
            return inner
        if piece.startswith("<"):
            return self._reference(piece[1:-1])
        if piece.startswith("{"):
            words = piece[1:-1].split("|")
            self.words.update(words)
            return _word(words, tell=True)
        if piece.isupper():
            return _kind(piece)
        word = piece.strip("'") if piece in ("'('", "')'") else piece
        self.words.add(word)
        return _word([word], tell=False)

    def _reference(self, name: str) -> Matcher:
        if name not in self.rules:
            raise ValueError(f"no rule {name}")
        return lambda run, position: self._apply(run, name, position)


def _first_of(options: list[Matcher]) -> Matcher:
    def match(run: _Run, position: int) -> Match | None:
        for option in options:
            found = option(run, position)
            if found is not None:
                return found
        return None

    return match


def _all_of(items: list[Matcher]) -> Matcher:
    def match(run: _Run, position: int) -> Match | None:
        values: list[Any] = []
        for item in items:
            found = item(run, position)
            if found is None:
                return None
            position = found[0]
            values += found[1]
        return position, values

    return match


def _optional(inner: Matcher) -> Matcher:
    def match(run: _Run, position: int) -> Match | None:
        return inner(run, position) or (position, [])

    return match


def _repeated(inner: Matcher) -> Matcher:
    def match(run: _Run, position: int) -> Match | None:
        values: list[Any] = []
        for _ in range(MAX_ITEMS):
            found = inner(run, position)
            if found is None or found[0] == position:
                break
            position = found[0]
            values += found[1]
        return position, values

    return match


def _not(inner: Matcher) -> Matcher:
    def match(run: _Run, position: int) -> Match | None:
        # What must not follow is not what was expected.
        furthest, expected = run.furthest, dict(run.expected)
        found = inner(run, position)
        run.furthest, run.expected = furthest, expected
        return (position, []) if found is None else None

    return match


def _word(words: list[str], *, tell: bool) -> Matcher:
    accepted = frozenset(words)

    def match(run: _Run, position: int) -> Match | None:
        run.steps += 1
        if position < len(run.tokens) and run.tokens[position].text in accepted:
            return position + 1, [run.tokens[position].text] if tell else []
        run.fail(position, words[0])
        return None

    return match


def _kind(kind: str) -> Matcher:
    def match(run: _Run, position: int) -> Match | None:
        run.steps += 1
        if position < len(run.tokens):
            if kind == "ANY":
                return position + 1, []
            kinds = run.tokens[position].kinds
            if kind in kinds:
                return position + 1, [kinds[kind]]
        run.fail(position, kind)
        return None

    return match
