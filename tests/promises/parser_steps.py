"""Counts the inner steps of a function: opcodes, the text that C methods read, and regular expressions.

Time is not measured. A step is one opcode, one character that a method such as `str.partition` may read, one
character of a new text that is passed to a function, or one character that a regular expression tests.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

# The parser of regular expressions has no types.
rc: Any = import_module("re._constants")
rp: Any = import_module("re._parser")

MAX_STEPS = 20_000_000
# Methods that may read or copy the whole object they belong to.
LINEAR_METHODS = frozenset({
    "casefold", "count", "decode", "encode", "expandtabs", "find", "index", "insert", "isalnum",
    "isalpha", "isascii", "isdigit", "isprintable", "isspace", "join", "lower", "lstrip",
    "partition", "remove", "removeprefix", "removesuffix", "replace", "reverse", "rfind", "rindex",
    "rpartition", "rsplit", "rstrip", "sort", "split", "splitlines", "strip", "title", "translate",
    "upper",
})  # fmt: skip
# Modules whose regular expressions are counted.
COUNTED_MODULES = (
    "timewright",
    "tests.promises",
    "icalendar",
    "http.cookies",
    "email",
    "yaml",
    "urllib.parse",
    "ipaddress",
)


class TooManySteps(BaseException):
    """The function took more than MAX_STEPS; not an Exception, so that no parser catches it."""


class Steps:
    """The number of steps so far."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, steps: int) -> None:
        self.count += steps
        if self.count > MAX_STEPS:
            raise TooManySteps


class CountedText(str):
    """A text whose hash, comparisons and slices run as Python code, so that they are counted."""

    __slots__ = ()

    def __hash__(self) -> int:
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other)

    def __contains__(self, other: Any) -> bool:
        return self.find(other) >= 0

    def __getitem__(self, at: Any) -> CountedText:
        return CountedText(super().__getitem__(at))


def count_steps(function: Callable[[], Any], *, ignore: tuple[type[BaseException], ...] = ()) -> int:
    """Call a function and return its steps; the exceptions in `ignore` are accepted as its result."""
    steps = Steps()
    last: dict[tuple[Any, str], Any] = {}

    def on_opcode(frame: Any, event: str, arg: Any) -> Any:
        if event == "opcode":
            steps.add(1)
        return on_opcode

    def on_call(frame: Any, event: str, arg: Any) -> Any:
        code = frame.f_code
        if code.co_filename == __file__ and code.co_name not in ("__eq__", "__hash__"):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
            value = frame.f_locals.get(name)
            if isinstance(value, str | bytes) and last.get((code, name)) is not value:
                last[code, name] = value
                steps.add(len(value))
        return on_opcode

    def on_c_call(frame: Any, event: str, function: Any) -> None:
        if event == "c_call":
            owner = getattr(function, "__self__", None)
            if isinstance(owner, str | bytes | list) and function.__name__ in LINEAR_METHODS:
                steps.add(len(owner))

    limit = sys.getrecursionlimit()
    with _counted_patterns(steps), _counted_keys():
        sys.settrace(on_call)
        sys.setprofile(on_c_call)
        try:
            function()
        except ignore:
            pass
        except TooManySteps:
            return MAX_STEPS
        finally:
            sys.setprofile(None)
            sys.settrace(None)
            sys.setrecursionlimit(limit)
    return steps.count


@contextmanager
def _counted_keys() -> Iterator[None]:
    """Let `json.loads` pass keys to a hook for objects as CountedText."""
    plain = json.loads

    def loads(text: Any, *, object_pairs_hook: Any = None, **options: Any) -> Any:
        if object_pairs_hook is None:
            return plain(text, **options)

        def hook(pairs: list[tuple[str, Any]]) -> Any:
            return object_pairs_hook([(CountedText(key), value) for key, value in pairs])

        return plain(text, object_pairs_hook=hook, **options)

    json.loads = loads  # type: ignore[assignment]
    try:
        yield
    finally:
        json.loads = plain


