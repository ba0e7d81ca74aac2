"""Reads a safe subset of YAML: `no` and `12:30` are text, keys are unique, aliases are refused."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import yaml
from yaml.constructor import ConstructorError, SafeConstructor

MAX_DEPTH = 64
MAX_EVENTS = 100_000

_SCALAR_PATTERNS = (
    ("null", r"~|null", "~n"),
    ("bool", r"true|false", "tf"),
    ("int", r"-?(?:0|[1-9][0-9]{0,30})", "-0123456789"),
    ("float", r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", "-0123456789"),
)


class InvalidYaml(ValueError):
    """Text outside the accepted subset of YAML: why, and on which line."""

    def __init__(self, why: str, *, line: int = 1) -> None:
        super().__init__(why)
        self.line = line


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


def read_yaml(text: str) -> Any:
    """Parse YAML; aliases, tags and oversized documents are refused before any object is built."""
    try:
        _check_events(text)
        loader = StrictLoader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise InvalidYaml(f"cannot be read: {problem}{place}", line=mark.line + 1 if mark else 1) from None
    except UnicodeEncodeError:
        raise InvalidYaml("cannot be read: it contains an unpaired surrogate") from None


def _check_events(text: str) -> None:
    depth = 0
    for parts, event in enumerate(yaml.parse(text, Loader=StrictLoader)):
        line = event.start_mark.line + 1 if event.start_mark is not None else 1
        if isinstance(event, yaml.AliasEvent):
            raise InvalidYaml("uses an alias", line=line)
        if isinstance(event, yaml.NodeEvent) and (event.anchor or getattr(event, "tag", None)):
            raise InvalidYaml("uses an anchor or a tag", line=line)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH or parts > MAX_EVENTS:
            raise InvalidYaml("is nested too deep or too large")
