"""The part of YAML we read: `no` is a text, `12:30` is a text, a name stands once, nothing grows."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import yaml
from yaml.constructor import ConstructorError, SafeConstructor

DEEPEST = 64
MOST_PARTS = 100_000

_GUESSES = (
    ("null", r"~|null", "~n"),
    ("bool", r"true|false", "tf"),
    ("int", r"-?(?:0|[1-9][0-9]{0,30})", "-0123456789"),
    ("float", r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", "-0123456789"),
)


class NotYaml(ValueError):
    """A text that is not the YAML we read: why, and on which line."""

    def __init__(self, why: str, *, line: int = 1) -> None:
        super().__init__(why)
        self.line = line


class _Once(SafeConstructor):
    """Builds mappings that name nothing twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """A mapping, unless it names something twice."""
        names = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        twice = next((name for name, count in names.items() if count > 1), None)
        if twice is not None:
            raise ConstructorError(problem=f"{twice[:64]!r} is given twice", problem_mark=node.start_mark)
        return super().construct_mapping(node, deep)


def _loader() -> Any:
    """A safe loader that guesses no dates, no `yes` and `no`, and no sixtieths; in C where there is one."""
    made: Any = type(
        "Part", (_Once, getattr(yaml, "CSafeLoader", yaml.SafeLoader)), {"yaml_implicit_resolvers": {}}
    )
    made.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^$"), [""])
    for tag, pattern, first in _GUESSES:
        made.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"^(?:{pattern})$"), [*first])
    return made


Part = _loader()


def read_yaml(text: str) -> Any:
    """What a text means; one that would grow, reach outside or never end is refused before it is built."""
    try:
        _check_events(text)
        loader = Part(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise NotYaml(f"cannot be read: {problem}{place}", line=mark.line + 1 if mark else 1) from None
    except UnicodeEncodeError:
        raise NotYaml("cannot be read: it holds half a character") from None


def _check_events(text: str) -> None:
    depth = 0
    for parts, event in enumerate(yaml.parse(text, Loader=Part)):
        line = event.start_mark.line + 1 if event.start_mark is not None else 1
        if isinstance(event, yaml.AliasEvent):
            raise NotYaml("uses an alias", line=line)
        if isinstance(event, yaml.NodeEvent) and (event.anchor or getattr(event, "tag", None)):
            raise NotYaml("uses an anchor or a tag", line=line)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST or parts > MOST_PARTS:
            raise NotYaml("is nested too deep, or there is too much of it")
