"""Reads a safe subset of YAML, and writes text that it reads back.

`no` and `12:30` are text, keys are unique, aliases are refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, TypeVar

import yaml
from yaml.constructor import ConstructorError, SafeConstructor

T = TypeVar("T")

MAX_DEPTH = 64
MAX_EVENTS = 100_000
# A file may have many definitions; it is read once, by a person who wrote it.
MAX_FILE_EVENTS = 1_000_000

_SCALAR_PATTERNS = (
    ("null", r"~|null", "~n"),
    ("bool", r"true|false", "tf"),
    ("int", r"-?(?:0|[1-9][0-9]{0,30})", "-0123456789"),
    ("float", r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", "-0123456789"),
)


class InvalidYaml(ValueError):
    """Text outside the accepted subset of YAML: why, on which line, and what to write, if that is known."""

    def __init__(self, why: str, *, line: int = 1, fix: str = "") -> None:
        super().__init__(why)
        self.line = line
        self.fix = fix


class _UniqueKeys(SafeConstructor):
    """Refuses mappings with duplicate keys."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Build a mapping, or raise ConstructorError for a duplicate key."""
        names = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        duplicate = next((name for name, count in names.items() if count > 1), None)
        if duplicate is not None:
            raise ConstructorError(problem=f"{duplicate[:64]!r} is given twice", problem_mark=node.start_mark)
        return super().construct_mapping(node, deep)


def _build_loader() -> Any:
    """Build a safe loader without dates, `yes`/`no` and base-60 numbers; uses the C parser if installed."""
    loader: Any = type(
        "Part", (_UniqueKeys, getattr(yaml, "CSafeLoader", yaml.SafeLoader)), {"yaml_implicit_resolvers": {}}
    )
    loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^$"), [""])
    for tag, pattern, first in _SCALAR_PATTERNS:
        loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"^(?:{pattern})$"), [*first])
    return loader


StrictLoader = _build_loader()


class YamlItem:
    """A part of a document: its value, which is built on first use, and the line it begins at."""

    def __init__(self, loader: Any, node: Any) -> None:
        self._loader = loader
        self._node = node
        self.line = node.start_mark.line + 1
        self.is_list = isinstance(node, yaml.SequenceNode)
        self.is_mapping = isinstance(node, yaml.MappingNode)

    @cached_property
    def value(self) -> Any:
        """The value as plain data; raises yaml.YAMLError for a key that is given twice."""
        return self._loader.construct_document(self._node)

    def items(self) -> Iterator[YamlItem]:
        """The items of a list."""
        return (YamlItem(self._loader, node) for node in self._node.value)

    def pairs(self) -> Iterator[tuple[Any, YamlItem]]:
        """The keys and values of a mapping."""
        for key, value in self._node.value:
            yield self._loader.construct_document(key), YamlItem(self._loader, value)


def read_yaml(text: str) -> Any:
    """Parse YAML; aliases, tags and oversized documents are refused before any object is built."""
    return _load(text, lambda loader: loader.get_single_data(), max_events=MAX_EVENTS)


def read_yaml_documents(text: str, read: Callable[[YamlItem], None]) -> None:
    """Parse the documents of a file, and pass each to `read` with the lines of its parts."""

    def read_all(loader: Any) -> None:
        while loader.check_node():
            read(YamlItem(loader, loader.get_node()))

    _load(text, read_all, max_events=MAX_FILE_EVENTS)


_OTHER_LINE_ENDS = re.compile("[\r\x85\u2028\u2029]")


class _StrictDumper(yaml.SafeDumper):
    """Quotes text that the loader above, or a loader of YAML 1.1, would read as something else."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Other line ends than \n become a space when they are read, unless they are written as escapes.
    style = '"' if _OTHER_LINE_ENDS.search(text) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_StrictDumper.add_representer(str, _represent_text)
for _tag, _pattern, _first in _SCALAR_PATTERNS:
    _StrictDumper.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), [*_first]
    )


def dump_yaml(data: Any, *, ascii_only: bool = False) -> str:
    """Return data as YAML, in the order of its keys; `read_yaml` returns equal data."""
    text: str = yaml.dump(
        data, Dumper=_StrictDumper, sort_keys=False, allow_unicode=not ascii_only, width=110
    )
    return text


def _load(text: str, read: Callable[[Any], T], *, max_events: int) -> T:
    try:
        _check_events(text, max_events=max_events)
        loader = StrictLoader(text)
        try:
            return read(loader)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise _explain(error, text) from None
    except InvalidYaml as error:
        if str(error).startswith("uses"):
            error.fix = _suggest_quotes(_line_of(text, error.line)) or "write it out, without & and *"
        raise
    except UnicodeEncodeError:
        raise InvalidYaml("cannot be read: it contains an unpaired surrogate") from None


def _explain(error: yaml.YAMLError, text: str) -> InvalidYaml:
    """The error of the parser, with what to write for the usual mistakes."""
    mark, start = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    line = mark.line + 1 if mark is not None else 1
    if problem == "found unexpected end of stream" and start is not None:
        line = start.line + 1
        return InvalidYaml("has a quote without an end", line=line, fix=f"close the quote of line {line}")
    why = f"cannot be read: {problem}" + (f" at line {line}, column {mark.column + 1}" if mark else "")
    before = _line_of(text, line - 1)
    if "tab character" in problem:
        fix = "indent with spaces, not with tabs"
    elif "expected ':'" in problem and start is not None:
        line = start.line + 1
        fix = f"write a colon and a space behind the name of the field in line {line}"
    elif suggested := _suggest_quotes(_line_of(text, line)):
        fix = suggested
    elif problem.startswith("mapping values") and re.match(r"[\s-]*\w+:\S", before):
        line, fix = line - 1, f"write a space behind the colon: {before.strip().replace(':', ': ', 1)[:80]}"
    elif problem.startswith("mapping values") or problem.endswith(("'-' indicator", "expected key")):
        fix = "let the fields of one definition begin in the same column"
    else:
        fix = ""
    return InvalidYaml(why, line=line, fix=fix)


# A field whose value has another meaning in YAML, unless it is in quotes.
_NEEDS_QUOTES = re.compile(
    r"""\s*(?:-\s+)*(?P<field>[\w-]+):\s+(?:(?P<plain>[*@%&!`,\]}|>].*|\{\{.*|[^'"\[{\s].*:\s.*)|"(?P<escaped>.*\\.*)")\s*"""
)


def _suggest_quotes(line: str) -> str:
    found = _NEEDS_QUOTES.fullmatch(line)
    if found is None or len(line) > 200:
        return ""
    value = (found["plain"] or found["escaped"]).strip().replace("'", "''")
    return f"write the value in single quotes: {found['field']}: '{value}'"


def _line_of(text: str, number: int) -> str:
    return next(iter(text.splitlines()[max(number - 1, 0) :][:1]), "")


def _check_events(text: str, *, max_events: int) -> None:
    depth = 0
    for parts, event in enumerate(yaml.parse(text, Loader=StrictLoader)):
        line = event.start_mark.line + 1 if event.start_mark is not None else 1
        if isinstance(event, yaml.AliasEvent):
            raise InvalidYaml("uses an alias", line=line)
        if isinstance(event, yaml.NodeEvent) and (event.anchor or getattr(event, "tag", None)):
            raise InvalidYaml("uses an anchor or a tag", line=line)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH or parts > max_events:
            raise InvalidYaml("is nested too deep or too large", fix="split it into smaller parts")
