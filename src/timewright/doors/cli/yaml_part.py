"""The part of YAML we read: `no` is a text, `12:30` is a text, and a name stands once."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import yaml
from yaml.constructor import ConstructorError, SafeConstructor

_GUESSES = (
    ("null", r"~|null", "~n"),
    ("bool", r"true|false", "tf"),
    ("int", r"-?(?:0|[1-9][0-9]{0,30})", "-0123456789"),
    ("float", r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", "-0123456789"),
)


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