@contextmanager
def _counted_patterns(steps: Steps) -> Iterator[None]:
    """Replace the compiled patterns of COUNTED_MODULES, and those of `re.fullmatch` and the like."""
    replaced: list[tuple[Any, str, Any]] = []
    made: dict[Any, CountedPattern] = {}
    for name, module in list(sys.modules.items()):
        if name.startswith(COUNTED_MODULES):
            for key, value in list(vars(module).items()):
                if isinstance(value, re.Pattern):
                    replaced.append((module, key, value))
                    setattr(module, key, made.setdefault(value, CountedPattern(value, steps)))
    compile_real = re._compile  # type: ignore[attr-defined]

    def compile_counted(pattern: Any, flags: Any) -> Any:
        found = pattern if isinstance(pattern, CountedPattern) else compile_real(pattern, flags)
        if isinstance(found, CountedPattern):
            return found
        caller = sys._getframe(2).f_globals.get("__name__", "")
        if not caller.startswith(COUNTED_MODULES):
            return found
        return made.setdefault(found, CountedPattern(found, steps))

    re._compile = compile_counted  # type: ignore[attr-defined]
    try:
        yield
    finally:
        re._compile = compile_real  # type: ignore[attr-defined]
        for module, key, value in replaced:
            setattr(module, key, value)


@cache
def _parse_pattern(pattern: re.Pattern[Any]) -> Any:
    source = pattern.pattern
    text = source.decode("latin-1") if isinstance(source, bytes) else source
    return rp.parse(text, pattern.flags & ~re.UNICODE if isinstance(source, bytes) else pattern.flags)


Continue = Callable[[int], bool]
Matcher = Callable[[int, Continue], bool]


class CountedPattern:
    """A compiled pattern that also counts the steps of a backtracking matcher without optimizations."""

    def __init__(self, pattern: re.Pattern[Any], steps: Steps) -> None:
        self._real, self._steps = pattern, steps
        self._last: tuple[Any, _Matcher] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def __hash__(self) -> int:
        return hash(self._real)

    def __eq__(self, other: object) -> bool:
        return self._real == (other._real if isinstance(other, CountedPattern) else other)

    def match(self, text: Any, pos: int = 0, endpos: int = sys.maxsize) -> Any:
        self._count(text, lambda run: run(pos, full=False))
        return self._real.match(text, pos, endpos)

    def fullmatch(self, text: Any, pos: int = 0, endpos: int = sys.maxsize) -> Any:
        self._count(text, lambda run: run(pos, full=True))
        return self._real.fullmatch(text, pos, endpos)

    def search(self, text: Any, pos: int = 0, endpos: int = sys.maxsize) -> Any:
        found = self._real.search(text, pos, endpos)
        last = found.start() if found is not None else len(text)
        self._count(text, lambda run: [run(start, full=False) for start in range(pos, last + 1)])
        return found

    def finditer(self, text: Any, *args: Any) -> Any:
        self._count_all(text)
        return self._real.finditer(text, *args)

    def findall(self, text: Any, *args: Any) -> Any:
        self._count_all(text)
        return self._real.findall(text, *args)

    def sub(self, into: Any, text: Any, count: int = 0) -> Any:
        self._count_all(text)
        return self._real.sub(into, text, count)

    def split(self, text: Any, maxsplit: int = 0) -> Any:
        self._count_all(text)
        return self._real.split(text, maxsplit)

    def _count_all(self, text: Any) -> None:
        """Count a search from every position that is not inside an earlier match."""
        matches = {found.start(): found.end() for found in self._real.finditer(text)}

        def run_all(run: Callable[..., bool]) -> None:
            position = 0
            while position <= len(text):
                run(position, full=False)
                position = max(matches.get(position, 0), position + 1)

        self._count(text, run_all)

    def _count(self, text: Any, work: Callable[[Callable[..., bool]], Any]) -> None:
        traced, profiled = sys.gettrace(), sys.getprofile()
        sys.settrace(None)
        sys.setprofile(None)
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(1_000_000)
        try:
            if self._last is None or self._last[0] is not text:
                plain = text.decode("latin-1") if isinstance(text, bytes) else str(text)
                self._last = (text, _Matcher(self._real, plain, self._steps))
            work(self._last[1].run)
        finally:
            sys.setrecursionlimit(limit)
            sys.setprofile(profiled)
            sys.settrace(traced)


