"""Parses conditions and paths; syntax errors carry their position."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any, NamedTuple

from timewright.core.workflow.expression import (
    FUNCTIONS,
    ROOTS,
    SEEN,
    BooleanExpression,
    Comparison,
    Expression,
    FunctionCall,
    ListExpression,
    LiteralValue,
    NotExpression,
    Segment,
    ValuePath,
)
from timewright.errors import InvalidInput, InvalidWorkflow

MAX_EXPRESSION_LENGTH = 500
MAX_EXPRESSION_DEPTH = 50

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
_KEYWORDS = {"and", "or", "not", "in", *_CONSTANTS}
_COMPARISONS = {"==", "!=", "<", "<=", ">", ">="}


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


@lru_cache(maxsize=4096)
def parse_condition(
    text: str,
    *,
    field: str = "when",
    roots: tuple[str, ...] = ROOTS,
    error_type: type[InvalidInput] = InvalidWorkflow,
) -> Expression:
    """Parse a condition, or raise an error with its position.

    `roots` are the names with which a path may begin; `changed` needs `seen` among them.
    """
    parser = _Parser(text, field=field, roots=roots, error_type=error_type)
    found = parser.parse_or(1)
    parser.expect_end()
    return found


@lru_cache(maxsize=4096)
def parse_path(text: str, *, roots: tuple[str, ...] = ROOTS) -> ValuePath:
    """Parse a path alone, as references use it."""
    parser = _Parser(text, field="$from", roots=roots)
    found = parser.parse_path_value()
    parser.expect_end()
    return found


class _Parser:
    """A recursive-descent parser without backtracking; `depth` limits nesting."""

    def __init__(
        self,
        text: str,
        *,
        field: str,
        roots: tuple[str, ...],
        error_type: type[InvalidInput] = InvalidWorkflow,
    ) -> None:
        self.text, self.field, self.roots, self.error_type = text, field, roots, error_type
        self.example = "steps.fetch.result" if "steps" in roots else f"{roots[0]}.status"
        if not isinstance(text, str) or not text.strip():
            raise self.error(0, "the expression is empty", fix=f"{self.example}.count > 0")
        if len(text) > MAX_EXPRESSION_LENGTH:
            raise self.error(
                MAX_EXPRESSION_LENGTH,
                f"it is longer than {MAX_EXPRESSION_LENGTH} characters",
                fix="two steps",
            )
        self.tokens = self.read()
        self.at = 0

    def read(self) -> list[_Token]:
        found: list[_Token] = []
        position = 0
        while position < len(self.text):
            token = _TOKEN.match(self.text, position)
            if token is None:
                raise self.error(
                    position,
                    f"{self.text[position]!r} is not allowed here",
                    fix="== != < <= > >= in and or not",
                )
            if token.lastgroup is not None:
                found.append(_Token(token.lastgroup, token.group(), position))
            position = token.end()
        return [*found, _Token("end", "", len(self.text))]

    def error(self, position: int, why: str, *, fix: str) -> InvalidInput:
        return self.error_type(
            f"{why}, at position {position + 1} of {str(self.text)[:80]!r}",
            field=self.field,
            value=str(self.text)[:80],
            rule="paths, values, comparisons, in, and, or, not, parentheses, functions",
            fix=fix,
        )

    @property
    def token(self) -> _Token:
        return self.tokens[self.at]

    def accept(self, *texts: str) -> str:
        """Consume and return the next operator or word if it is one of these, else return ""."""
        token = self.token
        if token.kind in ("sign", "name") and token.text in texts:
            self.at += 1
            return token.text
        return ""

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.error(self.token.position, f"{text!r} is missing", fix=f"add {text}")

    def expect_end(self) -> None:
        if self.token.kind != "end":
            fix = "and, or between conditions" if self.token.text not in _COMPARISONS else "a < b and b < c"
            raise self.error(
                self.token.position, f"{self.token.text!r} is after the end of the condition", fix=fix
            )

    def parse_or(self, depth: int) -> Expression:
        parts = [self.parse_and(depth)]
        while self.accept("or"):
            parts.append(self.parse_and(depth))
        return parts[0] if len(parts) == 1 else BooleanExpression(tuple(parts), is_and=False)

    def parse_and(self, depth: int) -> Expression:
        parts = [self.parse_not(depth)]
        while self.accept("and"):
            parts.append(self.parse_not(depth))
        return parts[0] if len(parts) == 1 else BooleanExpression(tuple(parts), is_and=True)

    def parse_not(self, depth: int) -> Expression:
        if depth > MAX_EXPRESSION_DEPTH:
            raise self.error(
                self.token.position,
                f"more than {MAX_EXPRESSION_DEPTH} levels are nested",
                fix="fewer brackets",
            )
        if self.accept("not"):
            return NotExpression(self.parse_not(depth + 1))
        return self.parse_comparison(depth)

    def parse_comparison(self, depth: int) -> Expression:
        left = self.parse_operand(depth)
        operator = self.accept(*_COMPARISONS, "in", "not")
        if operator == "not":
            self.expect("in")
            operator = "not in"
        return Comparison(operator, left, self.parse_operand(depth)) if operator else left

    def parse_operand(self, depth: int) -> Expression:
        if self.accept("("):
            inner = self.parse_or(depth + 1)
            self.expect(")")
            return inner
        if self.accept("["):
            return self.parse_list(depth + 1)
        token = self.token
        if token.kind == "name" and token.text not in _KEYWORDS:
            if self.tokens[self.at + 1].text == "(":
                return self.parse_call(depth)
            return self.parse_path_value()
        return LiteralValue(self.parse_literal())

    def parse_call(self, depth: int) -> Expression:
        token = self.token
        known = [*FUNCTIONS, *(["changed"] if SEEN in self.roots else [])]
        if token.text not in known:
            raise self.error(
                token.position, f"{token.text!r} is no function", fix=f"one of {', '.join(known)}"
            )
        self.at += 2
        is_changed = token.text == "changed"
        argument = self.parse_path_value() if is_changed else self.parse_or(depth + 1)
        self.expect(")")
        return FunctionCall(token.text, argument)

    def parse_list(self, depth: int) -> Expression:
        items: list[Expression] = []
        while not self.accept("]"):
            if items and not self.accept(","):
                raise self.error(self.token.position, "',' or ']' is missing", fix="[1, 2]")
            if depth > MAX_EXPRESSION_DEPTH:
                raise self.error(
                    self.token.position,
                    f"more than {MAX_EXPRESSION_DEPTH} levels are nested",
                    fix="fewer lists",
                )
            items.append(self.parse_operand(depth))
        return ListExpression(tuple(items))

    def parse_literal(self) -> Any:
        token = self.token
        self.at += 1
        if token.kind == "text":
            return self.unescape(token)
        if token.kind == "number":
            return self.parse_number(token)
        if token.kind == "name" and token.text in _CONSTANTS:
            return _CONSTANTS[token.text]
        seen = "the end" if token.kind == "end" else repr(token.text)
        raise self.error(token.position, f"a value is missing before {seen}", fix=f"{self.example}.count > 0")

    def parse_number(self, token: _Token) -> int | float:
        if not set(token.text) & set(".eE"):
            return int(token.text)
        value = float(token.text)
        if not math.isfinite(value):
            raise self.error(token.position, f"{token.text} is too large", fix="a smaller number")
        return value

    def unescape(self, token: _Token) -> str:
        for escape in _ESCAPE.finditer(token.text[1:-1]):
            if escape[1] not in _ESCAPED:
                raise self.error(
                    token.position + escape.start() + 1,
                    f"\\{escape[1]} is not an escape sequence",
                    fix='\\\\ \\n \\t \\r \\"',
                )
        return _ESCAPE.sub(lambda escape: _ESCAPED[escape[1]], token.text[1:-1])

    def parse_path_value(self) -> ValuePath:
        token = self.token
        if token.kind != "name" or token.text not in self.roots:
            is_step = token.kind == "name" and "steps" in self.roots
            fix = f"steps.{token.text}.result" if is_step else self.example
            raise self.error(token.position, f"a path begins with {', '.join(self.roots)}", fix=fix)
        self.at += 1
        segments: list[Segment] = [token.text]
        while operator := self.accept(".", "["):
            segments.append(self.parse_member() if operator == "." else self.parse_index())
        return ValuePath(tuple(segments), token.position)

    def parse_member(self) -> Segment:
        token = self.token
        if token.kind != "name":
            raise self.error(
                token.position, "a name is missing after '.'", fix=f'{self.example}, or ["any text"]'
            )
        self.at += 1
        return token.text

    def parse_index(self) -> Segment:
        token = self.token
        value = self.parse_literal() if token.kind in ("number", "text") else None
        if not isinstance(value, str) and (type(value) is not int or value < 0):
            raise self.error(
                token.position, "a position or a name in quotes is missing", fix='[0] or ["name"]'
            )
        self.expect("]")
        return value
