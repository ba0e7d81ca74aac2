"""Reading conditions and paths; whatever is wrong is refused with its position."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any, NamedTuple

from timewright.core.workflow.expression import (
    ROOTS,
    Compared,
    Constant,
    Expression,
    Joined,
    Listed,
    Negated,
    Path,
    Segment,
)
from timewright.errors import InvalidWorkflow

LONGEST_EXPRESSION = 500
DEEPEST_EXPRESSION = 50

_TOKEN = re.compile(
    r"""[ \t\r\n]+
    |(?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
    |(?P<name>[A-Za-z_][A-Za-z0-9_-]*)
    |(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<sign>==|!=|<=|>=|<|>|\(|\)|\[|\]|,|\.)""",
    re.VERBOSE | re.ASCII | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'"}
_CONSTANTS = {"true": True, "false": False, "null": None}
_WORDS = {"and", "or", "not", "in", *_CONSTANTS}
_COMPARISONS = {"==", "!=", "<", "<=", ">", ">="}


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


@lru_cache(maxsize=4096)
def parse_condition(text: str) -> Expression:
    """Read a condition; whatever is wrong with it is refused with its position."""
    parser = _Parser(text, field="when")
    found = parser.either(1)
    parser.expect_end()
    return found


@lru_cache(maxsize=4096)
def parse_path(text: str) -> Path:
    """Read a path on its own, as references use it."""
    parser = _Parser(text, field="$from")
    found = parser.path()
    parser.expect_end()
    return found


class _Parser:
    """Reads from left to right and never goes back; `depth` counts what is open."""

    def __init__(self, text: str, *, field: str) -> None:
        self.text, self.field = text, field
        if not isinstance(text, str) or not text.strip():
            raise self.refusal(0, "nothing is written", fix="steps.fetch.result.count > 0")
        if len(text) > LONGEST_EXPRESSION:
            raise self.refusal(
                LONGEST_EXPRESSION, f"it is longer than {LONGEST_EXPRESSION} characters", fix="two steps"
            )
        self.tokens = self.read()
        self.at = 0

    def read(self) -> list[_Token]:
        found: list[_Token] = []
        position = 0
        while position < len(self.text):
            token = _TOKEN.match(self.text, position)
            if token is None:
                raise self.refusal(
                    position,
                    f"{self.text[position]!r} means nothing here",
                    fix="== != < <= > >= in and or not",
                )
            if token.lastgroup is not None:
                found.append(_Token(token.lastgroup, token.group(), position))
            position = token.end()
        return [*found, _Token("end", "", len(self.text))]

    def refusal(self, position: int, why: str, *, fix: str) -> InvalidWorkflow:
        return InvalidWorkflow(
            f"{why}, at position {position + 1} of {str(self.text)[:80]!r}",
            field=self.field,
            value=str(self.text)[:80],
            rule="paths, values, comparisons, in, and, or, not, parentheses",
            fix=fix,
        )

    @property
    def token(self) -> _Token:
        return self.tokens[self.at]

    def takes(self, *texts: str) -> str:
        """The next sign or word if it is one of these, and go on; otherwise nothing."""
        token = self.token
        if token.kind in ("sign", "name") and token.text in texts:
            self.at += 1
            return token.text
        return ""

    def expect(self, text: str) -> None:
        if not self.takes(text):
            raise self.refusal(self.token.position, f"{text!r} is missing", fix=f"add {text}")

    def expect_end(self) -> None:
        if self.token.kind != "end":
            fix = "and, or between conditions" if self.token.text not in _COMPARISONS else "a < b and b < c"
            raise self.refusal(self.token.position, f"{self.token.text!r} comes after the end", fix=fix)

    def either(self, depth: int) -> Expression:
        parts = [self.both(depth)]
        while self.takes("or"):
            parts.append(self.both(depth))
        return parts[0] if len(parts) == 1 else Joined(tuple(parts), needs_all=False)

    def both(self, depth: int) -> Expression:
        parts = [self.negation(depth)]
        while self.takes("and"):
            parts.append(self.negation(depth))
        return parts[0] if len(parts) == 1 else Joined(tuple(parts), needs_all=True)

    def negation(self, depth: int) -> Expression:
        if depth > DEEPEST_EXPRESSION:
            raise self.refusal(
                self.token.position, f"more than {DEEPEST_EXPRESSION} levels are open", fix="fewer brackets"
            )
        if self.takes("not"):
            return Negated(self.negation(depth + 1))
        return self.comparison(depth)

    def comparison(self, depth: int) -> Expression:
        left = self.operand(depth)
        sign = self.takes(*_COMPARISONS, "in", "not")
        if sign == "not":
            self.expect("in")
            sign = "not in"
        return Compared(sign, left, self.operand(depth)) if sign else left

    def operand(self, depth: int) -> Expression:
        if self.takes("("):
            inner = self.either(depth + 1)
            self.expect(")")
            return inner
        if self.takes("["):
            return self.listed(depth + 1)
        token = self.token
        if token.kind == "name" and token.text not in _WORDS:
            return self.path()
        return Constant(self.constant())

    def listed(self, depth: int) -> Expression:
        items: list[Expression] = []
        while not self.takes("]"):
            if items and not self.takes(","):
                raise self.refusal(self.token.position, "',' or ']' is missing", fix="[1, 2]")
            if depth > DEEPEST_EXPRESSION:
                raise self.refusal(
                    self.token.position, f"more than {DEEPEST_EXPRESSION} levels are open", fix="fewer lists"
                )
            items.append(self.operand(depth))
        return Listed(tuple(items))

    def constant(self) -> Any:
        token = self.token
        self.at += 1
        if token.kind == "text":
            return self.unescaped(token)
        if token.kind == "number":
            return self.number(token)
        if token.kind == "name" and token.text in _CONSTANTS:
            return _CONSTANTS[token.text]
        seen = "the end" if token.kind == "end" else repr(token.text)
        raise self.refusal(
            token.position, f"a value is missing before {seen}", fix="steps.fetch.result.count > 0"
        )

    def number(self, token: _Token) -> int | float:
        if not set(token.text) & set(".eE"):
            return int(token.text)
        value = float(token.text)
        if not math.isfinite(value):
            raise self.refusal(token.position, f"{token.text} is too large", fix="a smaller number")
        return value

    def unescaped(self, token: _Token) -> str:
        for escape in _ESCAPE.finditer(token.text[1:-1]):
            if escape[1] not in _ESCAPED:
                raise self.refusal(
                    token.position + escape.start() + 1,
                    f"\\{escape[1]} is no escape",
                    fix='\\\\ \\n \\t \\r \\"',
                )
        return _ESCAPE.sub(lambda escape: _ESCAPED[escape[1]], token.text[1:-1])

    def path(self) -> Path:
        token = self.token
        if token.kind != "name" or token.text not in ROOTS:
            fix = f"steps.{token.text}.result" if token.kind == "name" else "steps.fetch.result"
            raise self.refusal(token.position, f"a path begins with {', '.join(ROOTS)}", fix=fix)
        self.at += 1
        segments: list[Segment] = [token.text]
        while sign := self.takes(".", "["):
            segments.append(self.member() if sign == "." else self.index())
        return Path(tuple(segments), token.position)

    def member(self) -> Segment:
        token = self.token
        if token.kind != "name":
            raise self.refusal(
                token.position, "a name is missing after '.'", fix='steps.fetch.result, or ["any text"]'
            )
        self.at += 1
        return token.text

    def index(self) -> Segment:
        token = self.token
        value = self.constant() if token.kind in ("number", "text") else None
        if not isinstance(value, str) and (type(value) is not int or value < 0):
            raise self.refusal(
                token.position, "a position or a name in quotes is missing", fix='[0] or ["name"]'
            )
        self.expect("]")
        return value