class _Matcher:
    """Matches a parsed pattern against a text by backtracking and counts the characters it tests."""

    def __init__(self, pattern: re.Pattern[Any], text: str, steps: Steps) -> None:
        self.text, self.steps = text, steps
        self.start = self._sequence(list(_parse_pattern(pattern)), pattern.flags)

    def run(self, position: int, *, full: bool) -> bool:
        end = len(self.text)
        return self.start(position, (lambda at: at == end) if full else (lambda _: True))

    def _sequence(self, nodes: list[Any], flags: int) -> Matcher:
        parts = [self._node(op, arg, flags) for op, arg in nodes]

        def match(position: int, then: Continue) -> bool:
            return step(0, position, then)

        def step(index: int, position: int, then: Continue) -> bool:
            if index == len(parts):
                return then(position)
            return parts[index](position, lambda at: step(index + 1, at, then))

        return match if len(parts) != 1 else parts[0]

    def _node(self, op: Any, arg: Any, flags: int) -> Matcher:
        test = _character_test(op, arg, flags)
        if test is not None:
            return self._character(test)
        if op in (rc.MAX_REPEAT, rc.MIN_REPEAT, rc.POSSESSIVE_REPEAT):
            low, high, body = arg
            inner = list(body)
            single = _character_test(inner[0][0], inner[0][1], flags) if len(inner) == 1 else None
            high = sys.maxsize if high is rc.MAXREPEAT else int(high)
            if single is not None:
                return self._repeat_character(single, low, high, greedy=op is not rc.MIN_REPEAT)
            return self._repeat(self._sequence(inner, flags), low, high, greedy=op is not rc.MIN_REPEAT)
        if op is rc.BRANCH:
            return self._branch([self._sequence(list(part), flags) for part in arg[1]])
        if op is rc.SUBPATTERN:
            return self._sequence(list(arg[3]), (flags | arg[1]) & ~arg[2])
        if op is rc.ATOMIC_GROUP:
            return self._atomic(self._sequence(list(arg), flags))
        if op in (rc.ASSERT, rc.ASSERT_NOT):
            return self._look(self._sequence(list(arg[1]), flags), arg[0], arg[1], wanted=op is rc.ASSERT)
        if op is rc.AT:
            return self._anchor(arg, flags)
        raise NotImplementedError(f"count the steps of {op}")

    def _character(self, test: Callable[[str], bool]) -> Matcher:
        text, steps = self.text, self.steps

        def match(position: int, then: Continue) -> bool:
            steps.add(1)
            return position < len(text) and test(text[position]) and then(position + 1)

        return match

    def _repeat_character(self, test: Callable[[str], bool], low: int, high: int, *, greedy: bool) -> Matcher:
        text, steps = self.text, self.steps

        def match(position: int, then: Continue) -> bool:
            most = position
            limit = min(len(text), position + high) if greedy else min(len(text), position + low)
            while most < limit and test(text[most]):
                most += 1
            steps.add(most - position + 1)
            if most - position < low:
                return False
            if greedy:
                for at in range(most, position + low - 1, -1):
                    steps.add(1)
                    if then(at):
                        return True
                return False
            while True:
                steps.add(1)
                if then(most):
                    return True
                if most >= len(text) or most - position >= high or not test(text[most]):
                    return False
                most += 1

        return match

    def _repeat(self, body: Matcher, low: int, high: int, *, greedy: bool) -> Matcher:
        def match(position: int, then: Continue, count: int = 0, last: int = -1) -> bool:
            self.steps.add(1)

            def more() -> bool:
                if count >= high or (position == last and count >= low):
                    return False
                return body(position, lambda at: match(at, then, count + 1, position))

            if count < low:
                return more()
            return (more() or then(position)) if greedy else (then(position) or more())

        return match

    def _branch(self, parts: list[Matcher]) -> Matcher:
        def match(position: int, then: Continue) -> bool:
            self.steps.add(1)
            return any(part(position, then) for part in parts)

        return match

    def _atomic(self, body: Matcher) -> Matcher:
        def match(position: int, then: Continue) -> bool:
            end: list[int] = []
            return body(position, lambda at: not end.append(at)) and then(end[0])  # type: ignore[func-returns-value]

        return match

    def _look(self, body: Matcher, direction: int, parsed: Any, *, wanted: bool) -> Matcher:
        width = parsed.getwidth()[0] if direction < 0 else 0

        def match(position: int, then: Continue) -> bool:
            self.steps.add(1)
            start = position - width
            found = start >= 0 and body(
                start, (lambda at: at == position) if direction < 0 else (lambda _: True)
            )
            return found is wanted and then(position)

        return match

    def _anchor(self, where: Any, flags: int) -> Matcher:
        text = self.text

        def is_word(position: int) -> bool:
            return 0 <= position < len(text) and (text[position].isalnum() or text[position] == "_")

        def holds(position: int) -> bool:
            if where is rc.AT_BEGINNING:
                return position == 0 or (bool(flags & re.MULTILINE) and text[position - 1] == "\n")
            if where is rc.AT_BEGINNING_STRING:
                return position == 0
            if where is rc.AT_END:
                at_end = position == len(text) or (position == len(text) - 1 and text[position] == "\n")
                return at_end or (bool(flags & re.MULTILINE) and text[position] == "\n")
            if where is rc.AT_END_STRING:
                return position == len(text)
            boundary = is_word(position - 1) != is_word(position)
            return boundary if where is rc.AT_BOUNDARY else not boundary

        def match(position: int, then: Continue) -> bool:
            self.steps.add(1)
            return holds(position) and then(position)

        return match


def _character_test(op: Any, arg: Any, flags: int) -> Callable[[str], bool] | None:
    """Return the test of a node that matches exactly one character, or None for other nodes."""
    ignore_case = bool(flags & re.IGNORECASE)
    if op is rc.ANY:
        return (lambda _: True) if flags & re.DOTALL else (lambda letter: letter != "\n")
    if op is rc.LITERAL:
        known = chr(arg)
        same = {known, known.lower(), known.upper()} if ignore_case else {known}
        return same.__contains__
    if op is rc.NOT_LITERAL:
        return lambda letter: ord(letter) != arg
    if op is rc.IN:
        return _set_test(arg, flags, ignore_case=ignore_case)
    return None


def _set_test(items: Any, flags: int, *, ignore_case: bool) -> Callable[[str], bool]:
    negated = items[0][0] is rc.NEGATE
    tests = [_item_test(op, arg, flags) for op, arg in items if op is not rc.NEGATE]

    def test(letter: str) -> bool:
        letters = (letter, letter.lower(), letter.upper()) if ignore_case else (letter,)
        return any(one(form) for one in tests for form in letters if len(form) == 1) is not negated

    return test


def _item_test(op: Any, arg: Any, flags: int) -> Callable[[str], bool]:
    if op is rc.LITERAL:
        return lambda letter: ord(letter) == arg
    if op is rc.RANGE:
        return lambda letter: arg[0] <= ord(letter) <= arg[1]
    ascii_only = bool(flags & re.ASCII)
    tests: dict[Any, Callable[[str], bool]] = {
        rc.CATEGORY_DIGIT: str.isdecimal,
        rc.CATEGORY_SPACE: str.isspace,
        rc.CATEGORY_WORD: lambda letter: letter.isalnum() or letter == "_",
    }
    negations = {
        rc.CATEGORY_NOT_DIGIT: rc.CATEGORY_DIGIT,
        rc.CATEGORY_NOT_SPACE: rc.CATEGORY_SPACE,
        rc.CATEGORY_NOT_WORD: rc.CATEGORY_WORD,
    }
    inner = tests[negations.get(arg, arg)]
    wanted = arg not in negations
    return lambda letter: (inner(letter) and (not ascii_only or letter.isascii())) is wanted
